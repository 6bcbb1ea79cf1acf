//! One cut as one JSON line, and the file of them.
//!
//! Must never change what stands there: lines are appended, and counted when a campaign is taken up again.

use super::cell::Cell;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// What came of one cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds since 1970.
    pub time: u64,
    /// Which cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// What chose all below up to `hop_delay_ms`.
    pub seed: u64,
    /// From the load's start to the cut.
    pub cut_ms: u64,
    /// Sessions at once.
    pub sessions: u64,
    /// Recipients of each message.
    pub recipients: u64,
    /// Size of each message.
    pub message_bytes: u64,
    /// From the second start to a second cut, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_cut_ms: Option<u64>,
    /// What the next hop, where it was up, took for each message until the cut.
    #[serde(default)]
    pub hop_delay_ms: u64,
    /// Messages whose 250 was read before the power was cut.
    pub promised: u64,
    /// Messages whose 250 was read later: in flight at the cut, or said between it and the kill.
    pub late: u64,
    /// Promised and not yet with the next hop when the power went.
    pub at_stake: u64,
    /// Sent to the last byte, no reply: they may come or not.
    pub ambiguous: u64,
    /// Promised, and not come to all their recipients.
    pub lost: u64,
    /// Late, and not come to all their recipients: no broken promise, as the power was gone already.
    #[serde(default)]
    pub lost_late: u64,
    /// Recipients that got a message once more.
    pub doubled: u64,
    /// Recipients that the mailer said may get one once more, where the next hop went on without a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<u64>,
    /// Messages that came with other bytes than were sent.
    pub damaged: u64,
    /// Still queued when nothing moved any more.
    pub left: u64,
    /// From the mailer's last start to the last message.
    pub drain_ms: u64,
    /// How long before the cut the lost ones were promised: the newest and the oldest, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_age_ms: Option<(u64, u64)>,
    /// Processes that had the preloaded library in their memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preloaded: Option<usize>,
    /// The mailer did not start again, or another trouble after the cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The mailer's.
    pub version: String,
    /// The kernel's.
    pub kernel: String,
    /// Ours.
    pub lab: String,
}

impl Line {
    /// Whether the promise was broken.
    pub fn is_bad(&self) -> bool {
        let too_many = self.allowed.is_some_and(|allowed| self.doubled > allowed);
        self.lost > 0 || self.damaged > 0 || self.left > 0 || self.failed.is_some() || too_many
    }
}

/// Reads a file of lines; one that is not there has none.
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

/// Appends one.
pub fn append(path: &Path, line: &Line) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all((serde_json::to_string(line)? + "\n").as_bytes())?;
    Ok(())
}
