//! One stream of batches: the batch that is gathered, those that wait, those under way to the disk,
//! and the segment that they are written to. The log is one stream, bulk another.
//!
//! Must never give a batch a place in a segment that failed, nor launch anything while failed
//! batches wait to be written elsewhere.

mod failed;
mod streams;

pub(crate) use streams::LogStreams;

use crate::batch::Batch;
use crate::format::batch::{BatchHeader, RECORD_HEADER, seal};
use crate::format::{BLOCK, aligned};
use crate::ids::Ids;
use crate::rhythm::Rhythm;
use mail::{Instant, Now};
use std::collections::VecDeque;
use std::time::Duration;

/// Buffers kept for the next batches.
const BUFFERS_MAX: usize = 8;

/// One stream of batches.
pub(crate) struct LogStream {
    /// The segment that is written now.
    active: Option<Active>,
    /// The segment that is written next: its header is durable.
    next: Option<Active>,
    /// The batch that is gathered.
    open: Batch,
    /// Full batches that wait for their turn.
    closed: VecDeque<Batch>,
    /// Batches that are being written or synced.
    flights: Vec<CommitInFlight>,
    /// Batches whose commit failed, or was under way in the segment of one that failed.
    failed: Vec<(u64, Batch)>,
    /// Commits that do not count, until a batch that says so is durable.
    voids: Vec<u64>,
    /// The batch that says so: nothing else is written before it is durable.
    void_batch: Option<u64>,
    next_commit: u64,
    buffers: Vec<Vec<u8>>,
    rhythm: Rhythm,
}

/// The segment that a stream writes, and where in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Active {
    pub slot: u32,
    pub epoch: u64,
    pub nonce: u64,
    pub offset: u32,
    pub bytes: u32,
}

impl Active {
    fn room(&self) -> u32 {
        self.bytes - self.offset
    }
}

/// A batch under way to the disk.
pub(crate) struct CommitInFlight {
    pub io: u64,
    pub slot: u32,
    pub epoch: u64,
    pub offset: u32,
    pub commit: u64,
    pub batch: Batch,
    /// Length of the batch without the zeros that fill its last block.
    pub batch_bytes: usize,
    pub began: Instant,
    /// Another sync of the same segment failed meanwhile: success proves nothing.
    pub doomed: bool,
}

/// Bytes in the batches of a stream.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gathered {
    pub bytes: u64,
    /// The part of these that bodies of our own messages take.
    pub own_bytes: u64,
}

impl LogStream {
    /// A stream that goes on after what recovery found. `voids` are commits that do not count.
    pub(crate) fn new(next_commit: u64, voids: Vec<u64>, ids: &mut Ids) -> LogStream {
        let mut stream = LogStream {
            active: None,
            next: None,
            open: Batch::new(ids.next_batch(), Vec::new()),
            closed: VecDeque::new(),
            flights: Vec::new(),
            failed: Vec::new(),
            voids,
            void_batch: None,
            next_commit,
            buffers: Vec::new(),
            rhythm: Rhythm::default(),
        };
        if !stream.voids.is_empty() {
            stream.push_void(ids);
        }
        stream
    }

    /// The batch that is gathered.
    pub(crate) fn open(&self) -> &Batch {
        &self.open
    }

    pub(crate) fn open_mut(&mut self) -> &mut Batch {
        &mut self.open
    }

    /// Closes the gathered batch if `bytes` more would make it too long.
    pub(crate) fn make_room(&mut self, bytes: usize, batch_bytes_max: u32, ids: &mut Ids) {
        let long = self.open.bytes() + bytes + RECORD_HEADER;
        if !self.open.is_empty() && long > batch_bytes_max as usize {
            self.close(ids);
        }
    }

    fn close(&mut self, ids: &mut Ids) {
        let fresh = Batch::new(ids.next_batch(), self.buffers.pop().unwrap_or_default());
        let mut full = std::mem::replace(&mut self.open, fresh);
        full.urge();
        self.closed.push_back(full);
    }

