//! `glossary.toml`: one word for one thing, and one type for one word.
//!
//! Must never know a word by itself: all words are in the file.

use super::source::Source;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FILE: &str = "glossary.toml";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// The heading in ARCHITECTURE.md under which each word stands in bold.
const SECTION: &str = "Glossary";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Glossary {
    /// Words of ARCHITECTURE.md's glossary, and the type that owns each.
    types: BTreeMap<String, String>,
    /// Words of that glossary which no type owns: what expresses them.
    without_type: BTreeMap<String, String>,
    /// Names of types that one crate owns: no other crate has a type of that name.
    names: BTreeMap<String, String>,
    /// Names that no type may have, and the name to use instead.
    refused: BTreeMap<String, String>,
    /// Names that several types have because they play the same role: the role.
    roles: BTreeMap<String, String>,
    /// Names that break a rule until somebody renames their types: what will become of them.
    pending: BTreeMap<String, String>,
}

/// A struct, enum, union, trait or type alias of the mailer.
struct Declaration<'a> {
    name: &'a str,
    /// Crate and modules, such as `link::send`.
    module: String,
    /// File and line.
    place: String,
}

/// Returns complaints about types whose name is taken, and about words without an owner.
pub fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let glossary: Glossary = toml::from_str(&text).context(FILE)?;
    let page = std::fs::read_to_string(root.join(ARCHITECTURE)).context(ARCHITECTURE)?;
    let declarations: Vec<_> = sources.iter().flat_map(declarations).collect();
    Ok([glossary.against_page(&page), glossary.against_code(&declarations)].concat())
}

impl Glossary {
    /// The words of the file and those of the page are the same.
    fn against_page(&self, page: &str) -> Vec<String> {
        let explained = words_of_section(page);
        let listed: BTreeSet<&str> =
            self.types.keys().chain(self.without_type.keys()).map(String::as_str).collect();
        let missing = explained.difference(&listed);
        let missing = missing.map(|word| format!("{FILE}: lacks \"{word}\" of {ARCHITECTURE}"));
        let unexplained = listed.difference(&explained);
        let unexplained =
            unexplained.map(|word| format!("{ARCHITECTURE}: its glossary lacks \"{word}\""));
        missing.chain(unexplained).collect()
    }

