//! Settings of a sending process, fixed at its start.
//!
//! Must never hold a limit of one next hop: such limits come with each attempt.

use delivery::{Limits, Rules};
use smtp::client;
use std::sync::Arc;
use std::time::Duration;

/// The settings of a connection pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The build of this program. The queue process must be of the same build.
    pub build: u64,
    /// Incarnation of the process, drawn at random at its start.
    pub incarnation: u64,
    /// Maximum number of attempts that the process holds at once.
    pub attempts_max: u32,
    /// Maximum number of connections to all next hops together.
    pub connections_max: usize,
    /// Time for which a connection without work is kept.
    pub idle: Duration,
    /// How the client speaks SMTP and LMTP.
    pub client: Arc<client::Settings>,
    /// How the addresses of next hops are found.
    pub rules: Arc<Rules>,
    /// How much one attempt may try.
    pub limits: Limits,
}
