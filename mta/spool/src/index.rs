//! The place of each live message on the disk: 24 bytes a message, in the order of ids.
//!
//! Must never hold anything of a message but its place.

use crate::format::message::MessagePlace;
use crate::format::snapshot::Extra;
use mail::MessageId;
use std::collections::HashMap;

/// Upper bound on the entries of one block; a removal moves at most this many.
const BLOCK_ENTRIES_MAX: usize = 512;

/// The live messages: a sorted list of sorted blocks. Ids grow, so nearly every insertion is at the
/// end.
#[derive(Default)]
pub(crate) struct Index {
    blocks: Vec<Vec<(MessageId, MessagePlace)>>,
    count: usize,
    /// What messages need beside their record; most need nothing.
    extras: HashMap<MessageId, Box<[Extra]>>,
}

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, message: MessageId) -> Option<MessagePlace> {
        let (block, at) = self.find(message).ok()?;
        Some(self.blocks[block][at].1)
    }

    /// What the message needs beside its record.
    pub(crate) fn extras(&self, message: MessageId) -> &[Extra] {
        self.extras.get(&message).map_or(&[], |extras| extras)
    }

    /// The segments of all extras, some of them more than once.
    pub(crate) fn extra_slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.extras.values().flatten().map(|extra| extra.slot)
    }

    /// Gives a message its place; returns the former one.
    pub(crate) fn insert(
        &mut self,
        message: MessageId,
        place: MessagePlace,
        extras: Vec<Extra>,
    ) -> Option<(MessagePlace, Vec<Extra>)> {
        let former = match self.find(message) {
            Ok((block, at)) => {
                let former = std::mem::replace(&mut self.blocks[block][at].1, place);
                Some((former, self.take_extras(message)))
            }
            Err((block, at)) => {
                self.count += 1;
                self.insert_at(block, at, (message, place));
                None
            }
        };
        if !extras.is_empty() {
            self.extras.insert(message, extras.into_boxed_slice());
        }
        former
    }

    fn take_extras(&mut self, message: MessageId) -> Vec<Extra> {
        self.extras.remove(&message).map(Vec::from).unwrap_or_default()
    }

    pub(crate) fn remove(&mut self, message: MessageId) -> Option<(MessagePlace, Vec<Extra>)> {
        let (at_block, at) = self.find(message).ok()?;
        self.count -= 1;
        let block = &mut self.blocks[at_block];
        let (_, place) = block.remove(at);
        if block.is_empty() {
            self.blocks.remove(at_block);
        } else if block.len() * 4 < block.capacity() {
            block.shrink_to(block.len() * 2);
        }
        Some((place, self.take_extras(message)))
    }

    /// Messages above `after`, in order.
    pub(crate) fn above(&self, after: u64) -> impl Iterator<Item = (MessageId, MessagePlace)> + '_ {
        let first = self.blocks.partition_point(|block| last(block).0 <= after);
        self.blocks[first..].iter().flatten().copied().skip_while(move |(id, _)| id.0 <= after)
    }

    /// The block of a message and the position in it, or where it would be.
    fn find(&self, message: MessageId) -> Result<(usize, usize), (usize, usize)> {
        // A new id is greater than all others: no block but the last is touched for it.
        let is_new = self.blocks.last().is_none_or(|block| last(block) < message);
        if is_new {
            return Err((self.blocks.len(), 0));
        }
        let block = self.blocks.partition_point(|block| last(block) < message);
        let Some(entries) = self.blocks.get(block) else { return Err((block, 0)) };
        let found = entries.binary_search_by_key(&message, |(id, _)| *id);
        found.map(|at| (block, at)).map_err(|at| (block, at))
    }

    fn insert_at(&mut self, block: usize, at: usize, entry: (MessageId, MessagePlace)) {
        if block == self.blocks.len() {
            // Past the end: into the last block while it has room.
            match self.blocks.last_mut().filter(|last| last.len() < BLOCK_ENTRIES_MAX) {
                Some(last) => last.push(entry),
                None => self.blocks.push(vec![entry]),
            }
            return;
        }
        let entries = &mut self.blocks[block];
        entries.insert(at, entry);
        if entries.len() > BLOCK_ENTRIES_MAX {
            let upper = entries.split_off(BLOCK_ENTRIES_MAX / 2);
            self.blocks.insert(block + 1, upper);
        }
    }
}

fn last(block: &[(MessageId, MessagePlace)]) -> MessageId {
    block.last().expect("no block is left empty").0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_index_answers_as_a_sorted_map_does() {
        let (mut index, mut model) = (Index::default(), BTreeMap::new());
        let mut random = 1u64;
        for step in 0..20_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = MessageId((random >> 33) % 5_000);
            let place = MessagePlace::new(step, 0, 1, false, 0);
            if random >> 60 < 10 {
                index.insert(id, place, Vec::new());
                model.insert(id, place);
            } else {
                assert_eq!(index.remove(id).map(|(place, _)| place), model.remove(&id));
            }
            assert_eq!(index.get(id), model.get(&id).copied());
        }
        assert_eq!(index.len(), model.len());
        let after = model.range(MessageId(2_501)..).map(|(id, place)| (*id, *place));
        assert!(index.above(2_500).eq(after));
    }

    #[test]
    fn s144_a_million_messages_take_under_forty_bytes_each() {
        let mut index = Index::default();
        for id in 0..1_000_000 {
            index.insert(MessageId(id), MessagePlace::new(0, 0, 0, false, 0), Vec::new());
        }
        let bytes: usize = index.blocks.iter().map(|b| b.capacity() * 24 + 24).sum();
        assert!(bytes < 40_000_000, "{bytes}");
    }
}
