//! What people are shown: the gate each recipient waits at, rows, sums.
//!
//! Must never be needed for scheduling: nothing here is kept, all of it is computed when asked.

use crate::output::HeldBy;
use mail::{MessageId, NextHop, Report, Wall};
use std::time::Duration;

/// Everything about one queued message.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Its queue id.
    pub message: MessageId,
    /// MAIL FROM, empty for the null sender.
    pub sender: String,
    /// When it came.
    pub arrived: Wall,
    /// Its size; everything over 4 GiB is shown as that.
    pub bytes: u64,
    /// -100 to 100.
    pub priority: i8,
    /// Who holds it.
    pub held: Option<HeldBy>,
    /// When it will be given up; `None` while it is held.
    pub expires: Option<Wall>,
    /// Those that are not done, by index.
    pub recipients: Vec<Waiting>,
}

/// One recipient and what it waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Index in the envelope.
    pub recipient: u32,
    /// RCPT TO.
    pub address: String,
    /// Where its mail goes.
    pub hop: NextHop,
    /// What it waits for.
    pub gate: Gate,
    /// Since when it waits at this gate, to the second.
    pub since: Wall,
    /// Attempts so far.
    pub attempts: u16,
    /// The last reply in full.
    pub last: Option<Report>,
    /// When it will be tried, as far as that is known.
    pub next_try: Option<Wall>,
}

/// What a recipient waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// Someone holds it.
    Held(HeldBy),
    /// An attempt is being made.
    InFlight,
    /// The schedule.
    RetryAt(Wall),
    /// The destination could not be reached so often that it is only probed now and then.
    DestinationBackoff {
        /// When the next probe is.
        until: Wall,
        /// How often in a row it could not be reached.
        failures: u16,
        /// Why it could not be reached.
        last: Option<Report>,
    },
    /// As many attempts are in flight there as the destination is given.
    DestinationConcurrency {
        /// In flight now.
        in_flight: u32,
        /// Given now.
        allowed: u32,
        /// The setting.
        connections: u32,
    },
    /// The destination's rate.
    RateLimit(Wall),
    /// As many attempts are in flight in all as the settings allow.
    ProcessLimit {
        /// The setting.
        attempts_in_flight_max: u32,
    },
    /// A message that was lost before is tried only when no other such is.
    Suspect,
    /// Its turn among messages, senders and destinations.
    FairShare {
        /// Ready messages of the same destination, this one included.
        ready: u32,
    },
    /// A route `error` or `discard`, carried out at the next `poll`.
    Route,
}

/// The whole queue in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages in the queue.
    pub messages: u64,
    /// Recipients that are not done.
    pub recipients: u64,
    /// Messages that are in flight or ready for it, at least for one recipient.
    pub active: u64,
    /// Messages of which all recipients wait for the schedule.
    pub deferred: u64,
    /// Messages that are held.
    pub held: u64,
    /// Age of the oldest message.
    pub oldest_seconds: u64,
    /// Attempts in flight.
    pub attempts_in_flight: u32,
    /// Destinations that are only probed.
    pub destinations_backing_off: u32,
    /// The fullest destinations, at most `DESTINATIONS_SHOWN_MAX`.
    pub destinations: Vec<DestinationSummary>,
}

/// One destination in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationSummary {
    /// Which.
    pub hop: NextHop,
    /// Transactions that wait or are in flight.
    pub waiting: u32,
    /// Of these, ready.
    pub ready: u32,
    /// Of these, in flight.
    pub in_flight: u32,
    /// Attempts it is given at once now.
    pub allowed: u32,
    /// How often in a row it could not be reached.
    pub failures: u16,
}

/// Which messages; an empty filter is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// A recipient's domain or a next hop as it is shown, or a pattern of these.
    pub destination: Option<String>,
    /// MAIL FROM or a pattern of it; empty: the null sender.
    pub sender: Option<String>,
    /// A recipient that is not done, or a pattern of it.
    pub recipient: Option<String>,
    /// At least so old.
    pub older: Option<Duration>,
    /// In this state.
    pub state: Option<State>,
}

/// A message as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// In flight or ready for it.
    Active,
    /// All recipients wait for the schedule.
    Deferred,
    /// Held.
    Held,
}

/// Some of the messages that pass a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// In the order of their ids.
    pub rows: Vec<Row>,
    /// Where to go on; `None`: that was the end. A page can be empty and still have a next one,
    /// because one call looks at a bounded number of messages.
    pub next: Option<MessageId>,
}

/// One message of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its queue id.
    pub message: MessageId,
    /// MAIL FROM, empty for the null sender.
    pub sender: String,
    /// When it came.
    pub arrived: Wall,
    /// Its size.
    pub bytes: u64,
    /// -100 to 100.
    pub priority: i8,
    /// As a whole.
    pub state: State,
    /// Who holds it.
    pub held: Option<HeldBy>,
    /// How many recipients are not done.
    pub recipients: u32,
    /// The first of them, at most `RECIPIENTS_SHOWN_MAX`.
    pub waiting: Vec<RowRecipient>,
}

impl Row {
    /// What it takes in a page: its texts, and something for each number.
    pub fn bytes_shown(&self) -> usize {
        let recipient = |one: &RowRecipient| {
            let last = one.last.as_ref().map_or(0, |last| last.peer.len() + last.reply.text.len());
            size_of::<RowRecipient>() + one.address.len() + last
        };
        size_of::<Row>() + self.sender.len() + self.waiting.iter().map(recipient).sum::<usize>()
    }
}

/// One recipient of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowRecipient {
    /// Index in the envelope.
    pub recipient: u32,
    /// RCPT TO.
    pub address: String,
    /// Where its mail goes.
    pub hop: NextHop,
    /// The last reply.
    pub last: Option<Report>,
    /// When the schedule has it tried.
    pub due: Option<Wall>,
}

/// Destinations in a summary.
pub const DESTINATIONS_SHOWN_MAX: usize = 20;
/// Recipients in a row.
pub const RECIPIENTS_SHOWN_MAX: usize = 20;
