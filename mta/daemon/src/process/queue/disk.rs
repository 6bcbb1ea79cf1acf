//! The threads that use the spool's disk: for commits, for bulk, for reads, and for work in the background.
//!
//! Must never run two background jobs at once, nor let a background job delay a commit.

use queue::{Read, ReadDone};
use spool::{Class, Io, IoDone};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use world::Clock as _;
use world::real::{Clock, Disk};

/// The number of threads that read.
const READERS: usize = 2;

/// The result of a job.
#[derive(Debug)]
pub enum Done {
    /// A result for the spool, and how long the request took.
    Io(IoDone, Duration),
    /// A result for the queue.
    Read(Box<ReadDone>),
}

enum DiskJob {
    Io(Io),
    Read(Read),
}

/// Jobs of one kind. Their number is bounded by what the spool and the queue have under way.
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

/// The threads that use the disk, and the disk for commits on the calling thread.
pub struct Threads {
    here: Disk,
    commit: Arc<WorkQueue>,
    bulk: Arc<WorkQueue>,
    background: Arc<WorkQueue>,
    read: Arc<WorkQueue>,
    done: UnboundedReceiver<Done>,
}

impl Threads {
    /// Starts the threads. Must be called before the process is confined.
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

    /// Has a thread execute a request. The result comes from [`Self::done`].
    pub fn io(&self, io: Io) {
        let queue = match io.class() {
            Class::Commit => &self.commit,
            Class::Bulk => &self.bulk,
            Class::Background => &self.background,
        };
        queue.put(DiskJob::Io(io));
    }

    /// Executes a request on this thread.
    pub fn here(&self, io: Io) -> Done {
        timed(&self.here, io)
    }

    /// Has a thread read a message. The result comes from [`Self::done`].
    pub fn read(&self, read: Read) {
        self.read.put(DiskJob::Read(read));
    }

    /// Waits for the next result.
    pub async fn done(&mut self) -> Option<Done> {
        self.done.recv().await
    }

    /// Returns another result if there is one.
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
