//! The settings of a client session: the dialect, our name, and the timeouts.
//!
//! Must never hold data of a message.

use std::time::Duration;

/// The protocol of the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SMTP: EHLO, or HELO if EHLO is refused; one reply after the data (RFC 5321).
    Smtp,
    /// LMTP: LHLO; one reply for each accepted recipient after the data (RFC 2033).
    Lmtp,
}

/// The settings that all sessions of a process share.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The argument of EHLO, HELO and LHLO.
    pub helo: Box<str>,
    /// How long the session waits for each reply.
    pub timeouts: Timeouts,
    /// Whether BDAT is used if the peer offers it.
    pub chunking: bool,
}

/// How long the session waits (RFC 5321 4.5.3.2). Single bytes that arrive do not extend a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For 220 (RFC 5321 4.5.3.2.1).
    pub greeting: Duration,
    /// For the answer to EHLO, HELO, LHLO and RSET.
    pub hello: Duration,
    /// For the answer to MAIL (4.5.3.2.2).
    pub mail: Duration,
    /// For the answer to each RCPT (4.5.3.2.3).
    pub rcpt: Duration,
    /// For 354 (4.5.3.2.4).
    pub data: Duration,
    /// For the peer to take any bytes of the body (4.5.3.2.5).
    pub block: Duration,
    /// For the answer to the final dot (4.5.3.2.6).
    pub end: Duration,
    /// For one message from its first command to its last reply.
    pub total: Duration,
}

impl Timeouts {
    /// The daemon's timeouts, for tests of any crate.
    pub fn for_tests() -> Timeouts {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Timeouts {
            greeting: minutes(5),
            hello: minutes(5),
            mail: minutes(5),
            rcpt: minutes(5),
            data: minutes(2),
            block: minutes(3),
            end: minutes(10),
            total: minutes(60),
        }
    }
}

impl Settings {
    /// The daemon's settings with `localhost` as its name, for tests of any crate.
    ///
    /// Product code fills every field itself; tidy refuses a call from it.
    pub fn for_tests() -> Settings {
        Settings { helo: "localhost".into(), timeouts: Timeouts::for_tests(), chunking: true }
    }
}
