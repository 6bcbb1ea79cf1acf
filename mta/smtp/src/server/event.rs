//! The events that a session reports to its driver.
//!
//! Must never carry more of a message than one chunk.

use super::DeliveredTo;
use mail::{MailFrom, Protocol, Recipient};

/// An action of the client.
///
/// *Asks* means that the session reads nothing more from the client until the driver has called the
/// named function. An answer of 421 or 521 also closes the connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// HELO, EHLO or LHLO. Asks: `answer`.
    Hello {
        /// The argument: one word that may stand in a Received field.
        name: Box<str>,
        /// `Smtp`, `Esmtp` or `Lmtp`.
        protocol: Protocol,
    },
    /// MAIL, which begins a transaction if it is accepted. Asks: `answer`.
    Mail(Mail),
    /// RCPT. Asks: `answer`.
    Rcpt(Recipient),
    /// DATA or the first BDAT, before the body. Asks: `answer`. A refusal ends the transaction, and no
    /// `Reset` follows.
    Data,
    /// A full chunk of the body, without the framing of SMTP.
    Body(Vec<u8>),
    /// The end of a complete body. Asks: `promise` or `refuse`, which both end the transaction.
    BodyEnd(BodyEnd),
    /// The transaction was given up. The driver drops what it has staged of the message.
    Reset,
    /// The connection ends once the output is written. This is the last event, and it comes once.
    Close {
        /// True if the last reply answers QUIT, so that the client expects the end.
        after_quit: bool,
    },
}

/// MAIL FROM with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The sender and the parameters that are passed on with the message.
    pub from: MailFrom,
    /// SIZE as the client announced it. The octets are counted anyway.
    pub size: Option<u64>,
    /// The protocol for the Received field, which depends on SMTPUTF8.
    pub protocol: Protocol,
}

/// The end of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyEnd {
    /// The bytes after the last `Body` event: all bytes of a small message.
    pub tail: Vec<u8>,
    /// Octets of the whole message without the framing of SMTP.
    pub bytes: u64,
    /// Received fields that the message arrived with.
    pub hops: u32,
    /// The recipients in the Delivered-To fields of the message.
    pub delivered_to: DeliveredTo,
    /// True if the message has an octet above 127.
    pub eight_bit: bool,
}
