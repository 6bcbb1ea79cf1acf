//! The judge: what clients were promised and what the world outside has seen, against what stands
//! in the spool after a start.
//!
//! Must never look into the mailer: it knows what was said to it and by it, and what was read back.

use super::recovered::{Found, Recovered};
use bytes::Bytes;
use mail::{Envelope, MessageId, Notify, ReversePath, TransactionId};
use std::collections::{BTreeMap, BTreeSet};

/// Transactions of clients have an incarnation below this, the mailer's own above.
pub const OWN_INCARNATION: u64 = 1 << 32;

/// A broken check, in words.
pub type Verdict = Result<(), String>;

/// All that is known outside of the mailer.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// By the transaction that brought it.
    pub sent: BTreeMap<TransactionId, Sent>,
    numbers: BTreeMap<u32, TransactionId>,
    notices: BTreeMap<MessageId, Notice>,
    /// So often the queue process was started again under a sending process that lived on: a
    /// deferral that was recorded and not answered is said again then, and counted twice.
    restarts: u16,
}

/// A client's message.
#[derive(Clone, Debug)]
pub struct Sent {
    /// As the client gave it.
    pub envelope: Envelope,
    /// As the client gave it.
    pub body: Bytes,
    /// Set by the answer.
    pub answer: Answer,
    /// By index.
    pub recipients: Vec<Recipient>,
    /// An operator's holds and releases.
    pub hold: Hold,
    /// An operator's deletion.
    pub deletion: Deletion,
}

/// What the client heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    None,
    /// `250`.
    Promised(MessageId),
    /// `4xx` or `5xx`.
    Refused,
}

/// What the world outside knows of one recipient.
#[derive(Clone, Debug, Default)]
pub struct Recipient {
    /// So often the next hop took it.
    pub delivered: u32,
    /// The next hop said that it will never take it.
    pub refused: bool,
    /// So often the next hop put it off, and so often this is recorded.
    pub deferred: u16,
    /// See `deferred`.
    pub deferred_surely: u16,
    /// The mailer said that the end is recorded.
    pub ended_surely: bool,
    /// A notice of the failure reached the sender.
    pub noticed: bool,
}

/// Holds and releases that an operator asked for.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    /// The last that was answered.
    pub sure: bool,
    /// What was asked since.
    pub asked: Vec<bool>,
}

/// Whether an operator deleted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// No.
    None,
    /// Asked, not answered.
    Asked,
    /// Answered.
    Sure,
}

/// A notice that reached a sender.
#[derive(Clone, Debug)]
struct Notice {
    about: Vec<(u32, u32)>,
    ended_surely: bool,
}

/// The subject of an attempt: whether it carries a message or a notice.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A recipient of a client's message.
    Recipient(TransactionId, u32),
    /// The sender of one, about these (message, recipient).
    Notice(MessageId, Vec<(u32, u32)>),
}

/// The addresses that the workload uses: their text says whose they are.
pub fn sender_text(number: u32) -> String {
    format!("s{number}@from.test")
}

/// See [`sender_text`].
pub fn recipient_text(number: u32, recipient: u32) -> String {
    format!("r{recipient}-{number}@d{}.test", (number + recipient / 2) % 3)
}

/// (message, recipient) of an address made by [`recipient_text`].
fn parse_recipient(text: &str) -> Option<(u32, u32)> {
    let (recipient, number) = text.strip_prefix('r')?.split_once('@')?.0.split_once('-')?;
    Some((number.parse().ok()?, recipient.parse().ok()?))
}

/// What a notice says will never arrive.
pub fn notice_about(content: &[u8]) -> Vec<(u32, u32)> {
    const FIELD: &[u8] = b"Final-Recipient: rfc822; ";
    let lines = content.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(FIELD));
    let texts = lines.filter_map(|line| std::str::from_utf8(line).ok());
    texts.filter_map(|text| parse_recipient(text.trim_end())).collect()
}

impl Sent {
    /// Nobody is told of a failure.
    fn is_silent(&self, recipient: u32) -> bool {
        let notify = self.envelope.recipients.get(recipient as usize).map(|r| r.notify);
        self.envelope.from.sender == ReversePath::Null || notify == Some(Notify::NEVER)
    }
}

impl Ledger {
    /// A client begins to hand over a message.
    pub fn send(
        &mut self,
        number: u32,
        transaction: TransactionId,
        envelope: Envelope,
        body: Bytes,
    ) {
        let recipients = vec![Recipient::default(); envelope.recipients.len()];
        let (answer, hold, deletion) = (Answer::None, Hold::default(), Deletion::None);
        let sent = Sent { envelope, body, answer, recipients, hold, deletion };
        self.sent.insert(transaction, sent);
        self.numbers.insert(number, transaction);
    }

    /// The client's message with this number.
    pub fn numbered(&self, number: u32) -> Option<(TransactionId, &Sent)> {
        let transaction = self.numbers.get(&number)?;
        Some((*transaction, self.sent.get(transaction)?))
    }

