//! System calls of a family by process: their number, the bytes they copied, the waits.
//!
//! Must never keep lines: only a row of sums for each thread.

use super::Sums;
use super::kernel::{Plain, Seen};
use crate::watch::calls::{Returned, SYNCS};
use crate::watch::family::Family;
use crate::watch::tracer::{Lines, Tracer};
use anyhow::Result;
use std::collections::BTreeMap;

/// Calls whose result is a number of bytes that came into the process.
const READS: [&str; 8] =
    ["read", "readv", "pread64", "preadv", "preadv2", "recvfrom", "recvmsg", "recv"];
/// Calls whose result is a number of bytes that went out of it.
const WRITES: [&str; 8] =
    ["write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg", "send"];
/// Calls that wait for events.
const WAITS: [&str; 8] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "io_getevents",
];
/// Calls that make a new thread or process.
const BIRTHS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];
/// Upper bound on lines about unknown processes.
const UNKNOWN: &str = "?";

/// A trace in progress.
pub struct Traced {
    tracer: Tracer<Threads>,
    names: Plain,
}

/// Sums by thread.
#[derive(Default)]
pub struct Threads {
    sums: BTreeMap<u32, Row>,
    /// The parent of each process.
    parents: BTreeMap<u32, u32>,
    /// Futex calls that others interrupted: whether they wait.
    unfinished: BTreeMap<u32, Futex>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Row {
    calls: f64,
    read: f64,
    written: f64,
    waits: f64,
    wakes: f64,
    syncs: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Futex {
    Wait,
    Wake,
    Other,
}

impl Traced {
    /// Attaches to all of the family; returns when every thread is traced.
    pub fn attach(family: &Family) -> Result<Traced> {
        let tracer = Tracer::attach(family, &["-s", "0", "-e", "verbose=none"])?;
        Ok(Traced { tracer, names: Plain::begin(family) })
    }

    /// Detaches from the mailer, which lives on, and returns the counts.
    pub fn finish(self) -> Result<Sums> {
        let seen = self.names.end();
        let mut sums = Sums::default();
        for threads in self.tracer.detach()? {
            sums.merge(threads.by_role(&seen));
        }
        Ok(sums)
    }
}

impl Lines for Threads {
    fn feed(&mut self, line: &str) {
        if let Some(call) = Returned::parse(line) {
            self.count(&call);
        } else if let Some((pid, arguments)) = unfinished_futex(line) {
            self.unfinished.insert(pid, Futex::of(arguments));
        }
    }
}

impl Threads {
    fn count(&mut self, call: &Returned<'_>) {
        let row = self.sums.entry(call.pid).or_default();
        let bytes = call.value.max(0) as f64;
        row.calls += 1.0;
        row.syncs += f64::from(call.succeeded && SYNCS.contains(&call.name));
        row.waits += f64::from(WAITS.contains(&call.name));
        if READS.contains(&call.name) {
            row.read += bytes;
        } else if WRITES.contains(&call.name) {
            row.written += bytes;
        } else if call.name == "futex" {
            let begun = if call.resumed { self.unfinished.remove(&call.pid) } else { None };
            let futex = begun.unwrap_or_else(|| Futex::of(call.arguments));
            row.waits += f64::from(futex == Futex::Wait);
            row.wakes += f64::from(futex == Futex::Wake);
        } else if call.succeeded && BIRTHS.contains(&call.name) {
            self.parents.insert(bytes as u32, call.pid);
        }
    }

    fn by_role(&self, seen: &Seen) -> Sums {
        let mut sums = Sums::default();
        for (tid, row) in &self.sums {
            let role = self.role(*tid, seen);
            for (name, amount) in [
                ("system_calls", row.calls),
                ("bytes_read", row.read),
                ("bytes_written", row.written),
                ("waits", row.waits),
                ("wakes", row.wakes),
                ("syncs", row.syncs),
            ] {
                sums.add(role, name, amount);
            }
        }
        sums
    }

    /// Of a thread too short-lived to be seen: that of whoever made it.
    fn role<'a>(&self, tid: u32, seen: &'a Seen) -> &'a str {
        let mut next = Some(tid);
        let mut steps = 0..self.parents.len() + 1;
        while let (Some(tid), Some(_)) = (next, steps.next()) {
            if let Some(role) = seen.role(tid) {
                return role;
            }
            next = self.parents.get(&tid).copied();
        }
        UNKNOWN
    }
}

impl Futex {
    fn of(arguments: &str) -> Futex {
        match arguments {
            wait if wait.contains("FUTEX_WAIT") => Futex::Wait,
            wake if wake.contains("FUTEX_WAKE") => Futex::Wake,
            _ => Futex::Other,
        }
    }
}

/// The thread and the beginning of a futex call that another's line interrupted.
fn unfinished_futex(line: &str) -> Option<(u32, &str)> {
    let (pid, rest) = line.split_once(' ')?;
    let arguments = rest.strip_suffix("<unfinished ...>")?;
    let at = arguments.find(" futex(")?;
    Some((pid.parse().ok()?, &arguments[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(lines: &str) -> Threads {
        let mut threads = Threads::default();
        lines.lines().for_each(|line| threads.feed(line));
        threads
    }

    #[test]
    fn bytes_waits_wakes_and_syncs_of_each_thread_add_up() {
        let threads = fed("5 1.0 read(3, \"\"..., 100) = 40 <0.000005>\n\
            5 1.1 read(3, \"\"..., 100) = -1 EAGAIN (Resource temporarily unavailable) <0.000005>\n\
            5 1.2 sendto(3, \"\"..., 7, MSG_NOSIGNAL, NULL, 0) = 7 <0.000005>\n\
            5 1.3 futex(0x7, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL <unfinished ...>\n\
            6 1.4 futex(0x7, FUTEX_WAKE_PRIVATE, 1) = 1 <0.000002>\n\
            5 1.5 <... futex resumed>) = 0 <0.100000>\n\
            6 1.6 fdatasync(9) = 0 <0.001>\n\
            6 1.7 epoll_wait(4, 0x1, 8, -1) = 1 <0.2>\n");
        let five = Row { calls: 4.0, read: 40.0, written: 7.0, waits: 1.0, ..Row::default() };
        let six = Row { calls: 3.0, wakes: 1.0, waits: 1.0, syncs: 1.0, ..Row::default() };
        assert_eq!(threads.sums, BTreeMap::from([(5, five), (6, six)]));
    }

    #[test]
    fn a_process_that_nobody_saw_counts_for_the_one_that_made_it() {
        let ours = std::process::id();
        let seen = Plain::begin(&Family::below(&[ours])).end();
        let threads = fed(&format!(
            "{ours} 1.0 clone(child_stack=NULL) = 4000001 <0.1>\n4000001 1.1 getpid() = 4000001 <0.1>\n\
            4000009 1.1 getpid() = 4000009 <0.1>\n"
        ));
        let name = seen.role(ours).unwrap().to_string();
        let costs = threads.by_role(&seen).each(1.0);
        let calls =
            |role: &str| costs.iter().find(|one| one.role == role).unwrap().each["system_calls"];
        assert_eq!((calls(&name), calls(UNKNOWN)), (2.0, 1.0));
    }
}
