//! An index of queue ids in their order, each with its place. Ids only grow, so it consists of sorted chunks.
//!
//! Must never touch more than a few small chunks for an insertion or removal.

use mail::MessageId;

/// Number of ids in a full chunk.
const CHUNK: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct IdIndex {
    chunks: Vec<IdChunk>,
    len: usize,
}

#[derive(Debug)]
struct IdChunk {
    ids: Vec<MessageId>,
    places: Vec<u32>,
}

impl IdIndex {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, id: MessageId) -> Option<u32> {
        let chunk = self.chunks.get(self.chunk_of(id))?;
        chunk.ids.binary_search(&id).ok().map(|at| chunk.places[at])
    }

    /// Returns the smallest id above `after`, or the smallest of all.
    pub fn next(&self, after: Option<MessageId>) -> Option<(MessageId, u32)> {
        let Some(after) = after else {
            return self.chunks.first().map(|chunk| (chunk.ids[0], chunk.places[0]));
        };
        let number = self.chunk_of(after);
        let chunk = self.chunks.get(number)?;
        let at = chunk.ids.partition_point(|id| *id <= after);
        match chunk.ids.get(at) {
            Some(id) => Some((*id, chunk.places[at])),
            None => self.chunks.get(number + 1).map(|chunk| (chunk.ids[0], chunk.places[0])),
        }
    }

    /// Returns all ids above `after` in order.
    pub fn after(&self, after: Option<MessageId>) -> impl Iterator<Item = (MessageId, u32)> + '_ {
        let number = after.map_or(0, |id| self.chunk_of(id));
        self.chunks[number.min(self.chunks.len())..]
            .iter()
            .flat_map(|chunk| chunk.ids.iter().copied().zip(chunk.places.iter().copied()))
            .skip_while(move |(id, _)| after.is_some_and(|after| *id <= after))
    }

    /// Adds an id that is not in the index.
    pub fn insert(&mut self, id: MessageId, place: u32) {
        self.len += 1;
        if self.chunks.last().is_none_or(|last| last.ids.len() == CHUNK && last.ids[CHUNK - 1] < id)
        {
            self.chunks.push(IdChunk::new());
        }
        let number = match self.chunks.last() {
            Some(last) if last.ids.is_empty() => self.chunks.len() - 1,
            _ => self.chunk_of(id),
        };
        let chunk = &mut self.chunks[number];
        let at = chunk.ids.partition_point(|other| *other < id);
        chunk.ids.insert(at, id);
        chunk.places.insert(at, place);
        if chunk.ids.len() > CHUNK {
            let half = chunk.split();
            self.chunks.insert(number + 1, half);
        }
    }

    pub fn remove(&mut self, id: MessageId) {
        let number = self.chunk_of(id);
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        let Ok(at) = chunk.ids.binary_search(&id) else { return };
        chunk.ids.remove(at);
        chunk.places.remove(at);
        self.len -= 1;
        if chunk.ids.is_empty() {
            self.chunks.remove(number);
        } else {
            self.merge(number);
            // Most messages leave from the front: then the chunk before is the sparse one.
            self.merge(number.saturating_sub(1));
        }
    }

    /// Returns the last chunk that begins at or before `id`.
    fn chunk_of(&self, id: MessageId) -> usize {
        // Most often it is the last chunk: new messages, and questions about them.
        if self.chunks.last().is_some_and(|chunk| chunk.ids[0] <= id) {
            return self.chunks.len() - 1;
        }
        self.chunks.partition_point(|chunk| chunk.ids[0] <= id).saturating_sub(1)
    }

    /// Joins a sparse chunk with a sparse one behind it, so that few remaining ids do not hold many chunks.
    fn merge(&mut self, number: usize) {
        let small = |chunk: &IdChunk| chunk.ids.len() < CHUNK / 4;
        if number + 1 < self.chunks.len()
            && small(&self.chunks[number])
            && small(&self.chunks[number + 1])
        {
            let behind = self.chunks.remove(number + 1);
            self.chunks[number].ids.extend(behind.ids);
            self.chunks[number].places.extend(behind.places);
        }
    }
}

impl IdChunk {
    fn new() -> Self {
        IdChunk { ids: Vec::with_capacity(CHUNK), places: Vec::with_capacity(CHUNK) }
    }

    fn split(&mut self) -> IdChunk {
        let half = self.ids.len() / 2;
        IdChunk { ids: self.ids.split_off(half), places: self.places.split_off(half) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_answers_as_a_sorted_map_does() {
        let (mut index, mut model) = (IdIndex::default(), BTreeMap::new());
        let mut number = 1u64;
        for step in 0..20_000u32 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let id = MessageId(if step % 3 == 0 { number >> 52 } else { 5000 + u64::from(step) });
            match model.contains_key(&id) || number >> 62 == 0 {
                true => {
                    let victim = MessageId((number >> 30) % (5000 + u64::from(step)));
                    model.remove(&victim);
                    index.remove(victim);
                }
                false => {
                    model.insert(id, step);
                    index.insert(id, step);
                }
            }
            assert_eq!(index.get(id), model.get(&id).copied());
            let next = model.range(MessageId(id.0 + 1)..).next().map(|(id, place)| (*id, *place));
            assert_eq!(index.next(Some(id)), next);
            assert_eq!(index.len(), model.len());
        }
        assert!(index.after(None).eq(model.clone()));
        let after = MessageId(7000);
        assert!(index.after(Some(after)).eq(model.split_off(&MessageId(7001))));
    }

    #[test]
    fn few_survivors_share_a_chunk_and_are_not_put_into_a_full_one() {
        let mut index = IdIndex::default();
        (0..4_096).for_each(|id| index.insert(MessageId(id), id as u32));
        let full = index.chunks.len();
        // One in 64 of the first half remains; the second half does not change.
        (0..2_048).filter(|id| id % 64 > 0).for_each(|id| index.remove(MessageId(id)));
        assert!(index.chunks.len() < full * 3 / 4, "{} of {full} chunks", index.chunks.len());
        assert!(index.chunks.iter().all(|chunk| chunk.ids.len() <= CHUNK));
        let sparse = index.chunks.iter().filter(|chunk| chunk.ids[0] < MessageId(2_048));
        assert!(
            sparse.flat_map(|chunk| &chunk.ids).all(|id| id.0 < 2_048),
            "joined with a full one"
        );
    }
}
