//! Counts and times the system calls of a running mailer with strace, from outside.
//!
//! Must never count strace's time as the mailer's; the result says how it was measured.

use super::calls::{SYNCS, Tally};
use super::family::Family;
use super::tracer::Tracer;
use anyhow::Result;
use report::record::Call;
use serde::Serialize;

const RENAMES: [&str; 3] = ["rename", "renameat", "renameat2"];
const UNLINKS: [&str; 2] = ["unlink", "unlinkat"];
/// Calls that create a new name if they succeed.
const LINKS: [&str; 6] = ["link", "linkat", "symlink", "symlinkat", "mknod", "mknodat"];

/// Which calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// All.
    #[default]
    All,
    /// Only calls that make data durable. The mailer is slowed down nearly as much.
    Syncs,
}

/// A trace in progress.
pub struct Trace {
    which: Which,
    tracer: Tracer<Tally>,
}

/// What was traced.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calls {
    /// A row for each call, most time first.
    pub rows: Vec<Call>,
    /// Syncs that succeeded, of any file.
    pub syncs: u64,
    /// Files that were made: names that were not there before.
    pub files_created: u64,
    /// Files opened so that they were made if they were not there.
    pub files_maybe_created: u64,
    /// Files renamed.
    pub files_renamed: u64,
    /// Names deleted.
    pub files_unlinked: u64,
    /// The way of measuring, and its limits.
    pub how: String,
}

impl Trace {
    /// Attaches to all of the family; returns when every thread is traced.
    pub fn attach(family: &Family, which: Which) -> Result<Trace> {
        let only = format!("trace={}", SYNCS.join(","));
        let mut options = vec!["-s", "0", "-e", "verbose=none"];
        if which == Which::Syncs {
            options.extend(["-e", &only]);
        }
        Ok(Trace { which, tracer: Tracer::attach(family, &options)? })
    }

    /// Detaches from the mailer, which lives on, and returns the counts.
    pub fn finish(self) -> Result<Calls> {
        let mut tally = Tally::default();
        for part in self.tracer.detach()? {
            tally.merge(part);
        }
        let what = if self.which == Which::All { "" } else { ", only syncs" };
        Ok(Calls {
            rows: tally.rows(),
            syncs: tally.succeeded(&SYNCS),
            files_created: tally.files_created + tally.succeeded(&LINKS),
            files_maybe_created: tally.files_maybe_created,
            files_renamed: tally.succeeded(&RENAMES),
            files_unlinked: tally.succeeded(&UNLINKS),
            how: format!(
                "strace -f -T{what}: counts are exact, calls that had not returned at the end left out; times are \
                wall time inside each call, and the tracing itself slows the mailer down"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, Instant};

    /// A parent whose child makes, syncs, renames and deletes a file for each file `go-N` that it sees.
    const WORK: &str = "import os, time\n\
        if os.fork(): os.wait()\n\
        n = 0\n\
        while True:\n\
        \x20 if not os.path.exists(f'go-{n}'):\n\
        \x20   time.sleep(.01)\n\
        \x20   continue\n\
        \x20 f = os.open('t', os.O_CREAT | os.O_EXCL | os.O_WRONLY)\n\
        \x20 os.write(f, b'x')\n\
        \x20 os.fsync(f)\n\
        \x20 os.close(f)\n\
        \x20 os.rename('t', 'q')\n\
        \x20 os.unlink('q')\n\
        \x20 os.mkdir(f'done-{n}')\n\
        \x20 n += 1";

    fn do_one(place: &Path, number: u32) {
        std::fs::write(place.join(format!("go-{number}")), "").unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while !place.join(format!("done-{number}")).exists() {
            assert!(Instant::now() < end, "the traced process does not work");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn only_what_was_done_while_attached_is_counted_and_the_traced_live_on() {
        let place = tempfile::tempdir().unwrap();
        let mut python =
            Command::new("python3").args(["-c", WORK]).current_dir(&place).spawn().unwrap();
        do_one(place.path(), 0);
        let family = Family::below(&[python.id()]);
        let calls = |which, numbers: std::ops::Range<u32>| {
            let trace = Trace::attach(&family, which).unwrap();
            numbers.for_each(|number| do_one(place.path(), number));
            trace.finish().unwrap()
        };
        let all = calls(Which::All, 1..4);
        do_one(place.path(), 4);
        let syncs = calls(Which::Syncs, 5..7);
        do_one(place.path(), 7);
        for pid in family.pids().into_iter().rev() {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        python.wait().unwrap();
        let counts = [all.syncs, all.files_created, all.files_renamed, all.files_unlinked];
        assert_eq!(counts, [3; 4], "{all:?}");
        let count = |name: &str| all.rows.iter().find(|row| row.name == name).map(|row| row.count);
        assert_eq!(count("mkdir"), Some(3));
        assert!(all.rows.iter().all(|row| row.total_us >= 0.0));
        let names: Vec<&str> = syncs.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((syncs.syncs, names), (2, vec!["fsync"]));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let mut ended = Command::new("true").spawn().unwrap();
        let pid = ended.id();
        ended.wait().unwrap();
        assert!(Trace::attach(&Family::below(&[pid]), Which::All).is_err());
    }
}
