//! Budgets: what is wanted of a mailer, row by row, and whether the runs show it.
//!
//! Must never judge by what was measured at another time: a ratio is of two runs of one round.

mod judge;
mod page;
mod runs;
mod words;

pub use judge::{Found, Judged, Verdict, judge};
pub use page::section;
pub use runs::Measured;
pub use words::{markdown, text};

use crate::record::Cell;
use serde::Deserialize;
use std::collections::BTreeMap;

/// All of them: a file that a person writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Budgets {
    /// Whose they are.
    pub subject: String,
    /// Who stands beside.
    pub beside: String,
    /// Who is the ceiling: no mailer at all.
    pub ceiling: String,
    /// The ceiling as another source and sink see it; shown, never judged by.
    #[serde(default)]
    pub other_ceiling: Option<OtherCeiling>,
    /// One for each kind of work.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// Where the other ceiling stands.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OtherCeiling {
    /// By what it was measured, in a few words.
    pub name: String,
    /// The scenario.
    pub scenario: String,
    /// Its cell, but for `by`.
    pub cell: Cell,
    /// Factors that it takes over from the claim's cell, where that has them.
    pub by: Vec<String>,
}

/// One kind of work.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Row {
    /// Which.
    pub work: String,
    /// The budget as it was written down.
    pub wanted: String,
    /// What has to be so for it to be met.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// One thing that can be measured, in one cell or in several, each for itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Claim {
    /// The scenario; empty where `lines` names lines of another kind.
    #[serde(default)]
    pub scenario: String,
    /// Its cells, with all that varies in them.
    #[serde(default = "anywhere")]
    pub cells: Vec<Cell>,
    /// A name of the runs' `values`; empty: their result.
    #[serde(default)]
    pub value: String,
    /// What the value is in: `ms of CPU`, `syncs`.
    #[serde(default)]
    pub unit: String,
    /// What it is a share or a multiple of; else it stands for itself.
    #[serde(default)]
    pub to: Option<To>,
    /// Not less than this.
    #[serde(default)]
    pub at_least: Option<f64>,
    /// Not more than this.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// Something that is to cost nothing: a test for equivalence stands beside the verdict, with this share as margin.
    #[serde(default)]
    pub same_within: Option<f64>,
    /// Lines of other commands instead: those with these fields. `value` is a path into them, `memory.mib`.
    #[serde(default)]
    pub lines: Option<BTreeMap<String, serde_json::Value>>,
}

/// The other side of a ratio: what is not said is as in the claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct To {
    /// Another subject.
    #[serde(default)]
    pub subject: Option<String>,
    /// Other values of what varies.
    #[serde(default)]
    pub cell: Cell,
    /// Another value.
    #[serde(default)]
    pub value: Option<String>,
}

fn anywhere() -> Vec<Cell> {
    vec![Cell::new()]
}

/// What is wrong with a file of budgets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// A claim that nothing could meet or miss.
    #[error("{work}: a claim needs one of at-least and at-most")]
    NoBound {
        /// Its row.
        work: String,
    },
    /// A claim about nothing.
    #[error("{work}: a claim needs a scenario or lines")]
    NoPlace {
        /// Its row.
        work: String,
    },
}

impl Budgets {
    /// That each claim can be judged.
    pub fn check(&self) -> Result<(), BudgetError> {
        for row in &self.rows {
            for claim in &row.claims {
                let work = || row.work.clone();
                if claim.at_least.is_some() == claim.at_most.is_some() {
                    return Err(BudgetError::NoBound { work: work() });
                }
                if claim.scenario.is_empty() == claim.lines.is_none() {
                    return Err(BudgetError::NoPlace { work: work() });
                }
            }
        }
        Ok(())
    }
}
