//! RCPT TO (RFC 5321 4.1.1.3).
//!
//! A repeated recipient of one transaction is answered with `250` and not reported to the driver.
//! The recipient gets one copy, with the parameters of its first RCPT. In LMTP each RCPT has its
//! own reply at the end of the data, so repeated recipients are reported there.
//!
//! Must never drop a recipient that differs from all recipients before it.

use super::session::{Asked, Session};
use super::{Event, replies};
use crate::command::Path;
use crate::params;
use mail::{Address, Enhanced, Notify, Protocol, Recipient, Reply};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

impl Session {
    pub(super) fn rcpt(&mut self, path: Path<'_>) {
        match self.judge_rcpt(path) {
            Err(reply) if reply.is_transient() => self.one_too_many(&reply),
            Err(reply) => self.wrong(&reply),
            Ok(recipient) if !self.settings().lmtp && self.seen.had(&recipient.address) => {
                self.say(replies::RCPT_OK);
            }
            Ok(recipient) => self.ask(Event::Rcpt(recipient), Asked::Rcpt),
        }
    }

    /// Refuses a recipient beyond the limit, which the client repeats in another transaction (RFC 5321
    /// 4.5.3.1.10). Some clients name all recipients before they read a reply, so the first
    /// `recipients_max` of these refusals are not counted.
    fn one_too_many(&mut self, reply: &Reply) {
        self.say_reply(reply);
        let recipients_max = self.settings().recipients_max();
        if let Some(transaction) = &mut self.transaction {
            transaction.excess = transaction.excess.saturating_add(1);
            if transaction.excess > recipients_max {
                self.count_refusal();
            }
        }
    }

    fn judge_rcpt(&self, path: Path<'_>) -> Result<Recipient, Reply> {
        let Some(transaction) = &self.transaction else {
            return Err(replies::out_of_order("Error: need MAIL command"));
        };
        if transaction.chunked.is_some() {
            return Err(replies::out_of_order("Error: RCPT after BDAT"));
        }
        if transaction.recipients >= self.settings().recipients_max() {
            return Err(replies::too_many_recipients());
        }
        if self.hello == Some(Protocol::Smtp) {
            params::none(path.parameters)?;
        }
        let utf8 = transaction.smtputf8;
        let asked = params::rcpt(path.parameters, utf8)?;
        let address = self.rcpt_address(path.mailbox, utf8)?;
        let notify = asked.notify.unwrap_or(Notify::DEFAULT);
        Ok(Recipient { address, notify, orcpt: asked.orcpt.map(Box::from) })
    }

    /// Parses the address. `<postmaster>` without a domain means ours (RFC 5321 4.1.1.3).
    fn rcpt_address(&self, text: &str, utf8: bool) -> Result<Address, Reply> {
        let parsed = if text.eq_ignore_ascii_case("postmaster") {
            Address::parse(&format!("{text}@{}", self.settings().hostname), false)
        } else {
            Address::parse(text, utf8)
        };
        parsed.map_err(|error| replies::bad_address(error, Enhanced(5, 1, 3), "recipient"))
    }

    pub(super) fn rcpt_accepted(&mut self) {
        let transaction = self.transaction.as_mut().expect("RCPT is asked in a transaction only");
        transaction.recipients += 1;
        self.say(replies::RCPT_OK);
    }
}

/// The accepted recipients of a transaction, to recognise repetitions. Each takes about 60 bytes.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The text `local@domain` of each recipient, without separators.
    texts: String,
    /// The start and the end of each text, by the hash of the text. If two texts have the same hash, the
    /// later one is not remembered, and its repetitions get copies.
    places: BTreeMap<u64, (u32, u32)>,
    last: Option<u64>,
    /// Capacity of `texts` before the last recipient.
    capacity_before: usize,
}

impl Seen {
    /// Returns true if the address was accepted before. Otherwise remembers the address.
    fn had(&mut self, address: &Address) -> bool {
        (self.last, self.capacity_before) = (None, self.texts.capacity());
        let start = self.texts.len();
        self.texts.extend([address.local(), "@", address.domain().as_str()]);
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.texts.as_bytes()[start..]);
        let hash = hasher.finish();
        if let Some(&(from, to)) = self.places.get(&hash) {
            let same = self.texts[from as usize..to as usize] == self.texts[start..];
            self.texts.truncate(start);
            return same;
        }
        self.places.insert(hash, (start as u32, self.texts.len() as u32));
        self.last = Some(hash);
        false
    }

    /// Forgets the last recipient, which the driver has refused, and frees the memory that was reserved for it. A
    /// session whose recipient was refused for lack of memory must not hold more than before.
    pub(super) fn forget_last(&mut self) {
        if let Some((start, _)) = self.last.take().and_then(|hash| self.places.remove(&hash)) {
            self.texts.truncate(start as usize);
            if self.texts.capacity() > self.capacity_before {
                self.texts.shrink_to(self.capacity_before);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.texts.capacity() + self.places.len() * PLACE_BYTES
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.texts.clear();
        self.texts.shrink_to(TEXTS_BYTES_KEPT);
        self.last = None;
    }
}

/// Upper bound on what a place takes in the tree: a leaf takes 192 bytes and holds 5 to 11 places,
/// a node above takes 320 and holds as many, with 6 to 12 leaves.
const PLACE_BYTES: usize = 48;

/// Room that is kept from one transaction to the next.
const TEXTS_BYTES_KEPT: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p058_two_recipients_of_one_hash_are_two() {
        let [one, other] =
            ["one@y.test", "other@y.test"].map(|text| Address::parse(text, false).unwrap());
        let mut seen = Seen::default();
        assert!(!seen.had(&one));
        let place = *seen.places.values().next().unwrap();
        let mut forged = Seen::default();
        assert!(!forged.had(&other));
        let hash = *forged.places.keys().next().unwrap();
        seen.places.insert(hash, place);
        assert!(!seen.had(&other) && !seen.had(&other) && seen.had(&one));
        assert_eq!(seen.texts, "one@y.test");
    }
}
