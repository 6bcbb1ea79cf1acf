//! CPU time, switches and page faults of a family, as the kernel counts them for each thread.
//!
//! Must never drop a thread that has ended: its last seen counters count.

use super::Sums;
use super::tasks::{self, Task};
use crate::watch::family::Family;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest rest between two looks. What a process does between its last look and its end is not seen.
const REST_MIN: Duration = Duration::from_millis(10);
/// Rest for each unit of time that a look took.
const REST_FACTOR: u32 = 10;

/// A measurement in progress.
pub struct Plain {
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

/// Every thread that was seen.
#[derive(Default)]
pub struct Seen {
    first: BTreeMap<u32, Task>,
    last: BTreeMap<u32, Task>,
}

impl Plain {
    /// Begins to look.
    pub fn begin(family: &Family) -> Plain {
        let first = tasks::look(family);
        let (stop, stopped) = channel();
        let family = family.clone();
        let seen = Seen { last: first.clone(), first };
        Plain { stop, thread: std::thread::spawn(move || watch(&family, seen, &stopped)) }
    }

    /// Ends the measurement. The mailer must still run.
    pub fn end(self) -> Seen {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn watch(family: &Family, mut seen: Seen, stopped: &Receiver<()>) -> Seen {
    loop {
        let start = Instant::now();
        seen.last.extend(tasks::look(family));
        let rest = (start.elapsed() * REST_FACTOR).max(REST_MIN);
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            seen.last.extend(tasks::look(family));
            return seen;
        }
    }
}

impl Seen {
    /// Returns what was used between the first and the last look.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for (tid, last) in &self.last {
            let none = Task::default();
            let first = self.first.get(tid).unwrap_or(&none);
            let ran_us = last.ran_us - first.ran_us;
            let user_us = ran_us * last.user_share.unwrap_or(0.5);
            for (name, amount) in [
                ("user_us", user_us),
                ("system_us", ran_us - user_us),
                ("voluntary_switches", last.voluntary - first.voluntary),
                ("involuntary_switches", last.involuntary - first.involuntary),
                ("page_faults", last.faults - first.faults),
            ] {
                sums.add(&last.role, name, amount.max(0.0));
            }
        }
        sums
    }

    /// Whose thread it was.
    pub fn role(&self, tid: u32) -> Option<&str> {
        self.last.get(&tid).map(|task| task.role.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::cost::PLAIN;
    use std::process::Command;

    #[test]
    fn a_process_that_ended_meanwhile_counts_with_what_it_had_used() {
        let mut shell = Command::new("sh")
            .args(["-c", "timeout 0.3 sh -c 'while :; do :; done'; sleep 30"])
            .spawn()
            .unwrap();
        let plain = Plain::begin(&Family::below(&[shell.id()]));
        std::thread::sleep(Duration::from_millis(1500));
        let seen = plain.end();
        shell.kill().unwrap();
        shell.wait().unwrap();
        let costs = seen.sums().each(1.0);
        let all = costs.last().unwrap();
        assert!(all.each["user_us"] + all.each["system_us"] > 0.0, "{costs:?}");
        assert_eq!(all.each.len(), PLAIN.len());
        assert!(costs.iter().any(|cost| cost.role == "sh"));
    }

    #[test]
    fn what_a_thread_had_before_does_not_count() {
        let task = |ran_us| Task { role: "x".into(), ran_us, ..Task::default() };
        let first = BTreeMap::from([(1, task(500.0))]);
        let last = BTreeMap::from([(1, task(700.0)), (2, task(40.0))]);
        let costs = Seen { first, last }.sums().each(2.0);
        assert_eq!(costs[0].each["user_us"] + costs[0].each["system_us"], 120.0);
    }
}
