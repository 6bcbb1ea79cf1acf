//! Group commit: gathered batches are written and synced, several at once, and when the sync has
//! come back each message in them is `Durable`.
//!
//! Must never call `Durable::proven` but in `settle`, nor write into a block a second time.

use crate::batch::{Batch, BatchItem, MessageItem, OWN_SEGMENT};
use crate::format::batch::{BatchHeader, RECORD_HEADER, seal};
use crate::format::message::Place;
use crate::format::segment::SegmentKind;
use crate::format::snapshot::Extra;
use crate::format::{BLOCK, aligned};
use crate::io::{Class, File, Io, IoDone, Work};
use crate::rhythm::Rhythm;
use crate::{Output, Spool};
use mail::{Durable, Instant, Now};
use std::collections::VecDeque;
use world::Synced;

/// Buffers kept for the next batches.
const BUFFERS_MAX: usize = 8;

/// While commits never pause, the background is looked at this often.
const LOOK_COMMITS: u64 = 64;

/// One stream of batches: the log, or bulk.
pub(crate) struct LogStream {
    /// Written now.
    pub active: Option<Active>,
    /// Its header is durable; written next.
    pub next: Option<Active>,
    /// Gathering.
    pub open: Batch,
    /// Full, waiting for their turn.
    pub closed: VecDeque<Batch>,
    pub flights: Vec<CommitInFlight>,
    /// Came back with an error, or were under way in the same segment as one that did.
    pub failed: Vec<(u64, Batch)>,
    /// Commits that do not count, until a batch that says so is durable.
    pub voids: Vec<u64>,
    /// That batch: nothing else is written before it is durable.
    pub void_batch: Option<u64>,
    pub next_commit: u64,
    pub buffers: Vec<Vec<u8>>,
    pub rhythm: Rhythm,
}

/// The segment a stream writes, and where in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub slot: u32,
    pub epoch: u64,
    pub nonce: u64,
    pub offset: u32,
    pub bytes: u32,
}

/// A batch under way.
pub(crate) struct CommitInFlight {
    pub io: u64,
    pub slot: u32,
    pub epoch: u64,
    pub offset: u32,
    pub commit: u64,
    pub batch: Batch,
    pub began: Instant,
    /// Another sync of the same segment failed meanwhile: success proves nothing.
    pub doomed: bool,
}

impl LogStream {
    pub(crate) fn new(number: u64, next_commit: u64) -> LogStream {
        LogStream {
            active: None,
            next: None,
            open: Batch::new(number, Vec::new()),
            closed: VecDeque::new(),
            flights: Vec::new(),
            failed: Vec::new(),
            voids: Vec::new(),
            void_batch: None,
            next_commit,
            buffers: Vec::new(),
            rhythm: Rhythm::default(),
        }
    }

    /// Closes the gathering batch if `bytes` more would make it too long. The new one has
    /// number 0 until it is given one.
    pub(crate) fn make_room(&mut self, bytes: usize, batch_bytes_max: u32) {
        let long = self.open.buffer.len() + bytes + RECORD_HEADER;
        if !self.open.is_empty() && long > batch_bytes_max as usize {
            self.close();
        }
    }

    pub(crate) fn close(&mut self) {
        let fresh = Batch::new(0, self.buffers.pop().unwrap_or_default());
        let mut full = std::mem::replace(&mut self.open, fresh);
        full.urgent = true;
        self.closed.push_back(full);
    }

    /// When the gathering batch is to be written, if there is anything in it to be written.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let under_way = self.flights.iter().map(|flight| flight.batch.messages).max();
        let patience = self.rhythm.patience(self.open.messages, under_way.unwrap_or(0));
        self.open.due_at(patience).filter(|_| !self.open.is_empty())
    }

    pub(crate) fn batches(&self) -> impl Iterator<Item = &Batch> {
        let flights = self.flights.iter().map(|flight| &flight.batch);
        let failed = self.failed.iter().map(|(_, batch)| batch);
        flights.chain(failed).chain(&self.closed).chain(std::iter::once(&self.open))
    }

    /// A batch waits and the active segment has no room for it.
    pub(crate) fn is_stuck(&self) -> bool {
        let left = self.active.map_or(0, |active| (active.bytes - active.offset) as usize);
        self.closed.front().is_some_and(|batch| aligned(batch.buffer.len(), BLOCK) > left)
    }

    /// The last commit such that it and all before it are durable, or known to be void.
    fn durable(&self) -> u64 {
        self.voids.iter().copied().chain([self.start_commit()]).min().unwrap_or(1) - 1
    }

    /// The first commit that is under way, or will be.
    pub(crate) fn start_commit(&self) -> u64 {
        let under_way = self.flights.iter().map(|flight| flight.commit);
        let failed = self.failed.iter().map(|(commit, _)| *commit);
        under_way.chain(failed).min().unwrap_or(self.next_commit)
    }

    fn recycle(&mut self, buffer: Vec<u8>, batch_bytes_max: u32) {
        let sane = buffer.capacity() <= 2 * batch_bytes_max as usize;
        if sane && self.buffers.len() < BUFFERS_MAX {
            self.buffers.push(buffer);
        }
    }
}

