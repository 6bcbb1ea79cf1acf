//! One cut as one JSON line, and the file of them.
//!
//! Must never change a written line: lines are appended, and counted when a campaign is resumed.

use super::cell::Cell;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// The result of one cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds since 1970.
    pub time: u64,
    /// Which cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// The seed that chose all values below, up to `hop_delay_ms`.
    pub seed: u64,
    /// Time from the load's start to the cut.
    pub cut_ms: u64,
    /// Concurrent sessions.
    pub sessions: u64,
    /// Recipients of each message.
    pub recipients: u64,
    /// Size of each message.
    pub message_bytes: u64,
    /// From the second start to a second cut, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_cut_ms: Option<u64>,
    /// Time that the next hop, if it was up, took for each message until the cut.
    #[serde(default)]
    pub hop_delay_ms: u64,
    /// Messages whose 250 was read before the power was cut.
    pub promised: u64,
    /// Messages whose 250 was read later: in flight at the cut, or sent between the cut and the kill.
    pub late: u64,
    /// Promised, and not yet delivered at the cut.
    pub at_stake: u64,
    /// Sent to the last byte without a reply: they may come or not.
    pub ambiguous: u64,
    /// Promised, and not delivered to all their recipients.
    pub lost: u64,
    /// Late, and not delivered to all their recipients: no broken promise, since the power was already cut.
    #[serde(default)]
    pub lost_late: u64,
    /// Recipients that got a duplicate.
    pub doubled: u64,
    /// Recipients that the mailer announced may get a duplicate, if the next hop went on without a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
    /// Messages whose bytes were changed.
    pub damaged: u64,
    /// Messages still queued when nothing was delivered any more.
    pub left: u64,
    /// From the mailer's last start to the last message.
    pub drain_ms: u64,
    /// Milliseconds from the promise of lost messages to the cut: of the newest and the oldest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_age_ms: Option<(u64, u64)>,
    /// Processes that had loaded the preloaded library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preloaded: Option<usize>,
    /// Why the mailer did not start again, or another failure after the cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The mailer's version.
    pub version: String,
    /// The kernel's version.
    pub kernel: String,
    /// The laboratory's version.
    pub lab: String,
}

impl Line {
    /// Whether the promise was broken.
    pub fn is_bad(&self) -> bool {
        let too_many = self.allowed.is_some_and(|allowed| self.doubled > allowed);
        self.lost > 0 || self.damaged > 0 || self.left > 0 || self.failed.is_some() || too_many
    }
}

/// Reads a file of lines, plain or compressed. A missing file has no lines.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = report::lines::complete(path).with_context(|| path.display().to_string())?;
    let parse = |(number, line)| {
        let place = || format!("{}:{}", path.display(), number + 1);
        serde_json::from_str(line).with_context(place)
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

/// Appends a line.
pub fn append(path: &Path, line: &Line) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all((serde_json::to_string(line)? + "\n").as_bytes())?;
    Ok(())
}
