//! `docs/settings.md`, generated from the settings in the code.
//!
//! Must never be edited by hand: `current` finds it out.

use crate::posthaste;
use anyhow::{Context, Result};
use std::path::Path;

const PAGE: &str = "docs/settings.md";

/// Writes the page anew.
pub fn write(root: &Path) -> Result<()> {
    std::fs::write(root.join(PAGE), posthaste(&["settings"])?).context(PAGE)
}

/// A complaint if the page is not what the code says.
pub fn current(root: &Path) -> Result<Vec<String>> {
    let wanted = posthaste(&["settings"])?;
    let found = std::fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    if found == wanted {
        return Ok(Vec::new());
    }
    Ok(vec![format!("{PAGE}: not what the code says; run `cargo xtask settings`")])
}
