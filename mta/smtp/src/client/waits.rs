//! The timeout of each reply (RFC 5321 4.5.3.2), and the report of a timeout.
//!
//! Must never extend a timeout because of single bytes that arrive.

use super::session::{Await, Session, State};
use mail::{Enhanced, Now, Reply, Stage};
use std::time::Duration;

impl Session {
    pub(super) fn tick(&mut self, now: Now) {
        if self.next_wakeup().is_some_and(|due| due <= now.monotonic) {
            let text = format!("no progress in time while {}", doing(self.stage()));
            if let Some(delivery) = &mut self.delivery {
                delivery.answered = true;
            }
            self.lose((Reply::new(451, Enhanced(4, 4, 2), text), false));
        }
    }

    pub(super) fn patience(&self) -> Option<Duration> {
        let timeouts = &self.settings.timeouts;
        if let State::ExpectBody(_) | State::ExpectScan { .. } = self.state {
            return Some(timeouts.block);
        }
        let patience = match self.awaited.front()? {
            Await::Greeting => timeouts.greeting,
            Await::Ehlo | Await::Helo | Await::Rset => timeouts.hello,
            Await::Mail => timeouts.mail,
            Await::Rcpt(_) => timeouts.rcpt,
            Await::Data => timeouts.data,
            Await::End | Await::EndOf(_) => timeouts.end,
        };
        Some(patience)
    }

    pub(super) fn stage(&self) -> Stage {
        match (self.awaited.front(), &self.state) {
            (Some(Await::End | Await::EndOf(_)), State::ExpectBody(_)) => Stage::Data,
            (Some(awaited), _) => stage_of(*awaited),
            (None, State::ExpectHello) => Stage::Hello,
            (None, _) => Stage::Mail,
        }
    }
}

pub(super) fn stage_of(awaited: Await) -> Stage {
    match awaited {
        Await::Greeting => Stage::Greeting,
        Await::Ehlo | Await::Helo => Stage::Hello,
        Await::Rset | Await::Mail => Stage::Mail,
        Await::Rcpt(_) => Stage::Rcpt,
        Await::Data => Stage::Data,
        Await::End | Await::EndOf(_) => Stage::End,
    }
}

pub(super) fn doing(stage: Stage) -> &'static str {
    match stage {
        Stage::Greeting => "waiting for the greeting",
        Stage::Hello => "saying hello",
        Stage::Mail => "giving the sender",
        Stage::Rcpt => "giving the recipients",
        Stage::Data => "sending the message",
        _ => "waiting for the answer to the message",
    }
}
