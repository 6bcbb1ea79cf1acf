//! The moments at which a sync of the queue ended and a `250` began to be sent, from strace's lines.
//!
//! Must never count a sync of another file as one of the queue: the path decides.

use super::calls::Returned;
use super::tracer::Lines;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The traced calls. A question mark: not every processor's kernel has it.
pub const TRACED: &str = "trace=fsync,fdatasync,sync,syncfs,msync,openat,?open,?creat,?openat2,write,writev,pwrite64,\
    pwritev,?pwritev2,sendto,sendmsg,?io_uring_setup,?io_uring_enter,?io_submit";
/// Calls that write to a file or a socket.
const WRITES: [&str; 7] =
    ["write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg"];
/// Calls that can sync unseen.
const HIDING: [&str; 3] = ["io_uring_setup", "io_uring_enter", "io_submit"];
/// `O_DSYNC`, which is also a part of `O_SYNC`. The flag in rustix 1.1 that has this name is `O_SYNC`.
const O_DSYNC: u32 = 0o10_000;
/// Upper bound on kept moments of each kind; the probe sends few messages.
const MOMENTS_MAX: usize = 100_000;
/// Upper bound on concurrent unfinished calls.
const UNFINISHED_MAX: usize = 10_000;

/// What was made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file or directory.
    File(PathBuf),
    /// The file system in which this lies.
    FileSystem(PathBuf),
    /// Everything.
    Everything,
}

/// A sync that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Sync {
    /// When it ended, in seconds since 1970.
    pub end: f64,
    /// Its target.
    pub target: Target,
}

/// What was seen.
#[derive(Default)]
pub struct Moments {
    /// Successful syncs.
    pub syncs: Vec<Sync>,
    /// Successful writes, by their file: each is a sync if the file was opened so.
    writes: Vec<(f64, PathBuf)>,
    /// The moments at which a reply beginning with 250 began to be sent.
    pub replies: Vec<f64>,
    /// Whether there was a call that can sync unseen.
    pub hides: bool,
    /// Files opened with `O_DSYNC` or `O_SYNC`.
    synchronous: BTreeSet<PathBuf>,
    unfinished: BTreeMap<u32, (f64, String)>,
}

/// A whole call, put together again.
struct Call<'a> {
    pid: u32,
    name: &'a str,
    arguments: &'a str,
    begin: f64,
    end: f64,
}

impl Lines for Moments {
    fn feed(&mut self, line: &str) {
        let Some(call) = Returned::parse(line) else {
            return self.keep(line);
        };
        let begun = if call.resumed { self.unfinished.remove(&call.pid) } else { None };
        self.hides |= HIDING.contains(&call.name);
        if !call.succeeded {
            return;
        }
        // The time of a line that goes on is that of its going on.
        let (begin, end) = match begun {
            Some((begin, _)) => (begin, begin + call.seconds),
            None => (call.time, call.time + call.seconds),
        };
        let whole = begun.as_ref().map(|(_, beginning)| format!("{beginning}{}", call.arguments));
        let arguments = whole.as_deref().unwrap_or(call.arguments);
        self.see(&Call { pid: call.pid, name: call.name, arguments, begin, end });
    }
}

impl Moments {
    fn keep(&mut self, line: &str) {
        let Some(line) = line.strip_suffix(" <unfinished ...>") else { return };
        let Some((pid, time, rest)) = super::calls::head(line) else { return };
        let arguments = rest.split_once('(').map_or("", |(_, arguments)| arguments);
        if self.unfinished.len() < UNFINISHED_MAX {
            self.unfinished.insert(pid, (time, arguments.to_string()));
        }
    }

    fn see(&mut self, call: &Call<'_>) {
        let file = path(call.arguments);
        match call.name {
            "fsync" | "fdatasync" => self.sync(call.end, file.map(Target::File)),
            "syncfs" => self.sync(call.end, file.map(Target::FileSystem)),
            "sync" => self.sync(call.end, Some(Target::Everything)),
            "msync" if call.arguments.contains("MS_SYNC") => {
                self.sync(call.end, mapped(call.pid, call.arguments).map(Target::File));
            }
            "open" | "openat" | "openat2" | "creat" => self.opened(call.arguments),
            name if WRITES.contains(&name) => self.wrote(call, file),
            _ => {}
        }
    }

