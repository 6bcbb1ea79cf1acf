//! The machines of whole processes, between strangers and a queue process that is played.
//!
//! Must never poll a connection without a reason that its driver in the daemon has as well: a lost wake-up would stay
//! unseen.

pub mod receive;
pub mod send;
