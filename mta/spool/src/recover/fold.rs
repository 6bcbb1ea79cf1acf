//! Folds the snapshot and the log behind it into the state: decides which commits count, which are
//! torn and which are damaged, and applies each record.
//!
//! Must never count a commit twice, nor a voided commit at all.

use super::damage::{name_victims, report_damage};
use super::scan::{FoundBatch, FoundRecord, Scanned};
use super::snapshot::Chosen;
use super::survey::Survey;
use super::{Damage, Loaded, OpenError, Replay};
use crate::File;
use crate::admit::extras;
use crate::format::batch::{RecordKind, decode_void};
use crate::format::message::{MessagePlace, MessageRecord};
use crate::format::snapshot::{Entry, Extra, entries};
use crate::segments::{Segment, State};
use mail::{Change, MessageId};
use std::collections::{HashMap, HashSet};
use world::{Disk, DiskError};

/// Ranges of ids, each with the last record that the snapshot knows for them.
struct Slices(Vec<(u64, u64, u64)>);

struct Fold<'a> {
    loaded: Loaded,
    replay: &'a mut dyn FnMut(Replay<'_>),
    slices: Slices,
    /// Messages that end in the log, each with the record that ends it.
    retired: HashMap<MessageId, u64>,
    /// Messages that are live in the snapshot, in a segment that has been used again since.
    doubtful: HashSet<MessageId>,
    ended: HashSet<MessageId>,
}

impl Slices {
    fn position(&self, message: MessageId) -> u64 {
        let at = self.0.partition_point(|(_, through, _)| *through < message.0);
        let slice = self.0.get(at).filter(|(after, ..)| *after < message.0);
        slice.map_or(0, |(.., position)| *position)
    }
}

