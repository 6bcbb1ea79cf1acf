//! One message on its way through one session: who is still to be told of, who was accepted, and
//! what became of each.
//!
//! Must never leave a recipient without an outcome.

use super::message::{Message, ascii_form};
use super::offers::Offers;
use super::scan::Scan;
use mail::{Address, BodyKind, Enhanced, Instant, Outcome, Reply, Report, Ret, ReversePath, Stage};
use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;

/// What is to be written when all that was written has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// MAIL, after RSET.
    Mail,
    /// RCPT for the target at this place.
    Rcpt(usize),
    /// DATA or BDAT, if anyone was accepted.
    Data,
    /// Nothing: the last answer ends the transaction.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Delivery {
    pub message: Box<Message>,
    verdicts: Vec<Option<Outcome>>,
    /// Recipients that are to be tried, by their place in the message.
    targets: Vec<usize>,
    /// The targets of the transaction under way.
    pub slice: Range<usize>,
    /// Places of the recipients that the peer took in this transaction.
    pub accepted: Vec<usize>,
    pub sender_ok: bool,
    /// The peer has the whole transaction behind it.
    pub ended: bool,
    /// The transaction has delivered to somebody.
    pub disposed: bool,
    /// Recipients that the peer did not take because there were too many before them in the
    /// transaction, or so it seems, and what becomes of them if there is no next transaction.
    postponed: Vec<(usize, Outcome)>,
    /// Recipients that a transaction may have, as this peer has shown.
    rcpt_max_seen: usize,
    /// Any reply came since the message was given.
    pub answered: bool,
    pub with_bdat: bool,
    /// Addresses go in UTF-8.
    utf8: bool,
    pub step: Step,
    pub started: Instant,
}

impl Delivery {
    pub fn new(message: Box<Message>, now: Instant) -> Delivery {
        let count = message.recipients.len();
        Delivery {
            message,
            verdicts: vec![None; count],
            targets: Vec::new(),
            slice: 0..0,
            accepted: Vec::new(),
            sender_ok: false,
            ended: false,
            disposed: false,
            postponed: Vec::new(),
            rcpt_max_seen: usize::MAX,
            answered: false,
            with_bdat: false,
            utf8: false,
            step: Step::Nothing,
            started: now,
        }
    }

    /// What must be known of the bytes before this peer may get them: `Some(only_headers)`.
    ///
    /// RFC 6152 3 binds only what was declared; undeclared 8-bit bytes go on as they came.
    pub fn scan_needed(&self, offers: &Offers) -> Option<bool> {
        let body = self.message.from.body == BodyKind::EightBit && !offers.eight_bit_mime;
        let headers = self.message.from.smtputf8 && !offers.smtputf8;
        (body || headers).then_some(!body)
    }

    /// Decides what an absent extension means for the message and for each recipient
    /// (RFC 6152 3, RFC 6531 3.2), and who is left to be tried. 8BITMIME is about the body: raw
    /// 8-bit bytes in a header are no reason to bounce a message without SMTPUTF8.
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

    /// A recipient was refused: for now, for ever, or until the next transaction.
    ///
    /// RFC 5321 4.5.3.1.10: 452 means "too many recipients", and 552 may mean it, which is then
    /// temporary. A peer that has taken nobody yet cannot mean it by a 552 without 5.5.3. If it has
    /// taken somebody, only another transaction shows what it means: until then the recipient is deferred.
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

    /// The postponed recipients join the next transaction if this one has delivered to somebody, so
    /// that there are at most as many transactions as recipients.
    fn resume_postponed(&mut self) {
        for (place, outcome) in std::mem::take(&mut self.postponed) {
            match self.disposed {
                true => self.targets.push(place),
                false => self.judge(place, outcome),
            }
        }
    }

    /// Moves on to the next recipients, as many as one transaction may have (RFC 9422).
    /// False: nobody is left.
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
        (self.sender_ok, self.ended, self.disposed) = (false, false, false);
        self.step = Step::Mail;
        from < to
    }

    /// How many targets from the range's start have at most `max` different domains.
    fn domains_within(&self, range: Range<usize>, max: usize) -> usize {
        let mut domains = HashSet::new();
        let fits = |target: &&usize| {
            domains.insert(self.message.recipients[**target].address.domain());
            domains.len() <= max
        };
        self.targets[range].iter().take_while(fits).count()
    }

    /// The recipient's place in the message.
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

    /// RCPT; NOTIFY and ORCPT go on as they came (RFC 3461 5.2.1); an ORCPT that was not there
    /// is not made up, and one in UTF-8 goes only where UTF-8 goes (RFC 6533 3).
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

    /// All recipients of the transaction that have no outcome yet.
    pub fn judge_slice(&mut self, outcome: &Outcome) {
        for at in self.slice.clone() {
            self.verdicts[self.targets[at]].get_or_insert_with(|| outcome.clone());
        }
    }

    /// All that the peer took.
    pub fn judge_accepted(&mut self, outcome: &Outcome) {
        for place in &self.accepted {
            self.verdicts[*place].get_or_insert_with(|| outcome.clone());
        }
    }

    /// All recipients of the message that have no outcome yet.
    pub fn fill(&mut self, outcome: Outcome) {
        for (place, outcome) in std::mem::take(&mut self.postponed) {
            self.judge(place, outcome);
        }
        for verdict in &mut self.verdicts {
            verdict.get_or_insert_with(|| outcome.clone());
        }
    }

    /// The message back, and an outcome for each recipient in its order.
    pub fn finish(self) -> (Box<Message>, Vec<Outcome>) {
        let judged = |verdict: Option<Outcome>| verdict.expect("fill or the last slice judged it");
        (self.message, self.verdicts.into_iter().map(judged).collect())
    }
}

/// How sure it is that a refused RCPT means "too many recipients".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TooMany {
    /// 5.5.3 or 4.5.3 says so (RFC 3463 3.6).
    Said,
    /// The code may mean it, and no enhanced code says anything else.
    Maybe,
}

/// An enhanced code is taken at its word: 552 5.2.2 is a full mailbox.
fn too_many(reply: &Reply) -> Option<TooMany> {
    match (reply.code, reply.enhanced) {
        (452 | 552, Some(Enhanced(_, 5, 3))) => Some(TooMany::Said),
        (452 | 552, None) => Some(TooMany::Maybe),
        _ => None,
    }
}

/// What a reply means for a recipient. `relayed`: success notices are ours to send.
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
