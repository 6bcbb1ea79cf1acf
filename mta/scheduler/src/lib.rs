//! Who is tried when, and how many at once: events and a time in, attempts and changes out.
//!
//! Must never read a clock, draw chance of its own, do I/O, or see a byte of mail.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adopt;
mod age;
mod chance;
mod clock;
mod destination;
mod due;
mod explain;
mod group;
mod list;
mod members;
mod memory;
mod message;
mod operate;
mod order;
mod outcome;
pub mod output;
mod poll;
mod roll;
mod route;
mod run;
mod scheduler;
mod sender_queues;
pub mod settings;
mod snapshot;

pub use list::PAGE_BYTES_MAX;
pub use order::Candidates;
pub use output::{
    Arrival, ArrivingRecipient, Attempt, AttemptId, DestinationId, Notice, NoticeKind, Output,
    Record, Silent, SilentBecause,
};
pub use scheduler::{Scheduler, SchedulerError};
pub use settings::{DestinationLimits, Retry, Settings};
pub use snapshot::RECIPIENTS_MAX;
pub use view::{
    DestinationSummary, Explanation, Filter, Gate, HeldBy, NotAnOrder, ORDERS, Order, Page,
    RECIPIENTS_SHOWN_MAX, Row, RowRecipient, State, Summary, Waiting,
};
