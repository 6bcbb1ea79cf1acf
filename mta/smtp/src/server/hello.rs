//! HELO, EHLO and LHLO (RFC 5321 4.1.1.1, RFC 2033 4.1).
//!
//! Must never accept a name that may not stand in a Received field.

use super::session::{Asked, Session};
use super::{Event, replies};
use mail::{Enhanced, Protocol, Reply};

impl Session {
    /// Handles a greeting. A greeting inside a transaction ends the transaction as RSET does (RFC 5321 4.1.4).
    pub(super) fn hello(&mut self, name: &str, protocol: Protocol) {
        match (self.settings().lmtp, protocol) {
            (true, Protocol::Lmtp) | (false, Protocol::Smtp | Protocol::Esmtp) => {}
            (true, _) => {
                return self.wrong(&Reply::new(
                    502,
                    Enhanced(5, 5, 1),
                    "Error: this is LMTP, send LHLO",
                ));
            }
            (false, _) => {
                return self.wrong(&replies::bad_command(crate::command::CommandError::Unknown));
            }
        }
        self.give_up_transaction();
        if self.hello.is_some() {
            self.count_idle();
            if self.is_closed() {
                return;
            }
        }
        self.ask(Event::Hello { name: name.into(), protocol }, Asked::Hello(protocol));
    }

    pub(super) fn hello_accepted(&mut self, protocol: Protocol) {
        self.hello = Some(protocol);
        self.client_must_wait();
        if protocol == Protocol::Smtp {
            let reply = Reply::plain(250, self.settings().hostname.as_str());
            self.say_reply(&reply);
        } else {
            let server = std::sync::Arc::clone(&self.server);
            self.say(&server.offers);
        }
    }
}
