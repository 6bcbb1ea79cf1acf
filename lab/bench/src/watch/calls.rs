//! Reads what strace prints, line by line, into counts and times of each system call.
//!
//! Must never keep the lines: however long the trace is, what is kept is a row for each call and one line for each
//! process that is in the middle of one.

use super::tracer::Lines;
use report::record::Call;
use std::collections::BTreeMap;

/// Calls whose arguments are examined when they return.
const LOOKED_AT: [&str; 3] = ["open", "openat", "creat"];
/// Upper bound on processes in the middle of an examined call.
const UNFINISHED_MAX: usize = 10_000;
/// Calls that make data durable; `sync_file_range` does not.
pub const SYNCS: [&str; 5] = ["fsync", "fdatasync", "sync", "syncfs", "msync"];

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    rows: BTreeMap<String, Row>,
    /// The beginnings of calls that others interrupted, by process.
    unfinished: BTreeMap<u32, String>,
    /// `open` with `O_CREAT|O_EXCL`, successful: the file was made.
    pub files_created: u64,
    /// `open` with `O_CREAT` but without `O_EXCL`, or `creat`, successful: the file may have been there.
    pub files_maybe_created: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Row {
    count: u64,
    failed: u64,
    total_us: f64,
}

/// A line about a call that has returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Returned<'a> {
    /// The thread.
    pub pid: u32,
    /// When it began or resumed, in seconds since 1970.
    pub time: f64,
    /// The call.
    pub name: &'a str,
    /// The arguments; of an interrupted call only their end.
    pub arguments: &'a str,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// The result if it is a number, else 0.
    pub value: i64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Whether it began in an earlier line.
    pub resumed: bool,
}

impl Lines for Tally {
    fn feed(&mut self, line: &str) {
        if let Some(call) = Returned::parse(line) {
            self.count(&call);
        } else if line.ends_with("<unfinished ...>") {
            self.keep(line);
        }
    }
}

impl Tally {
    fn count(&mut self, call: &Returned<'_>) {
        if !self.rows.contains_key(call.name) {
            self.rows.insert(call.name.to_string(), Row::default());
        }
        let row = self.rows.get_mut(call.name).expect("it is there now");
        row.count += 1;
        row.total_us += call.seconds * 1e6;
        row.failed += u64::from(!call.succeeded);
        let begun = if call.resumed { self.unfinished.remove(&call.pid) } else { None };
        if call.succeeded && LOOKED_AT.contains(&call.name) {
            self.count_open(call.name, begun.as_deref().unwrap_or(call.arguments));
        }
    }

    fn count_open(&mut self, name: &str, arguments: &str) {
        if arguments.contains("O_TMPFILE") {
            return; // it has no name
        }
        if name == "creat" || arguments.contains("O_CREAT") {
            let new = arguments.contains("O_EXCL");
            self.files_created += u64::from(new);
            self.files_maybe_created += u64::from(!new);
        }
    }

    fn keep(&mut self, line: &str) {
        let Some((pid, _, rest)) = head(line) else { return };
        let name = rest.split('(').next().unwrap_or("");
        if LOOKED_AT.contains(&name) && self.unfinished.len() < UNFINISHED_MAX {
            self.unfinished.insert(pid, rest.to_string());
        }
    }

    /// Adds the counts of another trace.
    pub fn merge(&mut self, other: Tally) {
        for (name, row) in other.rows {
            let own = self.rows.entry(name).or_default();
            own.count += row.count;
            own.failed += row.failed;
            own.total_us += row.total_us;
        }
        self.files_created += other.files_created;
        self.files_maybe_created += other.files_maybe_created;
    }

    /// The rows, most time first.
    pub fn rows(&self) -> Vec<Call> {
        let row = |(name, row): (&String, &Row)| Call {
            name: name.clone(),
            count: row.count,
            total_us: row.total_us,
        };
        let mut rows: Vec<Call> = self.rows.iter().map(row).collect();
        rows.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        rows
    }

