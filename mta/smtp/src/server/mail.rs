//! MAIL FROM (RFC 5321 4.1.1.2), and the effect of the driver's verdicts.
//!
//! Must never begin a transaction inside another transaction or before a greeting.

use super::bdat::Skipped;
use super::session::{Asked, Session, State, Transaction};
use super::{Event, Mail, replies};
use crate::command::Path;
use crate::params::{self, MailParameters};
use mail::{Address, BodyKind, Enhanced, Instant, MailFrom, Protocol, Reply, ReversePath};

impl Session {
    pub(super) fn mail(&mut self, path: Path<'_>) {
        match self.judge_mail(path) {
            Ok(mail) => {
                if self.count_mail() {
                    let smtputf8 = mail.from.smtputf8;
                    self.ask(Event::Mail(mail), Asked::Mail { smtputf8 });
                }
            }
            Err(reply) => self.wrong(&reply),
        }
    }

    fn judge_mail(&self, path: Path<'_>) -> Result<Mail, Reply> {
        let Some(protocol) = self.hello else {
            let hello = if self.settings().lmtp { "LHLO" } else { "HELO/EHLO" };
            return Err(replies::out_of_order(&format!("Error: send {hello} first")));
        };
        if self.transaction.is_some() {
            return Err(replies::out_of_order("Error: nested MAIL command"));
        }
        if protocol == Protocol::Smtp {
            params::none(path.parameters)?;
        }
        let asked = params::mail(path.parameters)?;
        if asked.size.is_some_and(|size| size > self.settings().message_bytes_max) {
            return Err(replies::too_big());
        }
        let sender = match path.mailbox {
            "" => ReversePath::Null,
            text => ReversePath::Address(
                Address::parse(text, asked.smtputf8)
                    .map_err(|error| replies::bad_address(error, Enhanced(5, 1, 7), "sender"))?,
            ),
        };
        Ok(noun(sender, &asked, protocol))
    }

    /// Continues after the driver has accepted a command.
    pub(super) fn accepted(&mut self, asked: Asked, now: Instant) {
        match asked {
            Asked::Hello(protocol) => self.hello_accepted(protocol),
            Asked::Mail { smtputf8 } => {
                self.transaction = Some(Transaction { smtputf8, ..Transaction::default() });
                self.clock.begin_transaction(now);
                self.say(replies::MAIL_OK);
            }
            Asked::Rcpt => self.rcpt_accepted(),
            Asked::Data => self.data_accepted(now),
            Asked::Chunk { size, last } => self.first_chunk_accepted(size, last, now),
        }
    }

    /// Continues after the driver has refused a command.
    pub(super) fn refused(&mut self, asked: Asked, reply: &Reply) {
        match asked {
            Asked::Hello(_) => self.client_must_wait(),
            Asked::Mail { .. } => {}
            Asked::Rcpt => self.seen.forget_last(),
            Asked::Data => {
                self.client_must_wait();
                self.forget_transaction();
            }
            Asked::Chunk { size, .. } => {
                self.forget_transaction();
                return self.skip_chunk(size, reply.clone(), Skipped::Refused);
            }
        }
        self.state = State::ExpectCommand;
        self.say_reply(reply);
        self.count_refusal();
    }
}

fn noun(sender: ReversePath, asked: &MailParameters<'_>, protocol: Protocol) -> Mail {
    let protocol = match protocol {
        Protocol::Esmtp if asked.smtputf8 => Protocol::Utf8Smtp,
        Protocol::Lmtp if asked.smtputf8 => Protocol::Utf8Lmtp,
        other => other,
    };
    Mail {
        from: MailFrom {
            sender,
            ret: asked.ret,
            envid: asked.envid.map(Box::from),
            body: asked.body.unwrap_or(BodyKind::SevenBit),
            smtputf8: asked.smtputf8,
        },
        size: asked.size,
        protocol,
    }
}
