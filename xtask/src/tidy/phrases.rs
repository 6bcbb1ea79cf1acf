//! Phrases that STYLE.md refuses: each has a plain word that every reader knows.
//!
//! Must never judge a sentence: it finds a phrase, whatever stands around it.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const LIST: &str = "xtask/src/tidy/phrases.toml";

/// The list of refused phrases and of the paths where they are not looked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Each phrase in lower case, and what to write instead.
    never: BTreeMap<String, String>,
    /// Paths whose text is not ours to rewrite, each with the reason.
    exempt: BTreeMap<String, String>,
    /// Files and directories that nobody has rewritten yet. This list only gets shorter.
    not_rewritten: Vec<String>,
}

/// A refused phrase in a file.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    line: usize,
    phrase: String,
}

/// One word of a text.
struct Word<'a> {
    text: &'a str,
    line: usize,
    /// Only spaces, line ends and comment marks stand between this word and the one before.
    follows: bool,
}

/// Returns complaints about refused phrases, and about entries of the list that are out of date.
pub fn check(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let list: List = toml::from_str(&text).context(LIST)?;
    let mut found = BTreeMap::new();
    for path in files {
        // What is not UTF-8 is data: seeds of the fuzzers, stored spools, compressed measurements.
        let bytes = std::fs::read(root.join(path)).with_context(|| path.clone())?;
        if let Ok(text) = String::from_utf8(bytes) {
            found.insert(path.as_str(), list.search(&text));
        }
    }
    Ok(list.judge(&found))
}

impl List {
    fn judge(&self, found: &BTreeMap<&str, Vec<Found>>) -> Vec<String> {
        let mut complaints = Vec::new();
        for (path, phrases) in found {
            if self.exempt.keys().chain(&self.not_rewritten).any(|entry| covers(entry, path)) {
                continue;
            }
            for (phrase, better) in &self.never {
                let lines = phrases.iter().filter(|found| found.phrase == *phrase);
                let lines: Vec<_> = lines.map(|found| found.line.to_string()).collect();
                if !lines.is_empty() {
                    let lines = lines.join(",");
                    complaints.push(format!("{path}:{lines}: \"{phrase}\": write {better}"));
                }
            }
        }
        let has_phrase = |entry: &str| {
            found.iter().any(|(path, phrases)| covers(entry, path) && !phrases.is_empty())
        };
        for entry in self.not_rewritten.iter().filter(|entry| !has_phrase(entry)) {
            complaints.push(format!("{LIST}: {entry} has no refused phrase: remove its line"));
        }
        for entry in self.exempt.keys().filter(|entry| !has_phrase(entry)) {
            complaints.push(format!("{LIST}: {entry} needs no exemption: remove its line"));
        }
        complaints
    }

    /// Returns every refused phrase of a text, also one that a line end divides.
    fn search(&self, text: &str) -> Vec<Found> {
        let words = words(text);
        let mut found = Vec::new();
        for phrase in self.never.keys() {
            let wanted: Vec<&str> = phrase.split(' ').collect();
            for window in words.windows(wanted.len()) {
                let equal =
                    |(word, wanted): (&Word<'_>, &&str)| word.text.eq_ignore_ascii_case(wanted);
                if window.iter().zip(&wanted).all(equal) && window[1..].iter().all(|w| w.follows) {
                    found.push(Found { line: window[0].line, phrase: phrase.clone() });
                }
            }
        }
        found.sort_by_key(|found| found.line);
        found
    }
}

/// Whether an entry is this path, or a directory above it.
fn covers(entry: &str, path: &str) -> bool {
    path == entry || entry.ends_with('/') && path.starts_with(entry)
}

/// Splits a text into words of letters. `_` ends a word, so that names of tests are read as well.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    let (mut end, mut line) = (0, 1);
    while let Some(begin) = text[end..].find(char::is_alphabetic).map(|begin| end + begin) {
        let gap = &text[end..begin];
        line += gap.matches('\n').count();
        let length = text[begin..].find(|c: char| !c.is_alphabetic());
        end = length.map_or(text.len(), |length| begin + length);
        words.push(Word { text: &text[begin..end], line, follows: joins(gap) });
    }
    words
}

/// Whether what stands between two words leaves them in one phrase: spaces, or one line end with the marks of a comment
/// or of a text that goes on.
fn joins(gap: &str) -> bool {
    match gap.split_once('\n') {
        None => gap.chars().all(|c| c == ' ' || c == '_'),
        Some((before, after)) => {
            before.trim_end_matches('\\').chars().all(|c| c == ' ')
                && after.chars().all(|c| " /!#*>".contains(c))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(exempt: &[&str], not_rewritten: &[&str]) -> List {
        let pairs =
            |all: &[&str]| all.iter().map(|p| ((*p).into(), "plain words".into())).collect();
        List {
            never: pairs(&["old", "to and fro"]),
            exempt: pairs(exempt),
            not_rewritten: not_rewritten.iter().map(|p| (*p).into()).collect(),
        }
    }

    #[test]
    fn a_phrase_is_found_in_any_case_across_lines_and_in_names_and_not_inside_a_word() {
        let table = [
            ("Old and older, a fold", vec![1]),
            ("a_to_and_fro_test", vec![1]),
            ("// TO and\n    /// fro", vec![1]),
            ("x\n# to and\n# fro", vec![2]),
            ("\"to \\\n   and fro\"", vec![1]),
            ("to and. fro", vec![]),
            ("to and\n\nfro", vec![]),
            ("to and fromage", vec![]),
        ];
        for (text, lines) in table {
            let found: Vec<_> = list(&[], &[]).search(text).iter().map(|f| f.line).collect();
            assert_eq!(found, lines, "{text}");
        }
    }

    #[test]
    fn an_entry_silences_its_paths_and_an_entry_without_a_phrase_is_an_error() {
        let list = list(&["data/", "gone"], &["a.md", "b/"]);
        let found = |path| (path, list.search("old"));
        let found =
            BTreeMap::from([found("a.md"), found("a.md.txt"), found("data/x"), ("b/c", vec![])]);
        let complaints = list.judge(&found);
        assert_eq!(complaints[0], "a.md.txt:1: \"old\": write plain words");
        assert!(complaints[1].ends_with("b/ has no refused phrase: remove its line"));
        assert!(complaints[2].ends_with("gone needs no exemption: remove its line"));
        assert_eq!(complaints.len(), 3);
    }
}
