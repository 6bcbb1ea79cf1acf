//! The ends of messages and of the connection.
//!
//! Must never close without an outcome for each recipient, or the message itself.

use super::delivery::{Delivery, outcome};
use super::replies::Garbage;
use super::session::{Await, Input, Output, Session, State};
use mail::{Enhanced, Reply};

impl Session {
    /// Ends the message and keeps the connection.
    pub(super) fn finish(&mut self) {
        if let Some(delivery) = self.delivery.take() {
            self.state = State::Idle;
            self.messages_ended += 1;
            self.done(delivery);
        }
    }

    pub(super) fn done(&mut self, delivery: Delivery) {
        let (message, outcomes) = delivery.finish();
        self.outputs.push_back(Output::Done { message, outcomes });
    }

    /// Ends the connection after a reply whose class has no meaning here. The reply is quoted.
    pub(super) fn unfit(&mut self, awaited: Await, reply: &Reply) {
        self.awaited.push_front(awaited);
        self.broke_the_protocol(&format!("{}: {reply}", Garbage::Unfit));
    }

    pub(super) fn garbage(&mut self, garbage: Garbage) {
        self.broke_the_protocol(&garbage.to_string());
    }

    pub(super) fn broke_the_protocol(&mut self, how: &str) {
        let text = format!("the peer broke the protocol: {how}");
        if let Some(delivery) = &mut self.delivery {
            // The bad reply was an answer, so the peer has seen the message.
            delivery.answered |= !self.awaited.is_empty();
        }
        self.lose((Reply::new(451, Enhanced(4, 5, 0), text), false));
    }

    /// Closes the connection. Recipients without an outcome are deferred, or the message is returned
    /// as unsent.
    pub(super) fn lose(&mut self, (reply, from_peer): (Reply, bool)) {
        let stage = self.stage();
        if let Some(mut delivery) = self.delivery.take() {
            if self.messages_ended > 0 && !delivery.answered && !self.reader.is_amid() {
                self.outputs.push_back(Output::Unsent(delivery.message));
            } else {
                delivery.fill(outcome(reply, stage, &self.peer, from_peer, false));
                self.done(delivery);
            }
        }
        self.close();
    }

    pub(super) fn close(&mut self) {
        self.out.clear();
        self.written = 0;
        self.awaited.clear();
        self.state = State::Closed;
        self.outputs.push_back(Output::Close);
    }

    /// Writes QUIT and closes without waiting for the answer.
    pub(super) fn quit(&mut self) {
        if self.delivery.is_some() {
            self.lose(own(Enhanced(4, 3, 2), "the delivery was stopped"));
            return;
        }
        self.close();
        self.out.extend_from_slice(b"QUIT\r\n");
    }

    /// Returns a message that comes after the end.
    pub(super) fn refuse(&mut self, input: Input<'_>) {
        if let Input::Send(message) = input {
            self.outputs.push_back(Output::Unsent(message));
        }
    }
}

/// A reply in our own words, for a failure that the peer did not report.
pub(super) fn own(code: Enhanced, text: &str) -> (Reply, bool) {
    (Reply::new(451, code, text), false)
}
