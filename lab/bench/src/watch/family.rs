//! All processes of a mailer: the named ones and all their descendants, as /proc shows them now.
//!
//! Must never leave a daemon out: orphans of a process namespace become children of its first process, so they remain
//! descendants of the process that made the namespace.

use procfs::process::Stat;
use std::collections::{BTreeMap, BTreeSet};

/// A mailer's processes, given by those that all others descend from.
#[derive(Clone, Debug)]
pub struct Family {
    roots: Vec<u32>,
    /// Processes that do not belong to the mailer, although their descendants do.
    strangers: Vec<u32>,
}

/// One process, as /proc/PID/stat tells of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    parent: u32,
    /// It has ended, and its parent has not waited for it yet.
    is_dead: bool,
    /// CPU time in user mode of the process and of the children that it has waited for, in seconds.
    pub user_s: f64,
    /// The same in the kernel.
    pub system_s: f64,
}

impl Family {
    /// Returns the processes `roots` and all their descendants. A mailer in a process namespace descends from the
    /// `unshare` that made it; of a mailer that runs already, all first processes must be named.
    pub fn below(roots: &[u32]) -> Family {
        Family { roots: roots.to_vec(), strangers: Vec::new() }
    }

    /// Leaves out this process, but not its children: a tracer that started the mailer.
    pub fn without(mut self, stranger: Option<u32>) -> Family {
        self.strangers.extend(stranger);
        self
    }

    /// Returns the processes that exist now, by their numbers.
    pub fn members(&self) -> BTreeMap<u32, Member> {
        self.of(&everybody())
    }

    /// Returns the numbers of the living processes.
    pub fn pids(&self) -> Vec<u32> {
        let living = self.members().into_iter().filter(|(_, member)| !member.is_dead);
        living.map(|(pid, _)| pid).collect()
    }

    fn of(&self, all: &BTreeMap<u32, Member>) -> BTreeMap<u32, Member> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (pid, member) in all {
            children.entry(member.parent).or_default().push(*pid);
        }
        let mut found = BTreeSet::new();
        let mut next = self.roots.clone();
        while let Some(pid) = next.pop() {
            if all.contains_key(&pid) && found.insert(pid) {
                next.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found.retain(|pid| !self.strangers.contains(pid));
        found.into_iter().map(|pid| (pid, all[&pid])).collect()
    }
}

/// Every process that can be seen. A process that ends during the look is left out.
fn everybody() -> BTreeMap<u32, Member> {
    let Ok(processes) = procfs::process::all_processes() else { return BTreeMap::new() };
    let stats = processes.filter_map(|process| process.ok()?.stat().ok());
    stats.map(|stat| (stat.pid.unsigned_abs(), Member::of(&stat))).collect()
}

impl Member {
    fn of(stat: &Stat) -> Member {
        let seconds = |own: u64, of_children: i64| {
            (own as f64 + of_children as f64) / procfs::ticks_per_second() as f64
        };
        Member {
            is_dead: matches!(stat.state, 'Z' | 'X'),
            parent: stat.ppid.unsigned_abs(),
            user_s: seconds(stat.utime, stat.cutime),
            system_s: seconds(stat.stime, stat.cstime),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn member(parent: u32) -> Member {
        Member { parent, is_dead: false, user_s: 0.0, system_s: 0.0 }
    }

    #[test]
    fn all_below_a_root_belong_to_the_family_and_no_one_else_does() {
        let all = BTreeMap::from([
            (1, member(0)),
            (5, member(1)),
            (6, member(5)),
            (7, member(6)),
            (8, member(1)),
        ]);
        let pids = |roots: &[u32]| Vec::from_iter(Family::below(roots).of(&all).into_keys());
        assert_eq!(pids(&[5]), [5, 6, 7]);
        assert_eq!(pids(&[7, 8, 5]), [5, 6, 7, 8]);
        assert_eq!(pids(&[9]), [] as [u32; 0]);
        let without = Family::below(&[5]).without(Some(6));
        assert_eq!(Vec::from_iter(without.of(&all).into_keys()), [5, 7]);
    }

    #[test]
    fn a_grandchild_is_found() {
        let mut shell = Command::new("sh");
        let mut shell =
            shell.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut reader = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        let grandchild = line.trim().parse().unwrap();
        let pids = Family::below(&[shell.id()]).pids();
        let ours = Family::below(&[std::process::id()]).pids();
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_raw(grandchild).unwrap(),
            rustix::process::Signal::KILL,
        );
        shell.wait().unwrap();
        assert!(pids.contains(&(grandchild as u32)) && pids.contains(&shell.id()), "{pids:?}");
        assert!(ours.contains(&(grandchild as u32)));
    }
}
