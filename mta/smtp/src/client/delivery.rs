//! One message in a session: the recipients of each transaction, those that were accepted, and the
//! outcome of each.
//!
//! Must never leave a recipient without an outcome.

use super::message::{OutboundMessage, ascii_form};
use super::offers::Offers;
use super::scan::{Scan, ScanPart};
use mail::{Address, BodyKind, Enhanced, Instant, Outcome, Reply, Report, Ret, ReversePath, Stage};
use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;

/// What is written next, once everything that was written has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// MAIL, after RSET.
    Mail,
    /// RCPT for the target at this place.
    Rcpt(usize),
    /// DATA or BDAT, if a recipient was accepted.
    Data,
    /// Nothing: the last answer ends the transaction.
    Nothing,
}

/// How far the peer is with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// MAIL was not accepted, or not answered.
    SenderUnknown,
    /// The peer has the sender, and perhaps recipients: only RSET or the end of the data frees it.
    SenderAccepted,
    /// The end of the data was answered: the peer has nothing left of the transaction.
    Ended,
    /// The same, and at least one recipient was accepted with the data.
    Delivered,
}

#[derive(Debug)]
pub(super) struct Delivery {
    pub message: Box<OutboundMessage>,
    verdicts: Vec<Option<Outcome>>,
    /// The recipients to try, by their place in the message.
    targets: Vec<usize>,
    /// The part of `targets` that the current transaction has.
    pub slice: Range<usize>,
    /// The recipients that the peer accepted in this transaction, by their place in the message.
    pub accepted: Vec<usize>,
    pub progress: Progress,
    /// Recipients that the peer seems to have refused because the transaction had too many, with
    /// the outcome that they get if there is no next transaction.
    postponed: Vec<(usize, Outcome)>,
    /// The number of recipients that this peer has accepted in one transaction before it refused
    /// more.
    rcpt_max_seen: usize,
    /// True if the peer has answered a command of this message.
    pub answered: bool,
    pub with_bdat: bool,
    /// True if addresses are sent in UTF-8.
    utf8: bool,
    pub step: Step,
    pub started: Instant,
}

impl Delivery {
    pub fn new(message: Box<OutboundMessage>, now: Instant) -> Delivery {
        let count = message.recipients.len();
        Delivery {
            message,
            verdicts: vec![None; count],
            targets: Vec::new(),
            slice: 0..0,
            accepted: Vec::new(),
            progress: Progress::SenderUnknown,
            postponed: Vec::new(),
            rcpt_max_seen: usize::MAX,
            answered: false,
            with_bdat: false,
            utf8: false,
            step: Step::Nothing,
            started: now,
        }
    }

    /// Returns the part of the message that must be searched for 8-bit octets before this
    /// peer may get it.
    ///
    /// RFC 6152 3 binds only declared messages. Undeclared 8-bit octets are sent as they came.
    pub fn scan_needed(&self, offers: &Offers) -> Option<ScanPart> {
        let body = self.message.from.body == BodyKind::EightBit && !offers.eight_bit_mime;
        let headers = self.message.from.smtputf8 && !offers.smtputf8;
        match (body, headers) {
            (true, _) => Some(ScanPart::Message),
            (false, true) => Some(ScanPart::Headers),
            (false, false) => None,
        }
    }

    /// Decides what an absent extension means for the message and for each recipient
    /// (RFC 6152 3, RFC 6531 3.2), and selects the recipients to try. 8BITMIME concerns the body:
    /// 8-bit octets in a header do not bounce a message without SMTPUTF8.
    pub fn settle(&mut self, offers: &Offers, scan: &Scan, peer: &str) {
        let here = |code: Enhanced, text: &str| {
            let reply = Reply::new(554, code, text);
            outcome(reply, Stage::Here, peer, false, true)
        };
        if self.message.from.smtputf8 && !offers.smtputf8 {
            self.settle_ascii(scan, &here);
        } else {
            self.utf8 = self.message.from.smtputf8;
        }
        let bound = self.message.from.body == BodyKind::EightBit && !offers.eight_bit_mime;
        if bound && scan.eight_bit_body {
            self.fill(here(Enhanced(5, 6, 3), "the next hop does not take 8-bit messages"));
        }
        self.targets =
            (0..self.verdicts.len()).filter(|place| self.verdicts[*place].is_none()).collect();
    }

