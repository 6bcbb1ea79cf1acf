//! The envelope of a message: MAIL and RCPT with and without pipelining (RFC 5321 3.3, RFC 2920), after a check whether
//! the peer accepts messages of this kind.
//!
//! Must never send a message to a peer that cannot accept all of it.

use super::delivery::{Delivery, Progress, Step, outcome};
use super::ending::own;
use super::message::OutboundMessage;
use super::scan::Scan;
use super::session::{Await, Output, PeerTransaction, Session, State};
use super::settings::Dialect;
use mail::{Enhanced, Now, Reply, Stage};

impl Session {
    pub(super) fn send(&mut self, mut message: Box<OutboundMessage>, now: Now) {
        if self.delivery.is_some() || self.offers.mail_max.is_some_and(|max| self.mails >= max) {
            return self.outputs.push_back(Output::Unsent(message));
        }
        // Content of another length than announced is not used: the message is fetched instead.
        let announced = message.body_bytes;
        message.content = message.content.filter(|content| content.len() as u64 == announced);
        self.delivery = Some(Delivery::new(message, now.monotonic));
        if let State::Idle = self.state {
            self.since = now.monotonic;
            self.begin(now);
        }
    }

    /// Checks whether the peer takes messages of this size and kind, then starts the first
    /// transaction.
    pub(super) fn begin(&mut self, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        let wire_bytes = delivery.message.body_bytes;
        if self.offers.size.is_some_and(|max| max > 0 && wire_bytes > max) {
            let text = format!("the message has {wire_bytes} octets, the next hop takes fewer");
            let reply = Reply::new(552, Enhanced(5, 3, 4), text);
            delivery.fill(outcome(reply, Stage::Here, &self.peer, false, false));
            return self.finish();
        }
        let scan = Scan::default();
        if let Some(part) = delivery.scan_needed(&self.offers) {
            self.state = State::ExpectScan { scan, offset: 0, part };
            return self.scan(now);
        }
        self.settled(&scan, now);
    }

    /// Searches the content, or asks for the next bytes of it.
    pub(super) fn scan(&mut self, now: Now) {
        let State::ExpectScan { scan, offset, part } = &mut self.state else { return };
        let Some(delivery) = &self.delivery else { return };
        if let Some(content) = &delivery.message.content {
            scan.feed(content);
            *offset = content.len() as u64;
        }
        let left = delivery.message.body_bytes - *offset;
        if left == 0 || scan.is_settled(*part) {
            let scan = std::mem::take(scan);
            return self.settled(&scan, now);
        }
        let bytes = left.min(u64::from(super::BODY_CHUNK_BYTES_MAX)) as u32;
        self.outputs.push_back(Output::NeedBody { offset: *offset, bytes });
    }

    pub(super) fn settled(&mut self, scan: &Scan, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        delivery.settle(&self.offers, scan, &self.peer);
        self.state = State::ExpectReplies;
        self.next_transaction(now);
    }

    pub(super) fn next_transaction(&mut self, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        if !delivery.next_slice(&self.offers) {
            return self.finish();
        }
        if self.offers.mail_max.is_some_and(|max| self.mails >= max) {
            let reply = own(Enhanced(4, 5, 3), "the peer takes no more messages this time").0;
            delivery.fill(outcome(reply, Stage::Mail, &self.peer, false, false));
            return self.finish();
        }
        self.mails += 1;
        self.since = now.monotonic;
        self.begin_transaction();
        self.pump(now);
    }

    pub(super) fn begin_transaction(&mut self) {
        if self.peer_transaction == PeerTransaction::Half {
            self.peer_transaction = PeerTransaction::None;
            self.out.extend_from_slice(b"RSET\r\n");
            self.awaited.push_back(Await::Rset);
            if !self.offers.pipelining {
                return;
            }
        }
        self.write_mail();
        if self.offers.pipelining {
            self.pipeline();
        }
    }

    pub(super) fn write_mail(&mut self) {
        let Some(delivery) = &mut self.delivery else { return };
        delivery.write_mail(&self.offers, &mut self.out);
        delivery.step = Step::Rcpt(delivery.slice.start);
        self.awaited.push_back(Await::Mail);
    }

    /// Writes the rest of the envelope and the start of the data without waiting for replies
    /// (RFC 2920 3.1).
    pub(super) fn pipeline(&mut self) {
        let Some(delivery) = &mut self.delivery else { return };
        for at in delivery.slice.clone() {
            let place = delivery.target(at);
            delivery.write_rcpt(place, &self.offers, &mut self.out);
            self.awaited.push_back(Await::Rcpt(place));
        }
        // BDAT may follow without waiting only if the number of its answers does not depend on the
        // accepted recipients, as it does in LMTP.
        let chunking = self.offers.chunking && self.settings.chunking;
        delivery.step = Step::Data;
        if !chunking {
            delivery.step = Step::Nothing;
            self.out.extend_from_slice(b"DATA\r\n");
            self.awaited.push_back(Await::Data);
        } else if delivery.message.is_inline() && self.dialect == Dialect::Smtp {
            delivery.step = Step::Nothing;
            self.write_bdat();
        }
    }

    /// Writes what comes next, once everything that was written has been answered.
    pub(super) fn advance(&mut self, now: Now) {
        if !self.awaited.is_empty() || !matches!(self.state, State::ExpectReplies) {
            return;
        }
        let Some(delivery) = &mut self.delivery else { return };
        match delivery.step {
            Step::Mail => self.write_mail(),
            Step::Rcpt(at) if delivery.progress != Progress::SenderUnknown => {
                let place = delivery.target(at);
                delivery.write_rcpt(place, &self.offers, &mut self.out);
                self.awaited.push_back(Await::Rcpt(place));
                let next = at + 1;
                delivery.step =
                    if next < delivery.slice.end { Step::Rcpt(next) } else { Step::Data };
            }
            Step::Data if !delivery.accepted.is_empty() => {
                delivery.step = Step::Nothing;
                if self.offers.chunking && self.settings.chunking {
                    self.write_bdat();
                    self.pump(now);
                } else {
                    self.out.extend_from_slice(b"DATA\r\n");
                    self.awaited.push_back(Await::Data);
                }
            }
            _ => {
                if delivery.progress == Progress::SenderAccepted {
                    self.peer_transaction = PeerTransaction::Half;
                }
                self.next_transaction(now);
            }
        }
    }

    /// Ends the connection if the peer refuses RSET, because its state is unknown then. It has
    /// answered nothing of this message.
    pub(super) fn rset_answered(&mut self, reply: &Reply) {
        if !reply.is_positive() {
            let text = format!("the peer refused RSET: {reply}");
            self.lose((Reply::new(451, Enhanced(4, 5, 0), text), false));
        }
    }

    pub(super) fn mail_answered(&mut self, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        match reply.code / 100 {
            2 => delivery.progress = Progress::SenderAccepted,
            4 | 5 => delivery.judge_slice(&outcome(reply, Stage::Mail, &self.peer, true, false)),
            _ => self.unfit(Await::Mail, &reply),
        }
    }

    pub(super) fn rcpt_answered(&mut self, place: usize, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        match reply.code / 100 {
            2 if delivery.progress != Progress::SenderUnknown => delivery.accepted.push(place),
            2 => {}
            4 | 5 => delivery.rcpt_refused(place, reply, &self.peer),
            _ => self.unfit(Await::Rcpt(place), &reply),
        }
    }
}
