//! A slower disk for any mailer: strace starts the mailer, delays each of its syncs, and reports when each
//! ended.
//!
//! Must never make one sync wait for another: a real disk takes the syncs of many together.

use super::moments::{Moments, open_now};
use super::tracer::read_all;
use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

/// What waits for the disk. A question mark: not known to every processor's kernel. `sync_file_range` is none of them:
/// it does not make a disk flush what it has. `pwritev2` is a sync where it has `RWF_DSYNC`; see `Seen::fault`.
const SYNCS: &str = "fsync,fdatasync,sync,syncfs,msync,?pwritev2";
/// Upper bound on a delay: a longer one is a mistake in a file.
const DELAY_MS_MAX: f64 = 60_000.0;

/// See the module.
pub struct SlowDisk {
    pipe: PathBuf,
    delay_us: u64,
    lines: JoinHandle<Moments>,
    /// The last one to close the pipe ends the reader.
    writer: OwnedFd,
}

/// What was seen of a mailer's syncs.
pub struct Seen(Moments);

impl SlowDisk {
    /// Before the mailer is started. `delay_ms`: so much longer each sync takes; 0: they are only counted. `pipe`: a
    /// path at which nothing is yet.
    pub fn new(pipe: &Path, delay_ms: f64) -> Result<SlowDisk> {
        ensure!(
            (0.0..=DELAY_MS_MAX).contains(&delay_ms),
            "a sync cannot take {delay_ms} ms longer"
        );
        let made = rustix::fs::mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        made.with_context(|| pipe.display().to_string())?;
        // With both ends open here nobody waits for strace to come, and none comes too late.
        let reader = open(pipe, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let writer = open(pipe, OFlags::WRONLY)?;
        rustix::fs::fcntl_setfl(&reader, OFlags::empty())?;
        let lines = std::thread::spawn(move || read_all(File::from(reader)));
        let delay_us = (delay_ms * 1000.0).round() as u64;
        Ok(SlowDisk { pipe: pipe.into(), delay_us, lines, writer })
    }

    /// The program and arguments by which the mailer is started. The kernel's filter (`--seccomp-bpf`) stops it at
    /// syncs alone; all other calls are as fast as ever.
    pub fn starter(&self) -> Vec<String> {
        let pipe = self.pipe.display().to_string();
        let traced = format!("trace={SYNCS}");
        let delayed = format!("inject={SYNCS}:delay_enter={}", self.delay_us);
        let mut words =
            vec!["strace", "--seccomp-bpf", "-f", "-q", "-ttt", "-T", "-y", "-s", "0", "-o", &pipe];
        words.extend(["-e", &traced, "-e", "signal=none"]);
        if self.delay_us > 0 {
            words.extend(["-e", &delayed]);
        }
        words.into_iter().map(String::from).collect()
    }

    /// Once the mailer has been killed, and strace with it.
    pub fn finish(self) -> Result<Seen> {
        drop(self.writer);
        let seen = self.lines.join().map(Seen);
        let _ = std::fs::remove_file(&self.pipe); // in a directory that is emptied anyway
        seen.ok().context("the reader of strace's lines has ended badly")
    }

    /// Describes the slow disk.
    pub fn how(&self) -> String {
        let delay_ms = self.delay_us as f64 / 1000.0;
        format!(
            "strace --seccomp-bpf -f, stopping at {} alone; each waits {delay_ms} ms before it begins, any number at \
            once, and then for the real disk",
            SYNCS.replace('?', "")
        )
    }
}

fn open(pipe: &Path, flags: OFlags) -> Result<OwnedFd> {
    let opened = rustix::fs::open(pipe, flags | OFlags::CLOEXEC, Mode::empty());
    opened.with_context(|| pipe.display().to_string())
}

impl Seen {
    /// Returns the number of successful syncs that ended between two moments of [`now`].
    pub fn syncs(&self, from: f64, to: f64) -> usize {
        self.0.syncs.iter().filter(|sync| (from..=to).contains(&sync.end)).count()
    }