pub(super) fn fold(
    disk: &dyn Disk,
    loaded: Loaded,
    survey: &Survey,
    chosen: Option<Chosen>,
    mut scanned: Scanned,
    replay: &mut dyn FnMut(Replay<'_>),
) -> Result<Loaded, OpenError> {
    let slices = Slices(Vec::new());
    let (doubtful, ended) = (HashSet::new(), HashSet::new());
    let header = chosen.as_ref().map(|chosen| &chosen.header);
    let start_record = header.map_or(1, |header| header.start_record);
    let start_commit = header.map_or(1, |header| header.start_commit);
    let counting = counting(&scanned);
    let retired = retired(&scanned, &counting, start_record);
    let mut fold = Fold { loaded, replay, slices, retired, doubtful, ended };
    fold.segments(survey, chosen.as_ref(), &scanned);
    if let Some(chosen) = &chosen {
        fold.snapshot(disk, survey, chosen)?;
    }
    fold.loaded.voids = report_damage(&scanned, start_commit, &mut fold.loaded.report);
    fold.loaded.report.torn = fold.loaded.voids.clone();
    let commits = scanned.batches.iter().map(|batch| batch.header.sequence);
    fold.loaded.last_commit = commits.max().unwrap_or(0).max(start_commit - 1);
    scanned.batches.sort_by_key(|batch| batch.header.first_record);
    for batch in scanned.batches.iter().filter(|b| counting.contains(&b.header.sequence)) {
        for record in batch.records.iter().filter(|record| record.sequence >= start_record) {
            fold.record(batch, record, scanned.payload(record));
        }
    }
    fold.finish(survey, &scanned);
    Ok(fold.loaded)
}

/// Returns the commits that were voided.
pub(super) fn voided(scanned: &Scanned) -> HashSet<u64> {
    let durable = known_durable(scanned);
    let sure = |batch: &&FoundBatch| batch.whole || batch.header.sequence <= durable;
    let mut voided = HashSet::new();
    for batch in scanned.batches.iter().filter(sure) {
        let voids = batch.records.iter().filter(|record| record.kind == RecordKind::Void);
        let commits = voids.flat_map(|record| decode_void(scanned.payload(record)));
        // A void only concerns commits before it: a damaged record must not void a later commit.
        voided.extend(commits.filter(|commit| *commit < batch.header.sequence));
    }
    voided
}

/// Returns the commit such that it and all before it are known to have been durable.
pub(super) fn known_durable(scanned: &Scanned) -> u64 {
    scanned.batches.iter().map(|batch| batch.header.durable).max().unwrap_or(0)
}

/// Returns the commits that count: whole ones, and those that were durable once, with the records that
/// are left of them.
fn counting(scanned: &Scanned) -> HashSet<u64> {
    let (durable, voided) = (known_durable(scanned), voided(scanned));
    let batches = scanned.batches.iter();
    let counts = batches.filter(|batch| batch.whole || batch.header.sequence <= durable);
    counts.map(|b| b.header.sequence).filter(|commit| !voided.contains(commit)).collect()
}

/// Returns the messages that end in a record from `start` on, each with the number of that record.
fn retired(scanned: &Scanned, counting: &HashSet<u64>, start: u64) -> HashMap<MessageId, u64> {
    let counts = |batch: &&FoundBatch| counting.contains(&batch.header.sequence);
    let records = scanned.batches.iter().filter(counts).flat_map(|batch| &batch.records);
    let changes = records.filter(|r| r.kind == RecordKind::Change && r.sequence >= start);
    let mut retired = HashMap::new();
    for record in changes {
        let payload = scanned.payload(record);
        if payload.len() <= RETIRE_BYTES_MAX
            && let Ok(Change::Retire { message }) = postcard::from_bytes(payload)
        {
            let last: &mut u64 = retired.entry(message).or_default();
            *last = record.sequence.max(*last);
        }
    }
    retired
}

/// Upper bound on the bytes of an encoded retirement: the variant's number and the message id, up to
/// 10 bytes each.
const RETIRE_BYTES_MAX: usize = 20;

impl Fold<'_> {
    fn segments(&mut self, survey: &Survey, chosen: Option<&Chosen>, scanned: &Scanned) {
        let mut last_records: HashMap<u32, u64> = HashMap::new();
        for batch in &scanned.batches {
            let last = batch.records.iter().map(|record| record.sequence).max();
            let last = last.unwrap_or(0).max(batch.header.first_record);
            let known = last_records.entry(batch.slot).or_default();
            *known = (*known).max(last);
            self.loaded.last_record = self.loaded.last_record.max(last);
            let ended = batch.header.first_record + u64::from(batch.header.records);
            self.loaded.last_record = self.loaded.last_record.max(ended);
        }
        for slot in survey.segments.keys() {
            let size = self.loaded.segment_bytes;
            let Some(mut segment) = survey.segment(*slot, chosen, size) else { continue };
            self.loaded.last_epoch = self.loaded.last_epoch.max(segment.epoch);
            let listed = chosen.and_then(|chosen| chosen.listed(*slot)).map(|l| l.last_record);
            let scanned = last_records.get(slot).copied();
            let listed = listed.filter(|last| *last != u64::MAX);
            segment.last_record = scanned.or(listed).unwrap_or(0);
            self.loaded.segments.all.insert(*slot, segment);
        }
    }

    fn snapshot(
        &mut self,
        disk: &dyn Disk,
        survey: &Survey,
        chosen: &Chosen,
    ) -> Result<(), DiskError> {
        let loaded = &mut self.loaded;
        let header = &chosen.header;
        loaded.snapshot = header.generation;
        loaded.snapshot_start = header.start_record;
        loaded.snapshot_bytes = chosen.bytes;
        loaded.older_start = chosen.older_start;
        loaded.last_message = header.last_message;
        loaded.last_record = loaded.last_record.max(header.start_record - 1);
        loaded.last_epoch = loaded.last_epoch.max(header.last_epoch);
        loaded.recent.clone_from(&chosen.table.transactions);
        chosen.each_slice(disk, |slice, payload| {
            self.slices.0.push((slice.after, slice.through, slice.position));
            self.loaded.last_record = self.loaded.last_record.max(slice.position);
            for entry in entries(payload) {
                self.entry(survey, chosen, entry);
            }
        })
    }

    fn entry(&mut self, survey: &Survey, chosen: &Chosen, entry: Entry<'_>) {
        let Entry { message, place, extras, blob } = entry;
        let body_bytes = place.body_bytes.into();
        // The slice holds what every record up to its position says.
        self.tell(
            message,
            self.slices.position(message),
            Replay::Snapshot { message, blob, body_bytes },
        );
        let mut slots = extras.iter().map(|extra| extra.slot).chain([place.slot]);
        let same = |slot: u32| {
            let now = survey.segments.get(&slot).and_then(|found| found.header);
            chosen.listed(slot).map(|listed| listed.epoch) == now.map(|header| header.epoch)
        };
        if !slots.all(same) {
            self.doubtful.insert(message);
        }
        self.loaded.index.insert(message, place, extras);
    }

    fn record(&mut self, batch: &FoundBatch, record: &FoundRecord, payload: &[u8]) {
        self.loaded.report.replayed += 1;
        match record.kind {
            RecordKind::Message | RecordKind::Moved => match MessageRecord::decode(payload) {
                Some(decoded) => self.message(batch, record, payload.len(), decoded),
                None => self.undecodable(batch, record),
            },
            RecordKind::Change => match postcard::from_bytes::<Change>(payload) {
                Ok(change) => self.change(record.sequence, change),
                Err(_) => self.undecodable(batch, record),
            },
            RecordKind::Void | RecordKind::Chunk => {}
        }
    }

    fn undecodable(&mut self, batch: &FoundBatch, record: &FoundRecord) {
        self.loaded.report.damage.push(Damage {
            file: File::Segment(batch.slot).to_string(),
            offset: record.offset.into(),
            what: "a record cannot be decoded",
            messages: Vec::new(),
        });
    }

    fn message(
        &mut self,
        batch: &FoundBatch,
        found: &FoundRecord,
        length: usize,
        record: MessageRecord,
    ) {
        let message = record.message;
        self.loaded.last_message = self.loaded.last_message.max(message.0);
        if found.kind == RecordKind::Message {
            self.loaded.recent.push((record.transaction, message));
        }
        let known = self.loaded.index.get(message).is_some();
        let covered = found.sequence <= self.slices.position(message);
        if self.ended.contains(&message) || !known && covered {
            return;
        }
        let (place, extras) = place_of(batch, found, length, &record);
        self.doubtful.remove(&message);
        self.loaded.index.insert(message, place, extras);
        if !known {
            let MessageRecord { transaction, envelope, body_bytes, .. } = record;
            let accepted = Replay::Accepted { message, transaction, envelope, body_bytes };
            self.tell(message, found.sequence, accepted);
        }
    }

    fn change(&mut self, sequence: u64, change: Change) {
        let message = change.message();
        if sequence <= self.slices.position(message) || self.loaded.index.get(message).is_none() {
            return;
        }
        if matches!(change, Change::Retire { .. }) {
            self.loaded.index.remove(message);
            self.doubtful.remove(&message);
            self.ended.insert(message);
        }
        self.tell(message, sequence, Replay::Change(change));
    }

    /// Tells the caller what this record says about a message, unless the message ends later in the log:
    /// nothing needs to be known about a list of thousands of recipients that has ended.
    fn tell(&mut self, message: MessageId, sequence: u64, replay: Replay<'_>) {
        if self.retired.get(&message).is_none_or(|retired| *retired < sequence) {
            (self.replay)(replay);
        }
    }

    /// Counts the live bytes of each segment and reports messages that can no longer be read.
    fn finish(&mut self, survey: &Survey, scanned: &Scanned) {
        let loaded = &mut self.loaded;
        keep_slots(loaded);
        for (message, place) in loaded.index.above(0) {
            loaded.segments.add(place.slot, place.own_bytes());
            for extra in loaded.index.extras(message) {
                loaded.segments.add(extra.slot, extra.bytes.into());
            }
        }
        let mut lost: Vec<_> = self.doubtful.drain().collect();
        lost.sort_unstable();
        for message in lost {
            let Some(place) = loaded.index.get(message) else { continue };
            let file = File::Segment(place.slot).to_string();
            let what = "the segment is missing or was used again";
            let (offset, messages) = (place.offset.into(), vec![message]);
            loaded.report.damage.push(Damage { file, offset, what, messages });
        }
        name_victims(loaded);
        let durable = known_durable(scanned);
        for batch in &scanned.batches {
            // A torn or damaged segment is never written again.
            let hurt = !batch.whole && batch.header.sequence <= durable;
            if hurt && loaded.segments.get(batch.slot).is_some_and(|s| s.state == State::Sealed) {
                loaded.segments.fail(batch.slot);
            }
        }
        loaded.recent.dedup();
        loaded.report.messages = loaded.index.len() as u64;
        let used = |found: &&super::survey::Found| found.header.is_some();
        loaded.report.segments = survey.segments.values().filter(used).count() as u64;
    }
}

