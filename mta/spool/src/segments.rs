//! The segments that exist, the state of each, and which may be used again.
//!
//! Must never reuse a segment while a live message, a reader, a staged body, or a state record that
//! the snapshots do not cover needs it.

use crate::format::segment::SegmentKind;
use std::collections::BTreeMap;

/// The states of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its file is being created.
    Creating,
    /// Being zeroed; zeros are written up to this offset.
    Zeroing(u32),
    /// Zeroed or recycled: may be activated.
    Ready,
    /// Its new header is being written.
    Activating,
    /// Written now or next.
    Writing,
    /// Full, or written by an earlier process.
    Sealed,
    /// A write or sync failed. Read as long as a message needs it, then removed.
    Failed,
    /// Found damaged. Kept for the operator and never touched.
    Kept,
    /// Its file is being removed.
    Removing,
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub state: State,
    pub kind: SegmentKind,
    pub epoch: u64,
    pub nonce: u64,
    pub bytes: u32,
    /// The last record in it.
    pub last_record: u64,
    /// Number of parts of live messages in it, and their bytes.
    pub live: u32,
    pub live_bytes: u64,
    /// Number of readers, chunks of staged bodies, and commits under way.
    pub holds: u32,
    /// Something in it could not be copied forward.
    pub stuck: bool,
}

/// All segments by slot.
#[derive(Default)]
pub(crate) struct Segments {
    pub all: BTreeMap<u32, Segment>,
}

impl Segment {
    pub(crate) fn new(state: State, bytes: u32) -> Segment {
        Segment {
            state,
            kind: SegmentKind::Log,
            epoch: 0,
            nonce: 0,
            bytes,
            last_record: 0,
            live: 0,
            live_bytes: 0,
            holds: 0,
            stuck: false,
        }
    }

    /// Whether nothing needs its bytes, given that the snapshots cover the records before `covered`.
    pub(crate) fn is_dead(&self, covered: u64) -> bool {
        let ended = matches!(self.state, State::Sealed | State::Failed);
        ended && self.live == 0 && self.holds == 0 && self.is_covered(covered)
    }

    /// Whether the snapshots cover its state records.
    pub(crate) fn is_covered(&self, covered: u64) -> bool {
        self.kind == SegmentKind::Bulk || self.last_record == 0 || self.last_record < covered
    }
}

impl Segments {
    pub(crate) fn get(&self, slot: u32) -> Option<&Segment> {
        self.all.get(&slot)
    }

    pub(crate) fn set(&mut self, slot: u32, state: State) {
        if let Some(segment) = self.all.get_mut(&slot) {
            segment.state = state;
        }
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Segment) -> bool) -> usize {
        self.all.values().filter(|segment| wanted(segment)).count()
    }

    pub(crate) fn first(&self, wanted: impl Fn(&Segment) -> bool) -> Option<u32> {
        self.all.iter().find(|(_, segment)| wanted(segment)).map(|(slot, _)| *slot)
    }

    /// The lowest slot that no segment has.
    pub(crate) fn free_slot(&self) -> u32 {
        let mut slot = 0;
        while self.all.contains_key(&slot) {
            slot += 1;
        }
        slot
    }

    /// The segment is full, or its stream has left it.
    pub(crate) fn seal(&mut self, slot: u32) {
        self.set(slot, State::Sealed);
    }

    /// The segment is never written again.
    pub(crate) fn fail(&mut self, slot: u32) {
        self.set(slot, State::Failed);
    }

    pub(crate) fn note_batch(&mut self, slot: u32, last_record: u64) {
        if let Some(segment) = self.all.get_mut(&slot) {
            segment.last_record = segment.last_record.max(last_record);
        }
    }

    /// A part of a live message is in the segment; inverse of `subtract`.
    pub(crate) fn add(&mut self, slot: u32, bytes: u64) {
        if let Some(segment) = self.all.get_mut(&slot) {
            segment.live += 1;
            segment.live_bytes += bytes;
        }
    }

    /// A part of a message is no longer needed; inverse of `add`.
    pub(crate) fn subtract(&mut self, slot: u32, bytes: u64) {
        if let Some(segment) = self.all.get_mut(&slot) {
            debug_assert!(segment.live > 0, "more left segment {slot} than came");
            segment.live = segment.live.saturating_sub(1);
            segment.live_bytes = segment.live_bytes.saturating_sub(bytes);
        }
    }

    /// A reader, a staged chunk or a commit needs the segment; inverse of `unhold`.
    pub(crate) fn hold(&mut self, slot: u32) {
        if let Some(segment) = self.all.get_mut(&slot) {
            segment.holds += 1;
        }
    }

    /// Inverse of `hold`.
    pub(crate) fn unhold(&mut self, slot: u32) {
        if let Some(segment) = self.all.get_mut(&slot) {
            debug_assert!(segment.holds > 0, "segment {slot} was not held");
            segment.holds = segment.holds.saturating_sub(1);
        }
    }

    /// Makes dead segments ready for another epoch, and returns how many. Failed segments are left for
    /// removal.
    pub(crate) fn recycle(&mut self, covered: u64, bytes: u32) -> u64 {
        let mut recycled = 0;
        for segment in self.all.values_mut() {
            let usable = segment.state == State::Sealed && segment.bytes == bytes;
            if usable && segment.is_dead(covered) {
                *segment = Segment { epoch: segment.epoch, ..Segment::new(State::Ready, bytes) };
                recycled += 1;
            }
        }
        recycled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_reused_only_when_nothing_at_all_needs_it() {
        let mut segments = Segments::default();
        let sealed = Segment { last_record: 10, ..Segment::new(State::Sealed, 64) };
        segments.all.insert(0, sealed);
        assert_eq!(segments.recycle(10, 64), 0, "its last record is not covered");
        segments.add(0, 5);
        assert_eq!(segments.recycle(11, 64), 0, "a message lives there");
        segments.subtract(0, 5);
        segments.hold(0);
        assert_eq!(segments.recycle(11, 64), 0, "it is read");
        segments.unhold(0);
        assert_eq!(segments.recycle(11, 128), 0, "it has another size");
        assert_eq!(segments.recycle(11, 64), 1);
        assert_eq!(segments.get(0).map(|s| s.state), Some(State::Ready));
    }
}
