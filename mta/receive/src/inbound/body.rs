//! DATA, the body, and the answer of the queue process.
//!
//! Must never hand over more than the queue process has given credit for, or ask for a body that could not be kept.

use super::recipients::data_bytes;
use super::transaction::{AwaitedMessage, Transaction};
use super::{CreditPurpose, InboundSession, State, Step};
use crate::queue_client::Answer;
use crate::{Gateway, Promised, SessionOutput};
use mail::{Durable, Enhanced, Instant, Now, Refusal, Reply, Verdict};
use smtp::server::{BodyEnd, DeliveredTo};
use std::time::Duration;

/// Maximum time for which DATA waits for a queue process that is being restarted.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(10);

impl InboundSession {
    /// Answers DATA when there is memory and credit for a body.
    pub(super) fn data(&mut self, gateway: &mut Gateway, now: Now) {
        let Some(transaction) = &self.transaction else { return };
        let (number, bytes) =
            (transaction.number, data_bytes(transaction.recipients.frame_bytes()));
        self.count(gateway);
        if !gateway.has_room(&self.share, bytes) {
            return self.answer_full(gateway, now);
        }
        match gateway.queue.has_credit(number) {
            true => self.answer_data(gateway, now),
            false => self.wait_for_credit(CreditPurpose::Data, now.monotonic + QUEUE_WAIT_MAX),
        }
    }

    fn answer_data(&mut self, gateway: &Gateway, now: Now) {
        let verdict = match gateway.queue.is_stuck(now.monotonic) {
            false => Verdict::Accept,
            true => Refusal::Broken.into(),
        };
        self.answer(verdict, now);
    }

    /// Hands over a piece of the body. Other clients may have spent the credit since this client was read from.
    pub(super) fn piece(&mut self, bytes: Vec<u8>, gateway: &mut Gateway, now: Now) {
        let Some(transaction) = &mut self.transaction else { return };
        transaction.is_staged = true;
        let number = transaction.number;
        let until = now.monotonic + gateway.queue.commit_timeout();
        if !gateway.queue.has_credit(number) {
            return self.wait_for_credit(CreditPurpose::Piece(bytes), until);
        }
        gateway.queue.stage(number, &bytes);
        // More is read only when there is credit for it.
        if !gateway.queue.has_credit(number) {
            self.wait_for_credit(CreditPurpose::More, until);
        }
    }

    pub(super) fn end_of_body(&mut self, end: BodyEnd, gateway: &mut Gateway, now: Now) -> Step {
        let Some(number) = self.transaction.as_ref().map(|one| one.number) else {
            self.begin_closing(gateway, now);
            return Step::GoOn;
        };
        if gateway.queue.has_credit(number) {
            return self.hand_over(end, gateway, now);
        }
        let until = now.monotonic + gateway.queue.commit_timeout();
        self.wait_for_credit(CreditPurpose::End(Box::new(end)), until);
        Step::GoOn
    }

    fn wait_for_credit(&mut self, purpose: CreditPurpose, until: Instant) {
        self.state = State::AwaitCredit { purpose, until };
    }

    pub(super) fn await_credit(&mut self, until: Instant, gateway: &mut Gateway, now: Now) -> Step {
        let number = self.transaction.as_ref().map_or(0, |one| one.number);
        let has_credit = gateway.queue.has_credit(number);
        if !has_credit && now.monotonic < until {
            gateway.clients.wait_for_credit(self.id);
            return Step::Wait;
        }
        let State::AwaitCredit { purpose, .. } = std::mem::replace(&mut self.state, State::Talking)
        else {
            return Step::GoOn;
        };
        if has_credit {
            return self.go_on(purpose, gateway, now);
        }
        self.fail(purpose, gateway, now);
        Step::GoOn
    }