    /// Describes calls that were delayed without being syncs.
    pub fn fault(&self) -> Option<String> {
        let others = self.0.writes();
        let text = format!("{others} writes by pwritev2 that were no syncs were held back, too");
        (others > 0).then_some(text)
    }
}

/// Returns the strace among these processes.
pub fn tracer(pids: &[u32]) -> Option<u32> {
    let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
    pids.iter().copied().find(|pid| name(pid).is_ok_and(|name| name.trim() == "strace"))
}

/// Describes a way in which these processes can sync below `queue` without the delay.
pub fn way_around(pids: &[u32], queue: &Path) -> Option<String> {
    let (files, hides) = open_now(pids);
    let synchronous = files.iter().find(|file| file.starts_with(queue));
    let synchronous = synchronous.map(|file| {
        let file = file.display();
        format!(
            "{file} is open so that each write is a sync: those were neither held back nor counted"
        )
    });
    let hidden = || "its syncs by io_uring were neither held back nor counted".to_string();
    synchronous.or_else(|| hides.then(hidden))
}

/// Returns the time in seconds since 1970, as strace prints it.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Two threads and a child, each of which writes and syncs five times in its own way.
    const WORK: &str = "import os, threading\n\
        def work(name, sync):\n\
        \x20 f = os.open(name, os.O_CREAT | os.O_RDWR)\n\
        \x20 for n in range(5):\n\
        \x20   os.pwrite(f, b'x', n)\n\
        \x20   sync(f)\n\
        if os.fork() == 0:\n\
        \x20 work('a', os.fsync)\n\
        \x20 os._exit(0)\n\
        dsync = lambda f: os.pwritev(f, [b'y'], 9, os.RWF_DSYNC)\n\
        threads = [threading.Thread(target=work, args=way) for way in [('b', os.fdatasync), ('c', dsync)]]\n\
        for thread in threads: thread.start()\n\
        for thread in threads: thread.join()\n\
        os.wait()\n";

    fn watched(work: &str, delay_ms: f64) -> (Seen, f64, f64) {
        let place = tempfile::tempdir().unwrap();
        let slow = SlowDisk::new(&place.path().join("syncs"), delay_ms).unwrap();
        let starter = slow.starter();
        let from = now();
        let mut command = Command::new(&starter[0]);
        command.args(&starter[1..]).args(["python3", "-c", work]).current_dir(&place);
        assert!(command.status().unwrap().success());
        (slow.finish().unwrap(), from, now())
    }

    #[test]
    fn each_kind_of_sync_is_held_back_and_counted_and_none_waits_for_another() {
        let (seen, from, to) = watched(WORK, 300.0);
        assert_eq!(seen.syncs(from, to), 15);
        assert_eq!((seen.syncs(0.0, from), seen.fault()), (0, None));
        let mut ends: Vec<f64> = seen.0.syncs.iter().map(|sync| sync.end).collect();
        ends.sort_by(f64::total_cmp);
        assert!(ends[14] - from >= 1.5, "five, one after the other, of each: {ends:?}");
        let together = ends.windows(2).filter(|pair| pair[1] - pair[0] < 0.3).count();
        assert!(
            together > 0,
            "one that had waited for another would have ended 0.3 s after it: {ends:?}"
        );
    }

    #[test]
    fn without_a_delay_they_are_counted_and_a_write_that_is_no_sync_is_named() {
        let plain = "import os\n\
            f = os.open('a', os.O_CREAT | os.O_RDWR)\n\
            os.pwritev(f, [b'x'], 0, os.RWF_APPEND)\n\
            os.fsync(f)\n";
        let (seen, from, to) = watched(plain, 0.0);
        assert_eq!(seen.syncs(from, to), 1);
        assert!(seen.fault().is_some_and(|fault| fault.starts_with("1 writes")));
    }

    #[test]
    fn a_reader_that_no_strace_ever_came_to_still_ends() {
        let place = tempfile::tempdir().unwrap();
        let slow = SlowDisk::new(&place.path().join("syncs"), 1.0).unwrap();
        assert_eq!(slow.finish().unwrap().syncs(0.0, f64::MAX), 0);
        assert!(SlowDisk::new(&place.path().join("syncs"), -1.0).is_err());
    }

    #[test]
    fn a_file_that_is_open_so_that_each_write_is_a_sync_is_a_way_around() {
        use std::os::unix::fs::OpenOptionsExt;
        let place = tempfile::tempdir().unwrap();
        let queue = place.path().canonicalize().unwrap();
        let ours = [std::process::id()];
        assert_eq!(way_around(&ours, &queue), None);
        let mut options = std::fs::OpenOptions::new();
        let flag = OFlags::DSYNC.bits() as i32;
        let _open =
            options.create_new(true).write(true).custom_flags(flag).open(queue.join("q")).unwrap();
        assert!(way_around(&ours, &queue).is_some_and(|said| said.contains("/q is open")));
    }
}