impl Spool {
    /// The next commit that can start, if any.
    pub(crate) fn start_commit(&mut self, kind: SegmentKind, now: Now) -> Option<Io> {
        if self.broken.as_ref().is_some_and(|broken| now.monotonic < broken.retry_at) {
            return None;
        }
        let limit = match kind {
            SegmentKind::Log => self.settings.commits_in_flight,
            SegmentKind::Bulk => 1,
        };
        let stream = self.stream(kind);
        let alone = stream.void_batch.is_some() && !stream.flights.is_empty();
        let urgent = stream.open.urgent && !stream.open.is_empty();
        let gathered = stream.due_at().is_some_and(|at| at <= now.monotonic);
        let due = !stream.closed.is_empty() || urgent || gathered;
        if !due || alone || !stream.failed.is_empty() || stream.flights.len() >= limit {
            return None;
        }
        if stream.closed.is_empty() {
            stream.close();
            self.number_batches();
        }
        self.launch(kind, now)
    }

    /// Gives the oldest closed batch its place and sends it off; `None` if there is no segment.
    fn launch(&mut self, kind: SegmentKind, now: Now) -> Option<Io> {
        let bytes = aligned(self.stream(kind).closed.front()?.buffer.len(), BLOCK) as u32;
        let active = self.place_for(kind, bytes)?;
        let io = self.next_io();
        let stream = self.stream(kind);
        let mut batch = stream.closed.pop_front()?;
        let commit = stream.next_commit;
        let header = BatchHeader {
            length: 0,
            sequence: commit,
            durable: stream.durable(),
            epoch: active.epoch,
            nonce: active.nonce,
            first_record: batch.first_record,
            records: batch.records,
            slot: active.slot,
            checksum: 0,
        };
        stream.next_commit += 1;
        seal(&mut batch.buffer, header);
        let length = batch.buffer.len();
        batch.buffer.resize(bytes as usize, 0);
        let buffer = std::mem::take(&mut batch.buffer);
        let Active { slot, epoch, offset, .. } = active;
        let last_record = batch.last_record;
        let began = now.monotonic;
        stream.flights.push(CommitInFlight {
            io,
            slot,
            epoch,
            offset,
            commit,
            batch,
            began,
            doomed: false,
        });
        self.segments.note_batch(slot, last_record);
        self.segments.hold(slot);
        self.usage.syncs += 1;
        self.log_bytes += u64::from(bytes);
        self.written_lengths.insert(io, length);
        let class = if kind == SegmentKind::Log { Class::Commit } else { Class::Bulk };
        let work =
            Work::Write { file: File::Segment(slot), offset: offset.into(), buffer, sync: true };
        Some(Io { id: io, class, work })
    }

    /// Room for so many bytes in the active segment, or in the next one.
    fn place_for(&mut self, kind: SegmentKind, bytes: u32) -> Option<Active> {
        let stream = self.stream(kind);
        let fits = |active: &Active| active.bytes - active.offset >= bytes;
        if !stream.active.as_ref().is_some_and(fits) {
            let next = stream.next.take_if(|next| fits(next));
            self.supply.look = true;
            let stream = self.stream(kind);
            let next = next?;
            if let Some(old) = stream.active.replace(next) {
                self.segments.seal(old.slot);
            }
        }
        let active = self.stream(kind).active.as_mut()?;
        let place = *active;
        active.offset += bytes;
        Some(place)
    }

    /// A commit has come back.
    pub(crate) fn finish_commit(&mut self, done: IoDone, kind: SegmentKind, now: Now) {
        let stream = self.stream(kind);
        let Some(at) = stream.flights.iter().position(|flight| flight.io == done.id) else {
            return;
        };
        let mut flight = stream.flights.remove(at);
        self.segments.unhold(flight.slot);
        let Work::Write { buffer, .. } = done.work else { return };
        let length = self.written_lengths.remove(&done.id).unwrap_or(buffer.len());
        flight.batch.buffer = buffer;
        match done.result {
            Ok(Some(synced)) if !flight.doomed => self.settle(flight, &synced, kind, now),
            result => {
                flight.batch.buffer.truncate(length);
                self.commit_failed(flight, kind, result.err(), now);
            }
        }
    }

