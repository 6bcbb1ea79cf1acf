//! Finds out by looking whether a mailer says 250 only after a sync of its queue.
//!
//! Must never assume: what cannot be seen from outside is `Unknown`.

use super::family::Family;
use super::moments::{Moments, Sync, TRACED, Target, open_now};
use super::probe::{Probe, Sent};
use super::tracer::Tracer;
use anyhow::{Context, Result};
use report::record::{Class, Durability};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Messages sent: half of them with a connection each, half over one.
pub const MESSAGES: u64 = 20;

/// The directory below which a sync counts.
struct Queue {
    /// Its path for us, and for strace.
    paths: Vec<PathBuf>,
    device: u64,
}

/// Sends messages to a running mailer and looks for syncs of anything below `queue` before each 250.
pub fn find(probe: &Probe<'_>, family: &Family, queue: &Path) -> Result<Durability> {
    let queue = Queue::at(queue, &family.pids())?;
    let tracer = Tracer::attach(family, &["-s", "4", "-y", "-e", TRACED])?;
    let (open, mut hides) = open_now(&family.pids());
    let sent = probe.send(MESSAGES);
    let parts: Vec<Moments> = tracer.detach()?;
    let sent = sent?;
    let (mut syncs, mut replies) = (Vec::new(), Vec::new());
    for mut part in parts {
        part.settle(open.clone());
        hides |= part.hides;
        syncs.append(&mut part.syncs);
        replies.append(&mut part.replies);
    }
    syncs.retain(|sync| queue.holds(&sync.target));
    Ok(judge(&sent, &syncs, &replies, hides))
}

fn judge(sent: &[Sent], syncs: &[Sync], replies: &[f64], hides: bool) -> Durability {
    let counts: Vec<usize> = sent.iter().map(|sent| syncs_before(sent, syncs, replies)).collect();
    let synced = counts.iter().filter(|count| **count > 0).count();
    let class = match synced {
        _ if counts.is_empty() => Class::Unknown,
        all if all == counts.len() => Class::Synced,
        _ if hides => Class::Unknown,
        0 => Class::Unsynced,
        _ => Class::Sometimes,
    };
    let hidden =
        if hides { "; it uses io_uring or io_submit, where syncs cannot be seen" } else { "" };
    Durability {
        class,
        syncs_before_250: counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64,
        messages: counts.len() as u64,
        how: format!(
            "strace -f -y: syncs of anything below the queue directory that ended between a message's last write and \
            its 250, messages one at a time{hidden}"
        ),
    }
}

/// Syncs that ended after the message was given away, and before the mailer began to say 250; where that was not seen,
/// before we had read it.
fn syncs_before(sent: &Sent, syncs: &[Sync], replies: &[f64]) -> usize {
    let inside = replies.iter().copied().filter(|at| (sent.given..sent.taken).contains(at));
    let end = inside.reduce(f64::max).unwrap_or(sent.taken);
    syncs.iter().filter(|sync| (sent.given..=end).contains(&sync.end)).count()
}

impl Queue {
    fn at(path: &Path, pids: &[u32]) -> Result<Queue> {
        let path = path.canonicalize().with_context(|| path.display().to_string())?;
        let device = std::fs::metadata(&path)?.dev();
        let seen = pids.iter().filter_map(|pid| as_seen_by_strace(*pid, &path));
        Ok(Queue { paths: seen.chain([path.clone()]).collect(), device })
    }

    fn has(&self, path: &Path) -> bool {
        self.paths.iter().any(|queue| path.starts_with(queue))
    }

    fn holds(&self, target: &Target) -> bool {
        match target {
            Target::File(path) => self.has(path),
            // A file that is gone by now was of the queue if its path says so.
            Target::FileSystem(path) => {
                let device = std::fs::metadata(path).map(|metadata| metadata.dev());
                device.map_or(self.has(path), |device| device == self.device)
            }
            Target::Everything => true,
        }
    }
}

/// What the kernel calls this place of a process when we ask. In a chroot the name of a place in another mount
/// namespace begins with the chroot itself.
fn as_seen_by_strace(pid: u32, path: &Path) -> Option<PathBuf> {
    let inside = Path::new("/proc").join(pid.to_string()).join("root");
    let place = std::fs::File::open(inside.join(path.strip_prefix("/").ok()?)).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(end: f64) -> Sync {
        Sync { end, target: Target::Everything }
    }

    const SENT: [Sent; 2] = [Sent { given: 1.0, taken: 2.0 }, Sent { given: 3.0, taken: 4.0 }];

    #[test]
    fn the_class_says_before_how_many_messages_there_was_a_sync() {
        let class = |syncs: &[f64], hides| {
            let syncs: Vec<Sync> = syncs.iter().copied().map(sync).collect();
            judge(&SENT, &syncs, &[], hides).class
        };
        assert_eq!(class(&[1.5, 1.6, 3.9], false), Class::Synced);
        assert_eq!(class(&[1.5, 2.5], false), Class::Sometimes);
        assert_eq!(class(&[0.9, 2.5, 4.1], false), Class::Unsynced);
        assert_eq!(class(&[1.5, 2.5], true), Class::Unknown);
        assert_eq!(class(&[1.5, 3.5], true), Class::Synced);
        assert_eq!(judge(&[], &[], &[], false).class, Class::Unknown);
    }

    #[test]
    fn a_sync_after_the_reply_began_counts_for_nothing() {
        let found = judge(&SENT, &[sync(1.5), sync(1.8), sync(3.5)], &[1.7, 3.2, 9.0], false);
        assert_eq!((found.class, found.syncs_before_250), (Class::Sometimes, 0.5));
    }
}
