//! The envelope: sender, recipients, what the client requested of the delivery (RFC 5321 2.3.1, RFC 3461), and where the
//! message came from.
//!
//! Must never hold a byte of the message.

use crate::{Address, MailFrom, Timestamp};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Everything about a message except its bytes. The spool's record of a message holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// MAIL FROM.
    pub from: MailFrom,
    /// Where the message came from.
    pub origin: Origin,
    /// When the last byte was received.
    pub arrived: Timestamp,
    /// At least one recipient.
    pub recipients: Vec<Recipient>,
}

impl Envelope {
    /// Returns whether every text of the client is a single word without control characters, as the session that
    /// accepted it ensures. Such a text cannot end a command or a header of ours.
    ///
    /// Envelopes from a process that talks to strangers must be checked. Addresses need no check: they are valid
    /// because they exist.
    pub fn is_sound(&self) -> bool {
        let word = |text: &str| !text.chars().any(|c| c == ' ' || c.is_control());
        let orcpts = self.recipients.iter().filter_map(|recipient| recipient.orcpt.as_deref());
        !self.recipients.is_empty()
            && word(&self.origin.helo)
            && self.from.envid.as_deref().is_none_or(word)
            && orcpts.into_iter().all(word)
    }
}

/// One recipient. Its index in `Envelope::recipients` identifies it from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// RCPT TO.
    pub address: Address,
    /// NOTIFY= (RFC 3461 4.1).
    pub notify: Notify,
    /// ORCPT=, `type;xtext` as the client sent it (RFC 3461 4.2).
    pub orcpt: Option<Box<str>>,
}

/// RET= (RFC 3461 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ret {
    /// A bounce returns the whole message.
    Full,
    /// A bounce returns only the headers.
    Headers,
}

/// NOTIFY= as a set (RFC 3461 4.1). The default applies if the client gave no NOTIFY: failure notices, and delay notices
/// by our own policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Notify(u8);

impl Notify {
    /// No NOTIFY parameter: failure notices, and delay notices by our own policy.
    pub const DEFAULT: Notify = Notify(0);
    /// `NEVER`.
    pub const NEVER: Notify = Notify(1);

    /// Makes the set for `NOTIFY=` with a list of these.
    pub const fn of(success: bool, failure: bool, delay: bool) -> Notify {
        Notify((success as u8) << 1 | (failure as u8) << 2 | (delay as u8) << 3)
    }

    /// Returns whether the client gave a NOTIFY parameter.
    pub const fn is_given(self) -> bool {
        self.0 != 0
    }

    /// Returns whether the sender wants a bounce.
    pub const fn failure(self) -> bool {
        self.0 == 0 || self.0 & 4 != 0
    }

    /// Returns whether the sender wants a notice of success.
    pub const fn success(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns whether a delay notice may be sent.
    pub const fn delay(self) -> bool {
        self.0 == 0 || self.0 & 8 != 0
    }

    /// Returns the value for RCPT at the next hop, without `NOTIFY=`, or `None` if the client gave none.
    pub fn parameter(self) -> Option<String> {
        if self == Notify::NEVER {
            return Some("NEVER".into());
        }
        let words = [(2, "SUCCESS"), (4, "FAILURE"), (8, "DELAY")];
        let given: Vec<_> =
            words.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, word)| *word).collect();
        (!given.is_empty()).then(|| given.join(","))
    }
}

/// What the client declared with BODY= (RFC 6152), and whether the message conforms. BINARYMIME is not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyKind {
    /// `7BIT`, or none given.
    SevenBit,
    /// `8BITMIME`. Only this declaration forbids sending 8-bit bytes to a next hop without 8BITMIME.
    EightBit,
    /// `7BIT` or none given, but the message has 8-bit bytes.
    UndeclaredEightBit,
}

impl BodyKind {
    /// Returns the kind of a message that was declared as `self`, once its bytes are known.
    #[must_use]
    pub const fn with_bytes(self, eight_bit: bool) -> BodyKind {
        match (self, eight_bit) {
            (BodyKind::SevenBit, true) => BodyKind::UndeclaredEightBit,
            (kind, _) => kind,
        }
    }
}

/// Where a message came from: the facts for its Received line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The client's address; `None` for our own notices and for clients of a Unix socket.
    pub client: Option<IpAddr>,
    /// The argument of HELO, EHLO or LHLO, checked; empty for our own notices.
    pub helo: Box<str>,
    /// The protocol that the client used.
    pub protocol: Protocol,
}

/// The word after `with` in Received (RFC 3848, RFC 6531 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// HELO.
    Smtp,
    /// EHLO.
    Esmtp,
    /// LHLO.
    Lmtp,
    /// EHLO with the SMTPUTF8 parameter.
    Utf8Smtp,
    /// LHLO with the SMTPUTF8 parameter.
    Utf8Lmtp,
    /// No protocol: a bounce or another notice that was made here.
    Local,
}
