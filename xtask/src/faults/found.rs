//! The evidence for faults in the tree: tests, found by their names, and commands, found by a line in them.
//!
//! Must never count as a test what `cargo test` does not run.

use super::list::{Fault, span};
use crate::tidy::source::Source;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Where recorded commands live.
const COMMANDS: &str = "proof/";
/// `# fault: S144 S145-S146 what the command shows`.
const MARKS: &[&str] = &["# fault: ", "// fault: ", "//! fault: "];

/// One test or one recorded command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proof {
    /// The file, relative to the top.
    pub path: String,
    /// Of a test its name, of a command what it says that it shows.
    pub claim: String,
    /// Whether `./check` does not run it.
    pub command: bool,
}

/// All that was found.
#[derive(Default)]
pub struct Found {
    /// For each number that anything names.
    pub proofs: BTreeMap<Fault, Vec<Proof>>,
    /// What looks like a test of a fault and is none.
    pub complaints: Vec<String>,
}

/// Looks through all `files`, relative to `root`.
pub fn search(root: &Path, files: &[String]) -> Result<Found> {
    let mut found = Found::default();
    for path in files {
        let code = path.ends_with(".rs");
        if !code && !path.starts_with(COMMANDS) {
            continue;
        }
        let bytes = std::fs::read(root.join(path)).with_context(|| path.clone())?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if code {
            found.tests(&Source::new(path, &text));
        }
        if path.starts_with(COMMANDS) {
            found.commands(path, &text);
        }
    }
    found.proofs.values_mut().for_each(|proofs| proofs.sort());
    Ok(found)
}

impl Found {
    fn tests(&mut self, source: &Source) {
        for function in source.functions() {
            let faults = match named(&function.name) {
                Ok(faults) => faults,
                Err(()) => {
                    let (path, line, name) = (&source.path, function.line, &function.name);
                    self.complaints.push(format!("{path}:{line}: {name} names no span of faults"));
                    continue;
                }
            };
            match kind(&source.code[..function.start]) {
                _ if faults.is_empty() => {}
                Kind::Test => self.add(&faults, &source.path, &function.name, false),
                Kind::Ignored => {}
                Kind::Other => {
                    let (path, line, name) = (&source.path, function.line, &function.name);
                    self.complaints.push(format!("{path}:{line}: {name} is named like a test"));
                }
            }
        }
    }

    fn commands(&mut self, path: &str, text: &str) {
        for (number, line) in text.lines().enumerate() {
            let mark = |mark: &&str| line.trim_start().strip_prefix(*mark);
            let Some(rest) = MARKS.iter().find_map(mark) else { continue };
            let (mut faults, mut claim) = (Vec::new(), rest.trim());
            while let Some(more) = span(first_word(claim)) {
                faults.extend(more);
                claim = claim[first_word(claim).len()..].trim_start_matches([',', ':', ' ']);
            }
            if faults.is_empty() || claim.is_empty() {
                let place = format!("{path}:{}", number + 1);
                self.complaints.push(format!("{place}: a fault's number and a claim are wanted"));
            }
            self.add(&faults, path, claim, true);
        }
    }

    fn add(&mut self, faults: &[Fault], path: &str, claim: &str, command: bool) {
        for fault in faults {
            let proof = Proof { path: path.into(), claim: claim.into(), command };
            self.proofs.entry(*fault).or_default().push(proof);
        }
    }
}

fn first_word(text: &str) -> &str {
    text.split([',', ':', ' ']).next().unwrap_or("")
}

/// The faults that a function's name begins with: `s118_s119_…`, `d154_and_d155_…`,
/// `p001_to_p007_…`. An error is a span that does not go up.
fn named(name: &str) -> Result<Vec<Fault>, ()> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut words = name.split('_').peekable();
    while let Some(word) = words.next() {
        let next = words.peek().and_then(|next| Fault::parse(next));
        match (word, Fault::parse(word), faults.last(), next) {
            (_, Some(fault), _, _) => faults.push(fault),
            ("and", None, Some(_), Some(_)) => {}
            ("to", None, Some(first), Some(last)) => {
                let span = first.up_to(last).ok_or(())?;
                faults.extend(&span[1..span.len() - 1]);
            }
            _ => break,
        }
    }
    Ok(faults)
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Test,
    Ignored,
    Other,
}

