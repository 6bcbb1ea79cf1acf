//! The threads that touch the spool's disk: commits apart from reads apart from what has time.
//!
//! Must never run two of the background's jobs at once, nor let one stand before a commit.

use queue::{Read, ReadDone};
use spool::{Class, Io, IoDone};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use world::Clock as _;
use world::real::{Clock, Disk};

/// Reads under way at once.
const READERS: usize = 2;

/// What a thread has done.
#[derive(Debug)]
pub enum Done {
    /// Of the spool, and how long it took.
    Io(IoDone, Duration),
    /// Of the queue.
    Read(Box<ReadDone>),
}

enum DiskJob {
    Io(Io),
    Read(Read),
}

/// Jobs of one kind, bounded by what the spool and the queue have under way.
#[derive(Default)]
struct WorkQueue {
    jobs: Mutex<VecDeque<DiskJob>>,
    there: Condvar,
}

impl WorkQueue {
    fn put(&self, job: DiskJob) {
        self.jobs.lock().expect("no thread panics with the lock").push_back(job);
        self.there.notify_one();
    }

    fn take(&self) -> DiskJob {
        let mut jobs = self.jobs.lock().expect("no thread panics with the lock");
        loop {
            match jobs.pop_front() {
                Some(job) => return job,
                None => jobs = self.there.wait(jobs).expect("no thread panics with the lock"),
            }
        }
    }
}

/// The threads, and what this one does without them.
pub struct Threads {
    here: Disk,
    commit: Arc<WorkQueue>,
    bulk: Arc<WorkQueue>,
    background: Arc<WorkQueue>,
    read: Arc<WorkQueue>,
    done: UnboundedReceiver<Done>,
}

impl Threads {
    /// Starts them; to be called before the jail is shut.
    pub fn start(disk: &Disk, commits_in_flight: usize) -> std::io::Result<Threads> {
        let (tell, done) = unbounded_channel();
        let queue = |name: &str, threads: usize| start(name, threads, disk, &tell);
        Ok(Threads {
            here: disk.another().for_commits(),
            commit: queue("commit", commits_in_flight)?,
            bulk: queue("bulk", 1)?,
            background: queue("background", 1)?,
            read: queue("read", READERS)?,
            done,
        })
    }

    /// Has it done; the end comes from [`Self::done`].
    pub fn io(&self, io: Io) {
        let queue = match io.class() {
            Class::Commit => &self.commit,
            Class::Bulk => &self.bulk,
            Class::Background => &self.background,
        };
        queue.put(DiskJob::Io(io));
    }

    /// Does it now, and comes back at its end.
    pub fn here(&self, io: Io) -> Done {
        timed(&self.here, io)
    }

    /// Has it read.
    pub fn read(&self, read: Read) {
        self.read.put(DiskJob::Read(read));
    }

    /// The next that has ended.
    pub async fn done(&mut self) -> Option<Done> {
        self.done.recv().await
    }

    /// Another that has ended, if there is one already.
    pub fn try_done(&mut self) -> Option<Done> {
        self.done.try_recv().ok()
    }
}

fn timed(disk: &Disk, io: Io) -> Done {
    let began = Clock.now().monotonic;
    let done = spool::execute(disk, io);
    Done::Io(done, Clock.now().monotonic.since(began))
}

fn start(
    name: &str,
    threads: usize,
    disk: &Disk,
    tell: &UnboundedSender<Done>,
) -> std::io::Result<Arc<WorkQueue>> {
    let queue = Arc::new(WorkQueue::default());
    for number in 0..threads {
        let (queue, mut disk, tell) = (queue.clone(), disk.another(), tell.clone());
        if matches!(name, "commit" | "bulk") {
            disk = disk.for_commits();
        }
        let work = move || {
            loop {
                let done = match queue.take() {
                    DiskJob::Io(io) => timed(&disk, io),
                    DiskJob::Read(read) => Done::Read(queue::perform(&disk, read).into()),
                };
                if tell.send(done).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(format!("{name}-{number}")).spawn(work)?;
    }
    Ok(queue)
}
