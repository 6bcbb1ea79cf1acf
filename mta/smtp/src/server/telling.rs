//! Replies to the client, events for the driver, and the ends of transactions and of the connection.
//!
//! Must never lose a `Reset` or `Close` that the driver must get.

use super::session::{Asked, CloseEvent, Ending, Session, State};
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

    /// Answers the end of the data: with one reply in SMTP, with one for each recipient in LMTP (RFC 2033 4.2).
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

    /// Records that the client must read the reply in `output` before it sends further bytes.
    pub(super) fn client_must_wait(&mut self) {
        self.client_must_wait = true;
    }

    /// Reports an event to the driver and waits for the verdict.
    pub(super) fn ask(&mut self, event: Event, asked: Asked) {
        self.ready = Some(event);
        self.state = State::ExpectVerdict(asked);
    }

    pub(super) fn tell(&mut self, event: Event) {
        debug_assert!(self.ready.is_none(), "{:?} would be lost", self.ready);
        self.ready = Some(event);
    }

    /// Answers an error of the client.
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

    /// Counts the refusal of a correct command or body. Mailing lists have dead addresses, so the first
    /// refusals are not errors.
    pub(super) fn count_refusal(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals > self.settings().refusals_max {
            self.count_error();
        }
    }

    /// Answers a command that has no effect on a message. The first such commands are not errors.
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

    /// Counts a transaction. Returns false and ends the connection if it exceeds the limit.
    pub(super) fn count_mail(&mut self) -> bool {
        self.mails = self.mails.saturating_add(1);
        let fits = self.settings().mails_max.is_none_or(|max| self.mails <= max);
        if !fits {
            self.close_with(Enhanced(4, 7, 0), "Error: too many messages in one connection");
        }
        fits
    }

    /// Ends the transaction without telling the driver, which knows it already.
    pub(super) fn forget_transaction(&mut self) {
        self.transaction = None;
        self.seen.clear();
        self.clock.end_transaction();
    }

    /// Ends the transaction and tells the driver.
    pub(super) fn give_up_transaction(&mut self) {
        self.doom();
        self.forget_transaction();
    }

    /// Tells the driver to drop the transaction. The session still waits for the end of the transaction.
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
            self.close_event = CloseEvent::Due;
        }
    }

    /// Ends the session after `eof` or `shutdown` if it can end now.
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
