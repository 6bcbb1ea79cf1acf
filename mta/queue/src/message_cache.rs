//! The cache of messages: envelopes and small bodies that attempts and notices need soon.
//!
//! The first attempt at a message is made from this memory. Must never hold more than its bound: the spool has
//! every message.

use bytes::Bytes;
use mail::{Envelope, MessageId, allocation_bytes};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// A message in memory: its envelope, its sizes and, if it is small, its content.
#[derive(Clone, Debug)]
pub struct CachedMessage {
    /// The message's envelope.
    pub envelope: Rc<Envelope>,
    /// Bytes of the headers that we added and of the sender's data together.
    pub bytes: u64,
    /// Bytes of the headers that we added.
    pub prefix_bytes: u32,
    /// All `bytes` of a small message.
    pub content: Option<Bytes>,
}

/// Upper bound on what the cache itself takes for one message: its entry in the table, which is half empty after it has
/// grown, its id in `order`, and the headers of the two shared allocations.
const ENTRY_BYTES: usize = 2 * size_of::<(MessageId, Entry)>() + 2 * size_of::<MessageId>() + 64;

impl CachedMessage {
    /// Returns the memory that the message takes in the cache. Looks at every recipient.
    fn cost(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |content| allocation_bytes(content.len()));
        content + ENTRY_BYTES + self.envelope.memory_bytes()
    }
}

#[derive(Debug)]
struct Entry {
    cached: CachedMessage,
    /// The message's cost, counted once.
    bytes: usize,
}

/// The messages in memory. At the bound the oldest are removed first.
#[derive(Debug)]
pub struct MessageCache {
    messages: HashMap<MessageId, Entry>,
    /// Ids in the order of insertion, with some of messages that have been removed.
    order: VecDeque<MessageId>,
    bytes: usize,
    bytes_max: usize,
}

impl MessageCache {
    /// Creates an empty cache that holds up to `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> MessageCache {
        MessageCache { messages: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Adds or replaces a message. The newest message stays even if it is larger than the cache.
    pub fn put(&mut self, message: MessageId, cached: CachedMessage) {
        let bytes = cached.cost();
        self.bytes += bytes;
        if let Some(old) = self.messages.insert(message, Entry { cached, bytes }) {
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

    /// Returns a message if it is in the cache.
    pub fn get(&self, message: MessageId) -> Option<&CachedMessage> {
        self.messages.get(&message).map(|entry| &entry.cached)
    }

    /// Removes a message that will not be needed again.
    pub fn remove(&mut self, message: MessageId) {
        self.forget(message);
        // Ids of removed messages are dropped in bulk, so that each costs O(1).
        if self.order.len() > 2 * self.messages.len() + 1_024 {
            self.order.retain(|message| self.messages.contains_key(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Address, MailFrom, Notify, Origin, Protocol, Recipient, ReversePath, Timestamp};

    fn cached(bytes: usize) -> CachedMessage {
        let envelope = Rc::new(Envelope {
            from: MailFrom::new(ReversePath::Null),
            origin: Origin { client: None, helo: "".into(), protocol: Protocol::Local },
            arrived: Timestamp::default(),
            recipients: vec![],
        });
        let content = Some(Bytes::from(vec![0; bytes]));
        CachedMessage { envelope, bytes: bytes as u64, prefix_bytes: 0, content }
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
        let mut cache = MessageCache::new(bytes_max);
        for id in 0..40 {
            let mut cached = cached(10);
            Rc::make_mut(&mut cached.envelope).recipients = (0..1_000).map(recipient).collect();
            cache.put(MessageId(id), cached);
        }
        let text = |one: &Recipient| {
            let orcpt = one.orcpt.as_deref().map_or(0, str::len);
            one.address.as_str().len() + one.address.domain().as_str().len() + orcpt
        };
        let held = cache.messages.values().flat_map(|one| &one.cached.envelope.recipients);
        let held: usize = held.map(|one| text(one) + size_of::<Recipient>()).sum();
        assert!(held > bytes_max / 2 && held <= cache.bytes && cache.bytes <= bytes_max);
    }

    #[test]
    fn a_message_that_is_put_again_counts_once() {
        let mut cache = MessageCache::new(10_000);
        cache.put(MessageId(1), cached(1_000));
        (0..100).for_each(|_| cache.put(MessageId(2), cached(1_000)));
        assert!(cache.get(MessageId(1)).is_some(), "there is room for both");
    }

    #[test]
    fn names_of_messages_that_are_gone_are_not_kept() {
        let mut cache = MessageCache::new(usize::MAX);
        (0..10_001).for_each(|id| cache.put(MessageId(id), cached(1)));
        (0..10_001).for_each(|id| cache.remove(MessageId(id)));
        assert!(cache.order.len() < 2_000, "{}", cache.order.len());
    }

    #[test]
    fn the_oldest_go_when_the_bound_is_reached_and_nothing_is_counted_twice() {
        let mut cache = MessageCache::new(10_000);
        for id in 0..100_000 {
            cache.put(MessageId(id), cached(1_000));
            if id % 3 == 0 {
                cache.remove(MessageId(id));
            }
        }
        assert!(cache.bytes <= 10_000 && cache.get(MessageId(99_998)).is_some());
        assert!(cache.get(MessageId(99_000)).is_none());
        assert!(cache.order.len() < 2_000, "{}", cache.order.len());
        assert_eq!(
            cache.bytes,
            cache.messages.values().map(|one| one.cached.cost()).sum::<usize>()
        );
    }
}
