//! `cargo xtask counts`: instructions and allocations of each station, against those that are kept
//! in `proof/counts/counts.toml`; with `--growth` how they grow.
//!
//! Must never report an unchanged cost for a path that did not run.

mod growth;
mod judge;
mod kept;
mod measure;

use anyhow::{Context, Result};
use clap::Args;
use std::path::Path;

/// Counts what a message costs, without a clock.
#[derive(Args)]
pub struct Counts {
    /// Keep today's counts, and say why they have changed
    #[arg(long, value_name = "WHY")]
    keep: Option<String>,
    /// Count how each path grows with what others choose, and fail where that is faster than linear
    #[arg(long, conflicts_with = "keep")]
    growth: bool,
    /// With --growth: only the rows whose name holds this
    #[arg(long, value_name = "NAME", requires = "growth")]
    only: Option<String>,
    /// With --growth: write docs/linearity.md
    #[arg(long, requires = "growth", conflicts_with = "only")]
    md: bool,
    /// With --growth: the profile to build, where `release` takes too long
    #[arg(long, value_name = "PROFILE", requires = "growth", default_value = "release")]
    profile: String,
}

impl Counts {
    /// Counts, and prints old, new and percent; true: nothing has risen, or it is kept now.
    pub fn run(&self, root: &Path) -> Result<bool> {
        if self.growth {
            return growth::run(root, &self.profile, self.only.as_deref(), self.md);
        }
        let file = root.join(kept::FILE);
        let new = measure::all(root)?;
        let old = match std::fs::read_to_string(&file) {
            Ok(text) => Some(toml::from_str(&text).context(kept::FILE)?),
            Err(_) if self.keep.is_some() => None,
            Err(error) => return Err(error).context(kept::FILE),
        };
        let found = old.as_ref().map(|old| judge::judge(old, &new));
        if let Some(found) = &found {
            print!("{found}");
        }
        match &self.keep {
            None => Ok(found.is_some_and(|found| found.passes())),
            Some(why) => {
                std::fs::write(&file, kept::with_reasons(old.as_ref(), new, why).to_text())?;
                println!("kept in {}", kept::FILE);
                Ok(true)
            }
        }
    }
}
