//! Messages at hand: envelopes and small bodies that attempts and notices need now or soon, so
//! that the first attempt is made from memory.
//!
//! Must never hold more than its bound: the spool has everything.

use bytes::Bytes;
use mail::{Envelope, MessageId};
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

impl Opened {
    /// What it costs in memory, roughly.
    fn cost(&self) -> usize {
        let content = self.content.as_ref().map_or(0, Bytes::len);
        content + 256 + self.envelope.recipients.len() * 96
    }
}

/// The messages at hand; the oldest go first when the bound is reached.
#[derive(Debug)]
pub struct Shelf {
    messages: HashMap<MessageId, Opened>,
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
        self.bytes += opened.cost();
        if let Some(old) = self.messages.insert(message, opened) {
            self.bytes -= old.cost();
        } else {
            self.order.push_back(message);
        }
        while self.bytes > self.bytes_max && self.order.len() > 1 {
            let Some(oldest) = self.order.pop_front() else { return };
            self.forget(oldest);
        }
    }

    fn forget(&mut self, message: MessageId) {
        if let Some(opened) = self.messages.remove(&message) {
            self.bytes -= opened.cost();
        }
    }

    /// A message, if it is at hand.
    pub fn get(&self, message: MessageId) -> Option<&Opened> {
        self.messages.get(&message)
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
    use mail::{BodyKind, Origin, Protocol, ReversePath, Wall};

    fn opened(bytes: usize) -> Opened {
        let envelope = Rc::new(Envelope {
            sender: ReversePath::Null,
            ret: None,
            envid: None,
            body: BodyKind::SevenBit,
            smtputf8: false,
            origin: Origin { client: None, helo: "".into(), protocol: Protocol::Local },
            arrived: Wall::default(),
            recipients: vec![],
        });
        let content = Some(Bytes::from(vec![0; bytes]));
        Opened { envelope, bytes: bytes as u64, prefix_bytes: 0, content }
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
        assert_eq!(shelf.bytes, shelf.messages.values().map(Opened::cost).sum::<usize>());
    }
}
