//! The judge: what was promised, what became of it, and whether that may be.
//!
//! Must never look inside the mailer: it hears what clients, next hops, mailboxes and operators
//! see, and when a sending process was told that an outcome is recorded.

use crate::plan::{Fate, Mail, Plan};
use mail::{Instant, MessageId};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Findings kept at most; one is enough to fail.
const FINDINGS_MAX: usize = 20;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// A promised recipient has neither a delivery, nor a bounce, nor a queued message.
    Lost,
    /// What was delivered is not what was sent.
    Damaged,
    /// Delivered again although the outcome was durable, or although nothing went wrong.
    Doubled,
    /// A message was delivered that was refused or never sent whole.
    Unpromised,
    /// Recovering twice does not equal recovering once, or the spool does not open.
    Recovery,
    /// It does not drain in time.
    Stuck,
    /// What an operator was told was done is not.
    Order,
    /// A bounce that should not be.
    Bounced,
    /// A next hop is given mail of another one.
    Astray,
    /// A receiving process holds more for its clients than its limit.
    Memory,
    /// The same plan went another way.
    Chance,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub check: Check,
    /// What was seen.
    pub text: String,
}

#[derive(Debug, Default)]
struct Entry {
    mail: Option<Mail>,
    state: State,
    id: Option<MessageId>,
    deleted: Option<Instant>,
    held: Option<Instant>,
    /// Somebody asked for its deletion, answered or not.
    doomed: bool,
    fates: Vec<Became>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No client has sent its last byte.
    #[default]
    Unsent,
    /// Sent whole, not answered.
    Open,
    /// `250`.
    Promised(Instant),
    /// Another answer.
    Refused,
}

#[derive(Clone, Debug, Default)]
struct Became {
    accepted: bool,
    deliveries: u32,
    settled: Option<Instant>,
    bounces: u32,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Messages with a `250`.
    pub promised: u64,
    /// Answered otherwise.
    pub refused: u64,
    /// Recipients delivered, once or more.
    pub delivered: u64,
    /// Deliveries too many, all of them allowed ones.
    pub doubled: u64,
    /// Notices of failure that reached their sender.
    pub bounced: u64,
}

/// The books.
#[derive(Debug)]
pub struct Ledger {
    entries: BTreeMap<u32, Entry>,
    quiet: bool,
    /// The disk failed so often in a row that nothing could be made void any more: what was
    /// refused then may come back after a power cut, whole.
    pub broken: bool,
    failures: u32,
    /// Some messages were read with a flipped bit: a notice that needed one of these may not have
    /// been made.
    pub bad_reads: bool,
    /// A queue process was started with another clock than the one before it: nothing tells it
    /// which was right.
    pub clock_set: bool,
    expire: Duration,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// The bytes that the client of a message sends.
pub fn body(mail: &Mail) -> Vec<u8> {
    let mut text = format!("X-Token: {}\r\nSubject: {} octets\r\n\r\n", mail.number, mail.bytes);
    let mut line = 0u64;
    while text.len() < mail.bytes as usize {
        line += 1;
        let mixed = (u64::from(mail.number) << 32 | line).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let dot = if mixed.is_multiple_of(7) { "." } else { "" };
        let width = (mixed >> 40) as usize % 60;
        let _ = write!(text, "{dot}{mixed:016x} {:width$}|\r\n", line);
    }
    text.into_bytes()
}

/// The address of a recipient.
pub fn address(mail: &Mail, index: usize) -> String {
    match mail.recipients[index].domain {
        Some(domain) => format!("m{}r{index}@d{domain}.test", mail.number),
        None => format!("m{}r{index}@local.test", mail.number),
    }
}

/// Message and recipient of such an address.
pub fn parse_address(address: &str) -> Option<(u32, usize)> {
    let (local, _) = address.split_once('@')?;
    let (mail, index) = local.strip_prefix('m')?.split_once('r')?;
    Some((mail.parse().ok()?, index.parse().ok()?))
}

impl Ledger {
    /// Empty books for a plan.
    pub fn new(plan: &Plan) -> Ledger {
        let entry = |mail: &Mail| Entry {
            mail: Some(mail.clone()),
            fates: vec![Became::default(); mail.recipients.len()],
            ..Entry::default()
        };
        Ledger {
            entries: plan.mails.iter().map(|mail| (mail.number, entry(mail))).collect(),
            quiet: plan.is_quiet(),
            broken: false,
            failures: 0,
            bad_reads: false,
            clock_set: false,
            expire: plan.settings.scheduler.retry.expire,
            findings: Vec::new(),
        }
    }