    fn against_code(&self, declarations: &[Declaration<'_>]) -> Vec<String> {
        let mut by_name: BTreeMap<&str, Vec<&Declaration<'_>>> = BTreeMap::new();
        for declaration in declarations {
            by_name.entry(declaration.name).or_default().push(declaration);
        }
        let mut complaints = self.owners(&by_name);
        let mut broken = BTreeSet::new();
        for (name, declared) in &by_name {
            if let Some(complaint) = self.judge(name, declared) {
                broken.insert(*name);
                if !self.pending.contains_key(*name) {
                    complaints.push(complaint);
                }
            }
        }
        for name in self.pending.keys().filter(|name| !broken.contains(name.as_str())) {
            complaints.push(format!("{FILE}: {name} breaks no rule: remove it from [pending]"));
        }
        for role in self.roles.keys() {
            if by_name.get(role.as_str()).is_none_or(|declared| declared.len() < 2) {
                complaints.push(format!("{FILE}: {role} is not declared twice: no role is needed"));
            }
        }
        complaints
    }

    /// The type that a word names exists.
    fn owners(&self, by_name: &BTreeMap<&str, Vec<&Declaration<'_>>>) -> Vec<String> {
        let exists = |path: &str| {
            let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
            by_name.get(name).is_some_and(|all| all.iter().any(|one| is_in(&one.module, module)))
        };
        let lost = self.types.iter().filter(|(_, path)| !exists(path));
        lost.map(|(word, path)| format!("{FILE}: \"{word}\": there is no type {path}")).collect()
    }

    /// A complaint if a name is refused, has another owner or is taken twice.
    fn judge(&self, name: &str, declared: &[&Declaration<'_>]) -> Option<String> {
        let places: Vec<&str> = declared.iter().map(|one| one.place.as_str()).collect();
        let places = places.join(", ");
        if let Some(instead) = self.refused.get(name) {
            return Some(format!("{places}: {name}: {instead}"));
        }
        let owner = self.names.get(name);
        if let Some(owner) =
            owner.filter(|owner| !declared.iter().all(|one| is_in(&one.module, owner)))
        {
            return Some(format!("{places}: {name} belongs to {owner} ({FILE})"));
        }
        let twice = declared.len() > 1 && !self.roles.contains_key(name);
        twice.then(|| format!("{places}: {name} is declared {} times ({FILE})", declared.len()))
    }
}

/// Whether a module is the one that a path names. The path may leave modules out, but not the crate.
fn is_in(module: &str, path: &str) -> bool {
    let mut modules = module.split("::");
    let same_crate = module.split("::").next() == path.split("::").next();
    same_crate && path.split("::").all(|wanted| modules.any(|found| found == wanted))
}

/// The words in bold in the section of that name.
fn words_of_section(page: &str) -> BTreeSet<&str> {
    let from = page.lines().skip_while(|line| !(line.starts_with('#') && line.ends_with(SECTION)));
    let section = from.skip(1).take_while(|line| !line.starts_with('#'));
    section.flat_map(|line| line.split("**").skip(1).step_by(2)).collect()
}

/// The types that a file of the mailer declares, those of tests left out.
fn declarations(source: &Source) -> Vec<Declaration<'_>> {
    let Some(module) = module(&source.path) else { return Vec::new() };
    let mut found = Vec::new();
    for keyword in ["struct", "enum", "union", "trait", "type"] {
        for at in source.places(keyword) {
            let start = source.code[..at].rfind('\n').map_or(0, |end| end + 1);
            let before = &source.code[start..at];
            let Some(name) = name(&source.code[at + keyword.len()..]) else { continue };
            // An indented alias belongs to a trait or to its implementation.
            let is_associated = keyword == "type" && before.starts_with(' ');
            if is_visibility(before) && !is_associated {
                let place = format!("{}:{}", source.path, source.line(at));
                found.push(Declaration { name, module: module.clone(), place });
            }
        }
    }
    found
}

/// Whether only a visibility or `unsafe` stands before the keyword.
fn is_visibility(before: &str) -> bool {
    before
        .split_whitespace()
        .all(|word| word == "unsafe" || word == "pub" || word.starts_with("pub("))
}

/// The name right behind a keyword.
fn name(rest: &str) -> Option<&str> {
    let rest = rest.strip_prefix(' ')?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    Some(&rest[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Crate and modules of a source file of the mailer: `mta/link/src/send/queue_end.rs` is `link::send::queue_end`.
fn module(path: &str) -> Option<String> {
    let (name, file) = path.strip_prefix("mta/")?.split_once("/src/")?;
    let file = file.strip_suffix(".rs")?;
    let file = file.strip_suffix("/mod").unwrap_or(file);
    let modules = file.split('/').filter(|part| !matches!(*part, "lib" | "main"));
    Some(std::iter::once(name).chain(modules).collect::<Vec<_>>().join("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "
        types = { attempt = 'link::Attempt' }
        without_type = { commit = 'an act' }
        names = { Pool = 'send' }
        refused = { Office = 'say Pool' }
        roles = { State = 'of a machine' }
        pending = { Lane = 'renamed' }";

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let whole = [
            ("mta/link/src/send.rs", "pub struct Attempt;\nenum State {}\ntype Lane = u8;"),
            ("mta/smtp/src/lib.rs", "enum State {}\n    pub(super) struct Lane;"),
        ];
        let sources: Vec<_> =
            whole.iter().chain(files).map(|(path, text)| Source::new(path, text)).collect();
        let declarations: Vec<_> = sources.iter().flat_map(declarations).collect();
        toml::from_str::<Glossary>(GLOSSARY).unwrap().against_code(&declarations)
    }

    #[test]
    fn a_name_is_declared_once_unless_it_is_a_role_or_pending() {
        assert_eq!(complaints(&[]), Vec::<String>::new());
        assert_eq!(complaints(&[("mta/queue/src/a.rs", "enum State {}")]), Vec::<String>::new());
        let wrong = [
            ("mta/queue/src/a.rs", "pub struct Attempt { a: u8 }"),
            ("mta/queue/src/a.rs", "trait Pool {}"),
            ("mta/queue/src/a.rs", "pub(crate) struct Office;"),
        ];
        for file in wrong {
            let found = complaints(&[file]);
            assert!(found.len() == 1 && found[0].contains("mta/queue/src/a.rs:1"), "{found:?}");
        }
        let other = [
            ("mta/queue/src/tests.rs", "struct Attempt;"),
            ("proof/sim/src/a.rs", "struct Attempt;"),
            ("mta/queue/src/a.rs", "impl A for B {\n    type Attempt = u8;\n}\n// struct Attempt;"),
            ("mta/send/src/pool.rs", "pub struct Pool<'a>(&'a str);"),
        ];
        for file in other {
            assert_eq!(complaints(&[file]), Vec::<String>::new(), "{file:?}");
        }
    }

    #[test]
    fn entries_that_are_out_of_date_are_named() {
        let glossary: Glossary = toml::from_str(GLOSSARY).unwrap();
        let found = glossary.against_code(&[]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn the_page_explains_the_words_of_the_file_and_no_others() {
        let glossary: Glossary = toml::from_str(GLOSSARY).unwrap();
        let page = "# A\n**b**\n## 8. Glossary\n**attempt**: x. **commit**:\ny\n## C\n**d**\n";
        assert_eq!(glossary.against_page(page), Vec::<String>::new());
        assert_eq!(glossary.against_page(&page.replace("commit", "batch")).len(), 2);
    }

    #[test]
    fn a_path_may_leave_modules_out_but_not_the_crate() {
        assert!(is_in("spool::format::batch", "spool::batch"));
        assert!(is_in("spool::format::batch", "spool"));
        assert!(!is_in("spool::format", "spool::batch"));
        assert!(!is_in("spool::link", "link"));
        assert_eq!(module("mta/link/src/lib.rs").unwrap(), "link");
        assert_eq!(module("mta/daemon/src/io/mod.rs").unwrap(), "daemon::io");
    }
}
