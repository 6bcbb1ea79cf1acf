//! Group commit: batches are written and synced, several at once, and when the sync has come back
//! each message in them is durable.
//!
//! Must never call `Durable::proven` but in `settle`, nor write into a block a second time.

use crate::batch::{BatchItem, MessageItem, OWN_SEGMENT};
use crate::format::message::MessagePlace;
use crate::format::segment::SegmentKind;
use crate::format::snapshot::Extra;
use crate::io::{Class, File, Io, IoDone, IoWork};
use crate::log_stream::CommitInFlight;
use crate::{Output, Spool};
use mail::{Durable, Instant, Now};
use world::Synced;

/// While commits follow each other without a pause, the background is looked at once in this many.
const LOOK_COMMITS: u64 = 64;

impl Spool {
    /// The next commit that can start, if any.
    pub(crate) fn start_commit(&mut self, kind: SegmentKind, now: Now) -> Option<Io> {
        if self.failures.is_resting(now) {
            return None;
        }
        let in_flight_max = match kind {
            SegmentKind::Log => self.settings.commits_in_flight,
            SegmentKind::Bulk => 1,
        };
        if !self.streams.of(kind).is_due(in_flight_max, now, &mut self.ids) {
            return None;
        }
        self.launch(kind, now)
    }

    /// Gives the oldest closed batch its place and hands it to the disk; `None` if there is no
    /// segment for it.
    fn launch(&mut self, kind: SegmentKind, now: Now) -> Option<Io> {
        let stream = self.streams.of(kind);
        let bytes = stream.next_bytes()?;
        if !stream.fits(bytes) {
            self.supply.look();
            if let Some(left) = stream.turn_to_next(bytes)? {
                self.segments.seal(left);
            }
        }
        let id = self.ids.next_io();
        let (buffer, place, last_record) = stream.launch(id, now)?;
        self.segments.note_batch(place.slot, last_record);
        self.segments.hold(place.slot);
        self.snapshots.log_grew(bytes);
        let class = if kind == SegmentKind::Log { Class::Commit } else { Class::Bulk };
        let (file, offset) = (File::Segment(place.slot), place.offset.into());
        Some(Io { id, class, work: IoWork::Write { file, offset, buffer, sync: true } })
    }

    /// A commit has come back.
    pub(crate) fn finish_commit(&mut self, done: IoDone, kind: SegmentKind, now: Now) {
        let Some(mut flight) = self.streams.of(kind).land(done.id) else { return };
        self.segments.unhold(flight.slot);
        let IoWork::Write { mut buffer, .. } = done.work else { return };
        match done.result {
            Ok(Some(synced)) if !flight.doomed => {
                flight.batch.put_buffer(buffer);
                self.settle(flight, &synced, kind, now);
            }
            result => {
                buffer.truncate(flight.batch_bytes);
                flight.batch.put_buffer(buffer);
                self.commit_failed(flight, kind, result.err(), now);
            }
        }
    }

    /// When the oldest commit of the log that is under way was handed to the disk.
    pub fn committing_since(&self) -> Option<Instant> {
        self.streams.log().oldest_began()
    }

    /// The sync of the batch has come back: here, and nowhere else in this crate, messages become
    /// durable. `synced` is what that sync returned; it is dropped when this batch is done.
    fn settle(&mut self, flight: CommitInFlight, synced: &Synced, kind: SegmentKind, now: Now) {
        let CommitInFlight { slot, epoch, offset, mut batch, began, .. } = flight;
        let (bytes, messages) = (batch.bytes() as u64, batch.messages());
        self.streams.of(kind).settled(now.monotonic.since(began), messages);
        self.usage.commits += 1;
        self.usage.commit_bytes += bytes;
        self.usage.messages_committed += u64::from(messages);
        self.usage.batch_messages_max = self.usage.batch_messages_max.max(u64::from(messages));
        self.supply.committed(bytes, now);
        for item in batch.take_items() {
            match item {
                BatchItem::Chunk { transaction, nth, offset: at } => {
                    if self.staging.place_chunk(transaction, nth, (slot, epoch, offset + at)) {
                        self.segments.hold(slot);
                    }
                }
                BatchItem::Message(item) => {
                    let (message, transaction) = (item.message, item.transaction);
                    self.enter(item, slot, offset);
                    self.unstage(transaction);
                    self.recent.add(transaction, message);
                    self.groups.unsettle(message, batch.number());
                    let durable = Durable::proven(synced, message, transaction);
                    self.say(Output::Durable(durable));
                }
                BatchItem::Moved(item) => self.moved(item, slot, offset),
                BatchItem::Change { message, retired } => {
                    if let Some((place, extras)) = retired {
                        self.release(place, &extras);
                    }
                    self.groups.unsettle(message, batch.number());
                }
                BatchItem::Group(ticket) => self.say(Output::Recorded(ticket)),
            }
        }
        let idle = self.streams.log().has_landed() || self.snapshots.is_making();
        if idle || self.usage.commits.is_multiple_of(LOOK_COMMITS) {
            self.supply.look();
        }
        self.commit_succeeded(kind, batch.number());
        let batch_bytes_max = self.settings.batch_bytes_max;
        self.streams.of(kind).recycle(batch.take_buffer(), batch_bytes_max);
        self.retry_waiting(now);
    }

    /// Puts a durable message into the index; returns its former place.
    pub(crate) fn enter(
        &mut self,
        mut item: MessageItem,
        slot: u32,
        offset: u32,
    ) -> Option<(MessagePlace, Vec<Extra>)> {
        let at = offset + item.offset;
        let place = MessagePlace::new(slot, at, item.length, item.adjacent, item.body_bytes);
        own_segment(&mut item.extras, slot);
        self.segments.add(slot, place.own_bytes());
        item.extras.iter().for_each(|extra| self.segments.add(extra.slot, extra.bytes.into()));
        self.index.insert(item.message, place, item.extras)
    }

    /// The segments no longer need to keep these bytes.
    pub(crate) fn release(&mut self, place: MessagePlace, extras: &[Extra]) {
        self.segments.subtract(place.slot, place.own_bytes());
        extras.iter().for_each(|extra| self.segments.subtract(extra.slot, extra.bytes.into()));
    }
}

fn own_segment(extras: &mut [Extra], slot: u32) {
    for extra in extras.iter_mut().filter(|extra| extra.slot == OWN_SEGMENT) {
        extra.slot = slot;
    }
}
