//! Hostile files for a simulated disk, made from an input.
//!
//! Must never be so damaged that a checksum ends everything: what is built is sealed rightly, and
//! only then changed where the input says so.

use crate::input::Input;
use mail::{
    Address, Change, Enhanced, Envelope, MailFrom, MessageId, Notify, Origin, Protocol, Recipient,
    Reply, Report, ReversePath, Stage, Timestamp, TransactionId,
};
use spool::format::batch::{self, BATCH_HEADER, BatchHeader, RecordKind};
use spool::format::message::{ChunkAt, ChunkPlace, MessagePlace, encode_head};
use spool::format::segment::{SegmentHeader, SegmentKind};
use spool::format::snapshot::{
    Entry, Extra, SLICE_HEADER, SliceHeader, SnapshotHeader, Table, TableSegment, encode_entry,
};
use spool::format::{BLOCK, MARKER, marker};
use spool::{File, Settings};
use world::sim::Disk;

/// Small numbers, so that little is much.
pub fn settings() -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        batch_bytes_max: 16 << 10,
        commits_in_flight: 2,
        reserve_bytes: 0,
        keep_free_bytes: 0,
        bulk_body_bytes_min: 12 << 10,
        chunk_bytes_max: 4 << 10,
        snapshot_log_bytes: 48 << 10,
        snapshot_slice_messages: 5,
        staged_bytes_max: 1 << 20,
        spares: 2,
        zero_slice_bytes: 64 << 10,
        copy_forward_divisor: 2,
        recent_transactions_max: 1_000,
        ..Settings::for_tests()
    }
}

/// An envelope like any.
pub fn envelope() -> Envelope {
    let address = Address::parse("x@y.test", false).expect("it is one");
    Envelope {
        from: MailFrom::new(ReversePath::Address(address.clone())),
        origin: Origin { client: None, helo: "h".into(), protocol: Protocol::Esmtp },
        arrived: Timestamp::from_micros(7),
        recipients: vec![Recipient { address, notify: Notify::DEFAULT, orcpt: None }; 2],
    }
}

/// Fills a disk with what the input describes.
pub fn build(input: &mut Input<'_>) -> Disk {
    let disk = Disk::new(1);
    if input.byte() != 1 {
        disk.put(MARKER, marker().as_bytes());
    }
    let mut files = 0;
    while !input.is_over() && files < 8 {
        files += 1;
        match input.byte() % 8 {
            0..=3 => segment(&disk, input),
            4 | 5 => snapshot(&disk, input),
            6 => blocks(&disk, input),
            _ => change(&disk, input),
        }
    }
    disk
}

fn put(disk: &Disk, file: File, mut bytes: Vec<u8>, at_least: usize) {
    bytes.resize(bytes.len().max(at_least), 0);
    disk.put(&file.to_string(), &bytes);
}

fn segment_header(input: &mut Input<'_>) -> SegmentHeader {
    let flags = input.byte();
    let slot = u32::from(flags & 7);
    SegmentHeader {
        kind: if flags & 8 != 0 { SegmentKind::Bulk } else { SegmentKind::Log },
        slot,
        epoch: if flags & 16 != 0 { input.number() } else { u64::from(slot) + 1 },
        nonce: if flags & 32 != 0 { input.number() } else { 3 },
        snapshot: if flags & 64 != 0 { input.number() } else { 0 },
        bytes: if flags & 128 != 0 { input.u32() } else { 64 << 10 },
    }
}

/// A segment with batches of hostile records.
fn segment(disk: &Disk, input: &mut Input<'_>) {
    let header = segment_header(input);
    let mut bytes = header.encode().to_vec();
    bytes.resize(BLOCK, 0);
    let mut record = u64::from(header.slot) * 100 + 1;
    for number in 0..1 + input.byte() % 4 {
        let batch = one_batch(input, &header, number.into(), &mut record);
        bytes.extend(batch);
        bytes.resize(bytes.len().div_ceil(BLOCK) * BLOCK, 0);
    }
    let odd = input.byte() == 255;
    put(disk, File::Segment(header.slot), bytes, if odd { 0 } else { 64 << 10 });
}