    /// Returns how often these calls succeeded.
    pub fn succeeded(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.rows.get(*name)).map(|row| row.count - row.failed).sum()
    }
}

impl Returned<'_> {
    /// Parses a line; `None` if it is not about a call.
    pub fn parse(line: &str) -> Option<Returned<'_>> {
        let (pid, time, rest) = head(line)?;
        let (rest, seconds) = rest.strip_suffix('>')?.rsplit_once(" <")?;
        let seconds = seconds.parse().ok()?;
        let (call, result) = rest.rsplit_once(" = ")?;
        let resumed = call.strip_prefix("<... ");
        let (name, arguments) = match resumed {
            Some(call) => call.split_once(" resumed>")?,
            None => call.split_once('(')?,
        };
        let succeeded = !result.starts_with("-1 ") && !result.starts_with('?');
        let arguments = arguments.trim_end().strip_suffix(')').unwrap_or(arguments);
        Some(Returned {
            pid,
            time,
            name,
            arguments,
            succeeded,
            value: result.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0),
            seconds,
            resumed: resumed.is_some(),
        })
    }
}

/// Splits a line into process, time and the rest.
pub fn head(line: &str) -> Option<(u32, f64, &str)> {
    let (pid, line) = line.split_once(' ')?;
    let (time, rest) = line.trim_start().split_once(' ')?;
    Some((pid.parse().ok()?, time.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &str) -> Tally {
        let mut tally = Tally::default();
        lines.lines().for_each(|line| tally.feed(line));
        tally
    }

    #[test]
    fn counts_and_times_add_up_and_the_longest_comes_first() {
        let tally = tally(
            "5     1795243564.1 write(3, \"\"..., 100) = 100 <0.000005>\n\
            21837 1795243564.2 fsync(3)              = 0 <0.000149>\n\
            9     1795243564.3 write(3</a b>, \"\"..., 100) = -1 EAGAIN (Try again) <0.000007>\n\
            strace: Process 21837 attached\n5     +++ exited with 0 +++\n5     --- SIGCHLD {si_signo=SIGCHLD} ---\n\
            5     1795243564.4 rt_sigsuspend([], 8 <detached ...>\n",
        );
        let row = |name: &str, count, total_us| Call { name: name.into(), count, total_us };
        assert_eq!(tally.rows(), [row("fsync", 1, 149.0), row("write", 2, 12.0)]);
        assert_eq!(tally.succeeded(&["write", "close"]), 1);
    }

    #[test]
    fn a_call_that_was_interrupted_counts_once_with_the_arguments_of_its_beginning() {
        let tally = tally(
            "7     1.0 openat(AT_FDCWD, \"q (1) = 2 <3>\", O_RDWR|O_CREAT|O_EXCL, 0600 <unfinished ...>\n\
            8     1.1 openat(AT_FDCWD, \"log\", O_WRONLY|O_CREAT|O_APPEND, 0600) = 4 <0.000002>\n\
            7     1.2 <... openat resumed>)     = 3 <0.000010>\n\
            7     1.3 openat(AT_FDCWD, \"q\", O_RDWR|O_CREAT|O_EXCL, 0600) = -1 EEXIST (File exists) <0.000001>\n",
        );
        assert_eq!((tally.files_created, tally.files_maybe_created), (1, 1));
        assert_eq!(tally.rows()[0].count, 3);
        assert!(tally.unfinished.is_empty());
    }

    #[test]
    fn a_call_that_never_returned_counts_nothing() {
        assert_eq!(
            tally("5 1.0 exit_group(0) = ?\n5 1.0 futex(0x1, FUTEX_WAIT <unfinished ...>\n").rows(),
            []
        );
    }

    #[test]
    fn two_tallies_make_one() {
        let mut one = tally("5 1.0 fsync(3) = 0 <0.000001>\n");
        one.merge(tally("5 1.0 fsync(3) = 0 <0.000002>\n5 1.0 sync() = 0 <0.000001>\n"));
        assert_eq!(one.succeeded(&SYNCS), 3);
    }
}