    /// Writes a finding down.
    pub fn find(&mut self, check: Check, text: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { check, text });
        }
    }

    /// The last byte of a message is on its way, for these recipients.
    pub fn sent(&mut self, number: u32, accepted: &[usize]) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.state = State::Open;
        accepted.iter().for_each(|index| entry.fates[*index].accepted = true);
    }

    /// Its client reads that this recipient was refused, maybe after it has sent everything.
    pub fn not_accepted(&mut self, number: u32, index: usize) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let fate = &mut entry.fates[index];
        fate.accepted = false;
        if fate.deliveries > 0 {
            let text = format!("m{number}r{index} was delivered, then refused");
            self.find(Check::Unpromised, text);
        }
    }

    /// Its client reads `250`.
    pub fn promised(&mut self, number: u32, id: Option<MessageId>, now: Instant) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.state = State::Promised(now);
        entry.id = id;
    }

    /// A commit failed, or a segment's header, or the making of one. After the second one there may be
    /// no segment left to write into what is void.
    pub fn failure(&mut self) {
        self.failures += 1;
        self.broken |= self.failures > 1;
    }

    /// The queue says that a message cannot be read back.
    pub fn unreadable(&mut self, message: MessageId, text: &str) {
        if !self.bad_reads {
            self.find(Check::Damaged, format!("{message} cannot be read: {text}"));
        }
    }

    /// Its client reads something else.
    pub fn refused(&mut self, number: u32) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.state = State::Refused;
        if !self.broken && entry.fates.iter().any(|fate| fate.deliveries > 0) {
            self.find(Check::Unpromised, format!("m{number} was delivered, then refused"));
        }
    }

    /// A next hop or a mailbox took it. `attempt` is when the attempt began, where that is known
    /// for certain.
    pub fn delivered(&mut self, number: u32, index: usize, bytes: &[u8], attempt: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return self.find(Check::Unpromised, format!("m{number} was never in the plan"));
        };
        let what = format!("m{number}r{index}");
        let mut wrong = Vec::new();
        let Some(mail) = &entry.mail else { return };
        if !is_whole(mail, bytes) {
            wrong.push((Check::Damaged, format!("{what} arrived with {} octets", bytes.len())));
        }
        let state = entry.state;
        let Some(fate) = entry.fates.get_mut(index) else { return };
        fate.deliveries += 1;
        let after = |at: Option<Instant>| at.zip(attempt).is_some_and(|(at, began)| began > at);
        let refused = state == State::Refused && !self.broken;
        if !fate.accepted || state == State::Unsent || refused {
            wrong.push((Check::Unpromised, format!("{what} was delivered in state {state:?}")));
        }
        if after(fate.settled) {
            let text = format!("{what} was tried again although its outcome was durable");
            wrong.push((Check::Doubled, text));
        }
        if fate.deliveries > 1 && self.quiet {
            wrong.push((Check::Doubled, format!("{what} came twice and nothing went wrong")));
        }
        if after(entry.deleted) {
            wrong.push((Check::Order, format!("{what} was tried after it was deleted")));
        }
        if after(entry.held) {
            wrong.push((Check::Order, format!("{what} was tried while it was held")));
        }
        wrong.into_iter().for_each(|(check, text)| self.find(check, text));
    }

    /// The sending process was told that this delivery is recorded.
    pub fn settled(&mut self, number: u32, index: usize, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&number)
            && let Some(fate) = entry.fates.get_mut(index)
        {
            fate.settled.get_or_insert(now);
        }
    }

    /// Its sender was told that it failed.
    pub fn bounced(&mut self, number: u32, index: usize, now: Instant) {
        let expire = self.expire;
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let Some(mail) = &entry.mail else { return };
        let (planned, null) = (mail.recipients[index], mail.null_sender);
        let state = entry.state;
        let fate = &mut entry.fates[index];
        fate.bounces += 1;
        let (bounces, settled) = (fate.bounces, fate.settled);
        let what = format!("m{number}r{index}");
        if null || planned.never_notify {
            self.find(Check::Bounced, format!("{what}: nobody wanted to hear of it"));
        }
        if settled.is_some() {
            self.find(Check::Bounced, format!("{what} was delivered for certain and bounced"));
        }
        if bounces > 1 && self.quiet {
            self.find(Check::Doubled, format!("{what} bounced twice and nothing went wrong"));
        }
        let early = |at: Instant| now.since(at) < expire.mul_f64(0.95);
        if planned.fate != Fate::Refused
            && !self.clock_set
            && matches!(state, State::Promised(at) if early(at))
        {
            let text = format!("{what} bounced although there was time left to try");
            self.find(Check::Bounced, text);
        }
    }

    /// The queue ids that clients were told, for an operator to choose from.
    pub fn known(&self) -> Vec<(u32, MessageId)> {
        self.entries.iter().filter_map(|(number, entry)| Some((*number, entry.id?))).collect()
    }

    /// An operator asked for its deletion: from here on it may go.
    pub fn doomed(&mut self, number: u32) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.doomed = true;
        }
    }

    /// The operator was told that it is deleted.
    pub fn deleted(&mut self, number: u32, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.deleted.get_or_insert(now);
        }
    }

    /// The operator was told that it is held; or asks for its release.
    pub fn held(&mut self, number: u32, since: Option<Instant>) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.held = since;
        }
    }

    /// All are released.
    pub fn release_all(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.held = None);
    }

    /// The queue is empty: everything promised must have come to its end.
    pub fn close(&mut self, expired_possible: bool) {
        let mut lost = Vec::new();
        for (number, entry) in &self.entries {
            let Some(mail) = &entry.mail else { continue };
            if !matches!(entry.state, State::Promised(_)) || entry.doomed {
                continue;
            }
            for (index, fate) in entry.fates.iter().enumerate().filter(|(_, f)| f.accepted) {
                let planned = mail.recipients[index];
                let ended = fate.deliveries > 0 || fate.bounces > 0;
                let silent = mail.null_sender || planned.never_notify || self.bad_reads;
                let hopeless =
                    self.clock_set || matches!(planned.fate, Fate::Refused | Fate::Never);
                if !ended && !(silent && (hopeless || expired_possible)) {
                    lost.push(format!("m{number}r{index} ({:?}) is nowhere", planned.fate));
                }
            }
        }
        lost.into_iter().for_each(|text| self.find(Check::Lost, text));
    }

    /// Whether some recipients never get theirs before it expires.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for entry in self.entries.values() {
            sums.promised += u64::from(matches!(entry.state, State::Promised(_)));
            sums.refused += u64::from(entry.state == State::Refused);
            for fate in &entry.fates {
                sums.delivered += u64::from(fate.deliveries > 0);
                sums.doubled += u64::from(fate.deliveries.saturating_sub(1));
                sums.bounced += u64::from(fate.bounces);
            }
        }
        sums
    }
}

/// Header lines of ours, then the very bytes of the sender.
fn is_whole(mail: &Mail, bytes: &[u8]) -> bool {
    let sent = body(mail);
    let Some(ours) = bytes.len().checked_sub(sent.len()) else { return false };
    let (head, rest) = bytes.split_at(ours);
    let is_ours = |line: &[u8]| {
        line.is_empty()
            || line.starts_with(b"Received: ")
            || line.starts_with(b"\t")
            || line.starts_with(b"        ")
            || line.starts_with(b"Return-Path: ")
            || line.starts_with(b"Delivered-To: ")
    };
    rest == sent && head.split(|byte| *byte == b'\n').all(is_ours)
}