    /// When the gathered batch must be written, if there is anything in it.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let under_way = self.flights.iter().map(|flight| flight.batch.messages()).max();
        let patience = self.rhythm.patience(self.open.messages(), under_way.unwrap_or(0));
        self.open.due_at(patience).filter(|_| !self.open.is_empty())
    }

    /// When the gathered batch is due, unless the end of an I/O must come first.
    pub(crate) fn wakeup(&self, in_flight_max: usize) -> Option<Instant> {
        let can_start =
            self.flights.len() < in_flight_max && self.closed.is_empty() && self.failed.is_empty();
        self.due_at().filter(|_| can_start)
    }

    /// Closes a batch if it is time to write one and nothing is in the way; whether a closed batch
    /// can be launched now.
    pub(crate) fn is_due(&mut self, in_flight_max: usize, now: Now, ids: &mut Ids) -> bool {
        let alone = self.void_batch.is_some() && !self.flights.is_empty();
        let urgent = self.open.is_urgent() && !self.open.is_empty();
        let gathered = self.due_at().is_some_and(|at| at <= now.monotonic);
        let due = !self.closed.is_empty() || urgent || gathered;
        if !due || alone || !self.failed.is_empty() || self.flights.len() >= in_flight_max {
            return false;
        }
        if self.closed.is_empty() {
            self.close(ids);
        }
        true
    }

    /// Bytes that the oldest closed batch takes on the disk.
    pub(crate) fn next_bytes(&self) -> Option<u32> {
        self.closed.front().map(|batch| aligned(batch.bytes(), BLOCK) as u32)
    }

    /// Whether the active segment has room for this many bytes.
    pub(crate) fn fits(&self, bytes: u32) -> bool {
        self.active.is_some_and(|active| active.room() >= bytes)
    }

    /// Makes the next segment the active one, if it has room for this many bytes. Returns the slot of
    /// the former active segment.
    pub(crate) fn turn_to_next(&mut self, bytes: u32) -> Option<Option<u32>> {
        let next = self.next.take_if(|next| next.room() >= bytes)?;
        Some(self.active.replace(next).map(|old| old.slot))
    }

    /// Launches the oldest closed batch into the active segment; returns the bytes to write, where
    /// they go, and the last record in them.
    pub(crate) fn launch(&mut self, io: u64, now: Now) -> Option<(Vec<u8>, Active, u64)> {
        let bytes = self.next_bytes()?;
        let place = *self.active.as_ref()?;
        let durable = self.durable();
        let mut batch = self.closed.pop_front()?;
        let commit = self.next_commit;
        self.next_commit += 1;
        let (first_record, records) = batch.records();
        let header = BatchHeader {
            length: 0,
            sequence: commit,
            durable,
            epoch: place.epoch,
            nonce: place.nonce,
            first_record,
            records,
            slot: place.slot,
            checksum: 0,
        };
        let mut buffer = batch.take_buffer();
        seal(&mut buffer, header);
        let batch_bytes = buffer.len();
        buffer.resize(bytes as usize, 0);
        let last_record = batch.last_record();
        let Active { slot, epoch, offset, .. } = place;
        let (began, doomed) = (now.monotonic, false);
        let flight =
            CommitInFlight { io, slot, epoch, offset, commit, batch, batch_bytes, began, doomed };
        self.flights.push(flight);
        if let Some(active) = &mut self.active {
            active.offset += bytes;
        }
        Some((buffer, place, last_record))
    }

    /// Takes the batch whose request has ended.
    pub(crate) fn land(&mut self, io: u64) -> Option<CommitInFlight> {
        let at = self.flights.iter().position(|flight| flight.io == io)?;
        Some(self.flights.remove(at))
    }

    /// Learns how long a commit took and keeps its buffer.
    pub(crate) fn settled(&mut self, took: Duration, messages: u32) {
        self.rhythm.settled(took, messages);
    }

    /// Keeps a buffer for a later batch, unless it has grown too large.
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>, batch_bytes_max: u32) {
        let sane = buffer.capacity() <= 2 * batch_bytes_max as usize;
        if sane && self.buffers.len() < BUFFERS_MAX {
            self.buffers.push(buffer);
        }
    }

    /// The segment whose header has become durable is written next.
    pub(crate) fn set_next(&mut self, active: Active) {
        self.next = Some(active);
    }

    fn batches(&self) -> impl Iterator<Item = &Batch> {
        let flights = self.flights.iter().map(|flight| &flight.batch);
        let failed = self.failed.iter().map(|(_, batch)| batch);
        flights.chain(failed).chain(&self.closed).chain(std::iter::once(&self.open))
    }

    /// Bytes in the batches here. Those of a batch under way are with the disk.
    pub(crate) fn gathered(&self) -> Gathered {
        let add = |sum: Gathered, batch: &Batch| Gathered {
            bytes: sum.bytes + batch.bytes() as u64,
            own_bytes: sum.own_bytes + batch.own_bytes().min(batch.bytes() as u64),
        };
        self.batches().fold(Gathered::default(), add)
    }

    /// Bytes of our own messages in all batches, those under way included.
    pub(crate) fn own_bytes(&self) -> u64 {
        self.batches().map(Batch::own_bytes).sum()
    }

    /// The first record that is in a batch and not durable.
    pub(crate) fn first_record(&self) -> Option<u64> {
        let batches = self.batches().filter(|batch| !batch.is_empty());
        batches.map(|batch| batch.records().0).min()
    }

    fn is_idle(&self) -> bool {
        self.open.is_empty()
            && self.closed.is_empty()
            && self.flights.is_empty()
            && self.failed.is_empty()
    }

    /// Whether nothing is under way.
    pub(crate) fn has_landed(&self) -> bool {
        self.flights.is_empty()
    }

    /// When the oldest commit under way was handed to the disk.
    pub(crate) fn oldest_began(&self) -> Option<Instant> {
        self.flights.iter().map(|flight| flight.began).min()
    }

    /// Whether a segment is ready to be written after the active one.
    pub(crate) fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// Bytes that the active segment has left.
    pub(crate) fn active_room(&self) -> u32 {
        self.active.map_or(0, |active| active.room())
    }

    /// Bytes that the active segment and the next have left.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.active_room()) + u64::from(self.next.map_or(0, |next| next.room()))
    }

    /// Whether a batch waits and the active segment has no room for it.
    pub(crate) fn is_stuck(&self) -> bool {
        self.next_bytes().is_some_and(|bytes| bytes > self.active_room())
    }

    /// Whether what is gathered will soon need a segment and none is ready.
    pub(crate) fn wants_segment(&self) -> bool {
        let gathered = !self.open.is_empty() || !self.closed.is_empty();
        let next = self.closed.front().unwrap_or(&self.open).bytes();
        gathered && self.next.is_none() && (self.active_room() as usize) < next + BLOCK
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
}

#[cfg(test)]
impl LogStream {
    pub(crate) fn set_active(&mut self, active: Active) {
        self.active = Some(active);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::Loaded;

    #[test]
    fn a_stream_is_stuck_when_its_batch_is_longer_than_what_its_segment_has_left() {
        let mut stream = LogStream::new(1, Vec::new(), &mut Ids::after(&Loaded::default(), 1));
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
        stream.closed[0].grow_to(3 * BLOCK);
        stream.active = Some(active(2));
        assert!(stream.is_stuck());
        stream.active = Some(active(3));
        assert!(!stream.is_stuck());
    }
}