    /// The message that a queue id was promised for.
    pub fn promised(&self, message: MessageId) -> Option<TransactionId> {
        let is = |(_, sent): &(&TransactionId, &Sent)| sent.answer == Answer::Promised(message);
        self.sent.iter().find(is).map(|(transaction, _)| *transaction)
    }

    fn recipient(&mut self, of: TransactionId, index: u32) -> Option<&mut Recipient> {
        self.sent.get_mut(&of)?.recipients.get_mut(index as usize)
    }

    /// The next hop took a message. A second time is allowed only while the first is not recorded.
    pub fn delivered(&mut self, subject: &Subject) -> Verdict {
        match subject {
            Subject::Recipient(of, index) => {
                let Some(recipient) = self.recipient(*of, *index) else {
                    return Err(format!("{subject:?} was never sent"));
                };
                recipient.delivered += 1;
                match recipient.ended_surely {
                    true => Err(format!("{subject:?} ended, was recorded, and is delivered again")),
                    false => Ok(()),
                }
            }
            Subject::Notice(message, about) => {
                for (number, index) in about {
                    let of = self.numbers.get(number).copied();
                    let Some(recipient) = of.and_then(|of| self.recipient(of, *index)) else {
                        return Err(format!("a notice about {number}, which was never sent"));
                    };
                    recipient.noticed = true;
                }
                let fresh = Notice { about: about.clone(), ended_surely: false };
                let notice = self.notices.entry(*message).or_insert(fresh);
                match notice.ended_surely {
                    true => Err(format!("the notice {message} is delivered again")),
                    false => Ok(()),
                }
            }
        }
    }

    /// The next hop will never take it.
    pub fn refused(&mut self, subject: &Subject) {
        if let Subject::Recipient(of, index) = subject
            && let Some(recipient) = self.recipient(*of, *index)
        {
            recipient.refused = true;
        }
    }

    /// The next hop put it off.
    pub fn deferred(&mut self, subject: &Subject) {
        if let Subject::Recipient(of, index) = subject
            && let Some(recipient) = self.recipient(*of, *index)
        {
            recipient.deferred += 1;
        }
    }

    /// The mailer said that this outcome is recorded; `ends`: it was not put off.
    pub fn recorded(&mut self, subject: &Subject, ends: bool) {
        match subject {
            Subject::Recipient(of, index) => {
                let Some(recipient) = self.recipient(*of, *index) else { return };
                if ends {
                    recipient.ended_surely = true;
                } else {
                    recipient.deferred_surely += 1;
                }
            }
            Subject::Notice(message, _) => {
                if let Some(notice) = self.notices.get_mut(message) {
                    notice.ended_surely |= ends;
                }
            }
        }
    }

    /// The checks after a start.
    pub fn judge(&self, found: &Recovered) -> Verdict {
        if !found.report.damage.is_empty() || !found.report.strangers.is_empty() {
            return Err(format!("a cut is no damage: {:?}", found.report));
        }
        let mut present = BTreeMap::new();
        let mut notices: BTreeMap<(u32, u32), BTreeSet<MessageId>> = BTreeMap::new();
        for (id, message) in &found.messages {
            if message.waiting.is_empty() {
                return Err(format!("{id} is there and waits for nothing"));
            }
            if message.stored.transaction.incarnation >= OWN_INCARNATION {
                for about in self.judge_notice(*id, message)? {
                    notices.entry(about).or_default().insert(*id);
                }
            } else if present.insert(message.stored.transaction, (*id, message)).is_some() {
                return Err(format!("{id} is there twice"));
            }
        }
        for transaction in present.keys() {
            if !self.sent.contains_key(transaction) {
                return Err(format!("{transaction:?} was never sent"));
            }
        }
        for (id, notice) in &self.notices {
            for about in &notice.about {
                notices.entry(*about).or_default().insert(*id);
            }
        }
        if let Some((about, ids)) = notices.iter().find(|(_, ids)| ids.len() > 1) {
            return Err(format!("{about:?} failed once and has the notices {ids:?}"));
        }
        for (number, transaction) in &self.numbers {
            let Some(sent) = self.sent.get(transaction) else { continue };
            let there = present.get(transaction).copied();
            if let Some((id, message)) = there {
                judge_present(*transaction, sent, id, message, found)?;
            }
            let waiting = there.map_or(&[][..], |(_, message)| &message.waiting);
            let is_noticed = |index: u32| notices.contains_key(&(*number, index));
            if there.is_some() || matches!(sent.answer, Answer::Promised(_)) {
                judge_recipients(*number, sent, waiting, self.restarts, is_noticed)?;
            }
        }
        Ok(())
    }

