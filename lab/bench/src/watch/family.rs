//! All processes of a mailer: those that are named and all below them, as /proc shows them now.
//!
//! Must never leave a daemon out: orphans of a process namespace become children of its first process, so they stay
//! below whoever started the namespace.

use std::collections::{BTreeMap, BTreeSet};

/// The kernel counts CPU time for /proc in these, on every machine that matters.
const TICKS_PER_SECOND: f64 = 100.0;

/// A mailer's processes, by the ones that all others descend from.
#[derive(Clone, Debug)]
pub struct Family {
    roots: Vec<u32>,
    /// That do not belong to it, though what is below them does.
    strangers: Vec<u32>,
}

/// One process, as /proc/PID/stat tells of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    parent: u32,
    /// Ended, but not buried yet.
    is_dead: bool,
    /// CPU time of its own and of the children that it has buried, in user mode, in seconds.
    pub user_s: f64,
    /// The same in the kernel.
    pub system_s: f64,
}

impl Family {
    /// The processes `roots` and all below them. A mailer in a process namespace is below the `unshare` that made it;
    /// of one that runs already all first processes are to be named.
    pub fn below(roots: &[u32]) -> Family {
        Family { roots: roots.to_vec(), strangers: Vec::new() }
    }

    /// Without this process, whose children stay: a tracer that started the mailer.
    pub fn without(mut self, stranger: Option<u32>) -> Family {
        self.strangers.extend(stranger);
        self
    }

    /// Those that live now, in the order of their numbers.
    pub fn members(&self) -> BTreeMap<u32, Member> {
        self.of(&everybody())
    }

    /// The numbers of those that are not just dead and waited for.
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

/// Every process that can be seen. One that ends while we look is left out.
fn everybody() -> BTreeMap<u32, Member> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let read = |pid: u32| {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, Member::parse(&String::from_utf8_lossy(&text))?))
    };
    pids.filter_map(read).collect()
}

impl Member {
    fn parse(stat: &str) -> Option<Member> {
        let (_, fields) = stat.rsplit_once(')')?; // a name may have anything in it
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let seconds = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
        Some(Member {
            is_dead: matches!(*fields.first()?, "Z" | "X"),
            parent: fields.get(1)?.parse().ok()?,
            user_s: seconds(11)? + seconds(13)?,
            system_s: seconds(12)? + seconds(14)?,
        })
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
    fn a_name_with_a_bracket_and_spaces_is_no_end_of_the_name() {
        let stat = "17 (a) b (c) S 4 1 1 0 -1 0 0 0 0 0 100 200 300 400 20 0 1 0 5 0 0";
        assert_eq!(
            Member::parse(stat).unwrap(),
            Member { parent: 4, is_dead: false, user_s: 4.0, system_s: 6.0 }
        );
        assert_eq!(Member::parse("17 (a) S 4"), None);
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
