//! The whole queue in a few numbers.
//!
//! Must never hold more destinations than `DESTINATIONS_SHOWN_MAX`.

use mail::NextHop;
use serde::{Deserialize, Serialize};

/// Maximum number of destinations in a summary.
pub const DESTINATIONS_SHOWN_MAX: usize = 20;

/// The whole queue in a few numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Messages in the queue.
    pub messages: u64,
    /// Unfinished recipients.
    pub recipients: u64,
    /// Messages with at least one recipient in flight or ready for an attempt.
    pub active: u64,
    /// Messages of which all recipients wait for the retry schedule.
    pub deferred: u64,
    /// Messages that are held.
    pub held: u64,
    /// Age of the oldest message in seconds.
    pub oldest_seconds: u64,
    /// Attempts in flight.
    pub attempts_in_flight: u32,
    /// Unreachable destinations that are only probed from time to time.
    pub destinations_backing_off: u32,
    /// The destinations with most mail, up to `DESTINATIONS_SHOWN_MAX`.
    pub destinations: Vec<DestinationSummary>,
}

/// One destination in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationSummary {
    /// Next hop of the destination.
    pub hop: NextHop,
    /// Recipient groups that wait or are in flight. All recipients of a message that go to the destination together are
    /// one group.
    pub waiting: u32,
    /// Recipient groups that are ready for an attempt.
    pub ready: u32,
    /// Attempts in flight.
    pub in_flight: u32,
    /// Attempts that the destination may have at once now.
    pub allowed: u32,
    /// Number of consecutive failures to reach the destination.
    pub failures: u16,
}
