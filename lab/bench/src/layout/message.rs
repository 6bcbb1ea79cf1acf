//! One message of the layout: its body in a `df`, its envelope in a `qf`, as Sendmail has them.
//!
//! Must never let an envelope be seen before both files are whole: it is renamed into place last.

use super::LayoutPlan;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// The buffers of one writer.
pub struct Writer<'a> {
    plan: &'a LayoutPlan,
    body: Vec<u8>,
}

impl Writer<'_> {
    /// Creates buffers with a body of the plan's size.
    pub fn new(plan: &LayoutPlan) -> Writer<'_> {
        let line =
            b"This line is as long as lines of mail usually are, and there are many of it.\r\n";
        let body = line.iter().copied().cycle().take(plan.size_bytes).collect();
        Writer { plan, body }
    }

    /// Writes message `number` into the directory. Returns how long that took.
    pub fn create(&mut self, directory: &Path, number: u64) -> Result<Duration> {
        let id = format!("{:08x}{number:08}", self.plan.seed as u32);
        let path = |prefix: &str| directory.join(format!("{prefix}{id}"));
        let [body, temporary, envelope] = ["df", "tf", "qf"].map(path);
        let text = format!(
            "V8\nT1767225600\nN0\nP30000\nI{id}\nS<source@lab.test>\nrRFC822; user{number}@sink.test\n\
            RPFD:<user{number}@sink.test>\nH??Message-ID: <{id}@lab.test>\nH??Subject: layout {id}\n.\n"
        );
        let start = Instant::now();
        self.write(&body, &self.body)?;
        self.write(&temporary, text.as_bytes())?;
        std::fs::rename(&temporary, &envelope).with_context(|| envelope.display().to_string())?;
        if self.plan.sync_directory {
            File::open(directory)?.sync_all().context("the sync of a directory")?;
        }
        Ok(start.elapsed())
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
            file.write_all(bytes)?;
            if self.plan.sync { file.sync_all() } else { Ok(()) }
        };
        write().with_context(|| path.display().to_string())
    }
}
