//! What goes to the client and to the driver, and what ends a transaction or the connection.
//!
//! Must never lose a `Reset` or a `Close` that the driver is owed.

use super::session::{Asked, Ending, Session, State};
use super::{Event, replies};
use mail::{Enhanced, Reply};

impl Session {
    pub(super) fn say(&mut self, text: &[u8]) {
        self.output.extend_from_slice(text);
    }

    pub(super) fn say_reply(&mut self, reply: &Reply) {
        reply.encode(&mut self.output);
        if matches!(reply.code, 421 | 521) {
            self.close();
        }
    }

    /// One reply, or with LMTP one for each recipient (RFC 2033 4.2).
    pub(super) fn reply_for_body(&mut self, reply: &Reply) {
        let recipients = self.transaction.as_ref().map_or(1, |transaction| transaction.recipients);
        let times = if self.settings().lmtp { recipients } else { 1 };
        for _ in 0..times {
            reply.encode(&mut self.output);
        }
        if matches!(reply.code, 421 | 521) {
            self.close();
        }
    }

    /// The client's next bytes may come only after it has read the reply now in `output`.
    pub(super) fn client_must_wait(&mut self) {
        self.client_must_wait = true;
    }

    /// Hands an event to the driver, and waits for its verdict.
    pub(super) fn ask(&mut self, event: Event, asked: Asked) {
        self.ready = Some(event);
        self.state = State::ExpectVerdict(asked);
    }

    pub(super) fn tell(&mut self, event: Event) {
        debug_assert!(self.ready.is_none(), "{:?} would be lost", self.ready);
        self.ready = Some(event);
    }

    /// The client's mistake.
    pub(super) fn wrong(&mut self, reply: &Reply) {
        self.say_reply(reply);
        self.count_error();
    }

    fn count_error(&mut self) {
        self.errors += 1;
        if self.errors >= self.settings().bad_commands_max && !self.is_closed() {
            self.close_with(Enhanced(4, 7, 0), "Error: too many errors");
        }
    }

    /// Something was refused that was no mistake: a list has dead addresses, so that some are free.
    pub(super) fn count_refusal(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals > self.settings().refusals_max {
            self.count_error();
        }
    }

    /// A command that moves nothing; a few are free.
    pub(super) fn idle_command(&mut self, text: &[u8]) {
        self.say(text);
        self.count_idle();
    }

    pub(super) fn count_idle(&mut self) {
        self.idle_commands = self.idle_commands.saturating_add(1);
        if self.idle_commands > self.settings().idle_commands_max {
            self.count_error();
        }
    }

    /// Counts a transaction; false: it is one too many, and the connection ends.
    pub(super) fn count_mail(&mut self) -> bool {
        self.mails = self.mails.saturating_add(1);
        let fits = self.settings().mails_max.is_none_or(|max| self.mails <= max);
        if !fits {
            self.close_with(Enhanced(4, 7, 0), "Error: too many messages in one connection");
        }
        fits
    }

    /// The transaction is over, and the driver knows.
    pub(super) fn forget_transaction(&mut self) {
        self.transaction = None;
        self.seen.clear();
        self.clock.end_transaction();
    }

    /// The transaction is over, and the driver is told.
    pub(super) fn give_up_transaction(&mut self) {
        self.doom();
        self.forget_transaction();
    }

    /// The driver is told to drop the transaction; its end is still waited for.
    pub(super) fn doom(&mut self) {
        let Some(transaction) = &mut self.transaction else { return };
        if !transaction.doomed {
            transaction.doomed = true;
            self.ready = None;
            self.reset_due = true;
        }
    }

    pub(super) fn close_with(&mut self, enhanced: Enhanced, why: &str) {
        let reply = replies::closing(enhanced, &self.settings().hostname, why);
        reply.encode(&mut self.output);
        self.close();
    }

    pub(super) fn close(&mut self) {
        if !self.is_closed() {
            self.give_up_transaction();
            self.line = Vec::new();
            self.state = State::Closed;
            self.close_due = true;
        }
    }

    /// Ends the session after `eof` or `shutdown`, as soon as it can end.
    pub(super) fn end_if_due(&mut self) {
        if self.is_closed() || self.awaits_answer() {
            return;
        }
        match self.ending {
            Ending::NotYet => {}
            Ending::Eof => self.close(),
            Ending::Shutdown if self.transaction.is_some() => {}
            Ending::Shutdown => self.close_with(Enhanced(4, 3, 2), "Service shutting down"),
        }
    }
}
