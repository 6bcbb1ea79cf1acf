//! To whom a message says that it has been delivered.
//!
//! Must never keep an address: a hash is enough to know one again.

use std::hash::{DefaultHasher, Hasher};

/// How many `Delivered-To` fields are remembered: more would be a loop of its own kind, and the count
/// of `Received` ends that one.
const FIELDS_MAX: usize = 200;

/// The addresses in the `Delivered-To` fields of a header section: each final delivery writes its own,
/// so a message that comes to such an address has gone in a circle.
///
/// Two addresses of one hash are taken for one: a message that was made for it is refused for nothing,
/// which harms its maker only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveredTo {
    hashes: Vec<u64>,
}

impl DeliveredTo {
    /// Whether there is no such field: then nothing has to be compared.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether a field names this address. The case of ASCII letters does not count.
    pub fn names(&self, address: &str) -> bool {
        self.hashes.binary_search(&hash(address.as_bytes())).is_ok()
    }

    /// Takes a field's value in.
    pub(super) fn add(&mut self, value: &[u8]) {
        if !value.is_empty() && self.hashes.len() < FIELDS_MAX {
            self.hashes.push(hash(value));
        }
    }

    /// All have been taken in.
    pub(super) fn sorted(mut self) -> DeliveredTo {
        self.hashes.sort_unstable();
        self
    }

    /// Room that they take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>()
    }
}

fn hash(address: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    address.iter().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
    hasher.finish()
}
