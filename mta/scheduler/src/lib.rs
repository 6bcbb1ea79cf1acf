//! Decides which recipients are tried when, and how many at once. Events and the time come in; attempts and changes to
//! record come out.
//!
//! Must never read a clock, draw a random number that the seed does not determine, do I/O, or see a byte of mail.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adopt;
mod age;
mod clock;
mod destinations;
mod due;
mod explain;
mod flights;
mod group;
mod list;
mod memory;
mod operate;
mod order;
mod outbox;
mod outcome;
pub mod output;
mod poll;
mod replay;
mod retries;
mod rng;
mod roll;
mod route;
mod run;
mod scheduler;
mod sender_queues;
pub mod settings;
mod snapshot;
mod store;
mod turns;

pub use list::PAGE_BYTES_MAX;
pub use order::Candidates;
pub use output::{
    Arrival, ArrivingRecipient, AttemptId, DestinationId, MessageChanges, NoticeKind, Output,
    PlannedAttempt, PlannedNotice, Silent, SilentBecause,
};
pub use scheduler::{Scheduler, SchedulerError};
pub use settings::{DestinationLimits, Retry, Settings};
pub use snapshot::RECIPIENTS_MAX;
pub use view::{
    DestinationSummary, Explanation, Filter, Gate, HeldBy, ListPage, NotAnOrder, ORDERS, Order,
    RECIPIENTS_SHOWN_MAX, Row, RowRecipient, State, Summary, WaitingRecipient,
};
