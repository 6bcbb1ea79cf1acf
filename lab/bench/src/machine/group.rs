//! The directory of this process's control group.
//!
//! Must never claim that the directory is writable.

use std::path::PathBuf;

/// Returns the group in the version 1 tree with this controller, or in the version 2 tree for an empty name.
pub fn group_of(controller: &str) -> Option<PathBuf> {
    let ours = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    find(controller, &ours, &mounts)
}

fn find(controller: &str, ours: &str, mounts: &str) -> Option<PathBuf> {
    let own = ours.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let fits = controllers.split(',').any(|name| name == controller);
        fits.then(|| path.trim_start_matches('/'))
    })?;
    let point = mounts.lines().filter_map(|line| point(line, controller)).next_back()?;
    Some(point.join(own))
}

/// Returns the mount point, if this line of mountinfo is that tree.
fn point(line: &str, controller: &str) -> Option<PathBuf> {
    let (own, rest) = line.split_once(" - ")?;
    let mut rest = rest.split(' ');
    let (kind, options) = (rest.next()?, rest.nth(1)?);
    let fits = match controller {
        "" => kind == "cgroup2",
        name => kind == "cgroup" && options.split(',').any(|option| option == name),
    };
    fits.then(|| PathBuf::from(own.split(' ').nth(4).unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "33 31 0:30 / /cg/cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn our_own_group_is_found_in_each_tree() {
        let ours = "3:cpu,cpuacct:/a\n2:memory:/m\n0::/b/c\n";
        assert_eq!(find("", ours, MOUNTS), Some("/cg/unified/b/c".into()));
        assert_eq!(find("cpuacct", ours, MOUNTS), Some("/cg/cpuacct/a".into()));
        assert_eq!(find("memory", ours, MOUNTS), None);
        assert_eq!(find("blkio", ours, MOUNTS), None);
        assert_eq!(find("", ours, ""), None);
    }
}
