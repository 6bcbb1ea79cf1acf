//! The kinds of faults.
//!
//! Must never say when a fault ends: the run knows.

use std::time::Duration;

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its name in the plan.
    pub number: u32,
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

/// When a fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the beginning.
    At(Duration),
    /// At this step of the disk after the last power cut or the beginning.
    DiskStep(u64),
    /// At this delivery between two of our processes.
    LinkStep(u64),
}

/// One of our processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Station {
    /// Queue.
    Queue,
    /// A receiving process.
    Receive(u16),
    /// A sending process; the last one is local.
    Send(u16),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// The power goes, and comes back so much later.
    PowerCut(Duration),
    /// A process is killed, and started again so much later.
    Kill(Station, Duration),
    /// All processes are killed; the disk's cache stays.
    KillAll(Duration),
    /// The stream between queue and a process breaks although both live.
    Unlink(Station),
    /// On the stream between queue and this process something comes that is no frame; true: from
    /// queue.
    Poison(Station, bool, Poison),
    /// A sending process is told to end, as at a change of the settings, and is started again.
    Drain(Station),
    /// The local process is told to end while a batch is under way: the next batch, if there is none now.
    DrainInBatch,
    /// This sending process says what it was not given.
    Lie(Station, Lie),
    /// This number of syncs fail. The disk loses the data that they were for.
    SyncFails(u32),
    /// This number of writes fail.
    WriteFails(u32),
    /// This number of messages are read with a flipped bit. The next read of each is correct.
    BadReads(u32),
    /// The disk has no more room for a while.
    NoRoom(Duration),
    /// Each operation of the disk takes this long for a while.
    SlowDisk(Duration, Duration),
    /// The wall clock is set forward or back by this number of seconds.
    ClockJump(i64),
    /// A domain's next hop cannot be reached for a while.
    Down(u8, Duration),
    /// The DNS cannot say for a while.
    NoDns(Duration),
    /// An operator acts on a message.
    Operator(Act),
}

/// What is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// It claims to be longer than any.
    TooLong,
    /// It does not decode.
    Garbage,
    /// It is a frame, but not one for now: a second greeting.
    Greeting,
}

impl Poison {
    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        let header: &[u8] = match self {
            Poison::TooLong => return vec![0xff; 12],
            Poison::Garbage => &[0xfe; 6],
            // The first variant, with numbers of a build that is none.
            Poison::Greeting => &[0, 99, 9, 9, 0, 0],
        };
        [&(header.len() as u32).to_le_bytes(), header].concat()
    }
}

/// What a sending process says that was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// What became of another process's attempt.
    Outcome,
    /// What became of another message, by an attempt of its own.
    Message,
    /// It asks for the body of another message, by an attempt of its own.
    Fetch,
}

/// What an operator does with a message that chance picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the verbs of the command line
pub enum Act {
    Hold,
    Release,
    Retry,
    Delete,
    Priority,
}

impl Fault {
    /// What it is called in a plan.
    pub(super) fn name(&self) -> String {
        format!("f{}", self.number)
    }
}
