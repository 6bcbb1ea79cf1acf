//! `cargo xtask counts --growth`: instructions at n and at 4n, where somebody else chooses n.
//!
//! Must never pass a row whose fixed part hides its growth, or a row that did not run.

use super::measure;
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::Path;

/// Where the table is kept, from the top of the tree.
pub const FILE: &str = "docs/linearity.md";
/// The largest ratio of the counts at 4n and at n. A row that sorts may exceed n log n by the same share.
const GROWTH_MAX: f64 = 4.4;
/// Beyond this share of what is counted at n, a fixed part hides how the rest grows.
const FIXED_MAX: f64 = 0.05;

/// One path and what grows on it, as `posthaste-counts growth` lists it.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    n: u64,
    what: String,
    /// Why it may grow as n log n; empty: it may not.
    sorts: String,
    /// Why a run at one is taken off; empty: it is not.
    fixed: String,
}

/// Instructions at a quarter of n, at n, and at four times n.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Points {
    quarter: f64,
    one: f64,
    four: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Linear,
    Sorts,
    TooSmall,
    Grows,
}

impl Points {
    fn ratio(&self) -> f64 {
        self.four / self.one
    }

    /// The share of what is counted at n that does not grow with n, by the line through the first two points. Less than
    /// nothing where the cost bends upwards.
    fn fixed(&self) -> f64 {
        let each = (self.one - self.quarter) / 0.75;
        (self.one - each) / self.one
    }
}

fn verdict(row: &Row, points: &Points) -> Verdict {
    let n = row.n as f64;
    let sorted = GROWTH_MAX * (4.0 * n).ln() / n.ln();
    match points.ratio() {
        _ if points.fixed() > FIXED_MAX => Verdict::TooSmall,
        ratio if ratio <= GROWTH_MAX => Verdict::Linear,
        ratio if !row.sorts.is_empty() && ratio <= sorted => Verdict::Sorts,
        _ => Verdict::Grows,
    }
}

/// Counts all rows, or those whose name holds `only`; prints them, and writes the page if it is wanted. True: none grows.
pub fn run(root: &Path, profile: &str, only: Option<&str>, page: bool) -> Result<bool> {
    let program = measure::build(root, profile)?;
    let folder = measure::target_directory(root).join("counts");
    std::fs::create_dir_all(&folder)?;
    let listed = measure::said_by(std::process::Command::new(&program).arg("growth"))?;
    let rows: Vec<Row> = listed.lines().map(parse).collect::<Result<_>>()?;
    let rows: Vec<Row> =
        rows.into_iter().filter(|row| only.is_none_or(|only| row.name.contains(only))).collect();
    ensure!(!rows.is_empty(), "there is no such row");
    let counted = measure::side_by_side(rows, |row| {
        let at = |n: u64| {
            let arguments = ["growth".to_owned(), row.name.clone(), n.to_string()];
            let name = format!("growth-{}-{n}", row.name);
            Ok::<f64, anyhow::Error>(
                measure::one(&program, &folder, &name, &arguments)?.instructions,
            )
        };
        let fixed = if row.fixed.is_empty() { 0.0 } else { at(1)? };
        let less = |n| Ok::<f64, anyhow::Error>(at(n)? - fixed);
        let points =
            Points { quarter: less(row.n / 4)?, one: less(row.n)?, four: less(row.n * 4)? };
        Ok((row.clone(), points))
    })?;
    let table = table(&counted);
    print!("{table}");
    if page {
        std::fs::write(root.join(FILE), format!("{PAGE}{table}"))?;
        println!("written to {FILE}");
    }
    let passes = |(row, points): &(Row, Points)| {
        matches!(verdict(row, points), Verdict::Linear | Verdict::Sorts)
    };
    Ok(counted.iter().all(passes))
}

fn parse(line: &str) -> Result<Row> {
    let mut parts = line.split('\t').map(str::to_owned);
    let mut next = || parts.next().with_context(|| format!("a short row: {line}"));
    let (name, n, what, sorts, fixed) = (next()?, next()?.parse()?, next()?, next()?, next()?);
    Ok(Row { name, n, what, sorts, fixed })
}

fn table(counted: &[(Row, Points)]) -> String {
    let mut text = String::from(
        "| path | what grows | n | instructions at n | at 4n | ratio | fixed | verdict |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (row, points) in counted {
        let Row { name, n, what, sorts, fixed: why } = row;
        let said = match verdict(row, points) {
            Verdict::Linear => "linear".to_owned(),
            Verdict::Sorts => format!("n log n: {sorts}"),
            Verdict::TooSmall => "FAILED: n is too small".to_owned(),
            Verdict::Grows => "FAILED: grows faster".to_owned(),
        };
        let less = if why.is_empty() {
            String::new()
        } else {
            format!("; a run at 1 is taken off: {why}")
        };
        let (ratio, fixed) = (points.ratio(), points.fixed() * 100.0);
        let _ = writeln!(
            text,
            "| `{name}` | {what} | {n} | {:.0} | {:.0} | {ratio:.2} | {fixed:.1} % | {said}{less} |",
            points.one, points.four
        );
    }
    text
}

const PAGE: &str = "\
# How costs grow

Written by `cargo xtask counts --growth --md`: the instructions of each path at n and at 4n of what a stranger, a peer or an
administrator chooses, counted by callgrind. More than 4.4 times as many fail, unless the row sorts and says so; then the bound is
that of n log n. The fixed part, by a third point at n/4, is below 5 % at n, so that it cannot hide how the rest grows; where it has to
be larger, a run at 1 is taken off, and the row says why. The rows are in `proof/counts/src/growth/`; [decision 0100](decisions/0100-instructions-are-counted.md) says what was weighed.

";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sorts: &str) -> Row {
        let (name, what) = ("a-b".into(), "c".into());
        Row { name, n: 1_000, what, sorts: sorts.into(), fixed: String::new() }
    }

    fn points(cost: impl Fn(f64) -> f64) -> Points {
        Points { quarter: cost(250.0), one: cost(1_000.0), four: cost(4_000.0) }
    }

    #[test]
    fn a_row_is_judged_by_how_it_grows() {
        let cases: [(Points, &str, Verdict); 6] = [
            (points(|n| 900.0 * n + 20_000.0), "", Verdict::Linear),
            (points(|n| 900.0 * n + 100_000.0), "", Verdict::TooSmall),
            (points(|n| n * n + 100.0 * n), "", Verdict::Grows),
            (points(|n| 900.0 * n + 0.2 * n * n), "", Verdict::Grows),
            (points(|n| n * n.ln()), "", Verdict::Grows),
            (points(|n| n * n.ln()), "by id", Verdict::Sorts),
        ];
        for (points, sorts, expected) in cases {
            assert_eq!(verdict(&row(sorts), &points), expected, "{points:?}");
        }
        assert_eq!(verdict(&row("by id"), &points(|n| n * n)), Verdict::Grows);
    }

    #[test]
    fn a_row_reads_back_and_a_failure_shows_in_the_table() {
        assert_eq!(parse("a-b\t1000\tc\t\t").unwrap(), row(""));
        assert!(parse("a-b\t1000").is_err());
        let said = table(&[(row(""), points(|n| n * n))]);
        assert!(said.contains("| 16.00 |") && said.contains("FAILED: grows faster"), "{said}");
    }
}