    fn settle_ascii(&mut self, scan: &Scan, here: &dyn Fn(Enhanced, &str) -> Outcome) {
        let sender_ok = match &self.message.from.sender {
            ReversePath::Null => true,
            ReversePath::Address(address) => ascii_form(address).is_some(),
        };
        if !sender_ok {
            self.fill(here(Enhanced(5, 6, 7), "the next hop does not take the sender's address"));
        }
        for place in 0..self.verdicts.len() {
            let address = &self.message.recipients[place].address;
            if self.verdicts[place].is_none() && ascii_form(address).is_none() {
                let text = "the next hop does not take the recipient's address";
                self.verdicts[place] = Some(here(Enhanced(5, 6, 7), text));
            }
        }
        if scan.eight_bit_header {
            self.fill(here(Enhanced(5, 6, 9), "the next hop does not take UTF-8 headers"));
        }
    }

    /// Takes the refusal of a recipient, which may be temporary, permanent, or valid for this
    /// transaction only.
    ///
    /// RFC 5321 4.5.3.1.10: 452 means "too many recipients". 552 may mean the same and is temporary
    /// then. A peer that has accepted no recipient cannot mean it by a 552 without 5.5.3. If the peer
    /// has accepted a recipient, only another transaction shows the meaning: until then the refused
    /// recipient is deferred.
    pub fn rcpt_refused(&mut self, place: usize, reply: Reply, peer: &str) {
        let means = too_many(&reply);
        let postponed = means.is_some() && !self.accepted.is_empty();
        let outcome = if postponed || means == Some(TooMany::Said) {
            let peer = peer.into();
            Outcome::Deferred(Report { stage: Stage::Rcpt, reply, peer, from_peer: true })
        } else {
            outcome(reply, Stage::Rcpt, peer, true, false)
        };
        if postponed {
            self.rcpt_max_seen = self.rcpt_max_seen.min(self.accepted.len());
            self.postponed.push((place, outcome));
        } else {
            self.judge(place, outcome);
        }
    }

    /// Adds the postponed recipients to the next transaction if this one has delivered to a
    /// recipient. A message thus has at most as many transactions as recipients.
    fn resume_postponed(&mut self) {
        for (place, outcome) in std::mem::take(&mut self.postponed) {
            match self.progress == Progress::Delivered {
                true => self.targets.push(place),
                false => self.judge(place, outcome),
            }
        }
    }

    /// Selects the recipients of the next transaction, as many as one may have (RFC 9422). Returns
    /// false if no recipient is left.
    pub fn next_slice(&mut self, offers: &Offers) -> bool {
        self.resume_postponed();
        let from = self.slice.end;
        let mut to = self.targets.len().min(from.saturating_add(self.rcpt_max_seen));
        if let Some(max) = offers.rcpt_max {
            to = to.min(from + max as usize);
        }
        if let Some(max) = offers.rcpt_domain_max {
            to = from + self.domains_within(from..to, max as usize);
        }
        self.slice = from..to;
        self.accepted.clear();
        self.progress = Progress::SenderUnknown;
        self.step = Step::Mail;
        from < to
    }

    /// Returns how many targets from the start of the range have at most `max` different domains.
    fn domains_within(&self, range: Range<usize>, max: usize) -> usize {
        let mut domains = HashSet::new();
        let fits = |target: &&usize| {
            domains.insert(self.message.recipients[**target].address.domain());
            domains.len() <= max
        };
        self.targets[range].iter().take_while(fits).count()
    }

    /// Returns the place of a target in the message.
    pub fn target(&self, at: usize) -> usize {
        self.targets[at]
    }

    pub fn write_mail(&self, offers: &Offers, out: &mut Vec<u8>) {
        let message = &self.message;
        let mut line = String::with_capacity(128);
        line.push_str("MAIL FROM:<");
        if let ReversePath::Address(address) = &message.from.sender {
            self.push_address(address, &mut line);
        }
        line.push('>');
        if offers.size.is_some() {
            let _ = write!(line, " SIZE={}", message.body_bytes);
        }
        if message.from.body != BodyKind::SevenBit && offers.eight_bit_mime {
            line.push_str(" BODY=8BITMIME");
        }
        if self.utf8 {
            line.push_str(" SMTPUTF8");
        }
        if offers.dsn {
            match message.from.ret {
                Some(Ret::Full) => line.push_str(" RET=FULL"),
                Some(Ret::Headers) => line.push_str(" RET=HDRS"),
                None => {}
            }
            if let Some(envid) = &message.from.envid {
                let _ = write!(line, " ENVID={envid}");
            }
        }
        push_line(line, out);
    }

