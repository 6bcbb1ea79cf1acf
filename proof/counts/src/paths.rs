//! The paths by name.
//!
//! Must never give two different pieces of work one name: the counts are compared by it.

use crate::commit::{self, Load};
use crate::meter::{Count, Part};
use crate::reference;
use crate::schedule::{self, Waiting};
use crate::send::{self, Hop};

/// One path.
pub struct Path {
    /// As `counts.toml` has it.
    pub name: &'static str,
    /// In a line.
    pub what: &'static str,
    /// Carries the messages.
    pub run: fn() -> Count,
}

const ONE: Load = Load { together: 1, recipients: 1, per_connection: 0, pipelined: false };
const LIST: Load = Load { recipients: 100, pipelined: true, ..ONE };
const KEPT: Hop = Hop { recipients: 1, per_connection: 100, chunking: true };

/// All, in the order of a message's way.
pub const PATHS: &[Path] = &[
    Path {
        name: "reference",
        what: "a fixed piece of work of no crate of ours",
        run: reference::count,
    },
    Path {
        name: "receive-connection-each",
        what: "client to 250, a connection for each message",
        run: || commit::count(Part::Receive, Load { per_connection: 1, ..ONE }),
    },
    Path {
        name: "receive-reused",
        what: "client to 250, all on one connection",
        run: || commit::count(Part::Receive, ONE),
    },
    Path {
        name: "receive-100-recipients",
        what: "client to 250, pipelined, 100 recipients",
        run: || commit::count(Part::Receive, LIST),
    },
    Path {
        name: "commit-alone",
        what: "envelope to promise, a commit for each message",
        run: || commit::count(Part::Commit, ONE),
    },
    Path {
        name: "commit-ten",
        what: "envelope to promise, ten messages in a commit",
        run: || commit::count(Part::Commit, Load { together: 10, ..ONE }),
    },
    Path {
        name: "commit-100-recipients",
        what: "envelope to promise, a commit for each message, 100 recipients",
        run: || commit::count(Part::Commit, LIST),
    },
    Path {
        name: "send-connection-each",
        what: "attempt to recorded outcome, a connection for each message, BDAT",
        run: || send::count(Hop { per_connection: 1, ..KEPT }),
    },
    Path {
        name: "send-reused",
        what: "attempt to recorded outcome, 100 messages on a connection, BDAT",
        run: || send::count(KEPT),
    },
    Path {
        name: "send-data",
        what: "attempt to recorded outcome, 100 messages on a connection, DATA",
        run: || send::count(Hop { chunking: false, ..KEPT }),
    },
    Path {
        name: "send-100-recipients",
        what: "attempt to recorded outcome, 100 recipients in a transaction, BDAT",
        run: || send::count(Hop { recipients: 100, ..KEPT }),
    },
    Path {
        name: "schedule-10-queued-1-destination",
        what: "arrival, decision and outcome",
        run: || schedule::count(Waiting { queued: 10, destinations: 1 }),
    },
    Path {
        name: "schedule-10-queued-10000-destinations",
        what: "the same, each message to another of 10,000 destinations",
        run: || schedule::count(Waiting { queued: 10, destinations: 10_000 }),
    },
    Path {
        name: "schedule-100000-queued-1-destination",
        what: "arrival, decision and outcome while 100,000 others wait",
        run: || schedule::count(Waiting { queued: 100_000, destinations: 1 }),
    },
    Path {
        name: "schedule-100000-queued-10000-destinations",
        what: "the same, ten messages for each of 10,000 destinations",
        run: || schedule::count(Waiting { queued: 100_000, destinations: 10_000 }),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_carries_its_messages_and_asks_for_the_same_memory_again() {
        // A thread of its own: hash tables of one thread have different seeds one after the other.
        let run = |path: &Path| std::thread::spawn(path.run).join().unwrap();
        for path in PATHS {
            let count = run(path);
            assert!(count.messages > 0 && count.allocations > 0, "{}: {count}", path.name);
            assert_eq!(count, run(path), "{}", path.name);
        }
    }
}
