//! MAIL and RCPT: what policy says, and whether there is room for the recipient.
//!
//! Must never accept a recipient with which DATA could never have room.

use super::transaction::Transaction;
use super::{InboundSession, READ_BYTES_MAX, Step};
use crate::memory::session_bytes;
use crate::{Gateway, SessionOutput};
use link::bounds::recipient_bytes;
use mail::{Enhanced, Now, Recipient, Refusal, Reply, Verdict};
use smtp::server::Mail;

/// Maximum number of refused recipients of one connection with a log line each. One line sums up the others.
const REFUSALS_LOGGED_MAX: u64 = 100;

/// Why a recipient is not added.
enum NoRoom {
    /// Too much is held at this moment.
    Now,
    /// The transaction has as many as fit into the memory that its client may have.
    InOneMessage,
}

impl InboundSession {
    pub(super) fn mail(&mut self, mail: Mail, gateway: &mut Gateway, now: Now) {
        if !gateway.has_room(&self.share, 0) {
            return self.answer_full(gateway, now);
        }
        if gateway.queue.is_stuck(now.monotonic) {
            return self.answer(Refusal::Broken.into(), now);
        }
        let number = gateway.queue.begin();
        self.transaction = Some(Transaction::new(number, mail));
        self.answer(Verdict::Accept, now);
    }

    pub(super) fn rcpt(&mut self, recipient: Recipient, gateway: &mut Gateway, now: Now) -> Step {
        let frame_bytes = self.transaction.as_ref().map_or(0, |one| one.recipients.frame_bytes());
        if frame_bytes + recipient_bytes(&recipient) > gateway.recipients_bytes_max() {
            self.answer(Verdict::Defer(recipients_too_long()), now);
            return Step::GoOn;
        }
        let verdict = gateway.policy.recipient(self.client, &recipient.address);
        if let Some(reply) = verdict.reply().cloned() {
            self.answer(verdict, now);
            return self.log_refusal(recipient, reply);
        }
        match self.add(recipient, gateway) {
            Ok(()) => self.answer(verdict, now),
            Err(NoRoom::Now) => self.answer_full(gateway, now),
            Err(NoRoom::InOneMessage) => {
                self.answer(Verdict::Defer(recipients_too_long()), now);
            }
        }
        Step::GoOn
    }

    fn log_refusal(&mut self, recipient: Recipient, reply: Reply) -> Step {
        self.recipients_refused += 1;
        if self.recipients_refused > REFUSALS_LOGGED_MAX {
            return Step::GoOn;
        }
        Step::Output(SessionOutput::RecipientRefused { recipient: recipient.address, reply })
    }

    /// Returns the log line for all refused recipients without a line of their own, once.
    pub(super) fn sum_of_refused(&mut self) -> Option<SessionOutput> {
        let refused = std::mem::take(&mut self.recipients_refused);
        let unlogged = refused.saturating_sub(REFUSALS_LOGGED_MAX);
        (unlogged > 0).then_some(SessionOutput::RecipientsRefused(unlogged))
    }

    /// Adds a recipient to the transaction, if there is room for the recipient, and then for DATA too: a client that is
    /// refused DATA for the recipients that it named comes back with the same ones, until it gives up.
    fn add(&mut self, recipient: Recipient, gateway: &mut Gateway) -> Result<(), NoRoom> {
        self.count(gateway);
        let beside_buffers = self.bytes_beside_buffers();
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        let recipient = gateway.policy.as_delivered(recipient);
        let bytes = transaction.growth_bytes(&recipient, self.session.server().settings().lmtp);
        let frame_bytes = transaction.recipients.frame_bytes() + recipient_bytes(&recipient);
        let at_data = beside_buffers + bytes + data_bytes(frame_bytes);
        if !gateway.memory.has_room_alone(&self.share, session_bytes(0, at_data)) {
            return Err(NoRoom::InOneMessage);
        }
        if !gateway.has_room(&self.share, bytes) {
            return Err(NoRoom::Now);
        }
        transaction.push(&gateway.policy, &recipient);
        Ok(())
    }
}

/// What DATA takes beside the recipients: a full piece of the body, and the recipients once more when they are handed
/// over.
pub(super) fn data_bytes(frame_bytes: usize) -> usize {
    READ_BYTES_MAX + frame_bytes
}

/// No more recipients fit into this message: the client sends it again to the others (RFC 5321 4.5.3.1.10).
fn recipients_too_long() -> Reply {
    Reply::new(
        452,
        Enhanced(4, 5, 3),
        "Too many recipients for one message, send it again to the rest",
    )
}
