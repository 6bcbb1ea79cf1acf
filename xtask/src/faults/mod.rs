//! `docs/faults.md`, generated from the list of faults and the names of the tests that show them.
//!
//! Must never report a fault as tested if nothing tests it.

mod found;
mod list;

use crate::tidy;
use anyhow::{Context, Result, ensure};
use found::{Found, Proof};
use list::{Fault, List, Part};
use std::path::Path;

const PAGE: &str = "docs/faults.md";

/// Writes the page anew, then complains about what is missing.
pub fn write(root: &Path) -> Result<()> {
    let (page, complaints) = made(root)?;
    std::fs::write(root.join(PAGE), page).context(PAGE)?;
    say(&complaints)
}

/// Complains about what is missing, and about a page that is not what the tree says.
pub fn check(root: &Path) -> Result<()> {
    say(&current(root)?)
}

/// The complaints of `check`.
pub fn current(root: &Path) -> Result<Vec<String>> {
    let (page, mut complaints) = made(root)?;
    if std::fs::read_to_string(root.join(PAGE)).unwrap_or_default() != page {
        complaints.push(format!("{PAGE}: not what the tests say; run `cargo xtask faults`"));
    }
    Ok(complaints)
}

fn say(complaints: &[String]) -> Result<()> {
    complaints.iter().for_each(|complaint| println!("error: {complaint}"));
    ensure!(complaints.is_empty(), "{} complaints about the list of faults", complaints.len());
    Ok(())
}

fn made(root: &Path) -> Result<(String, Vec<String>)> {
    let list = List::read()?;
    let found = found::search(root, &tidy::files(root)?)?;
    Ok((page(&list, &found), complaints(&list, &found)))
}

/// Each fault is shown or marked, and none is both.
fn complaints(list: &List, found: &Found) -> Vec<String> {
    let mut complaints = found.complaints.clone();
    for (fault, proofs) in found.proofs.iter().filter(|(fault, _)| !list.has(**fault)) {
        complaints.extend(
            proofs
                .iter()
                .map(|proof| format!("{}: {}: there is no fault {fault}", proof.path, proof.claim)),
        );
    }
    for fault in list.all() {
        match (found.proofs.get(&fault), list.not_built.get(&fault)) {
            (None, None) => complaints.push(format!("{fault}: nothing shows it")),
            (Some(proofs), Some(_)) => complaints.push(format!(
                "{fault}: marked as not built, and shown in {}",
                proofs.first().map_or("", |proof| &proof.path)
            )),
            _ => {}
        }
    }
    complaints
}

fn page(list: &List, found: &Found) -> String {
    let shown = list.all().filter(|fault| found.proofs.contains_key(fault)).count();
    let mut page = format!(
        "# The faults\n\n\
         Written by `cargo xtask faults` from `xtask/src/faults/list.toml` and the names of the tests; change those, not this.\n\n\
         Bad inputs and failures of the environment by number, what a user expects of each, and what shows it. `./check` runs the tests;\n\
         a *command* is run by hand, for it takes long, needs root or needs a machine of its own. Above every line stand three rules:\n\
         nothing crashes and no other session is disturbed; what got `250` is never lost; a message is doubled only where nobody\n\
         could know whether it had arrived.\n\n\
         {shown} of {} are shown, {} are about what is not built yet.\n",
        list.all().count(),
        list.not_built.len(),
    );
    for part in &list.parts {
        page.push_str(&table(part, list, found));
    }
    page
}

fn table(part: &Part, list: &List, found: &Found) -> String {
    let ends = [part.expect.first(), part.expect.last()].map(|end| end.map(|(fault, _)| fault));
    let [Some(first), Some(last)] = ends else { return String::new() };
    let mut table = format!(
        "\n## {} ({first} to {last})\n\n| | what a user expects | shown by |\n|---|---|---|\n",
        part.title
    );
    for (fault, expect) in &part.expect {
        table.push_str(&format!("| {fault} | {expect} | {} |\n", shown_by(*fault, list, found)));
    }
    table
}

fn shown_by(fault: Fault, list: &List, found: &Found) -> String {
    let proofs = found.proofs.get(&fault).map(Vec::as_slice).unwrap_or_default();
    match (proofs, list.not_built.get(&fault)) {
        ([], Some(reason)) => format!("not yet built: {reason}"),
        ([], None) => "**nothing**".into(),
        (proofs, _) => proofs.iter().map(cell).collect::<Vec<_>>().join("<br>"),
    }
}

/// The crate, the file and the name of a test, or the file of a command and what it shows.
fn cell(proof: &Proof) -> String {
    let Proof { path, claim, command } = proof;
    if *command {
        return format!("command [{path}](../{path}): {claim}");
    }
    let (krate, file) = crate_and_file(path);
    format!("{krate} [{file}](../{path}) `{claim}`")
}

/// `mta/smtp/src/a.rs` is `src/a.rs` of `smtp`.
fn crate_and_file(path: &str) -> (&str, &str) {
    let at = ["/src/", "/tests/"].iter().filter_map(|folder| path.find(folder)).min();
    let (place, file) = at.map_or(("", path), |at| (&path[..at], &path[at + 1..]));
    (place.rsplit('/').next().unwrap_or(place), file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(faults: &[&str]) -> Found {
        let mut found = Found::default();
        for fault in faults {
            let proof = Proof { path: "mta/x/src/y.rs".into(), claim: "z".into(), command: false };
            found.proofs.entry(Fault::parse(fault).unwrap()).or_default().push(proof);
        }
        found
    }

    fn list() -> List {
        let expect = |number: u16| (Fault { number, letter: 'P' }, format!("text {number}"));
        let part = Part { title: "Protocol".into(), expect: (1..=3).map(expect).collect() };
        let reason = (Fault { number: 3, letter: 'P' }, "TLS".into());
        List { parts: vec![part], not_built: [reason].into() }
    }

    #[test]
    fn what_nothing_shows_what_is_marked_and_shown_and_what_is_unknown_are_errors() {
        assert_eq!(complaints(&list(), &found(&["p001", "p002"])), Vec::<String>::new());
        assert_eq!(complaints(&list(), &found(&["p001"])), ["P002: nothing shows it"]);
        for wrong in [["p001", "p002", "p003"], ["p001", "p002", "p004"], ["p001", "p002", "s001"]]
        {
            assert_eq!(complaints(&list(), &found(&wrong)).len(), 1, "{wrong:?}");
        }
    }

    #[test]
    fn a_row_names_crate_file_and_test() {
        let page = page(&list(), &found(&["p001"]));
        assert!(
            page.contains("| P001 | text 1 | x [src/y.rs](../mta/x/src/y.rs) `z` |\n"),
            "{page}"
        );
        assert!(page.contains("| P002 | text 2 | **nothing** |\n"));
        assert!(page.contains("| P003 | text 3 | not yet built: TLS |\n"));
        assert!(page.contains("1 of 3 are shown, 1 are about"));
    }
}
