//! Recognises repeated recipients of a transaction in our domains, however they are spelt.
//!
//! Must never take two mailboxes for one: a recipient that counts as a repetition gets no copy.

use crate::{Policy, Postmaster};
use mail::{Address, Domain};
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// The mailboxes of one transaction, by a hash of their canonical form.
///
/// If two mailboxes have the same hash, the later one is not remembered, and its repetitions get copies. The hash has a
/// random key, so nobody can find such mailboxes on purpose.
#[derive(Debug, Default)]
pub struct Repeats {
    key: RandomState,
    /// The place of each recipient among the accepted ones.
    places: HashMap<u64, u32>,
    /// True if `places` has the first recipient. The first recipient is added with the second, because most messages
    /// have no second recipient.
    first_entered: bool,
}

impl Repeats {
    /// Upper bound on the memory of one recipient: an entry of the table, which is half empty after it has grown.
    pub const ENTRY_BYTES_MAX: usize = 40;

    /// Returns true if `address` is the mailbox of an accepted recipient. `before` returns the accepted recipients by
    /// their places. Otherwise the caller adds the recipient at the place `next`, which is 0 only for the first
    /// recipient.
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

    /// Returns true if the mailbox is known. Otherwise remembers it with this place.
    fn find_or_enter<A: Borrow<Address>>(
        &mut self,
        policy: &Policy,
        address: &Address,
        at: usize,
        before: impl Fn(usize) -> A,
    ) -> bool {
        let Some(mailbox) = CanonicalMailbox::of(policy, address) else { return false };
        let hash = self.key.hash_one(&mailbox);
        match self.places.get(&hash) {
            Some(&place) => {
                CanonicalMailbox::of(policy, before(place as usize).borrow()).as_ref()
                    == Some(&mailbox)
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
struct CanonicalMailbox {
    /// The name that `mailbox_name` returns.
    name: String,
    /// The domain, because two of our domains may store their mail in different places. Different spellings of an
    /// address literal are the same.
    domain: Box<str>,
}

impl CanonicalMailbox {
    /// Returns the mailbox of an address, or `None` if its mail is not delivered here.
    ///
    /// The address of the postmaster in the settings is an exception. All spellings of the postmaster are replaced by
    /// it, so it is compared as written, even if it is elsewhere.
    fn of(policy: &Policy, address: &Address) -> Option<CanonicalMailbox> {
        let domain = address.domain();
        if !policy.ends_here(domain) {
            let named = matches!(&policy.postmaster, Postmaster::Address(postmaster) if postmaster == address);
            return named.then(|| CanonicalMailbox {
                name: address.local().into(),
                domain: canonical(domain),
            });
        }
        let name = policy.mailboxes.name(address.local())?;
        Some(CanonicalMailbox { name, domain: canonical(domain) })
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

    /// Returns the places of the recipients that are not repetitions.
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
        let hash = repeats.key.hash_one(CanonicalMailbox::of(&policy, &other).unwrap());
        repeats.places.insert(hash, 0);
        assert!(!repeats.had(&policy, &other, 1, |_| &one));
    }

    #[test]
    fn the_table_takes_no_more_than_is_counted() {
        let mut repeats = Repeats::default();
        for hash in 0..50_000 {
            repeats.places.insert(hash, 0);
            // An entry takes 16 bytes and a control byte, and the table uses 7 of 8 entries.
            let bytes = repeats.places.capacity() * 8 / 7 * 17;
            let allowed = (repeats.places.len() + 8) * Repeats::ENTRY_BYTES_MAX;
            assert!(bytes <= allowed, "{} entries: {bytes}", repeats.places.len());
        }
    }
}
