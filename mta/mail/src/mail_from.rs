//! The sender of a message and the parameters of its MAIL command (RFC 5321 4.1.1.2).
//!
//! Must never hold a recipient.

use crate::{BodyKind, Ret, ReversePath};
use serde::{Deserialize, Serialize};

/// What a client said in MAIL FROM, and what a next hop is told there.
///
/// The order of the fields is part of the spool's format and of the messages between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailFrom {
    /// The address, or the null sender.
    pub sender: ReversePath,
    /// RET, if the client gave it (RFC 3461 4.3).
    pub ret: Option<Ret>,
    /// ENVID, still xtext, if the client gave it (RFC 3461 4.4).
    pub envid: Option<Box<str>>,
    /// BODY, and whether the bytes of the message keep to it (RFC 6152).
    pub body: BodyKind,
    /// True if the client gave SMTPUTF8 (RFC 6531).
    pub smtputf8: bool,
}

impl MailFrom {
    /// A MAIL command without parameters.
    pub const fn new(sender: ReversePath) -> MailFrom {
        MailFrom { sender, ret: None, envid: None, body: BodyKind::SevenBit, smtputf8: false }
    }

    /// Corrects the declared kind of the body once its bytes are known.
    #[must_use]
    pub fn with_bytes(mut self, eight_bit: bool) -> MailFrom {
        self.body = self.body.with_bytes(eight_bit);
        self
    }
}