fn one_batch(
    input: &mut Input<'_>,
    segment: &SegmentHeader,
    number: u64,
    record: &mut u64,
) -> Vec<u8> {
    let flags = input.byte();
    let mut bytes = vec![0; BATCH_HEADER];
    let first_record = *record;
    for _ in 0..input.byte() % 8 {
        let sequence = if flags & 1 != 0 { input.number() } else { *record };
        let (kind, payload) = record_of(input, bytes.len());
        batch::append(&mut bytes, kind, sequence, &[&payload]);
        *record += 1;
    }
    let sequence = u64::from(segment.slot) * 10 + number + 1;
    let header = BatchHeader {
        length: 0,
        sequence: if flags & 2 != 0 { input.number() } else { sequence },
        durable: if flags & 4 != 0 { input.number() } else { sequence - 1 },
        epoch: if flags & 8 != 0 { input.number() } else { segment.epoch },
        nonce: segment.nonce,
        first_record: if flags & 16 != 0 { input.number() } else { first_record },
        records: if flags & 32 != 0 { input.u32() } else { (*record - first_record) as u32 },
        slot: segment.slot,
        checksum: 0,
    };
    batch::seal(&mut bytes, header);
    if flags & 64 != 0 {
        let at = usize::from(input.u16()) % bytes.len();
        bytes[at] ^= input.byte();
    }
    bytes
}

/// A record, and its payload: raw, or well-formed with hostile numbers.
fn record_of(input: &mut Input<'_>, offset: usize) -> (RecordKind, Vec<u8>) {
    match input.byte() % 8 {
        0 => (RecordKind::Message, input.short().to_vec()),
        1 => (RecordKind::Change, input.short().to_vec()),
        2 => {
            let commits: Vec<u64> = (0..input.byte() % 4).map(|_| input.number()).collect();
            (RecordKind::Void, batch::encode_void(&commits))
        }
        3 => (RecordKind::Chunk, input.short().to_vec()),
        4 => (RecordKind::Moved, message(input, offset)),
        5 | 6 => (RecordKind::Message, message(input, offset)),
        _ => (RecordKind::Change, postcard::to_stdvec(&change_of(input)).expect("memory takes it")),
    }
}

fn message(input: &mut Input<'_>, offset: usize) -> Vec<u8> {
    let flags = input.byte();
    let chunks: Vec<ChunkPlace> = (0..flags & 3).map(|_| chunk(input, offset)).collect();
    let total: u64 = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
    let body_bytes = if flags & 4 != 0 { input.number() } else { total };
    let transaction = TransactionId { incarnation: 1, number: input.number() };
    let mut payload = Vec::new();
    let id = MessageId(input.number());
    encode_head(&mut payload, id, transaction, body_bytes, &chunks, b"A: b\r\n");
    let payload = postcard::to_extend(&envelope(), payload).expect("memory takes it");
    payload[..payload.len() - usize::from(flags >> 7)].to_vec()
}

fn chunk(input: &mut Input<'_>, offset: usize) -> ChunkPlace {
    let at = match input.byte() {
        0..=127 => ChunkAt::Before(u32::from(input.byte()).min(offset as u32)),
        128..=191 => ChunkAt::Before(input.u32()),
        _ => ChunkAt::Segment {
            slot: input.byte().into(),
            epoch: input.number(),
            offset: input.number() as u32,
        },
    };
    ChunkPlace { at, length: input.number() as u32, checksum: input.u32() }
}

fn change_of(input: &mut Input<'_>) -> Change {
    let message = MessageId(input.number());
    let kind = input.byte();
    let recipients: Vec<u32> = (0..kind >> 4 & 3).map(|_| input.number() as u32).collect();
    match kind & 7 {
        0 => Change::Delivered { message, recipients },
        1 => Change::Failed { message, recipients },
        2 => Change::DelayNoticed { message, recipients },
        3 => Change::Hold { message },
        4 => Change::Release { message },
        5 => Change::Priority { message, priority: input.byte() as i8 },
        6 => Change::Retire { message },
        _ => {
            let reply = Reply::new(451, Enhanced(4, 0, 0), "later");
            let report = Report { stage: Stage::Rcpt, reply, peer: "p".into(), from_peer: true };
            let due = Timestamp::from_micros(input.u64() as i64);
            Change::Due { message, recipients, due, attempts: input.u16(), report }
        }
    }
}