    fn sync(&mut self, end: f64, target: Option<Target>) {
        if self.syncs.len() < MOMENTS_MAX {
            self.syncs.extend(target.map(|target| Sync { end, target }));
        }
    }

    fn opened(&mut self, arguments: &str) {
        if arguments.contains("O_DSYNC") || arguments.contains("O_SYNC") {
            // The result says which file it is; it stands behind the arguments, so the name has to do.
            self.synchronous.extend(opened_path(arguments));
        }
    }

    fn wrote(&mut self, call: &Call<'_>, file: Option<PathBuf>) {
        if call.arguments.contains("\"250") && file.is_none() {
            if self.replies.len() < MOMENTS_MAX {
                self.replies.push(call.begin);
            }
        } else if call.arguments.contains("RWF_DSYNC") || call.arguments.contains("RWF_SYNC") {
            self.sync(call.end, file.map(Target::File));
        } else if self.writes.len() < MOMENTS_MAX {
            self.writes.extend(file.map(|file| (call.end, file)));
        }
    }

    /// Writes to files that were seen and were no syncs.
    pub fn writes(&self) -> usize {
        self.writes.len()
    }

    /// Writes to files that are open so that each write is a sync become syncs. `open_before` are those that were open
    /// when the trace began.
    pub fn settle(&mut self, open_before: BTreeSet<PathBuf>) {
        self.synchronous.extend(open_before);
        for (end, file) in std::mem::take(&mut self.writes) {
            if self.synchronous.contains(&file) {
                self.syncs.push(Sync { end, target: Target::File(file) });
            }
        }
    }
}

/// The path that `strace -y` puts behind the first descriptor; `None` for what is no file.
fn path(arguments: &str) -> Option<PathBuf> {
    let (number, rest) = arguments.split_once('<')?;
    number.parse::<u32>().ok()?;
    let (path, _) = rest.split_once('>')?;
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// The file of an open: its name, below the directory in which it was opened.
fn opened_path(arguments: &str) -> Option<PathBuf> {
    let (before, rest) = arguments.split_once('"')?;
    let (name, _) = rest.split_once('"')?;
    let directory = before.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    Some(Path::new(directory.map_or("/", |(directory, _)| directory)).join(name))
}

/// The file that is mapped at the address of an msync.
fn mapped(pid: u32, arguments: &str) -> Option<PathBuf> {
    let address = u64::from_str_radix(arguments.strip_prefix("0x")?.split(',').next()?, 16).ok()?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    mapped_in(&maps, address)
}

fn mapped_in(maps: &str, address: u64) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let (from, rest) = line.split_once('-')?;
        let (to, rest) = rest.split_once(' ')?;
        let inside = u64::from_str_radix(from, 16).ok()? <= address
            && address < u64::from_str_radix(to, 16).ok()?;
        let path = rest.find('/').map(|at| PathBuf::from(&rest[at..]));
        path.filter(|_| inside)
    })
}

/// Files that these processes have open so that each write is a sync, and whether one of them has an io_uring.
pub fn open_now(pids: &[u32]) -> (BTreeSet<PathBuf>, bool) {
    let (mut files, mut hides) = (BTreeSet::new(), false);
    for pid in pids {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for entry in entries.flatten() {
            let Ok(path) = std::fs::read_link(entry.path()) else { continue };
            hides |= path.as_os_str() == "anon_inode:[io_uring]";
            let number = entry.file_name();
            if is_synchronous(&format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy())) {
                files.insert(path);
            }
        }
    }
    (files, hides)
}