    /// Returns the recipients that it is about.
    fn judge_notice(&self, id: MessageId, found: &Found) -> Result<Vec<(u32, u32)>, String> {
        let content: Vec<u8> = found.body.iter().flatten().copied().collect();
        let about = notice_about(&content);
        let to = found.stored.envelope.recipients.first().map(|to| to.address.to_string());
        let fits = |(number, index): &(u32, u32)| {
            let failed = self.numbered(*number).and_then(|(_, sent)| {
                sent.recipients.get(*index as usize).map(|recipient| recipient.refused)
            });
            to.as_deref() == Some(&sender_text(*number)) && failed == Some(true)
        };
        if about.is_empty() || !about.iter().all(fits) {
            return Err(format!("the notice {id} to {to:?} is about {about:?}"));
        }
        match self.notices.get(&id) {
            Some(notice) if notice.ended_surely => {
                Err(format!("the notice {id} ended, was recorded, and is there"))
            }
            _ => Ok(about),
        }
    }

    /// The queue process was started again and the others live on.
    pub fn restarted(&mut self, found: &Recovered) {
        self.restarts += 1;
        self.adopt(found);
    }

    /// What stands there after a start is sure from then on.
    pub fn adopt(&mut self, found: &Recovered) {
        let by = |of: TransactionId| found.messages.values().find(|m| m.stored.transaction == of);
        for (transaction, sent) in &mut self.sent {
            sent.hold.asked.clear();
            let Some(message) = by(*transaction) else {
                if sent.deletion == Deletion::Asked {
                    sent.deletion = Deletion::Sure;
                }
                continue;
            };
            sent.hold.sure = message.held.is_some();
            if sent.deletion == Deletion::Asked {
                sent.deletion = Deletion::None;
            }
            for (index, attempts) in &message.waiting {
                if let Some(recipient) = sent.recipients.get_mut(*index as usize) {
                    recipient.deferred_surely = *attempts;
                }
            }
        }
    }

    /// The clients without an answer are gone: what is not there never will be.
    pub fn forget_unanswered(&mut self, found: &Recovered) {
        let there: BTreeSet<_> = found.messages.values().map(|m| m.stored.transaction).collect();
        self.sent.retain(|transaction, sent| {
            there.contains(transaction) || matches!(sent.answer, Answer::Promised(_))
        });
    }

    /// After all has drained: nothing is waiting any more.
    pub fn judge_end(&self) -> Verdict {
        for (number, transaction) in &self.numbers {
            let Some(sent) = self.sent.get(transaction) else { continue };
            let noticed = |index: u32| {
                sent.recipients.get(index as usize).is_some_and(|recipient| recipient.noticed)
            };
            judge_recipients(*number, sent, &[], self.restarts, noticed)?;
        }
        Ok(())
    }
}

fn judge_present(
    transaction: TransactionId,
    sent: &Sent,
    id: MessageId,
    message: &Found,
    found: &Recovered,
) -> Verdict {
    let broken = |what: &str| Err(format!("{id} of {transaction:?} is there: {what}"));
    let may_hold = |held: bool| sent.hold.sure == held || sent.hold.asked.contains(&held);
    match sent.answer {
        Answer::Refused => return broken("it was refused"),
        Answer::Promised(promised) if promised != id => return broken("under another name"),
        _ => {}
    }
    if sent.deletion == Deletion::Sure {
        return broken("it was deleted, and that was answered");
    }
    if !message.has_body(&sent.body) || message.stored.envelope != sent.envelope {
        return broken("not what was sent");
    }
    let prefix = &message.stored.prefix[..];
    if !prefix.starts_with(b"Received: ") || !contains(prefix, id.to_string().as_bytes()) {
        return broken("without our header");
    }
    if found.spool.lookup_transaction(transaction) != Some(id) {
        return broken("a client that asks would not be told");
    }
    if !may_hold(message.held.is_some()) {
        let Hold { sure, asked } = &sent.hold;
        return broken(&format!("held: {:?}, answered {sure}, asked {asked:?}", message.held));
    }
    Ok(())
}

fn judge_recipients(
    number: u32,
    sent: &Sent,
    waiting: &[(u32, u16)],
    restarts: u16,
    is_noticed: impl Fn(u32) -> bool,
) -> Verdict {
    for (index, recipient) in sent.recipients.iter().enumerate() {
        let index = index as u32;
        let broken = |what: &str| Err(format!("recipient {index} of message {number} {what}"));
        match waiting.iter().find(|(waits, _)| *waits == index) {
            Some(_) if recipient.ended_surely => {
                return broken("ended, was recorded, and will be tried again");
            }
            Some(_) if is_noticed(index) => return broken("waits, and has a notice of failure"),
            Some((_, attempts)) => {
                let most = recipient.deferred + restarts;
                if !(recipient.deferred_surely..=most).contains(attempts) {
                    return broken(&format!("was tried {attempts} times: {recipient:?}"));
                }
            }
            None => {
                let told = sent.is_silent(index) || is_noticed(index);
                let ended = recipient.delivered > 0 || recipient.refused && told;
                if !ended && sent.deletion == Deletion::None {
                    return broken(&format!("was promised and is lost: {recipient:?}"));
                }
            }
        }
    }
    Ok(())
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
