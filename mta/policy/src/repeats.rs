//! Which mailboxes of ours a transaction has named, whatever the spelling.
//!
//! Must never take two mailboxes for one: what is taken for a repetition gets no copy.

use crate::{Policy, Postmaster};
use mail::{Address, Domain};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// The mailboxes of one transaction, by a hash of their canonical form.
///
/// Two mailboxes of one hash: the later is not remembered, and a repetition of it gets a copy of its own. The
/// hash has a random key, so nobody finds such mailboxes on purpose.
#[derive(Debug, Default)]
pub struct Repeats {
    key: RandomState,
    /// To the recipient's place among those that were accepted.
    places: HashMap<u64, u32>,
    /// Whether `places` has the first recipient. It is entered with the second one: most messages have
    /// no second recipient.
    first_entered: bool,
}

impl Repeats {
    /// Bytes that one recipient takes at most: an entry of the table, which is half empty after it has
    /// grown.
    pub const ENTRY_BYTES_MAX: usize = 40;

    /// Whether `address` is the mailbox of one of the recipients accepted `before`, which are asked for
    /// by their places. If it is not, the caller puts it at the place `next`: 0 for the first recipient only.
    pub fn had<A: Borrow<Address>>(
        &mut self,
        policy: &Policy,
        address: &Address,
        next: usize,
        before: impl Fn(usize) -> A,
    ) -> bool {
        if next == 0 {
            return false;
        }
        if !self.first_entered {
            self.first_entered = true;
            self.find_or_enter(policy, before(0).borrow(), 0, &before);
        }
        self.find_or_enter(policy, address, next, before)
    }

    /// Whether the mailbox is known; if it is not, it is remembered at this place.
    fn find_or_enter<A: Borrow<Address>>(
        &mut self,
        policy: &Policy,
        address: &Address,
        at: usize,
        before: impl Fn(usize) -> A,
    ) -> bool {
        let Some(mailbox) = Mailbox::of(policy, address) else { return false };
        let hash = self.key.hash_one(&mailbox);
        match self.places.get(&hash) {
            Some(&place) => {
                Mailbox::of(policy, before(place as usize).borrow()).as_ref() == Some(&mailbox)
            }
            None => {
                self.places.insert(hash, u32::try_from(at).unwrap_or(u32::MAX));
                false
            }
        }
    }
}

/// A mailbox of ours in its canonical form.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mailbox {
    /// As `mailbox_name` has it.
    name: String,
    /// Two of our domains may keep their mail in different places. An address literal counts as its
    /// address, in whichever way it is written.
    domain: Box<str>,
}

impl Mailbox {
    /// `None`: mail to this address does not end here. The exception is the address that the settings
    /// name for the postmaster: every spelling of the postmaster becomes it, so it is compared as written.
    fn of(policy: &Policy, address: &Address) -> Option<Mailbox> {
        let domain = address.domain();
        if !policy.ends_here(domain) {
            let named = matches!(&policy.postmaster, Postmaster::Address(postmaster) if postmaster == address);
            return named
                .then(|| Mailbox { name: address.local().into(), domain: canonical(domain) });
        }
        let name = policy.mailboxes.name(address.local())?;
        Some(Mailbox { name, domain: canonical(domain) })
    }
}

fn canonical(domain: &Domain) -> Box<str> {
    match domain.literal() {
        Some(address) => address.to_canonical().to_string().into(),
        None => domain.as_str().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Accounts;
    use crate::verdict::tests::policy;
    use mail::{Notify, Recipient};

    /// The places of the recipients that are no repetitions.
    fn kept(texts: &[String]) -> Vec<usize> {
        let policy = policy(Accounts::Any);
        let mut repeats = Repeats::default();
        let mut kept: Vec<(usize, Address)> = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let address = Address::parse(text, true).unwrap();
            if !repeats.had(&policy, &address, kept.len(), |place| &kept[place].1) {
                kept.push((at, address));
            }
        }
        kept.into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn r212_one_mailbox_in_many_spellings_is_one_and_different_ones_are_different() {
        let texts = [
            "joe@local.test",
            "JOE@local.test",
            "\"joe\"@Local.Test",
            "\"j\\oe\"@local.test",
            "ann@local.test",
            "joe@[192.0.2.25]",
            "joe@[IPv6:::ffff:192.0.2.25]",
            "Joe@elsewhere.example",
            "joe@elsewhere.example",
            "postmaster@mx.example.org",
            "PostMaster@mx.example.org",
        ];
        assert_eq!(kept(&texts.map(String::from)), [0, 4, 5, 7, 8, 9]);
    }

    #[test]
    fn r212_4000_spellings_are_one_mailbox() {
        let letters = |bits: usize| -> String {
            let case = |(at, c): (usize, char)| match bits >> at & 1 {
                0 => c,
                _ => c.to_ascii_uppercase(),
            };
            "postmaster".char_indices().map(case).collect()
        };
        let mut texts: Vec<String> = Vec::new();
        for bits in 0..1000 {
            let word = letters(bits);
            let (first, rest) = word.split_at(1);
            texts.extend([
                format!("{word}@local.test"),
                format!("\"{word}\"@local.test"),
                format!("\"\\{word}\"@local.test"),
                format!("\"{first}\\{rest}\"@local.test"),
            ]);
        }
        assert_eq!(kept(&texts), [0]);
    }

    #[test]
    fn r212_all_spellings_of_a_postmaster_elsewhere_are_one_recipient() {
        let address = |text: &str| Address::parse(text, false).unwrap();
        let postmaster = Postmaster::Address(address("ann@elsewhere.example"));
        let policy = Policy { postmaster, ..policy(Accounts::Any) };
        let mut repeats = Repeats::default();
        let mut kept: Vec<Address> = Vec::new();
        for text in [
            "postmaster@local.test",
            "PostMaster@local.test",
            "\"post\\master\"@mx.example.org",
            "ann@elsewhere.example",
            "Ann@elsewhere.example",
            "joe@elsewhere.example",
            "joe@elsewhere.example",
        ] {
            let recipient =
                Recipient { address: address(text), notify: Notify::DEFAULT, orcpt: None };
            let recipient = policy.as_delivered(recipient);
            if !repeats.had(&policy, &recipient.address, kept.len(), |place| &kept[place]) {
                kept.push(recipient.address);
            }
        }
        let kept: Vec<&str> = kept.iter().map(Address::as_str).collect();
        let others = ["Ann@elsewhere.example", "joe@elsewhere.example", "joe@elsewhere.example"];
        assert_eq!(kept, [&["ann@elsewhere.example"][..], &others].concat());
    }

    #[test]
    fn r212_two_mailboxes_of_one_hash_are_two() {
        let policy = policy(Accounts::Any);
        let [one, other] =
            ["one@local.test", "other@local.test"].map(|text| Address::parse(text, false).unwrap());
        let mut repeats = Repeats::default();
        let hash = repeats.key.hash_one(Mailbox::of(&policy, &other).unwrap());
        repeats.places.insert(hash, 0);
        assert!(!repeats.had(&policy, &other, 1, |_| &one));
    }

    #[test]
    fn the_table_takes_no_more_than_is_counted() {
        let mut repeats = Repeats::default();
        for hash in 0..50_000 {
            repeats.places.insert(hash, 0);
            // 16 bytes and one of control an entry, of which the table fills 7 of 8.
            let bytes = repeats.places.capacity() * 8 / 7 * 17;
            let allowed = (repeats.places.len() + 8) * Repeats::ENTRY_BYTES_MAX;
            assert!(bytes <= allowed, "{} entries: {bytes}", repeats.places.len());
        }
    }
}