fn is_synchronous(fdinfo: &str) -> bool {
    let text = std::fs::read_to_string(fdinfo).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    flags & O_DSYNC != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lines: &str) -> Moments {
        let mut moments = Moments::default();
        lines.lines().for_each(|line| moments.feed(line));
        moments
    }

    fn file(path: &str) -> Target {
        Target::File(path.into())
    }

    #[test]
    fn syncs_are_known_by_file_and_by_the_time_of_their_end() {
        let moments = seen(
            "7 10.0 fsync(5</q/y\\76z>(deleted)) = 0 <0.500000>\n\
            7 11.0 fdatasync(6</q> <unfinished ...>\n8 11.5 sync() = 0 <0.250000>\n\
            7 12.0 <... fdatasync resumed>) = 0 <0.750000>\n\
            7 13.0 fsync(5</q/z>) = -1 EIO (Input/output error) <0.000001>\n\
            7 14.0 syncfs(5</q/z>) = 0 <0.000000>\n\
            7 15.0 pwritev2(5</q/w>, [{iov_base=\"x\", iov_len=1}], 1, 0, RWF_DSYNC) = 1 <0.000000>\n",
        );
        let sync = |end, target| Sync { end, target };
        let wanted = [
            sync(10.5, file("/q/y\\76z")),
            sync(11.75, Target::Everything),
            sync(11.75, file("/q")),
            sync(14.0, Target::FileSystem("/q/z".into())),
            sync(15.0, file("/q/w")),
        ];
        assert_eq!(moments.syncs, wanted);
    }

    #[test]
    fn a_write_is_a_sync_only_of_a_file_that_was_opened_so() {
        let mut moments = seen(
            "7 1.0 openat(AT_FDCWD</q>, \"a\", O_WRONLY|O_CREAT|O_DSYNC, 0600) = 3</q/a> <0.000001>\n\
            7 2.0 write(3</q/a>, \"abcd\"..., 9) = 9 <0.000000>\n\
            7 3.0 write(4</q/b>, \"abcd\"..., 9) = 9 <0.000000>\n\
            7 4.0 write(5</q/c>, \"abcd\"..., 9) = 9 <0.000000>\n",
        );
        moments.settle(BTreeSet::from([PathBuf::from("/q/c")]));
        let files: Vec<&Target> = moments.syncs.iter().map(|sync| &sync.target).collect();
        assert_eq!(files, [&file("/q/a"), &file("/q/c")]);
    }

    #[test]
    fn a_reply_is_what_goes_to_no_file() {
        let moments = seen(
            "7 1.0 sendto(3<socket:[682]>, \"250 \"..., 8, 0, NULL, 0) = 8 <0.000008>\n\
            7 2.0 write(3</q/a>, \"250 \"..., 8) = 8 <0.000008>\n\
            7 3.0 writev(4<TCP:[1]>, [{iov_base=\"250 \"..., iov_len=8}], 1) = 8 <0.000008>\n",
        );
        assert_eq!(moments.replies, [1.0, 3.0]);
        assert!(!moments.hides);
        assert!(seen("7 1.0 io_uring_enter(5, 1, 0, 0, NULL, 8) = 1 <0.000001>\n").hides);
    }

    #[test]
    fn a_mapped_file_is_found_by_address() {
        let maps = "1000-2000 rw-p 0 00:00 0 \n2000-3000 rw-s 0 08:01 7    /q/map one\n";
        assert_eq!(mapped_in(maps, 0x2fff), Some("/q/map one".into()));
        assert_eq!(mapped_in(maps, 0x1fff), None);
    }

    #[test]
    fn a_file_that_is_open_for_synchronous_writes_is_seen() {
        use std::os::unix::fs::OpenOptionsExt;
        let place = tempfile::tempdir().unwrap();
        let [synchronous, usual] =
            ["a", "b"].map(|name| place.path().canonicalize().unwrap().join(name));
        let flag = O_DSYNC as i32;
        let mut options = std::fs::OpenOptions::new();
        let _open =
            options.create_new(true).write(true).custom_flags(flag).open(&synchronous).unwrap();
        let _other = std::fs::File::create(&usual).unwrap();
        let (files, _) = open_now(&[std::process::id()]);
        assert!(files.contains(&synchronous) && !files.contains(&usual), "{files:?}");
    }
}