/// What the attributes at the end of `before`, the code up to `fn`, make of a function.
fn kind(before: &str) -> Kind {
    let mut rest = before.trim_end();
    let mut kind = Kind::Other;
    loop {
        for word in ["async", "pub", "pub(crate)"] {
            rest = rest.strip_suffix(word).unwrap_or(rest).trim_end();
        }
        let Some(start) = rest.strip_suffix(']').and_then(|_| rest.rfind("#[")) else { break };
        let attribute = rest[start + 2..rest.len() - 1].split(['(', '=', ' ']).next();
        match attribute.unwrap_or("") {
            "ignore" => kind = Kind::Ignored,
            name if name == "test" || name.ends_with("::test") => {
                kind = if kind == Kind::Other { Kind::Test } else { kind };
            }
            _ => {}
        }
        rest = rest[..start].trim_end();
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> (Vec<String>, usize) {
        let mut found = Found::default();
        found.tests(&Source::new(path, text));
        found.commands(path, text);
        let proofs = found.proofs.into_iter().flat_map(|(fault, proofs)| {
            proofs.into_iter().map(move |proof| format!("{fault} {}", proof.claim))
        });
        (proofs.collect(), found.complaints.len())
    }

    #[test]
    fn a_name_says_one_or_more_numbers_at_its_beginning() {
        let numbers = |name: &str| {
            named(name).map(|all| all.iter().map(|fault| fault.number).collect::<Vec<_>>())
        };
        let table: &[(&str, &[u16])] = &[
            ("s122_a_failed_sync", &[122]),
            ("m070_m071_m072_x", &[70, 71, 72]),
            ("d154_and_d155_a_reply", &[154, 155]),
            ("p001_to_p004_and_p007_x", &[1, 2, 3, 4, 7]),
            ("s122_and_what_s123_is_not", &[122]),
            ("a_name_with_s122", &[]),
            ("x25_is_no_fault", &[]),
        ];
        for (name, wanted) in table {
            assert_eq!(numbers(name), Ok(wanted.to_vec()), "{name}");
        }
        assert_eq!(numbers("p004_to_p001_x"), Err(()));
        assert_eq!(numbers("p004_to_s118_x"), Err(()));
    }

    #[test]
    fn tests_are_found_by_their_attribute_and_others_of_such_a_name_are_complained_about() {
        let text = "#[test]\nfn p001_a() {}\n#[tokio::test(flavor = \"x\")]\nasync fn p002_b() {}\n\
                    proptest! {\n #[test]\n #[cfg(unix)]\n fn p003_p004_c(a in 0..1) {}\n}\n\
                    #[test]\n#[ignore = \"long\"]\nfn p005_d() {}\nfn p006_e() {}\nfn other() {}";
        let (proofs, complaints) = of("mta/x/tests/y.rs", text);
        assert_eq!(proofs, ["P001 p001_a", "P002 p002_b", "P003 p003_p004_c", "P004 p003_p004_c"]);
        assert_eq!(complaints, 1, "p006_e is no test");
    }

    #[test]
    fn a_command_says_its_numbers_and_what_it_shows() {
        let text = "#!/bin/sh\n# fault: S144 N099-N100: a million\n# fault: D174, D175 slow ones\n";
        let (proofs, complaints) = of("proof/many", text);
        let wanted = [
            "N099 a million",
            "N100 a million",
            "S144 a million",
            "D174 slow ones",
            "D175 slow ones",
        ];
        assert_eq!(complaints, 0);
        assert_eq!(proofs.len(), wanted.len());
        assert!(wanted.iter().all(|wanted| proofs.iter().any(|proof| proof == wanted)));
        assert_eq!(of("proof/many", "# fault: S144\n# fault: soon\n").1, 2);
    }
}
