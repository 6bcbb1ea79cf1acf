//! The file of counts: one table for each path, readable in a diff.
//!
//! Must never lose the reason of a count that has not changed.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where they are, from the top of the tree.
pub const FILE: &str = "proof/counts/counts.toml";

/// All counts of one day.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// With what they were counted.
    pub tools: Tools,
    /// By the name of the path.
    pub path: BTreeMap<String, Path>,
}

/// What else decides how many instructions there are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// `x86_64`
    pub machine: String,
    /// `rustc --version`
    pub rustc: String,
    /// `valgrind --version`
    pub valgrind: String,
}

/// What one message costs on one path.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Instructions.
    pub instructions: f64,
    /// Allocations and reallocations.
    pub allocations: f64,
    /// Bytes asked for by them.
    pub bytes: f64,
    /// Why it is not what it was before.
    #[serde(default)]
    pub why: String,
}

/// A path has moved, and needs a reason, if its instructions differ by more than this share.
const MOVED_SHARE: f64 = 0.005;

impl Path {
    fn has_moved(&self, old: &Path) -> bool {
        let moved = |new: f64, old: f64| (new / old - 1.0).abs() > MOVED_SHARE;
        moved(self.instructions, old.instructions) || moved(self.allocations, old.allocations)
    }
}

/// The new counts with the old reasons, and `why` for each that has moved or is new.
pub fn with_reasons(old: Option<&Counts>, mut new: Counts, why: &str) -> Counts {
    for (name, path) in &mut new.path {
        let before = old.and_then(|old| old.path.get(name));
        path.why = match before {
            Some(before) if !path.has_moved(before) => before.why.clone(),
            _ => why.into(),
        };
    }
    new
}

impl Counts {
    /// As a file.
    pub fn to_text(&self) -> String {
        let Tools { machine, rustc, valgrind } = &self.tools;
        let mut text = format!(
            "# What one message costs at each station; see lab/docs/measuring.md, \"Without a clock\".\n\
             # Written by `cargo xtask counts --keep WHY`.\n\n\
             [tools]\nmachine = {machine:?}\nrustc = {rustc:?}\nvalgrind = {valgrind:?}\n"
        );
        for (name, Path { instructions, allocations, bytes, why }) in &self.path {
            let why = toml::Value::String(why.clone());
            let _ = write!(
                text,
                "\n[path.{name}]\ninstructions = {instructions:.1}\nallocations = {allocations:.3}\n\
                 bytes = {bytes:.1}\nwhy = {why}\n"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(instructions: f64, allocations: f64) -> Counts {
        let tools = Tools { machine: "m".into(), rustc: "r \"1\"".into(), valgrind: "v".into() };
        let path = Path { instructions, allocations, bytes: 100.0, why: String::new() };
        Counts { tools, path: [("receive-reused".to_string(), path)].into() }
    }

    #[test]
    fn what_is_written_reads_back_with_quotes_and_lines_in_the_reason() {
        let written = with_reasons(None, counts(1_000.0, 3.5), "a \"reason\"\nof two lines");
        assert_eq!(toml::from_str::<Counts>(&written.to_text()).unwrap(), written);
    }

    #[test]
    fn a_reason_stays_with_a_count_that_has_not_moved() {
        let old = with_reasons(None, counts(1_000.0, 3.0), "first");
        let why = |new: Counts| {
            with_reasons(Some(&old), new, "second").path["receive-reused"].why.clone()
        };
        assert_eq!(why(counts(1_004.0, 3.0)), "first");
        assert_eq!(why(counts(1_006.0, 3.0)), "second");
        assert_eq!(why(counts(900.0, 3.0)), "second");
        assert_eq!(why(counts(1_000.0, 4.0)), "second");
    }
}
