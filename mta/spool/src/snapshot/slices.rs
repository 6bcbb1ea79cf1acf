//! The slices of a snapshot: the caller's state of a range of messages each, and the table at the end.
//!
//! Must never leave out a message that has not ended.

use super::Awaits;
use crate::format::snapshot::{
    Entry, SLICE_HEADER, SliceHeader, Table, TableSegment, encode_entry,
};
use crate::segments::State;
use crate::{Output, SnapshotSlice, Spool};
use mail::MessageId;

impl Spool {
    /// Asks the caller for the state of the next slice; after the last one makes the table.
    pub(super) fn ask_slice(&mut self) {
        let position = self.frontier();
        let Some(making) = self.snapshots.making.as_mut() else { return };
        let (after, end) = (making.after, making.end);
        if after == end {
            return self.make_table();
        }
        let count = self.settings.snapshot_slice_messages;
        let wanted = self.index.above(after).map(|(id, _)| id).take_while(|id| id.0 <= end);
        let messages: Vec<_> = wanted.take(count).collect();
        let more = messages.len() == count;
        // The last slice covers all ids, so that a message that is not in it is known to have ended.
        let through = match messages.last().filter(|_| more) {
            Some(last) => last.0,
            None => end,
        };
        let (generation, number) = (making.header.generation, making.header.slices);
        making.stage = Awaits::ExpectBlobs;
        making.position = position;
        let slice = SnapshotSlice { generation, number, after, through, messages };
        self.say(Output::SnapshotWanted(slice));
    }

    /// Takes the answer to [`Output::SnapshotWanted`]: the caller's state of the messages that are still
    /// there.
    pub fn snapshot_slice(&mut self, slice: SnapshotSlice, mut blobs: Vec<(MessageId, Vec<u8>)>) {
        let last_record = self.ids.last_record();
        // The caller no longer has a state of messages whose end waits for its batch. The snapshot
        // will not be complete before that end is durable.
        let ending = self.groups.ending();
        let Some(making) = self.snapshots.making.as_mut() else { return };
        let expected = (making.header.generation, making.header.slices);
        if expected != (slice.generation, slice.number)
            || !matches!(making.stage, Awaits::ExpectBlobs)
        {
            return;
        }
        let mut bytes = vec![0; SLICE_HEADER];
        blobs.sort_unstable_by_key(|(id, _)| *id);
        let mut given = blobs.iter().peekable();
        // Walks through the index and the answer in step: a search for each message would be most of
        // the work.
        let mut places = self.index.above(slice.after).peekable();
        for message in &slice.messages {
            while places.next_if(|(id, _)| id < message).is_some() {}
            while given.next_if(|(id, _)| id < message).is_some() {}
            let place = places.next_if(|(id, _)| id == message);
            match (place, given.next_if(|(id, _)| id == message)) {
                (Some((_, place)), Some((_, blob))) => {
                    let extras = self.index.extras(*message).to_vec();
                    encode_entry(&mut bytes, &Entry { message: *message, place, extras, blob });
                }
                (Some(_), None) if !ending.contains(message) => {
                    // A message that is left out would be forgotten. It is better to have no snapshot.
                    self.snapshots.making = None;
                    return;
                }
                _ => {}
            }
        }
        let header = SliceHeader {
            length: 0,
            generation: slice.generation,
            position: making.position,
            after: slice.after,
            through: slice.through,
            number: slice.number,
            checksum: 0,
            table: false,
        };
        header.seal(&mut bytes);
        making.after = slice.through;
        // The caller's state may be ahead of the log: for example, it may count on a bounce.
        making.needs = making.needs.max(last_record);
        making.needs_ticket = self.ids.last_ticket();
        making.stage = Awaits::Slice(bytes, false);
        self.supply.look();
    }

    fn make_table(&mut self) {
        let in_use = |state: State| {
            !matches!(state, State::Ready | State::Creating | State::Zeroing(_) | State::Removing)
        };
        let segments = self.segments.all.iter().filter(|(_, s)| in_use(s.state));
        let segments = segments.map(|(slot, s)| TableSegment {
            slot: *slot,
            epoch: s.epoch,
            kind: s.kind,
            last_record: match s.state {
                State::Activating | State::Writing => u64::MAX,
                _ => s.last_record,
            },
        });
        let table =
            Table { segments: segments.collect(), transactions: self.recent.iter().collect() };
        let Some(making) = self.snapshots.making.as_mut() else { return };
        let mut bytes = vec![0; SLICE_HEADER];
        table.encode(&mut bytes);
        let header = SliceHeader {
            length: 0,
            generation: making.header.generation,
            position: 0,
            after: 0,
            through: 0,
            number: making.header.slices,
            checksum: 0,
            table: true,
        };
        header.seal(&mut bytes);
        making.header.last_message = self.ids.last_message();
        making.header.last_epoch = self.ids.last_epoch();
        making.stage = Awaits::Slice(bytes, true);
    }
}
