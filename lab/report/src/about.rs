//! What a page says of a scenario besides its figures: title, question, names of columns.
//!
//! Must never be needed: a scenario that nobody describes goes by its name.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Scenarios by their names.
pub type Abouts = BTreeMap<String, About>;

/// What is said of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// A heading.
    pub title: String,
    /// What the scenario asks.
    pub question: String,
    /// Whether it asks for delays as much as for its figure.
    pub delays: bool,
    /// Headings for names of `values` and of factors: `cpu_ms_per_message` -> `CPU, ms a message`.
    pub columns: BTreeMap<String, String>,
}

/// The heading for a name of `values` or of a factor.
pub fn heading(about: &About, name: &str) -> String {
    if let Some(heading) = about.columns.get(name) {
        return heading.clone();
    }
    let known = HEADINGS.iter().find(|(known, _)| *known == name);
    known.map_or_else(|| name.replace(['_', '-'], " "), |(_, heading)| (*heading).into())
}

/// Those that are the same everywhere.
const HEADINGS: &[(&str, &str)] = &[
    ("cpu_ms_per_message", "CPU, ms a message"),
    ("disk_flushes_per_message", "disk flushes a message"),
    ("peak_memory_mib", "peak memory, MiB"),
    ("syncs_per_message", "syncs a message"),
];
