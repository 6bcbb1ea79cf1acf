//! The envelope: who sends to whom, with what was asked of the delivery (RFC 5321 2.3.1,
//! RFC 3461), and where it came from.
//!
//! Must never hold a byte of the message.

use crate::{Address, MailFrom, Wall};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Everything about a message but its bytes. This is what the spool's message record holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// MAIL FROM.
    pub from: MailFrom,
    /// Where it came from.
    pub origin: Origin,
    /// When the last byte had been received.
    pub arrived: Wall,
    /// At least one.
    pub recipients: Vec<Recipient>,
}

impl Envelope {
    /// Whether every text of a client's in it is as the session that took it lets it pass: one
    /// word without controls, so that it ends no command and no header of ours. For what comes
    /// from a process that strangers talk to; addresses are valid because they exist.
    pub fn is_sound(&self) -> bool {
        let word = |text: &str| !text.chars().any(|c| c == ' ' || c.is_control());
        let orcpts = self.recipients.iter().filter_map(|recipient| recipient.orcpt.as_deref());
        !self.recipients.is_empty()
            && word(&self.origin.helo)
            && self.from.envid.as_deref().is_none_or(word)
            && orcpts.into_iter().all(word)
    }
}

/// One recipient; its index in `Envelope::recipients` is its name from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// RCPT TO.
    pub address: Address,
    /// NOTIFY= (RFC 3461 4.1).
    pub notify: Notify,
    /// ORCPT=, `type;xtext` like it came (RFC 3461 4.2).
    pub orcpt: Option<Box<str>>,
}

/// RET= (RFC 3461 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ret {
    /// The whole message goes into a bounce.
    Full,
    /// Only its headers.
    Headers,
}

/// NOTIFY= as a set (RFC 3461 4.1). The default is that of a client that did not ask: failure,
/// and delay as we please.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Notify(u8);

impl Notify {
    /// No NOTIFY parameter: failures, and delay notices by our own policy.
    pub const DEFAULT: Notify = Notify(0);
    /// `NEVER`.
    pub const NEVER: Notify = Notify(1);

    /// `NOTIFY=` with a list of the three.
    pub const fn of(success: bool, failure: bool, delay: bool) -> Notify {
        Notify((success as u8) << 1 | (failure as u8) << 2 | (delay as u8) << 3)
    }

    /// The client gave a NOTIFY parameter.
    pub const fn is_given(self) -> bool {
        self.0 != 0
    }

    /// A bounce is wanted.
    pub const fn failure(self) -> bool {
        self.0 == 0 || self.0 & 4 != 0
    }

    /// A notice of success is wanted.
    pub const fn success(self) -> bool {
        self.0 & 2 != 0
    }

    /// A delay notice may be sent.
    pub const fn delay(self) -> bool {
        self.0 == 0 || self.0 & 8 != 0
    }

    /// As it is passed on in RCPT, without `NOTIFY=`; `None` where the client gave none.
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

/// What the client declared with BODY= (RFC 6152), and whether the message keeps to it. BINARYMIME
/// is not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyKind {
    /// `7BIT`, or none given.
    SevenBit,
    /// `8BITMIME`. Only this declaration binds us at a next hop without 8BITMIME.
    EightBit,
    /// `7BIT`, or none given, although the message has 8-bit bytes.
    UndeclaredEightBit,
}

impl BodyKind {
    /// The kind of a message that was declared as `self`, once its bytes are known.
    #[must_use]
    pub const fn with_bytes(self, eight_bit: bool) -> BodyKind {
        match (self, eight_bit) {
            (BodyKind::SevenBit, true) => BodyKind::UndeclaredEightBit,
            (kind, _) => kind,
        }
    }
}

/// Where a message came from; the facts of its Received line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The client's address; `None` for what we made ourselves or a Unix socket brought.
    pub client: Option<IpAddr>,
    /// The argument of HELO, EHLO or LHLO, checked; empty for what we made ourselves.
    pub helo: Box<str>,
    /// How it came.
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
    /// Made here: a bounce or a notice.
    Local,
}
