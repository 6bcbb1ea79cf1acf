//! The verdict on each claim: by the rounds' ratios, at 99.5 %.
//!
//! Must never call a budget met because it was not measured.

use super::runs::{Measured, Round};
use super::{Budgets, Claim, OtherCeiling, Row};
use crate::judge::median;
use crate::record::Cell;
use stats::{Bound, Confidence, Equivalence, Interval, Keeping, Sameness};
use std::collections::BTreeMap;

/// From what lots are drawn for the intervals: a table made again is the same table.
const SEED: u64 = 20_061_997;

/// All rows.
pub struct Judged {
    /// Whose budgets.
    pub subject: String,
    /// Who stands beside.
    pub beside: String,
    /// By what the other ceiling was measured.
    pub other_ceiling: Option<String>,
    /// Each row with what was found of its claims.
    pub rows: Vec<(Row, Vec<Found>)>,
}

/// What was found of one claim in one cell.
#[derive(Clone, Debug)]
pub struct Found {
    /// The scenario and what varies in it; or where else it is from.
    pub place: String,
    /// What is wanted here: `≥ 70 % of the ceiling`.
    pub wanted: String,
    /// Whether `values` are ratios.
    pub is_ratio: bool,
    /// What they are in, where they are not.
    pub unit: String,
    /// Of each round: the value, or its ratio.
    pub values: Vec<f64>,
    /// Their median.
    pub median: Option<f64>,
    /// Where the true median lies, at 95 %.
    pub interval: Option<Interval>,
    /// The medians of the value itself: of the subject, of the one beside, of the ceiling, of the other ceiling.
    pub own: Option<f64>,
    /// See `own`.
    pub beside: Option<f64>,
    /// See `own`.
    pub ceiling: Option<f64>,
    /// See `own`.
    pub other_ceiling: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
    /// Where something is to cost nothing.
    pub equivalence: Option<Equivalence>,
}

/// What may be said of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// At 99.5 %.
    Met,
    /// The median meets it; it is not proven.
    MetInMedian,
    /// There are no runs.
    NotMeasured,
    /// The median misses it; it is not proven.
    Missed,
    /// At 99.5 %.
    MissedProven,
}

impl Verdict {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Met => "met at 99.5 %",
            Verdict::MetInMedian => "met in the median, not proven",
            Verdict::NotMeasured => "not measured",
            Verdict::Missed => "missed, not proven",
            Verdict::MissedProven => "missed, proven at 99.5 %",
        }
    }
}

/// Judges all claims.
pub fn judge(budgets: &Budgets, measured: &Measured) -> Judged {
    let of_row = |row: &Row| {
        let claims = row.claims.iter().flat_map(|claim| {
            claim.cells.iter().map(move |cell| found(budgets, measured, claim, cell))
        });
        (row.clone(), claims.collect())
    };
    Judged {
        subject: budgets.subject.clone(),
        beside: budgets.beside.clone(),
        other_ceiling: budgets.other_ceiling.as_ref().map(|other| other.name.clone()),
        rows: budgets.rows.iter().map(of_row).collect(),
    }
}

impl Judged {
    /// The worst verdict of a row: it is met where all of it is.
    pub fn worst(found: &[Found]) -> Verdict {
        found.iter().map(|one| one.verdict).max().unwrap_or(Verdict::NotMeasured)
    }
}

fn found(budgets: &Budgets, measured: &Measured, claim: &Claim, cell: &Cell) -> Found {
    let of = |subject: &str| match &claim.lines {
        Some(fields) => median(&measured.of_lines(fields, subject, &claim.value)),
        None => median_of(&measured.values((&claim.scenario, subject, cell), &claim.value)),
    };
    let values = values(budgets, measured, claim, cell);
    let bound = claim
        .at_least
        .map(Bound::AtLeast)
        .or(claim.at_most.map(Bound::AtMost))
        .expect("`check` has seen to it");
    let ceiling = claim.lines.is_none().then(|| of(&budgets.ceiling)).flatten();
    let other = budgets.other_ceiling.as_ref().filter(|_| ceiling.is_some());
    let other_ceiling = other.and_then(|other| other_ceiling(budgets, measured, other, cell));
    Found {
        place: super::words::place(claim, cell),
        wanted: super::words::wanted(budgets, claim),
        is_ratio: claim.to.is_some(),
        unit: claim.unit.clone(),
        median: median(&values),
        interval: (values.len() > 1)
            .then(|| stats::bootstrap_median(&values, Confidence::P95, SEED))
            .flatten(),
        own: of(&budgets.subject),
        beside: of(&budgets.beside),
        ceiling,
        other_ceiling,
        verdict: verdict(bound, &values),
        equivalence: claim.same_within.and_then(|margin| sameness(&values, margin)),
        values,
    }
}

/// The value of each round, or its ratio to what stood beside it in that round.
fn values(budgets: &Budgets, measured: &Measured, claim: &Claim, cell: &Cell) -> Vec<f64> {
    if let Some(fields) = &claim.lines {
        return measured.of_lines(fields, &budgets.subject, &claim.value);
    }
    let own = measured.values((&claim.scenario, &budgets.subject, cell), &claim.value);
    let Some(to) = &claim.to else { return own.into_values().collect() };
    let subject = to.subject.as_ref().unwrap_or(&budgets.subject);
    let mut other = cell.clone();
    other.extend(to.cell.clone());
    let value = to.value.as_ref().unwrap_or(&claim.value);
    let base = measured.values((&claim.scenario, subject, &other), value);
    let ratio = |(round, value): (&Round, &f64)| {
        base.get(round).filter(|base| **base > 0.0).map(|base| value / base)
    };
    own.iter().filter_map(ratio).collect()
}

fn verdict(bound: Bound, values: &[f64]) -> Verdict {
    match bound.judge(values, Confidence::P99_5) {
        None => Verdict::NotMeasured,
        Some(Keeping::Kept) => Verdict::Met,
        Some(Keeping::KeptInMedian) => Verdict::MetInMedian,
        Some(Keeping::BrokenInMedian) => Verdict::Missed,
        Some(Keeping::Broken) => Verdict::MissedProven,
    }
}

/// The rounds' ratios against 1: each round is its own comparison.
fn sameness(ratios: &[f64], margin: f64) -> Option<Equivalence> {
    stats::equivalent(&vec![1.0; ratios.len()], ratios, margin, Confidence::P99_5)
}

fn other_ceiling(
    budgets: &Budgets,
    measured: &Measured,
    other: &OtherCeiling,
    cell: &Cell,
) -> Option<f64> {
    let mut its = other.cell.clone();
    let taken = cell.iter().filter(|(name, _)| other.by.contains(name));
    its.extend(taken.map(|(name, value)| (name.clone(), value.clone())));
    median_of(&measured.values((&other.scenario, &budgets.ceiling, &its), ""))
}

fn median_of(values: &BTreeMap<Round, f64>) -> Option<f64> {
    median(&values.values().copied().collect::<Vec<_>>())
}

impl Found {
    /// What the test for equivalence says; empty where there is none.
    pub fn sameness(&self) -> String {
        let Some(found) = &self.equivalence else { return String::new() };
        let margin = super::words::percent(found.margin_share);
        match found.verdict {
            Sameness::Same => format!("the same within {margin}, at 99.5 %"),
            Sameness::NotShown => format!("not shown to be the same within {margin}"),
            Sameness::TooFew => format!("too few runs to say the same within {margin}"),
        }
    }
}
