//! The recipients of a transaction, encoded one after the other as the frame of its end needs them.
//!
//! Must never return other recipients than were added, nor in another order.
//!
//! A client chooses the lengths of its addresses and ORCPTs, and when it gives them up. Texts that are allocated one by one
//! leave holes between those of other sessions, and no text of another size can use a hole. With a setting of 64 MiB, the
//! process took 121 MiB. Blocks take the bytes that they are counted for, and are freed whole.

use crate::bounds::recipient_bytes;
use mail::{Address, Recipient, allocation_bytes};

/// List of encoded recipients.
#[derive(Debug, Default)]
pub struct Recipients {
    /// Blocks without room, in order. A block holds whole recipients.
    full: Vec<Vec<u8>>,
    /// Block that is being filled.
    last: Vec<u8>,
    count: usize,
    /// Bytes that they count for in a frame; see [`recipient_bytes`].
    frame_bytes: usize,
    /// Capacity of all blocks.
    blocks_bytes: usize,
}

/// Smallest and largest size of a block in bytes. A new block is half as large as all others, so that few recipients take
/// little memory. jemalloc takes 8 KiB from pages that hold nothing else; from 16 KiB on it adds a page to each block.
const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 512..=8 << 10;

/// Number of low bits of a place that hold the offset in a block. The other bits hold the number of the block.
const PLACE_BITS: u32 = 13;
const _: () = assert!(*BLOCK_BYTES.end() <= 1 << PLACE_BITS);

impl Recipients {
    /// Returns the number of recipients.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there is no recipient.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns an upper bound on the bytes that the recipients take in a frame, as [`recipient_bytes`] counts each.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Returns the memory of the recipients in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.blocks_bytes + list_bytes(self.full.capacity())
    }

    /// Returns an upper bound on what `recipient` adds to [`Recipients::memory_bytes`].
    pub fn growth_bytes(&self, recipient: &Recipient) -> usize {
        let bytes = recipient_bytes(recipient);
        if self.fits(bytes) {
            return 0;
        }
        let capacity = self.full.capacity();
        let list_grows = self.count > 0 && self.full.len() == capacity;
        let list = if list_grows { list_bytes(grown(capacity)) - list_bytes(capacity) } else { 0 };
        self.next_block_bytes(bytes) + list
    }

    /// Adds a recipient.
    pub fn push(&mut self, recipient: &Recipient) {
        let bytes = recipient_bytes(recipient);
        if !self.fits(bytes) {
            self.begin_block(bytes);
        }
        let block = std::mem::take(&mut self.last);
        self.last = postcard::to_extend(recipient, block).expect("a recipient always encodes");
        self.count += 1;
        self.frame_bytes += bytes;
    }

    /// Returns the recipients in their order.
    pub fn iter(&self) -> impl Iterator<Item = Recipient> + '_ {
        self.blocks().flat_map(|block| {
            let mut rest = block;
            std::iter::from_fn(move || {
                let (recipient, after) = (!rest.is_empty()).then(|| decoded(rest))?;
                rest = after;
                Some(recipient)
            })
        })
    }

    /// Returns the place that `recipient` will have if it is added next. Only the first recipient has place 0.
    pub fn next_place(&self, recipient: &Recipient) -> usize {
        match self.fits(recipient_bytes(recipient)) || self.count == 0 {
            true => self.full.len() << PLACE_BITS | self.last.len(),
            false => (self.full.len() + 1) << PLACE_BITS,
        }
    }

    /// Returns the address of the recipient at this place.
    ///
    /// # Panics
    ///
    /// Panics if no recipient was added at this place.
    pub fn address_at(&self, place: usize) -> Address {
        let block = self.full.get(place >> PLACE_BITS).unwrap_or(&self.last);
        decoded(&block[place & ((1 << PLACE_BITS) - 1)..]).0.address
    }

    /// Returns the encoded recipients, block by block.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        self.full.iter().chain([&self.last]).map(Vec::as_slice)
    }

    fn fits(&self, bytes: usize) -> bool {
        self.last.capacity() - self.last.len() >= bytes
    }

    fn begin_block(&mut self, bytes: usize) {
        let capacity = self.next_block_bytes(bytes);
        let full = std::mem::replace(&mut self.last, Vec::with_capacity(capacity));
        self.blocks_bytes += capacity;
        if self.count > 0 {
            if self.full.len() == self.full.capacity() {
                self.full.reserve_exact(grown(self.full.len()) - self.full.len());
            }
            self.full.push(full);
        }
    }

    fn next_block_bytes(&self, bytes: usize) -> usize {
        let (least, most) = BLOCK_BYTES.into_inner();
        allocation_bytes((self.blocks_bytes / 2).clamp(least, most).max(bytes))
    }
}

impl<'a> FromIterator<&'a Recipient> for Recipients {
    fn from_iter<I: IntoIterator<Item = &'a Recipient>>(recipients: I) -> Recipients {
        let mut all = Recipients::default();
        recipients.into_iter().for_each(|recipient| all.push(recipient));
        all
    }
}

fn decoded(bytes: &[u8]) -> (Recipient, &[u8]) {
    postcard::take_from_bytes(bytes).expect("a recipient was encoded here")
}

/// Returns the memory of a list with room for `capacity` blocks, in bytes.
fn list_bytes(capacity: usize) -> usize {
    allocation_bytes(capacity * size_of::<Vec<u8>>())
}

/// Returns the next capacity of the list of blocks.
fn grown(capacity: usize) -> usize {
    (capacity + capacity / 2).max(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Notify;

    fn recipient(number: usize) -> Recipient {
        let local = "l".repeat(number % 60);
        let address = Address::parse(&format!("{number}.{local}@D{number}.test"), false).unwrap();
        let orcpt = (!number.is_multiple_of(3))
            .then(|| format!("rfc822;{}", "o".repeat(number % 490)).into());
        Recipient { address, notify: Notify::of(number.is_multiple_of(2), true, false), orcpt }
    }

    #[test]
    fn r211_recipients_come_back_as_they_were_and_take_what_they_are_counted_for() {
        for count in [0, 1, 2, 3, 1_000] {
            let (mut kept, mut bytes, mut places) = (Recipients::default(), 0, Vec::new());
            for number in 0..count {
                let one = recipient(number);
                let growth = kept.growth_bytes(&one);
                places.push(kept.next_place(&one));
                kept.push(&one);
                assert!(kept.memory_bytes() <= bytes + growth, "{number}");
                bytes = kept.memory_bytes();
            }
            let capacity: usize = kept.full.iter().chain([&kept.last]).map(Vec::capacity).sum();
            assert_eq!(capacity, kept.blocks_bytes, "no block has grown");
            assert!(bytes >= capacity + kept.full.capacity() * size_of::<Vec<u8>>());
            let texts: usize = (0..count).map(|n| recipient_bytes(&recipient(n))).sum();
            assert_eq!((kept.len(), kept.frame_bytes()), (count, texts));
            assert!(bytes <= 1_024 + texts + texts / 6, "{bytes} for {texts}");
            assert!(places.first().is_none_or(|place| *place == 0));
            let found = places.iter().map(|place| kept.address_at(*place));
            assert!(found.enumerate().all(|(number, one)| one == recipient(number).address));
            assert!(kept.iter().enumerate().all(|(number, one)| one == recipient(number)));
            assert_eq!(kept.iter().count(), count);
        }
    }
}