    /// Writes RCPT. NOTIFY and ORCPT are passed on as they came (RFC 3461 5.2.1). ORCPT is never
    /// added, and an ORCPT in UTF-8 is sent only with SMTPUTF8 (RFC 6533 3).
    pub fn write_rcpt(&self, place: usize, offers: &Offers, out: &mut Vec<u8>) {
        let recipient = &self.message.recipients[place];
        let mut line = String::with_capacity(64);
        line.push_str("RCPT TO:<");
        self.push_address(&recipient.address, &mut line);
        line.push('>');
        if offers.dsn {
            if let Some(notify) = recipient.notify.parameter() {
                let _ = write!(line, " NOTIFY={notify}");
            }
            if let Some(orcpt) = recipient.orcpt.as_deref().filter(|o| self.utf8 || o.is_ascii()) {
                let _ = write!(line, " ORCPT={orcpt}");
            }
        }
        push_line(line, out);
    }

    fn push_address(&self, address: &Address, line: &mut String) {
        match ascii_form(address) {
            Some(ascii) if !self.utf8 => line.push_str(&ascii),
            _ => line.push_str(address.as_str()),
        }
    }

    pub fn judge(&mut self, place: usize, outcome: Outcome) {
        self.verdicts[place].get_or_insert(outcome);
    }

    /// Sets the outcome of all recipients of the transaction that have none.
    pub fn judge_slice(&mut self, outcome: &Outcome) {
        for at in self.slice.clone() {
            self.verdicts[self.targets[at]].get_or_insert_with(|| outcome.clone());
        }
    }

    /// Sets the outcome of all accepted recipients that have none.
    pub fn judge_accepted(&mut self, outcome: &Outcome) {
        for place in &self.accepted {
            self.verdicts[*place].get_or_insert_with(|| outcome.clone());
        }
    }

    /// Sets the outcome of all recipients of the message that have none.
    pub fn fill(&mut self, outcome: Outcome) {
        for (place, outcome) in std::mem::take(&mut self.postponed) {
            self.judge(place, outcome);
        }
        for verdict in &mut self.verdicts {
            verdict.get_or_insert_with(|| outcome.clone());
        }
    }

    /// Returns the message and the outcome of each recipient, in the order of the message.
    pub fn finish(self) -> (Box<OutboundMessage>, Vec<Outcome>) {
        let judged = |verdict: Option<Outcome>| verdict.expect("fill or the last slice judged it");
        (self.message, self.verdicts.into_iter().map(judged).collect())
    }
}

/// How certain it is that a refused RCPT means "too many recipients".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TooMany {
    /// 5.5.3 or 4.5.3 says so (RFC 3463 3.6).
    Said,
    /// The code may mean it, and there is no enhanced code.
    Maybe,
}

/// Decides whether a refusal means "too many recipients". An enhanced code is trusted: 552 5.2.2 is
/// a full mailbox.
fn too_many(reply: &Reply) -> Option<TooMany> {
    match (reply.code, reply.enhanced) {
        (452 | 552, Some(Enhanced(_, 5, 3))) => Some(TooMany::Said),
        (452 | 552, None) => Some(TooMany::Maybe),
        _ => None,
    }
}

/// Makes an outcome of a reply. `relayed` is true if notices of success are ours to send.
pub(super) fn outcome(
    reply: Reply,
    stage: Stage,
    peer: &str,
    from_peer: bool,
    relayed: bool,
) -> Outcome {
    let class = reply.code / 100;
    let report = Report { stage, reply, peer: peer.into(), from_peer };
    match class {
        2 => Outcome::Delivered { report, relayed },
        5 => Outcome::Failed(report),
        _ => Outcome::Deferred(report),
    }
}

fn push_line(mut line: String, out: &mut Vec<u8>) {
    line.push_str("\r\n");
    out.extend_from_slice(line.as_bytes());
}
