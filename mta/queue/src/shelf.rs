//! Messages at hand: envelopes and small bodies that attempts and notices need now or soon, so
//! that the first attempt is made from memory.
//!
//! Must never hold more than its bound: the spool has everything.

use bytes::Bytes;
use mail::{Envelope, MessageId, allocation_bytes};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// One message at hand.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Its envelope.
    pub envelope: Rc<Envelope>,
    /// Our headers and the sender's bytes together.
    pub bytes: u64,
    /// Of these, our headers.
    pub prefix_bytes: u32,
    /// All of them, if they are few.
    pub content: Option<Bytes>,
}

/// Upper bound on what the cache itself takes for one message: its place in the table, which is half empty after it has
/// grown, its name in the order, and the headers of the two allocations that are shared.
const ENTRY_BYTES: usize = 2 * size_of::<(MessageId, Shelved)>() + 2 * size_of::<MessageId>() + 64;

impl Opened {
    /// What it costs in memory. Looks at every recipient.
    fn cost(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |content| allocation_bytes(content.len()));
        content + ENTRY_BYTES + self.envelope.memory_bytes()
    }
}

#[derive(Debug)]
struct Shelved {
    opened: Opened,
    /// Its cost, counted once.
    bytes: usize,
}

/// The messages at hand; the oldest go first when the bound is reached.
#[derive(Debug)]
pub struct Shelf {
    messages: HashMap<MessageId, Shelved>,
    order: VecDeque<MessageId>,
    bytes: usize,
    bytes_max: usize,
}

impl Shelf {
    /// A shelf for so many bytes.
    pub fn new(bytes_max: usize) -> Shelf {
        Shelf { messages: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Puts a message up.
    pub fn put(&mut self, message: MessageId, opened: Opened) {
        let bytes = opened.cost();
        self.bytes += bytes;
        if let Some(old) = self.messages.insert(message, Shelved { opened, bytes }) {
            self.bytes -= old.bytes;
        } else {
            self.order.push_back(message);
        }
        while self.bytes > self.bytes_max && self.order.len() > 1 {
            let Some(oldest) = self.order.pop_front() else { return };
            self.forget(oldest);
        }
    }

    fn forget(&mut self, message: MessageId) {
        if let Some(gone) = self.messages.remove(&message) {
            self.bytes -= gone.bytes;
        }
    }

    /// A message, if it is at hand.
    pub fn get(&self, message: MessageId) -> Option<&Opened> {
        self.messages.get(&message).map(|shelved| &shelved.opened)
    }

    /// Takes a message down that will not be needed again.
    pub fn remove(&mut self, message: MessageId) {
        self.forget(message);
        // Names of messages that are gone are dropped in bulk, so that each costs O(1).
        if self.order.len() > 2 * self.messages.len() + 1_024 {
            self.order.retain(|message| self.messages.contains_key(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, MailFrom, Notify, Origin, Protocol, Recipient, ReversePath, Timestamp};

    fn opened(bytes: usize) -> Opened {
        let envelope = Rc::new(Envelope {
            from: MailFrom::new(ReversePath::Null),
            origin: Origin { client: None, helo: "".into(), protocol: Protocol::Local },
            arrived: Timestamp::default(),
            recipients: vec![],
        });
        let content = Some(Bytes::from(vec![0; bytes]));
        Opened { envelope, bytes: bytes as u64, prefix_bytes: 0, content }
    }

    fn recipient(number: usize) -> Recipient {
        let domain = format!("{0}.{0}.{0}.test", "d".repeat(60));
        let address = Address::parse(&format!("{number:064}@{domain}"), false).unwrap();
        Recipient { address, notify: Notify::DEFAULT, orcpt: Some("o".repeat(500).into()) }
    }

    /// Each recipient has more than 900 bytes of text; 96 were counted once.
    #[test]
    fn r223_recipients_with_orcpt_and_long_domains_count_as_what_they_take() {
        let bytes_max = 4 << 20;
        let mut shelf = Shelf::new(bytes_max);
        for id in 0..40 {
            let mut opened = opened(10);
            Rc::make_mut(&mut opened.envelope).recipients = (0..1_000).map(recipient).collect();
            shelf.put(MessageId(id), opened);
        }
        let text = |one: &Recipient| {
            let orcpt = one.orcpt.as_deref().map_or(0, str::len);
            one.address.as_str().len() + one.address.domain().as_str().len() + orcpt
        };
        let held = shelf.messages.values().flat_map(|one| &one.opened.envelope.recipients);
        let held: usize = held.map(|one| text(one) + size_of::<Recipient>()).sum();
        assert!(held > bytes_max / 2 && held <= shelf.bytes && shelf.bytes <= bytes_max);
    }

    #[test]
    fn a_message_that_is_put_up_again_counts_once() {
        let mut shelf = Shelf::new(10_000);
        shelf.put(MessageId(1), opened(1_000));
        (0..100).for_each(|_| shelf.put(MessageId(2), opened(1_000)));
        assert!(shelf.get(MessageId(1)).is_some(), "there is room for both");
    }

    #[test]
    fn names_of_messages_that_are_gone_are_not_kept() {
        let mut shelf = Shelf::new(usize::MAX);
        (0..10_001).for_each(|id| shelf.put(MessageId(id), opened(1)));
        (0..10_001).for_each(|id| shelf.remove(MessageId(id)));
        assert!(shelf.order.len() < 2_000, "{}", shelf.order.len());
    }

    #[test]
    fn the_oldest_go_when_the_bound_is_reached_and_nothing_is_counted_twice() {
        let mut shelf = Shelf::new(10_000);
        for id in 0..100_000 {
            shelf.put(MessageId(id), opened(1_000));
            if id % 3 == 0 {
                shelf.remove(MessageId(id));
            }
        }
        assert!(shelf.bytes <= 10_000 && shelf.get(MessageId(99_998)).is_some());
        assert!(shelf.get(MessageId(99_000)).is_none());
        assert!(shelf.order.len() < 2_000, "{}", shelf.order.len());
        assert_eq!(
            shelf.bytes,
            shelf.messages.values().map(|one| one.opened.cost()).sum::<usize>()
        );
    }
}
