//! What a session tells its driver, and what the driver answers.
//!
//! Must never carry more of a message than one chunk.

use super::DeliveredTo;
use mail::{MailFrom, Protocol, Recipient};

/// Something the client did. *Asks* means: nothing more is read from the client until the
/// driver has called the named function. A reply of 421 or 521 also closes the connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// HELO, EHLO or LHLO. Asks: `answer`.
    Hello {
        /// Its argument: one word of harmless characters.
        name: Box<str>,
        /// `Smtp`, `Esmtp` or `Lmtp`.
        protocol: Protocol,
    },
    /// MAIL: a transaction is to begin. Asks: `answer`.
    Mail(Mail),
    /// RCPT. Asks: `answer`.
    Rcpt(Recipient),
    /// DATA, or the first BDAT: the body is to come. Asks: `answer`. A refusal ends the
    /// transaction, and no `Reset` follows.
    Data,
    /// A full chunk of the body, as it is to be kept.
    Body(Vec<u8>),
    /// The body is over, and whole. Asks: `promise` or `refuse`; both end the transaction.
    BodyEnd(BodyEnd),
    /// The transaction that MAIL began is given up: what was staged of it can go.
    Reset,
    /// The connection ends once the output is written. Comes once, last.
    Close {
        /// The last reply answers QUIT: the client expects the end.
        after_quit: bool,
    },
}

/// MAIL FROM and what came with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The sender and the parameters that go on with the message.
    pub from: MailFrom,
    /// SIZE, as the client announces it. The octets are counted nevertheless.
    pub size: Option<u64>,
    /// For the Received field, SMTPUTF8 regarded.
    pub protocol: Protocol,
}

/// The end of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyEnd {
    /// What no `Body` has brought yet: for a small message, all of it.
    pub tail: Vec<u8>,
    /// Octets of the whole message as it is to be kept.
    pub bytes: u64,
    /// Received fields it came with.
    pub hops: u32,
    /// To whom it has been delivered before.
    pub delivered_to: DeliveredTo,
    /// It has octets above 127.
    pub eight_bit: bool,
}
