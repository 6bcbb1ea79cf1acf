//! Seals: each binds an attempt to the process that it was given to.
//!
//! Must never depend on anything but the key, the process, the attempt, its message and its recipients.

use super::SenderKey;
use mail::MessageId;
use std::hash::{DefaultHasher, Hasher as _};

/// Makes seals with a key that is the same in each incarnation of the queue process.
#[derive(Debug)]
pub(super) struct Seals {
    key: [u64; 2],
    /// A hasher that has been given the key.
    keyed: DefaultHasher,
}

impl Seals {
    pub(super) fn new(key: [u64; 2]) -> Seals {
        Seals { key, keyed: keyed(key) }
    }

    /// Returns the seal that binds an attempt to the process that it is given to. Guessing a seal takes 2^63 tries,
    /// and the first wrong seal ends the process.
    pub(super) fn seal(
        &self,
        key: SenderKey,
        attempt: u64,
        message: MessageId,
        recipients: impl Iterator<Item = u32>,
    ) -> u64 {
        let [first, second] = self.key;
        let process = (key.0 as u64) << 16 | u64::from(key.1);
        let mut hasher = BlockHasher::new(self.keyed.clone());
        for word in [process, attempt, message.0] {
            hasher.put(word.to_le_bytes());
        }
        recipients.for_each(|index| hasher.put(index.to_le_bytes()));
        hasher.put(first.to_le_bytes());
        hasher.put(second.to_le_bytes());
        hasher.finish()
    }
}

fn keyed(key: [u64; 2]) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    key.into_iter().for_each(|word| hasher.write_u64(word));
    hasher
}

/// A hasher with a buffer in front of it: a call of a hasher costs much more than the bytes of a number.
struct BlockHasher {
    hasher: DefaultHasher,
    block: [u8; 64],
    filled: usize,
}

impl BlockHasher {
    fn new(hasher: DefaultHasher) -> BlockHasher {
        BlockHasher { hasher, block: [0; 64], filled: 0 }
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if self.filled + N > self.block.len() {
            self.hasher.write(&self.block[..self.filled]);
            self.filled = 0;
        }
        self.block[self.filled..self.filled + N].copy_from_slice(&bytes);
        self.filled += N;
    }

    fn finish(mut self) -> u64 {
        self.hasher.write(&self.block[..self.filled]);
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::control::Role;
    use std::collections::HashSet;

    #[test]
    fn a_seal_is_of_its_key_its_process_its_attempt_its_message_and_its_recipients() {
        let seal = |seal_key, (role, number), attempt, message, recipients: &[u32]| {
            let key = SenderKey(role, number);
            Seals::new(seal_key).seal(key, attempt, MessageId(message), recipients.iter().copied())
        };
        let send = (Role::Send, 1);
        let many: Vec<u32> = (0..100).collect();
        let mut swapped = many.clone();
        swapped.swap(50, 51);
        let all = [
            seal([1, 2], send, 3, 4, &[5]),
            seal([7, 2], send, 3, 4, &[5]),
            seal([1, 7], send, 3, 4, &[5]),
            seal([1, 2], (Role::Local, 1), 3, 4, &[5]),
            seal([1, 2], (Role::Send, 7), 3, 4, &[5]),
            seal([1, 2], send, 7, 4, &[5]),
            seal([1, 2], send, 3, 7, &[5]),
            seal([1, 2], send, 3, 4, &[7]),
            seal([1, 2], send, 3, 4, &[5, 0]),
            seal([1, 2], send, 3, 4, &[]),
            seal([1, 2], send, 3, 4, &many),
            seal([1, 2], send, 3, 4, &many[..99]),
            seal([1, 2], send, 3, 4, &swapped),
        ];
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    }
}
