//! What a sending process is told at its start.
//!
//! Must never hold anything of one next hop: limits of a next hop come with each attempt.

use delivery::{Limits, Rules};
use smtp::client;
use std::sync::Arc;
use std::time::Duration;

/// The settings of a connection pool.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The build of this program. The queue process must be of the same build.
    pub build: u64,
    /// Names this incarnation of the process; drawn at random at its start.
    pub incarnation: u64,
    /// Upper bound on attempts that the process takes at once.
    pub attempts_max: u32,
    /// Upper bound on connections over all next hops.
    pub connections_max: usize,
    /// How long a connection without work is kept.
    pub idle: Duration,
    /// How the client speaks SMTP and LMTP.
    pub client: Arc<client::Settings>,
    /// How the addresses of next hops are found.
    pub rules: Arc<Rules>,
    /// How much one attempt may try.
    pub limits: Limits,
}
