//! DATA, and the body after it (RFC 5321 4.1.1.4).
//!
//! Must never interpret a byte of a body as a command, and never answer a body before its end.

use super::body::Body;
use super::session::{Asked, Session, State};
use super::{Event, replies};
use mail::{Instant, Reply};

impl Session {
    pub(super) fn data(&mut self) {
        match self.judge_data() {
            Ok(()) => self.ask(Event::Data, Asked::Data),
            Err(reply) => {
                self.client_must_wait();
                self.wrong(&reply);
            }
        }
    }

    fn judge_data(&self) -> Result<(), Reply> {
        match &self.transaction {
            None => Err(replies::out_of_order("Error: need RCPT command")),
            Some(transaction) if transaction.chunked.is_some() => {
                Err(replies::out_of_order("Error: DATA after BDAT"))
            }
            Some(transaction) if transaction.recipients == 0 => Err(replies::no_recipients()),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn data_accepted(&mut self, now: Instant) {
        self.say(replies::GO_AHEAD);
        self.client_must_wait();
        self.clock.begin_body(now);
        self.state = State::ExpectBody(Body::dotted(self.settings().bare_lf));
    }

    pub(super) fn read_body(&mut self, mut body: Body, bytes: &[u8], now: Instant) -> usize {
        let taken = body.take(bytes, &self.server.settings);
        self.clock.bytes(taken.used, now);
        if taken.ended {
            self.body_ended(body);
        } else {
            self.pass_on(&mut body);
            self.state = State::ExpectBody(body);
        }
        taken.used
    }

    /// Reports a full chunk. If the body is refused, tells the driver to drop the transaction.
    pub(super) fn pass_on(&mut self, body: &mut Body) {
        if body.is_refused(&self.server.settings) {
            self.doom();
        } else if let Some(chunk) = body.full_chunk(&self.server.settings) {
            self.tell(Event::Body(chunk));
        }
    }

    /// Reports the end of the body, or answers a refused body.
    pub(super) fn body_ended(&mut self, body: Body) {
        match body.refusal(&self.server.settings) {
            None => {
                self.tell(Event::BodyEnd(body.end()));
                self.state = State::ExpectPromise;
            }
            Some(reply) => {
                self.doom();
                self.reply_for_body(&reply);
                self.forget_transaction();
                self.count_refusal();
            }
        }
    }
}
