//! The list of bounds: what fills each, what it is multiplied with, and what limits the product.
//!
//! Must never repeat a number that the code or the settings have.

use anyhow::Result;
use serde::Deserialize;

const TEXT: &str = include_str!("list.toml");

/// All of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Of settings, in the order of the page.
    pub setting: Vec<Bound>,
    /// Of constants that no test names, or that need more words.
    pub constant: Vec<Bound>,
}

/// One bound, or several of which the same can be said.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Settings with their tables, or constants.
    pub names: Vec<String>,
    /// Of a constant: where it is.
    #[serde(default)]
    pub file: String,
    /// Who can fill it.
    #[serde(default)]
    pub filled_by: String,
    /// What it multiplies with.
    #[serde(default)]
    pub times: String,
    /// The memory or the time that the product takes.
    #[serde(default)]
    pub takes: String,
    /// The counter that refuses, and what is heard then.
    #[serde(default)]
    pub kept_by: String,
    /// Names of tests; a text with blanks is an assertion or a command.
    #[serde(default)]
    pub proof: Vec<String>,
    /// Of a constant: why no test is needed.
    #[serde(default)]
    pub reason: String,
}

impl List {
    /// The list of this tree.
    pub fn read() -> Result<List> {
        List::parse(TEXT)
    }

    /// Reads one.
    pub fn parse(text: &str) -> Result<List> {
        Ok(toml::from_str(text)?)
    }

    /// The row of a constant.
    pub fn constant(&self, name: &str, file: &str) -> Option<&Bound> {
        let fits = |bound: &&Bound| bound.file == file && bound.names.iter().any(|n| n == name);
        self.constant.iter().find(fits)
    }
}
