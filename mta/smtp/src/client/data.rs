//! The message itself: DATA or BDAT, the chunks of a body, and the answers to its end
//! (RFC 5321 4.1.1.4, RFC 3030, RFC 2033 4.2).
//!
//! Must never end an incomplete body.

use super::body::{BodyOut, Framing};
use super::delivery::{Progress, outcome};
use super::session::{Await, Output, Session, State, UNWRITTEN_BYTES_MAX};
use super::settings::Dialect;
use crate::framing::Stuffer;
use mail::{Now, Reply, Stage};

impl Session {
    /// Writes BDAT for the whole message as one last chunk (RFC 3030 2).
    pub(super) fn write_bdat(&mut self) {
        let Some(delivery) = &mut self.delivery else { return };
        delivery.with_bdat = true;
        let line = format!("BDAT {} LAST\r\n", delivery.message.body_bytes);
        self.out.extend_from_slice(line.as_bytes());
        let body = BodyOut::start(Framing::Counted, &delivery.message);
        self.state = State::ExpectBody(body);
        self.await_end();
    }

    pub(super) fn await_end(&mut self) {
        let Some(delivery) = &self.delivery else { return };
        match self.dialect {
            Dialect::Smtp => self.awaited.push_back(Await::End),
            Dialect::Lmtp => {
                self.awaited.extend(delivery.accepted.iter().map(|place| Await::EndOf(*place)))
            }
        }
    }

    /// Frames the content, or asks for the next bytes of it.
    pub(super) fn pump(&mut self, now: Now) {
        let State::ExpectBody(body) = &mut self.state else { return };
        let Some(delivery) = &self.delivery else { return };
        while !body.is_whole() && self.out.len() - self.written < UNWRITTEN_BYTES_MAX {
            match &delivery.message.content {
                Some(content) => body.add_from(content, &mut self.out),
                None => {
                    if let Some((offset, bytes)) = body.ask() {
                        self.outputs.push_back(Output::NeedBody { offset, bytes });
                    }
                    return;
                }
            }
        }
        if body.is_whole() {
            let State::ExpectBody(body) = std::mem::replace(&mut self.state, State::ExpectReplies)
            else {
                return;
            };
            body.end(&mut self.out);
            self.since = now.monotonic;
        }
    }

    pub(super) fn body(&mut self, bytes: &[u8], now: Now) {
        match &mut self.state {
            State::ExpectScan { scan, offset, .. } => {
                scan.feed(bytes);
                *offset += bytes.len() as u64;
                self.scan(now);
            }
            State::ExpectBody(body) => {
                body.add(bytes, &mut self.out);
                self.pump(now);
            }
            _ => {}
        }
    }

    pub(super) fn data_answered(&mut self, reply: Reply, now: Now) {
        let Some(delivery) = &mut self.delivery else { return };
        // RFC 5321 4.2: an unknown code counts by its first digit.
        match (reply.code / 100, delivery.accepted.is_empty()) {
            (3, false) => {
                let dots = Framing::Dots(Stuffer::default());
                let body = BodyOut::start(dots, &delivery.message);
                self.state = State::ExpectBody(body);
                self.await_end();
                self.pump(now);
            }
            // The peer accepted no recipient but wants data: an empty message (RFC 2920 3.1).
            (3, true) if self.dialect == Dialect::Smtp => {
                self.out.extend_from_slice(b".\r\n");
                self.awaited.push_back(Await::End);
            }
            (4 | 5, _) => {
                delivery.judge_accepted(&outcome(reply, Stage::Data, &self.peer, true, false));
            }
            _ => self.unfit(Await::Data, &reply),
        }
    }

    pub(super) fn end_answered(&mut self, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        if reply.code / 100 == 3 {
            return self.unfit(Await::End, &reply);
        }
        // After a refused BDAT only RSET restores a known state (RFC 3030 2).
        if reply.is_positive() {
            delivery.progress = Progress::Delivered;
        } else if !delivery.with_bdat {
            delivery.progress = Progress::Ended;
        }
        let stage =
            if matches!(self.state, State::ExpectBody(_)) { Stage::Data } else { Stage::End };
        let relayed = !self.offers.dsn;
        delivery.judge_accepted(&outcome(reply, stage, &self.peer, true, relayed));
    }

    pub(super) fn end_of_answered(&mut self, place: usize, reply: Reply) {
        let Some(delivery) = &mut self.delivery else { return };
        if reply.code / 100 == 3 {
            return self.unfit(Await::EndOf(place), &reply);
        }
        if reply.is_positive() {
            delivery.progress = Progress::Delivered;
        } else if delivery.progress != Progress::Delivered {
            delivery.progress = Progress::Ended;
        }
        let stage =
            if matches!(self.state, State::ExpectBody(_)) { Stage::Data } else { Stage::End };
        delivery.judge(place, outcome(reply, stage, &self.peer, true, !self.offers.dsn));
    }
}
