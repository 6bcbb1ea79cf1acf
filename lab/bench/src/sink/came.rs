//! The marked messages that have come, with recipients and times: 24 bytes for a message that came once to one recipient.
//!
//! Must never need more memory for a number from a damaged token than for any other.

use crate::mark::Token;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use twox_hash::XxHash3_64;

/// Messages of one page; numbers that lie together share one.
const PAGE_MESSAGES: usize = 1 << PAGE_BITS;
const PAGE_BITS: u32 = 10;

/// What is known about one message.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The hash of its first recipient.
    first: u64,
    /// When it came first, in nanoseconds of `CLOCK_MONOTONIC`.
    at_ns: u64,
    /// Different recipients; 0: it never came.
    recipients: u32,
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only whole numbers are put in");
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// All marked messages that have come.
#[derive(Default)]
pub struct Came {
    /// By run and by number without its lowest bits.
    pages: HashMap<(u64, u64), Box<[Slot; PAGE_MESSAGES]>>,
    /// Hashes of token and recipient, of all recipients but a message's first: which delivery has been seen. 64 bits name
    /// one: among a million, two alike are as likely as 1 in 37 million.
    others: HashSet<u64, BuildHasherDefault<Same>>,
    /// Transactions of a message after its first that brought it to someone new, and when they came.
    again: Vec<(Token, u64)>,
    distinct: u64,
}

impl Came {
    /// Takes a message that came to these recipients in one transaction. Returns how many of them had got it before.
    pub fn take(&mut self, token: Token, recipients: &[String], at_ns: u64) -> u64 {
        let (page, at) = place(token);
        let page = self.pages.entry(page).or_insert_with(new_page);
        let slot = &mut page[at];
        let (before, mut duplicates) = (slot.recipients, 0);
        for recipient in recipients {
            let name = name(token, recipient);
            if slot.recipients == 0 {
                (slot.first, slot.at_ns, slot.recipients) = (name, at_ns, 1);
                self.distinct += 1;
            } else if slot.first != name && self.others.insert(name) {
                slot.recipients += 1;
            } else {
                duplicates += 1;
            }
        }
        if before > 0 && slot.recipients > before {
            self.again.push((token, at_ns));
        }
        duplicates
    }

    /// Returns the number of different recipients of a message.
    pub fn recipients(&self, token: Token) -> u32 {
        self.slot(token).map_or(0, |slot| slot.recipients)
    }

    /// Returns when a message came first.
    pub fn first_ns(&self, token: Token) -> Option<u64> {
        self.slot(token).map(|slot| slot.at_ns)
    }

    /// Further transactions of messages that had come before, with their times.
    pub fn again(&self) -> &[(Token, u64)] {
        &self.again
    }

    /// Different messages.
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    fn slot(&self, token: Token) -> Option<&Slot> {
        let (page, at) = place(token);
        self.pages.get(&page).map(|page| &page[at]).filter(|slot| slot.recipients > 0)
    }
}

fn new_page() -> Box<[Slot; PAGE_MESSAGES]> {
    Box::new([Slot::default(); PAGE_MESSAGES])
}

fn place(token: Token) -> ((u64, u64), usize) {
    let at = token.number as usize % PAGE_MESSAGES;
    ((token.run, token.number >> PAGE_BITS), at)
}

fn name(token: Token, recipient: &str) -> u64 {
    let seed = token.run ^ token.number.rotate_left(32);
    XxHash3_64::oneshot_with_seed(seed, recipient.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_comes_once_to_one_takes_one_slot() {
        assert_eq!(size_of::<Slot>(), 24);
        let mut came = Came::default();
        let to = ["a@b.test".to_string()];
        for number in 0..5000 {
            assert_eq!(came.take(Token { run: 1, number }, &to, number), 0);
        }
        assert_eq!((came.pages.len(), came.others.len(), came.again.len()), (5, 0, 0));
        let token = Token { run: 1, number: 7 };
        assert_eq!((came.recipients(token), came.first_ns(token)), (1, Some(7)));
        assert_eq!(came.take(token, &to, 9), 1);
        assert_eq!(came.take(token, &["c@b.test".to_string()], 10), 0);
        assert_eq!((came.first_ns(token), came.again()), (Some(7), &[(token, 10)][..]));
        let never = Token { run: 1, number: 5000 };
        assert_eq!((came.recipients(never), came.first_ns(never)), (0, None));
        assert_eq!(came.distinct(), 5000);
    }
}