/// A snapshot with hostile entries and tables.
fn snapshot(disk: &Disk, input: &mut Input<'_>) {
    let flags = input.byte();
    let which = flags & 1;
    let generation = if flags & 2 != 0 { input.number() } else { u64::from(which) + 1 };
    let mut bytes = vec![0; BLOCK];
    let slices = 1 + input.byte() % 4;
    for number in 0..slices {
        let mut slice = vec![0; SLICE_HEADER];
        let table = number + 1 == slices && flags & 4 == 0;
        if table {
            table_of(input, &mut slice)
        } else {
            entries(input, &mut slice)
        }
        let header = SliceHeader {
            length: 0,
            generation,
            position: input.number(),
            after: input.number(),
            through: input.number(),
            number: number.into(),
            checksum: 0,
            table,
        };
        header.seal(&mut slice);
        bytes.extend(slice);
    }
    let header = SnapshotHeader {
        generation,
        complete: flags & 8 == 0,
        start_record: if flags & 16 != 0 { input.number() } else { 1 },
        start_commit: if flags & 32 != 0 { input.number() } else { 1 },
        slices: slices.into(),
        bytes: if flags & 64 != 0 { input.u64() } else { bytes.len() as u64 },
        last_message: input.number(),
        last_epoch: input.number(),
    };
    bytes[..512].copy_from_slice(&header.encode());
    put(disk, File::Snapshot(which), bytes, 0);
}

fn table_of(input: &mut Input<'_>, into: &mut Vec<u8>) {
    if input.byte() == 255 {
        return into.extend_from_slice(input.short());
    }
    let mut table = Table::default();
    for _ in 0..input.byte() % 4 {
        let slot = u32::from(input.byte());
        let kind = if slot & 8 != 0 { SegmentKind::Bulk } else { SegmentKind::Log };
        let (epoch, last_record) = (input.number(), input.number());
        table.segments.push(TableSegment { slot: slot & 7, epoch, kind, last_record });
    }
    for _ in 0..input.byte() % 4 {
        let transaction = TransactionId { incarnation: 1, number: input.number() };
        table.transactions.push((transaction, MessageId(input.number())));
    }
    table.encode(into);
}

fn entries(input: &mut Input<'_>, into: &mut Vec<u8>) {
    for _ in 0..input.byte() % 4 {
        let flags = input.byte();
        let extras =
            (0..flags & 1).map(|_| Extra { slot: input.byte().into(), bytes: input.u32() });
        let extras = extras.collect();
        let (slot, offset) = (u32::from(input.byte()), input.u16().into());
        let (length, body) = match flags & 2 {
            0 => (input.u16().into(), input.u16().into()),
            _ => (input.u32() & !(1 << 31), input.u32()),
        };
        let place = MessagePlace::new(slot, offset, length, flags & 4 != 0, body);
        let message = MessageId(input.number());
        encode_entry(into, &Entry { message, place, extras, blob: input.short() });
    }
    if input.byte() == 255 {
        into.extend_from_slice(input.short());
    }
}

/// Any file of any blocks, each filled up with zeros.
fn blocks(disk: &Disk, input: &mut Input<'_>) {
    let which = input.byte();
    let mut bytes = Vec::new();
    for _ in 0..which >> 5 {
        bytes.extend_from_slice(input.piece());
        bytes.resize(bytes.len().div_ceil(BLOCK) * BLOCK, 0);
    }
    match which & 31 {
        slot @ 0..=7 => put(disk, File::Segment(slot.into()), bytes, 64 << 10),
        slot @ 8..=15 => put(disk, File::Segment(slot.into()), bytes, 0),
        16..=19 => put(disk, File::Snapshot(which & 1), bytes, 0),
        20 => disk.put(MARKER, &bytes),
        21 => disk.put("segment-x", &bytes),
        22 => disk.put("segment-0000000001", &bytes),
        23 => put(disk, File::Segment(u32::MAX), bytes, 64 << 10),
        _ => disk.put("lock", &bytes),
    }
}

/// A few bytes of a file that is there.
fn change(disk: &Disk, input: &mut Input<'_>) {
    let which = input.byte();
    let file =
        if which & 8 != 0 { File::Snapshot(which & 1) } else { File::Segment((which & 7).into()) };
    let (at, new) = (usize::from(input.u16()), input.short());
    disk.damage(&file.to_string(), |bytes| {
        for (to, from) in bytes.iter_mut().skip(at).zip(new) {
            *to = *from;
        }
    });
}