/// Keeps each slot that a live message names from being used for anything else, even if its file is
/// missing or looks free.
fn keep_slots(loaded: &mut Loaded) {
    let slots = loaded.index.above(0).map(|(_, place)| place.slot);
    let slots = slots.chain(loaded.index.extra_slots());
    for slot in slots {
        let fresh = || Segment::new(State::Kept, 0);
        let segment = loaded.segments.all.entry(slot).or_insert_with(fresh);
        if matches!(segment.state, State::Ready | State::Zeroing(_)) {
            segment.state = State::Kept;
        }
    }
}

fn place_of(
    batch: &FoundBatch,
    found: &FoundRecord,
    length: usize,
    record: &MessageRecord,
) -> (MessagePlace, Vec<Extra>) {
    use crate::format::message::ChunkAt;
    let body = record.body_bytes as u32;
    let right_before = crate::format::aligned(body as usize, 8) as u32;
    let adjacent = match record.chunks.as_slice() {
        [] => true,
        [chunk] => chunk.at == ChunkAt::Before(right_before) && chunk.length == body,
        _ => false,
    };
    let place = MessagePlace::new(batch.slot, found.offset, length as u32, adjacent, body);
    let mut list = if adjacent { Vec::new() } else { extras(&record.chunks) };
    for extra in list.iter_mut().filter(|extra| extra.slot == crate::batch::OWN_SEGMENT) {
        extra.slot = batch.slot;
    }
    (place, list)
}
