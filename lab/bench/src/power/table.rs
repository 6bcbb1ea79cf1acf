//! The table of a campaign, for a terminal and for a page.
//!
//! Must never print a bare 0 for lost messages: with n messages at stake, 0 proves less than 3/n.

use super::cell::Cell;
use super::line::Line;
use std::collections::BTreeMap;

/// The columns.
const HEAD: [&str; 14] = [
    "file system",
    "next hop",
    "mailer",
    "cuts",
    "cut twice",
    "cuts with loss",
    "promised",
    "at stake",
    "lost",
    "late, lost",
    "doubled",
    "allowed",
    "damaged",
    "stuck or failed",
];
/// Number of first columns, which hold words and are aligned left.
const WORDS: usize = 3;

/// The sums of one cell.
#[derive(Default)]
struct Sum {
    cuts: u64,
    twice: u64,
    with_loss: u64,
    promised: u64,
    at_stake: u64,
    lost: u64,
    late: u64,
    lost_late: u64,
    doubled: u64,
    allowed: Option<u64>,
    damaged: u64,
    stuck: u64,
}

fn sums(lines: &[Line]) -> BTreeMap<Cell, Sum> {
    let mut sums: BTreeMap<Cell, Sum> = BTreeMap::new();
    for line in lines {
        let sum = sums.entry(line.cell).or_default();
        sum.cuts += 1;
        sum.twice += u64::from(line.second_cut_ms.is_some());
        sum.with_loss += u64::from(line.lost > 0);
        sum.promised += line.promised;
        sum.at_stake += line.at_stake;
        sum.lost += line.lost;
        sum.late += line.late;
        sum.lost_late += line.lost_late;
        sum.doubled += line.doubled;
        sum.allowed =
            line.allowed.map(|allowed| sum.allowed.unwrap_or(0) + allowed).or(sum.allowed);
        sum.damaged += line.damaged;
        sum.stuck += u64::from(line.failed.is_some() || line.left > 0);
    }
    sums
}

/// Writes what 0 of n proves with 95 % confidence.
fn or_less(count: u64, among: u64) -> String {
    match (count, among) {
        (0, 0) => "0 of 0".into(),
        (0, among) => format!("0 (< 3/{among})"),
        _ => count.to_string(),
    }
}

fn rows(lines: &[Line]) -> Vec<Vec<String>> {
    let word = |value: &dyn erased::Name| value.name();
    let row = |(cell, sum): (&Cell, &Sum)| {
        vec![
            word(&cell.fs),
            word(&cell.next_hop),
            word(&cell.subject),
            sum.cuts.to_string(),
            sum.twice.to_string(),
            or_less(sum.with_loss, sum.cuts),
            sum.promised.to_string(),
            sum.at_stake.to_string(),
            or_less(sum.lost, sum.at_stake),
            format!("{}, {}", sum.late, sum.lost_late),
            sum.doubled.to_string(),
            sum.allowed.map_or("-".into(), |allowed| allowed.to_string()),
            sum.damaged.to_string(),
            sum.stuck.to_string(),
        ]
    };
    sums(lines).iter().map(row).collect()
}

/// Names as they are on the command line.
mod erased {
    use clap::ValueEnum;

    /// Of any enum of the command line.
    pub trait Name {
        /// The name.
        fn name(&self) -> String;
    }

    impl<T: ValueEnum> Name for T {
        fn name(&self) -> String {
            self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
        }
    }
}

/// Writes the table with aligned columns.
pub fn text(lines: &[Line]) -> String {
    let mut all = vec![HEAD.map(String::from).to_vec()];
    all.extend(rows(lines));
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let cell = |(column, text): (usize, &String)| {
        let width = widths[column];
        if column < WORDS { format!("{text:<width$}") } else { format!("{text:>width$}") }
    };
    let row = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_string() + "\n"
    };
    all.iter().map(row).collect()
}

/// Writes the table in Markdown.
pub fn markdown(lines: &[Line]) -> String {
    let rule = (0..HEAD.len()).map(|column| if column < WORDS { "---" } else { "--:" }.to_string());
    let mut all = vec![HEAD.map(String::from).to_vec(), rule.collect()];
    all.extend(rows(lines));
    all.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::cell::{Entrant, FileSystem, NextHop};

    fn line(subject: Entrant, promised: u64, lost: u64) -> Line {
        let text = format!(
            r#"{{"time":0,"fs":"xfs","next_hop":"up","subject":"posthaste","seed":1,"cut_ms":9,"sessions":1,
            "recipients":1,"message_bytes":1,"promised":{promised},"late":0,"at_stake":1,"ambiguous":0,
            "lost":{lost},"doubled":2,"damaged":0,"left":0,"drain_ms":1,"version":"1","kernel":"1","lab":"1"}}"#
        );
        let mut line: Line = serde_json::from_str(&text).unwrap();
        line.cell.subject = subject;
        line
    }

    #[test]
    fn nothing_lost_is_less_than_three_in_all_that_were_at_stake() {
        let lines = [
            line(Entrant::Posthaste, 100, 0),
            line(Entrant::Posthaste, 50, 0),
            line(Entrant::Control, 10, 4),
            line(Entrant::Control, 10, 0),
        ];
        let text = markdown(&lines);
        let ours = "| xfs | up | posthaste | 2 | 0 | 0 (< 3/2) | 150 | 2 | 0 (< 3/2) | 0, 0 | 4 | - | 0 | 0 |";
        assert!(text.contains(ours), "{text}");
        assert!(
            text.contains("| xfs | up | control | 2 | 0 | 1 | 20 | 2 | 4 | 0, 0 | 4 | - | 0 | 0 |"),
            "{text}"
        );
        assert!(super::text(&lines).lines().all(|row| row.len() < 200));
    }

    #[test]
    fn r227_more_that_came_twice_than_was_allowed_is_bad() {
        let mut few = line(Entrant::Posthaste, 100, 0);
        few.allowed = Some(2);
        let few_lines = [few.clone(), few.clone()];
        assert!(!few.is_bad() && markdown(&few_lines).contains("| 4 | 4 | 0 | 0 |"));
        few.allowed = Some(1);
        assert!(few.is_bad());
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let mut written = line(Entrant::PostfixEatmydata, 3, 1);
        written.lost_age_ms = Some((1, 20));
        written.failed = Some("no\nanswer".into());
        let file = tempfile::NamedTempFile::new().unwrap();
        crate::power::line::append(file.path(), &written).unwrap();
        crate::power::line::append(file.path(), &written).unwrap();
        assert_eq!(crate::power::line::read(file.path()).unwrap(), [written.clone(), written]);
        let cell = Cell { fs: FileSystem::Xfs, next_hop: NextHop::Up, subject: Entrant::Control };
        assert_eq!(
            serde_json::to_string(&cell).unwrap(),
            r#"{"fs":"xfs","next_hop":"up","subject":"control"}"#
        );
    }
}
