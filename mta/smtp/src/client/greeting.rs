//! The greeting and EHLO, LHLO or HELO (RFC 5321 3.1, 3.2).
//!
//! Must never offer a message to a peer that has not greeted us.

use super::delivery::outcome;
use super::offers::Offers;
use super::session::{Await, Session, State};
use super::settings::Dialect;
use super::waits::stage_of;
use mail::{Now, Reply};

impl Session {
    pub(super) fn greeted(&mut self, awaited: Await, reply: Reply, now: Now) {
        match (awaited, reply.code / 100) {
            (Await::Greeting, 2) => {
                let verb = if self.dialect == Dialect::Lmtp { "LHLO" } else { "EHLO" };
                self.say_hello(verb, Await::Ehlo);
            }
            (Await::Ehlo, 2) => {
                self.offers = Offers::parse(&reply.text);
                self.ready(now);
            }
            (Await::Helo, 2) => self.ready(now),
            // RFC 5321 3.2: a server without EHLO is greeted with HELO. LMTP has only LHLO.
            (Await::Ehlo, 5) if self.dialect == Dialect::Smtp => {
                self.say_hello("HELO", Await::Helo)
            }
            (_, 4 | 5) => {
                let stage = stage_of(awaited);
                if let Some(mut delivery) = self.delivery.take() {
                    delivery.fill(outcome(reply, stage, &self.peer, true, false));
                    self.done(delivery);
                }
                self.quit();
            }
            _ => self.unfit(awaited, &reply),
        }
    }

    pub(super) fn say_hello(&mut self, verb: &str, awaited: Await) {
        let helo = &self.settings.helo;
        self.out.extend_from_slice(format!("{verb} {helo}\r\n").as_bytes());
        self.awaited.push_back(awaited);
    }

    pub(super) fn ready(&mut self, now: Now) {
        self.state = State::Idle;
        if self.delivery.is_some() {
            self.begin(now);
        }
    }
}
