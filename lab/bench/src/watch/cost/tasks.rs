//! The threads of a family, each with what the kernel has counted for it and what its process is called.
//!
//! Must never take a process for what it was before it became another program.

use crate::watch::family::Family;
use std::collections::BTreeMap;

/// The kernel counts in these, on every machine that matters.
const TICK_US: f64 = 10_000.0;

/// Counters of one thread since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// What its process is called.
    pub role: String,
    /// On a processor, in microseconds.
    pub ran_us: f64,
    /// The share of `ran_us` in user mode, as the kernel's ticks have it; `None` before the first tick.
    pub user_share: Option<f64>,
    /// Times that it went to sleep.
    pub voluntary: f64,
    /// Times that another was put in its place.
    pub involuntary: f64,
    /// Pages that it had to wait for or that were made for it.
    pub faults: f64,
}

/// All threads that live now.
pub fn look(family: &Family) -> BTreeMap<u32, Task> {
    family.pids().into_iter().flat_map(threads).collect()
}

fn threads(pid: u32) -> Vec<(u32, Task)> {
    let Some(role) = role(pid) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let tids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter_map(|tid: u32| Some((tid, read(pid, tid, &role)?))).collect()
}

/// The program's name; of a program that is several processes and says which (`NAME role WHICH`), that word.
fn role(pid: u32) -> Option<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = String::from_utf8_lossy(&words);
    let mut words = words.split('\0');
    let (_, second, third) = (words.next(), words.next(), words.next());
    match (second, third) {
        (Some("role"), Some(which)) => Some(which.to_string()),
        _ => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            Some(name.trim().to_string())
        }
    }
}

fn read(pid: u32, tid: u32, role: &str) -> Option<Task> {
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}")).ok();
    let mut task = Task { role: role.to_string(), ..Task::default() };
    task.take_stat(&file("stat")?)?;
    task.take_status(&file("status")?);
    if let Some(ran_ns) =
        file("schedstat").and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
    {
        task.ran_us = ran_ns / 1000.0;
    }
    Some(task)
}

impl Task {
    fn take_stat(&mut self, stat: &str) -> Option<()> {
        let (_, fields) = stat.rsplit_once(')')?; // a name may have anything in it
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        let (user, system) = (number(11)?, number(12)?);
        self.faults = number(7)? + number(9)?;
        self.ran_us = (user + system) * TICK_US;
        self.user_share = (user + system > 0.0).then(|| user / (user + system));
        Some(())
    }

    fn take_status(&mut self, status: &str) {
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|text| text.trim().parse().ok()).unwrap_or(0.0)
        };
        self.voluntary = value("voluntary_ctxt_switches:");
        self.involuntary = value("nonvoluntary_ctxt_switches:");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_lines_of_proc() {
        let mut task = Task::default();
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 120 9 3 0 30 10 1 1 20 0 1 0 99 1 2";
        task.take_stat(stat).unwrap();
        task.take_status(
            "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n",
        );
        assert_eq!((task.faults, task.ran_us, task.user_share), (123.0, 400_000.0, Some(0.75)));
        assert_eq!((task.voluntary, task.involuntary), (12.0, 3.0));
    }

    #[test]
    fn our_own_threads_are_among_those_that_are_seen() {
        let ours = std::process::id();
        let seen = look(&Family::below(&[ours]));
        assert!(seen.contains_key(&ours));
        assert!(seen[&ours].ran_us > 0.0);
    }
}
