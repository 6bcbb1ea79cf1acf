//! The recipients that a message has already been delivered to, as its own header section says.
//!
//! Must never keep an address: a hash is enough to recognise it.

use std::hash::{DefaultHasher, Hasher};

/// Upper bound on the `Delivered-To` fields that are remembered. A loop through more recipients is ended by the
/// limit on `Received` fields.
const FIELDS_MAX: usize = 200;

/// The addresses in the `Delivered-To` fields of a header section. Each final delivery adds a field, so a message
/// for an address that is named in such a field is in a loop.
///
/// Two addresses with the same hash count as one address. Somebody who constructs such a message causes only its own
/// refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveredTo {
    hashes: Vec<u64>,
}

impl DeliveredTo {
    /// True if the message has no such field.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// True if a field names this address. The case of ASCII letters is ignored.
    pub fn names(&self, address: &str) -> bool {
        self.hashes.binary_search(&hash(address.as_bytes())).is_ok()
    }

    /// Adds the value of a field.
    pub(super) fn add(&mut self, value: &[u8]) {
        if !value.is_empty() && self.hashes.len() < FIELDS_MAX {
            self.hashes.push(hash(value));
        }
    }

    /// Sorts the addresses for `names`, after the last one was added.
    pub(super) fn sorted(mut self) -> DeliveredTo {
        self.hashes.sort_unstable();
        self
    }

    /// Returns the memory that the hashes take, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.hashes.capacity() * size_of::<u64>()
    }
}

fn hash(address: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    address.iter().for_each(|byte| hasher.write_u8(byte.to_ascii_lowercase()));
    hasher.finish()
}
