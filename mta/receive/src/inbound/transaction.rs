//! What a client has said of one message, from MAIL to its end.
//!
//! Must never give one mailbox two copies.

use link::recipients::Recipients;
use mail::{Instant, Recipient, ReversePath};
use policy::{Policy, Repeats};
use smtp::server::Mail;

/// Counted for each recipient over LMTP: its reply at the end, and the growth of the buffer of all replies.
const LMTP_REPLY_BYTES: usize = 160;

/// A transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    pub number: u64,
    /// The queue process has a part of the body.
    pub is_staged: bool,
    pub mail: Mail,
    pub recipients: Recipients,
    pub repeats: Repeats,
}

impl Transaction {
    pub fn new(number: u64, mail: Mail) -> Transaction {
        let (recipients, repeats) = (Recipients::default(), Repeats::default());
        Transaction { number, is_staged: false, mail, recipients, repeats }
    }

    /// Returns the number of the transaction, if the queue process has a part of it.
    pub fn staged_number(&self) -> Option<u64> {
        self.is_staged.then_some(self.number)
    }

    /// Returns the memory of the recipients in bytes.
    pub fn memory_bytes(&self, lmtp: bool) -> usize {
        self.recipients.memory_bytes() + self.recipients.len() * each_bytes(lmtp)
    }

    /// Returns an upper bound on the memory of one more recipient.
    pub fn growth_bytes(&self, recipient: &Recipient, lmtp: bool) -> usize {
        self.recipients.growth_bytes(recipient) + each_bytes(lmtp)
    }

    /// Adds a recipient, unless its mailbox is a recipient already, in any spelling. A mailbox gets one copy, with the
    /// parameters of its first RCPT.
    pub fn push(&mut self, policy: &Policy, recipient: &Recipient) {
        let place = self.recipients.next_place(recipient);
        let before = |place| self.recipients.address_at(place);
        if !self.repeats.had(policy, &recipient.address, place, before) {
            self.recipients.push(recipient);
        }
    }
}

/// Memory of a recipient beside itself.
fn each_bytes(lmtp: bool) -> usize {
    Repeats::ENTRY_BYTES_MAX + if lmtp { LMTP_REPLY_BYTES } else { 0 }
}

/// What the log says of a message that was handed over.
#[derive(Debug)]
pub(super) struct AwaitedMessage {
    pub sender: ReversePath,
    pub recipients: usize,
    pub bytes: u64,
    /// Time of the hand-over.
    pub since: Instant,
}

impl AwaitedMessage {
    pub fn of(transaction: &Transaction, bytes: u64, since: Instant) -> AwaitedMessage {
        let sender = transaction.mail.from.sender.clone();
        AwaitedMessage { sender, recipients: transaction.recipients.len(), bytes, since }
    }
}
