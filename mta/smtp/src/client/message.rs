//! A message for a client session: the envelope, and the content if it is small.
//!
//! Must never hold the content of a large message.

use bytes::Bytes;
use mail::{Address, MailFrom, Recipient};
use std::borrow::Cow;

/// Upper bound on the size of a message whose content is sent with BDAT in the same write as the
/// envelope.
pub const INLINE_BODY_BYTES_MAX: u64 = 64 * 1024;

/// One message for one next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundMessage {
    /// The sender, with the parameters that the client gave.
    pub from: MailFrom,
    /// The recipients at this next hop. Outcomes come back in this order.
    pub recipients: Vec<Recipient>,
    /// The size of the message with our own headers: what SIZE announces (RFC 1870 5).
    pub body_bytes: u64,
    /// The whole message, or `None` if it is fetched in chunks.
    pub content: Option<Bytes>,
}

impl OutboundMessage {
    /// True if the whole message is in memory and small.
    pub(super) fn is_inline(&self) -> bool {
        self.content.is_some() && self.body_bytes <= INLINE_BODY_BYTES_MAX
    }
}

/// Returns the address in ASCII: as it came, or with A-labels if only the domain is not ASCII. A
/// local part has no ASCII form (RFC 6531 3.2).
pub(super) fn ascii_form(address: &Address) -> Option<Cow<'_, str>> {
    if address.is_ascii() {
        return Some(Cow::Borrowed(address.as_str()));
    }
    let both = address.local().is_ascii() && address.domain().as_str().is_ascii();
    both.then(|| Cow::Owned(format!("{}@{}", address.local(), address.domain())))
}
