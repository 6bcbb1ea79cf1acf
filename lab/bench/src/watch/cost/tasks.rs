//! The threads of a family, each with its kernel counters and the name of its process.
//!
//! Must never cache a process's name: a process may become another program.

use crate::watch::family::Family;
use procfs::process::Process;
use std::collections::BTreeMap;

/// Counters of one thread since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// The name of its process.
    pub role: String,
    /// Time on a processor, in microseconds.
    pub ran_us: f64,
    /// The share of `ran_us` in user mode, as the kernel's ticks have it; `None` before the first tick.
    pub user_share: Option<f64>,
    /// Voluntary context switches.
    pub voluntary: f64,
    /// Involuntary context switches.
    pub involuntary: f64,
    /// Page faults of both kinds.
    pub faults: f64,
}

/// Returns all threads that exist now.
pub fn look(family: &Family) -> BTreeMap<u32, Task> {
    family.pids().into_iter().filter_map(threads).flatten().collect()
}

fn threads(pid: u32) -> Option<Vec<(u32, Task)>> {
    let process = Process::new(pid.try_into().ok()?).ok()?;
    let role = role(&process)?;
    let tasks = process.tasks().ok()?.flatten();
    Some(tasks.filter_map(|task| Some((task.tid.unsigned_abs(), read(&task, &role)?))).collect())
}

/// Returns the program's name, or `WHICH` if the command line is `NAME role WHICH`.
fn role(process: &Process) -> Option<String> {
    let words = process.cmdline().unwrap_or_default();
    match words.get(1..3) {
        Some([role, which]) if role == "role" => Some(which.clone()),
        _ => Some(process.stat().ok()?.comm),
    }
}

fn read(task: &procfs::process::Task, role: &str) -> Option<Task> {
    let (stat, status) = (task.stat().ok()?, task.status().ok()?);
    let (user, both) = (stat.utime as f64, (stat.utime + stat.stime) as f64);
    let ran_us = match task.schedstat() {
        Ok(schedstat) => schedstat.sum_exec_runtime as f64 / 1000.0,
        Err(_) => both * 1e6 / procfs::ticks_per_second() as f64,
    };
    Some(Task {
        role: role.to_string(),
        ran_us,
        user_share: (both > 0.0).then(|| user / both),
        voluntary: status.voluntary_ctxt_switches.unwrap_or(0) as f64,
        involuntary: status.nonvoluntary_ctxt_switches.unwrap_or(0) as f64,
        faults: (stat.minflt + stat.majflt) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_threads_are_among_those_that_are_seen() {
        let ours = std::process::id();
        let seen = look(&Family::below(&[ours]));
        assert!(seen.contains_key(&ours));
        assert!(seen[&ours].ran_us > 0.0);
    }
}