    /// The sync of the batch has come back: here, and nowhere else in this crate, messages become
    /// durable. `synced` is what that sync returned; it is dropped when this batch is done.
    fn settle(&mut self, flight: CommitInFlight, synced: &Synced, kind: SegmentKind, now: Now) {
        let mut batch = flight.batch;
        let took = now.monotonic.since(flight.began);
        self.stream(kind).rhythm.settled(took, batch.messages);
        self.usage.commits += 1;
        let bytes = batch.buffer.len() as u64;
        self.usage.commit_bytes += bytes;
        self.supply.look |= self.supply.pace.committed(bytes, now);
        self.usage.messages_committed += u64::from(batch.messages);
        self.usage.batch_messages_max =
            self.usage.batch_messages_max.max(u64::from(batch.messages));
        let (slot, epoch, offset) = (flight.slot, flight.epoch, flight.offset);
        for item in batch.items.drain(..) {
            match item {
                BatchItem::Chunk { transaction, nth, offset: at } => {
                    self.chunk_placed(transaction, nth, (slot, epoch, offset + at));
                }
                BatchItem::Message(item) => {
                    let transaction = item.transaction;
                    let message = item.message;
                    self.enter(item, slot, offset);
                    self.unstage(transaction);
                    self.remember(transaction, message);
                    self.unsettle(message, batch.number);
                    let durable = Durable::proven(synced, message, transaction);
                    self.outputs.push_back(Output::Durable(durable));
                }
                BatchItem::Moved(item) => self.moved(item, slot, offset),
                BatchItem::Change { message, retired } => {
                    if let Some((place, extras)) = retired {
                        self.release(place, &extras);
                    }
                    self.unsettle(message, batch.number);
                }
                BatchItem::Group(ticket) => self.outputs.push_back(Output::Recorded(ticket)),
            }
        }
        let idle = self.log.flights.is_empty() || self.snapshots.making.is_some();
        self.supply.look |= idle || self.usage.commits.is_multiple_of(LOOK_COMMITS);
        self.commit_succeeded(kind, batch.number);
        let batch_bytes_max = self.settings.batch_bytes_max;
        self.stream(kind).recycle(batch.buffer, batch_bytes_max);
        self.retry_waiting(now);
    }

    fn chunk_placed(&mut self, of: mail::TransactionId, nth: usize, place: (u32, u64, u32)) {
        let Some(staged) = self.staged.get_mut(&of) else { return };
        if let Some(chunk) = staged.chunks.get_mut(nth).filter(|chunk| chunk.place.is_none()) {
            chunk.place = Some(place);
            self.segments.hold(place.0);
        }
    }

    /// Puts a durable message into the index.
    pub(crate) fn enter(&mut self, mut item: MessageItem, slot: u32, offset: u32) {
        let at = offset + item.offset;
        let place = Place::new(slot, at, item.length, item.adjacent, item.body_bytes);
        own_segment(&mut item.extras, slot);
        self.segments.add(slot, place.own_bytes());
        item.extras.iter().for_each(|extra| self.segments.add(extra.slot, extra.bytes.into()));
        if !item.extras.is_empty() {
            self.extras.insert(item.message, item.extras.into_boxed_slice());
        }
        self.index.insert(item.message, place);
    }

    /// The segments no longer need to keep this.
    pub(crate) fn release(&mut self, place: Place, extras: &[Extra]) {
        self.segments.subtract(place.slot, place.own_bytes());
        extras.iter().for_each(|extra| self.segments.subtract(extra.slot, extra.bytes.into()));
    }
}

fn own_segment(extras: &mut [Extra], slot: u32) {
    for extra in extras.iter_mut().filter(|extra| extra.slot == OWN_SEGMENT) {
        extra.slot = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_stuck_when_its_batch_is_longer_than_what_its_segment_has_left() {
        let mut stream = LogStream::new(1, 1);
        assert!(!stream.is_stuck(), "nothing waits");
        stream.closed.push_back(Batch::new(1, vec![0; 1]));
        assert!(stream.is_stuck(), "there is no segment");
        let bytes = 16 * BLOCK as u32;
        let active = |blocks: u32| Active {
            slot: 0,
            epoch: 1,
            nonce: 1,
            offset: bytes - blocks * BLOCK as u32,
            bytes,
        };
        stream.active = Some(active(1));
        assert!(!stream.is_stuck(), "it fits exactly");
        stream.active = Some(active(0));
        assert!(stream.is_stuck());
        stream.closed[0].buffer.resize(3 * BLOCK, 0);
        stream.active = Some(active(2));
        assert!(stream.is_stuck());
        stream.active = Some(active(3));
        assert!(!stream.is_stuck());
    }
}
