//! The message as a client session is given it: envelope, and where its bytes come from.
//!
//! Must never hold more of a large body than was asked for.

use bytes::Bytes;
use mail::{Address, BodyKind, Envelope, Recipient, Ret, ReversePath};
use std::borrow::Cow;

/// A body up to this size may be given whole in `Message::content`, and travels with BDAT in the
/// same write as the envelope.
pub const INLINE_BODY_BYTES_MAX: u64 = 64 * 1024;

/// One message for one next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// MAIL FROM.
    pub sender: ReversePath,
    /// RET of its sender.
    pub ret: Option<Ret>,
    /// ENVID of its sender, xtext.
    pub envid: Option<Box<str>>,
    /// BODY of its sender, and whether the bytes keep to it.
    pub body: BodyKind,
    /// Its sender gave SMTPUTF8.
    pub smtputf8: bool,
    /// Whom this next hop shall get it for; outcomes come back in this order.
    pub recipients: Vec<Recipient>,
    /// Headers we add, sent ahead of the body. Lines end in CRLF.
    pub prefix: Bytes,
    /// The body's size without `prefix`.
    pub body_bytes: u64,
    /// The body where it is at hand whole; otherwise it is asked for in pieces.
    pub content: Option<Bytes>,
}

impl Message {
    /// The message of this envelope for the recipients with these indices; an index outside the
    /// envelope is left out.
    pub fn of(envelope: &Envelope, recipients: &[u32], prefix: Bytes, body_bytes: u64) -> Message {
        let chosen = |at: &u32| envelope.recipients.get(*at as usize).cloned();
        Message {
            sender: envelope.sender.clone(),
            ret: envelope.ret,
            envid: envelope.envid.clone(),
            body: envelope.body,
            smtputf8: envelope.smtputf8,
            recipients: recipients.iter().filter_map(chosen).collect(),
            prefix,
            body_bytes,
            content: None,
        }
    }

    /// What SIZE counts (RFC 1870 5).
    pub fn wire_bytes(&self) -> u64 {
        self.prefix.len() as u64 + self.body_bytes
    }

    /// All bytes are at hand and few.
    pub(super) fn is_inline(&self) -> bool {
        self.content.is_some() && self.wire_bytes() <= INLINE_BODY_BYTES_MAX
    }
}

/// The address in ASCII: as it came, or with the domain's A-labels where only the domain is
/// not ASCII. A local part has no such form (RFC 6531 3.2).
pub(super) fn ascii_form(address: &Address) -> Option<Cow<'_, str>> {
    if address.is_ascii() {
        return Some(Cow::Borrowed(address.as_str()));
    }
    let both = address.local().is_ascii() && address.domain().as_str().is_ascii();
    both.then(|| Cow::Owned(format!("{}@{}", address.local(), address.domain())))
}
