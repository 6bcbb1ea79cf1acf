//! The conversations between our processes, as machines without I/O.
//!
//! Must never touch a socket or a clock: bytes come in by argument and go out as buffers.
//!
//! | conversation | ends | carries |
//! |---|---|---|
//! | [`receive`] | receive, queue | bodies and envelopes in, promises out |
//! | [`send`] | queue, send or local | attempts and bodies out, outcomes back |
//! | [`control`] | master, every child | sockets of new peers, settings, drain |
//! | [`admin`] | command line, queue | requests of an operator, and their answers |
//!
//! [`bounds`] says what fits into a frame, and [`streams`] when master replaces a lost stream.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod admin;
pub mod bounds;
pub mod control;
pub mod frame;
pub mod receive;
pub mod recipients;
pub mod send;
pub mod streams;

use serde::{Deserialize, Serialize};

/// Error that ends a conversation. The other end is one of our processes, so each is a bug or an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LinkError {
    /// A frame is longer than [`frame::FRAME_BYTES_MAX`].
    #[error("frame too long")]
    FrameTooLong,
    /// A frame does not decode.
    #[error("frame does not decode")]
    Garbage,
    /// This end does not accept that message, or not now.
    #[error("message not accepted here")]
    NotAccepted,
    /// The other end is another build.
    #[error("peer is another build of posthaste; restart the service")]
    WrongBuild,
    /// The other end sent more than its credit allows.
    #[error("peer sent more than its credit")]
    OverCredit,
    /// `Committed` names a transaction that is not outstanding, or has another checksum.
    #[error("answer does not fit an outstanding transaction")]
    WrongAnswer,
    /// A sending process fetched, continued or reported an attempt that it was not given.
    #[error("peer spoke of mail that it was not given")]
    NotGiven,
}
