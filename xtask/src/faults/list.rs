//! The list of faults: the number of each, what a user expects, and whether the feature is built.
//!
//! Must never name the evidence for a fault: that is found in the tree.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;

const TEXT: &str = include_str!("list.toml");

/// A letter and a number, in the order of the numbers: `P001`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Unique without the letter.
    pub number: u16,
    /// Of the part it belongs to.
    pub letter: char,
}

/// A run of numbers with one letter.
pub struct Part {
    /// What it is about.
    pub title: String,
    /// Each fault, and what a user expects of it.
    pub expect: Vec<(Fault, String)>,
}

/// All of it.
pub struct List {
    /// In the order of the numbers.
    pub parts: Vec<Part>,
    /// What is not built, and so not tested: the reason.
    pub not_built: BTreeMap<Fault, String>,
}

#[derive(Deserialize)]
struct File {
    not_built: BTreeMap<String, Vec<String>>,
    #[serde(flatten)]
    parts: BTreeMap<char, PartOfFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartOfFile {
    title: String,
    first: u16,
    expect: Vec<String>,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:03}", self.letter, self.number)
    }
}

impl Fault {
    /// `S118`, also `s118`; `None` for anything else, whether the list has the number or not.
    pub fn parse(word: &str) -> Option<Fault> {
        let letter = word.chars().next()?.to_ascii_uppercase();
        let digits = word.get(1..)?;
        let three = digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| three)?;
        "PMTNSDXR".contains(letter).then_some(Fault { number, letter })
    }

    /// Itself and all up to `last`, if they have one letter and an order.
    pub fn up_to(self, last: Fault) -> Option<Vec<Fault>> {
        let letter = self.letter;
        let fits = letter == last.letter && self.number <= last.number;
        fits.then(|| (self.number..=last.number).map(|number| Fault { number, letter }).collect())
    }
}

impl List {
    /// The list of this tree.
    pub fn read() -> Result<List> {
        List::parse(TEXT)
    }

    fn parse(text: &str) -> Result<List> {
        let file: File = toml::from_str(text).context("the list of faults")?;
        let part = |(letter, part): (char, PartOfFile)| Part {
            title: part.title,
            expect: (part.first..)
                .map(|number| Fault { number, letter })
                .zip(part.expect)
                .collect(),
        };
        let mut parts: Vec<Part> = file.parts.into_iter().map(part).collect();
        parts.sort_by_key(|part| part.expect.first().map(|(fault, _)| *fault));
        let mut list = List { parts, not_built: BTreeMap::new() };
        for (reason, spans) in file.not_built {
            for span in spans {
                list.mark(&span, &reason)?;
            }
        }
        Ok(list)
    }

    /// `P001` or `P001-P004`.
    fn mark(&mut self, span: &str, reason: &str) -> Result<()> {
        for fault in self::span(span).with_context(|| format!("{span} is no fault"))? {
            ensure!(self.has(fault), "{fault} is marked as not built, and is not in the list");
            let former = self.not_built.insert(fault, reason.into());
            ensure!(former.is_none(), "{fault} is marked as not built twice");
        }
        Ok(())
    }

    /// Whether there is such a fault.
    pub fn has(&self, fault: Fault) -> bool {
        self.all().any(|known| known == fault)
    }

    /// Each fault, in order.
    pub fn all(&self) -> impl Iterator<Item = Fault> + '_ {
        self.parts.iter().flat_map(|part| part.expect.iter().map(|(fault, _)| *fault))
    }
}

/// `P001` or `P001-P004`.
pub fn span(word: &str) -> Option<Vec<Fault>> {
    match word.split_once('-') {
        Some((first, last)) => Fault::parse(first)?.up_to(Fault::parse(last)?),
        None => Some(vec![Fault::parse(word)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_each_number_from_1_to_244_once() {
        let numbers: Vec<u16> = List::read().unwrap().all().map(|fault| fault.number).collect();
        assert_eq!(numbers, (1..=244).collect::<Vec<_>>());
    }

    #[test]
    fn a_mark_for_what_is_not_in_the_list_and_a_second_mark_are_errors() {
        let part = "[P]\ntitle = \"x\"\nfirst = 1\nexpect = [\"a\", \"b\"]\n";
        let parse = |marks: &str| List::parse(&format!("{part}[not_built]\n{marks}"));
        assert_eq!(parse("x = [\"P001-P002\"]").unwrap().not_built.len(), 2);
        for marks in
            ["x = [\"P003\"]", "x = [\"S001\"]", "x = [\"P1\"]", "x = [\"P001\"]\ny = [\"P001\"]"]
        {
            assert!(parse(marks).is_err(), "{marks}");
        }
    }

    #[test]
    fn spans_are_of_one_letter_and_go_up() {
        assert_eq!(span("P008-P010").unwrap().len(), 3);
        assert_eq!(span("s144").unwrap()[0].to_string(), "S144");
        for wrong in ["P010-P008", "P001-S118", "P1", "Q001", "P0001", "P001-", "Pé1"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }
}
