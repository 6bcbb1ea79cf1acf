//! CPU time of a family of processes: from a control group of its own if one can be made, else from /proc.
//!
//! Must never move a process that someone else put into a group, and never leave a group behind.

use super::family::Family;
use crate::machine::group_of;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Rounds of moving processes, since new ones may be born meanwhile.
const MOVES_MAX: usize = 10;
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// In user mode.
    pub user_s: f64,
    /// In the kernel.
    pub system_s: f64,
}

/// The source of the figures.
pub enum Meter {
    /// A control group: exact, with all processes that were born and ended.
    Group(Group),
    /// /proc: living processes with the children that they have waited for.
    Processes(Family),
}

/// A control group for one family.
pub struct Group {
    version: Version,
    directory: PathBuf,
    /// The group that the processes came from.
    parent: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Meter {
    /// Begins to measure the family.
    pub fn of(family: &Family) -> Meter {
        // Below the group in which we are.
        let places = [(Version::Two, group_of("")), (Version::One, group_of("cpuacct"))];
        match places.into_iter().find_map(|(version, parent)| Group::with(family, version, parent?))
        {
            Some(group) => Meter::Group(group),
            None => Meter::Processes(family.clone()),
        }
    }

    /// Returns the time used since a fixed moment.
    pub fn read(&self) -> Times {
        match self {
            Meter::Group(group) => group.read(),
            Meter::Processes(family) => {
                family.members().values().fold(Times::default(), |sum, member| Times {
                    user_s: sum.user_s + member.user_s,
                    system_s: sum.system_s + member.system_s,
                })
            }
        }
    }

    /// Describes the source of the figures.
    pub fn how(&self) -> &'static str {
        match self {
            Meter::Group(Group { version: Version::Two, .. }) => "cgroup v2 cpu.stat",
            Meter::Group(Group { version: Version::One, .. }) => "cgroup v1 cpuacct",
            Meter::Processes(_) => {
                "/proc/PID/stat of living processes with the children they waited for, in steps of 10 ms"
            }
        }
    }
}

impl Group {
    /// Makes a group below `parent` and moves the family into it; `None` if that fails.
    fn with(family: &Family, version: Version, parent: PathBuf) -> Option<Group> {
        let ours = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = Group::make(version, parent)?;
        for _ in 0..MOVES_MAX {
            let inside = group.pids();
            let outside: Vec<u32> =
                family.pids().into_iter().filter(|pid| !inside.contains(pid)).collect();
            if outside.is_empty() {
                return Some(group);
            }
            for pid in outside {
                let theirs = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
                if theirs.is_ok_and(|theirs| theirs != ours) {
                    return None; // someone else's; what we have moved goes back
                }
                let _ = move_to(&group.directory, pid); // it may have ended
            }
        }
        None
    }

    fn make(version: Version, parent: PathBuf) -> Option<Group> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("posthaste-lab-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let directory = parent.join(name);
        std::fs::create_dir(&directory).ok()?;
        let group = Group { version, directory, parent };
        group.counter().exists().then_some(group)
    }

    fn counter(&self) -> PathBuf {
        self.directory.join(match self.version {
            Version::One => "cpuacct.usage",
            Version::Two => "cpu.stat",
        })
    }

    fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn read(&self) -> Times {
        let text = std::fs::read_to_string(self.counter()).unwrap_or_default();
        match self.version {
            Version::Two => Times {
                user_s: row(&text, "user_usec") / 1e6,
                system_s: row(&text, "system_usec") / 1e6,
            },
            Version::One => {
                // The sum is exact; how it is shared is known in ticks only.
                let total_s = text.trim().parse().unwrap_or(0.0) / 1e9;
                let ticks = std::fs::read_to_string(self.directory.join("cpuacct.stat"))
                    .unwrap_or_default();
                let [user, system] =
                    ["user", "system"].map(|name| row(&ticks, name) / TICKS_PER_SECOND);
                let share = if user + system > 0.0 { user / (user + system) } else { 0.5 };
                Times { user_s: total_s * share, system_s: total_s * (1.0 - share) }
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..MOVES_MAX {
            for pid in self.pids() {
                let _ = move_to(&self.parent, pid); // it may have ended
            }
            if std::fs::remove_dir(&self.directory).is_ok() {
                return;
            }
        }
    }
}

fn move_to(group: &Path, pid: u32) -> std::io::Result<()> {
    std::fs::write(group.join("cgroup.procs"), pid.to_string())
}

fn row(text: &str, name: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A shell whose children work and end, one after the other.
    fn busy() -> std::process::Child {
        let work = "while :; do sh -c 'i=0; while [ $i -lt 9000 ]; do i=$((i+1)); done'; done";
        Command::new("sh").args(["-c", work]).spawn().unwrap()
    }

    fn used(meter: &Meter) -> f64 {
        let Times { user_s, system_s } = meter.read();
        user_s + system_s
    }

    #[test]
    fn the_work_of_children_that_have_ended_is_counted_by_each_meter() {
        let mut shell = busy();
        let family = Family::below(&[shell.id()]);
        let group = |version, controller| {
            let group = Group::with(&family, version, group_of(controller)?);
            group.map(Meter::Group)
        };
        let makers: [&dyn Fn() -> Option<Meter>; 3] =
            [&|| Some(Meter::Processes(family.clone())), &|| group(Version::Two, ""), &|| {
                group(Version::One, "cpuacct")
            }];
        // One after the other: once moved into a group of one tree, its groups are not ours any more.
        for make in makers {
            let Some(meter) = make() else { continue }; // not to be had here
            let before = used(&meter);
            let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while used(&meter) - before < 0.1 && std::time::Instant::now() < end {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            assert!(used(&meter) - before >= 0.1, "{}: work was done and not seen", meter.how());
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn no_group_is_left_behind() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let meter = Meter::of(&Family::below(&[sleeper.id()]));
        let directory = match &meter {
            Meter::Group(group) => group.directory.clone(),
            Meter::Processes(_) => PathBuf::from("/nowhere"), // no right to make one here
        };
        drop(meter);
        let gone = !directory.exists();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(gone);
    }
}
