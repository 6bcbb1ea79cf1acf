//! The lines of a campaign's file: one JSON object each, appended as the runs end.
//!
//! Must never lose a sample: what a run measured stands in its line, failed runs included.

use crate::lines;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// One run of one cell.
    Run(Box<Run>),
    /// The files that a subject was configured by; runs name them by `id`.
    Settings(Settings),
    /// A cell that a subject cannot do.
    Absent(Absent),
}

/// The name of a cell: what its scenario varies, and to what it is set here (`sessions` = 10).
pub type Cell = BTreeMap<String, Factor>;

/// One thing that a scenario varies.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Factor {
    /// A number: `10`.
    Number(f64),
    /// A word: `maildir`.
    Word(String),
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, in seconds since 1970.
    pub time: u64,
    /// The scenario's name.
    pub scenario: String,
    /// The subject's name: `posthaste`, `postfix`, `limit` for no mailer at all, ...
    pub subject: String,
    /// The subject's version, as it or its package says.
    pub version: String,
    /// Which cell of the scenario.
    pub cell: Cell,
    /// Counts the runs of this subject in this cell from 0. Runs of different subjects with one ordinal were made in turn.
    pub ordinal: u32,
    /// What chose names and sizes.
    pub seed: u64,
    /// What `value` is.
    pub figure: Figure,
    /// The run's result; `None` where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// All else that is one number, by names that end in their unit: `cpu_ms_per_message`, `peak_memory_mib`,
    /// `disk_flushes_per_message`, `syncs_per_message`, `seconds`, `messages`, `lost`, `duplicates`.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    /// Distributions, each an HDR histogram (V2 with DEFLATE, in base64) of microseconds: `accept` (end of data to 250),
    /// `arrive` (250 to the sink's 250).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, String>,
    /// Raw samples where there are few enough to keep them all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Vec<f64>>,
    /// Points (x, y), for scatter and lines over time, by names `Y over X`: `accepted_per_second over seconds`,
    /// `create_us over queued`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// System calls of all the subject's processes, if they were counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Postal's rows, one a minute (or whatever `seconds` says).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub minutes: Vec<Minute>,
    /// What was found out about when the subject syncs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// By what a thing was measured: `calls` -> `strace -f -c`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub how: BTreeMap<String, String>,
    /// What a reader has to know, in sentences: a source that was as busy as the subject, lost messages, ...
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The `id` of the settings.
    pub settings: String,
    /// What it ran on.
    pub machine: Machine,
    /// The laboratory's version.
    pub lab: String,
}

/// What a scenario measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// `accepted`, `delivered`, `read`, ...
    pub name: String,
    /// `messages/s`, `recipients/s`, `ms`, `s`, ...
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More.
    Higher,
    /// Less.
    Lower,
}

/// One system call's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// `fdatasync`.
    pub name: String,
    /// How often.
    pub count: u64,
    /// All of them together, in microseconds, as the tracer saw it.
    pub total_us: f64,
}

/// One row as the tool postal prints it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Minute {
    /// Seconds from the start to the row's end.
    pub seconds: f64,
    /// Messages accepted in it.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Replies that were no 2xx or 3xx, and broken connections.
    pub errors: u64,
    /// Connections opened.
    pub connections: u64,
}

/// When a subject syncs, found by looking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Durability {
    /// The verdict.
    pub class: Class,
    /// Syncs that ended between a message's last byte and its 250, the mean over messages sent one at a time.
    pub syncs_before_250: f64,
    /// Messages looked at.
    pub messages: u64,
    /// `strace`, ...
    pub how: String,
}

/// Whether `250` was said after a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Before each.
    Synced,
    /// Before some.
    Sometimes,
    /// Before none.
    Unsynced,
    /// It cannot be seen from outside, or was not looked at.
    Unknown,
}

/// What a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that may be used.
    pub cores: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The distribution's name.
    pub system: String,
    /// The file system under the queue: `ext4`.
    pub file_system: String,
    /// The device under it, with its model if it says one.
    pub disk: String,
    /// 4 KiB written and synced in place, by fdatasync: the median, in microseconds.
    pub sync_us: f64,
    /// The load average of the last minute before the run: whether others worked here, too.
    pub load: f64,
}

/// The files by which a subject was configured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The first 16 hexadecimal digits of the SHA-256 over names and texts.
    pub id: String,
    /// Whose.
    pub subject: String,
    /// Name and text of each.
    pub files: BTreeMap<String, String>,
}

/// A cell that a subject cannot do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    /// The scenario's name.
    pub scenario: String,
    /// The subject's.
    pub subject: String,
    /// Which cell.
    pub cell: Cell,
    /// In a sentence.
    pub why: String,
}

/// What is wrong with a campaign's file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which file.
        path: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A line of it is none of ours.
    #[error("{path}:{number}: {error}")]
    Line {
        /// Which file.
        path: String,
        /// The line's number, from 1.
        number: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
}

/// Reads a file of lines, plain or compressed. A missing file has no lines. A last line without its line end is a run that
/// was cut short and does not count.
pub fn read(path: &Path) -> Result<Vec<Line>, RecordError> {
    let file = |error| RecordError::File { path: path.display().to_string(), error };
    let text = match lines::complete(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(file(error)),
    };
    let parse = |(number, line)| {
        serde_json::from_str(line).map_err(|error| RecordError::Line {
            path: path.display().to_string(),
            number: number + 1,
            error,
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

/// Appends one; cuts off what an interrupted append left behind.
pub fn append(path: &Path, line: &Line) -> Result<(), RecordError> {
    let text = serde_json::to_string(line).expect("a line is made of numbers, texts and lists");
    let write = || {
        let open = File::options().create(true).read(true).append(true).open(path);
        let mut file = open?;
        lines::must_be_plain(&mut file)?;
        if !ends_whole(&mut file)? {
            file.set_len(whole_bytes(path)?)?;
        }
        file.write_all((text + "\n").as_bytes())
    };
    write().map_err(|error| RecordError::File { path: path.display().to_string(), error })
}

/// Whether nothing stands behind the last line end.
fn ends_whole(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Up to the last line end.
fn whole_bytes(path: &Path) -> std::io::Result<u64> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cut_short_is_taken_off_and_the_rest_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lines");
        let line = |why: &str| {
            Line::Absent(Absent {
                scenario: "relay".into(),
                subject: "x".into(),
                cell: Cell::from([("sessions".into(), Factor::Number(10.0))]),
                why: why.into(),
            })
        };
        append(&path, &line("one")).unwrap();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"li").unwrap();
        assert_eq!(read(&path).unwrap(), [line("one")]);
        append(&path, &line("two")).unwrap();
        assert_eq!(read(&path).unwrap(), [line("one"), line("two")]);
    }

    #[test]
    fn a_line_that_is_none_names_its_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "\n{}\n").unwrap();
        assert!(read(file.path()).unwrap_err().to_string().contains(":2: "));
        assert_eq!(read(Path::new("/nowhere/at/all")).unwrap(), []);
    }
}