    fn go_on(&mut self, purpose: CreditPurpose, gateway: &mut Gateway, now: Now) -> Step {
        match purpose {
            CreditPurpose::Data => self.answer_data(gateway, now),
            CreditPurpose::Piece(bytes) => self.piece(bytes, gateway, now),
            CreditPurpose::More => {}
            CreditPurpose::End(end) => return self.hand_over(*end, gateway, now),
        }
        Step::GoOn
    }

    /// Refuses what waited for credit for too long.
    fn fail(&mut self, purpose: CreditPurpose, gateway: &mut Gateway, now: Now) {
        match purpose {
            CreditPurpose::Data => self.answer(Refusal::Broken.into(), now),
            CreditPurpose::Piece(_) | CreditPurpose::More => {
                let text = "Queue trouble, closing; try again later";
                self.session.hang_up(&Reply::new(421, Enhanced(4, 3, 0), text), now);
            }
            CreditPurpose::End(_) => {
                self.give_up(gateway);
                self.session.refuse(&Refusal::Broken.reply(), now);
            }
        }
    }

    /// Hands over the end of a message, unless the message is in a loop.
    fn hand_over(&mut self, end: BodyEnd, gateway: &mut Gateway, now: Now) -> Step {
        let Some(transaction) = self.transaction.take() else { return Step::GoOn };
        if is_loop(gateway, &transaction, &end.delivered_to) {
            return self.refuse_loop(transaction, gateway, now);
        }
        let number = transaction.number;
        let arrival = AwaitedMessage::of(&transaction, end.bytes, now.monotonic);
        let (envelope, recipients) = self.envelope(transaction, end.eight_bit, now.wall);
        let message = (envelope, &recipients, &end.tail[..]);
        gateway.queue.accept(number, self.id, message, now.monotonic);
        // The refusal of a message that is too large is available at once.
        gateway.queue.advance(&mut gateway.clients, now.monotonic);
        self.state = State::AwaitAnswer { number, arrival };
        Step::Output(SessionOutput::HandedOver)
    }

    /// Refuses a message that was delivered to its recipient before.
    fn refuse_loop(&mut self, transaction: Transaction, gateway: &mut Gateway, now: Now) -> Step {
        if let Some(number) = transaction.staged_number() {
            gateway.queue.unstage(number);
        }
        let text = "Error: mail loop, delivered to this recipient before";
        let reply = Reply::new(554, Enhanced(5, 4, 6), text);
        self.session.refuse(&reply, now);
        Step::Output(SessionOutput::LoopRefused { sender: transaction.mail.from.sender, reply })
    }

    pub(super) fn await_answer(&mut self, number: u64, gateway: &mut Gateway, now: Now) -> Step {
        let Some(answer) = gateway.queue.take_answer(number) else { return Step::Wait };
        let State::AwaitAnswer { arrival, .. } = std::mem::replace(&mut self.state, State::Talking)
        else {
            return Step::GoOn;
        };
        Step::Output(match answer {
            Answer::Promised(durable) => self.promise(durable, arrival, now),
            Answer::Refused(refusal) => {
                let reply = refusal.reply();
                self.session.refuse(&reply, now);
                SessionOutput::Refused { sender: arrival.sender, reply }
            }
            Answer::Abandoned => {
                self.begin_closing(gateway, now);
                SessionOutput::Abandoned { sender: arrival.sender }
            }
        })
    }

    /// Sends the final `250`, which spends the proof.
    fn promise(&mut self, durable: Durable, arrival: AwaitedMessage, now: Now) -> SessionOutput {
        let promised = Promised {
            message: durable.message(),
            sender: arrival.sender,
            bytes: arrival.bytes,
            recipients: arrival.recipients,
            commit_time: now.monotonic.since(arrival.since),
        };
        self.session.promise(durable, now);
        SessionOutput::Promised(promised)
    }
}

fn is_loop(gateway: &Gateway, transaction: &Transaction, seen: &DeliveredTo) -> bool {
    let names = |address: &str| seen.names(address);
    !seen.is_empty() && gateway.policy.is_loop(transaction.recipients.iter(), names)
}
