//! Each decoder of the spool's format by itself.
//!
//! Must never believe a length: each decoder's memory is bounded by its input.

use crate::input::Input;
use crate::memory;
use mail::{Change, Now, Timestamp};
use spool::File;
use spool::format::batch::{
    self, BATCH_HEADER, BatchHeader, RecordKind, Records, decode_void, encode_void, is_whole,
};
use spool::format::message::{MessageRecord, encode_head, peek_id};
use spool::format::segment::{HeaderFound, SegmentHeader};
use spool::format::snapshot::{SliceHeader, SnapshotFound, SnapshotHeader, Table};
use spool::format::{SECTOR, marker_version};

/// Upper bound on the memory of a decoder for an input of this number of bytes.
fn bound(bytes: &[u8]) -> usize {
    64 * bytes.len() + 4_096
}

/// A sector with the checksum at its end made right.
fn sealed_sector(bytes: &[u8], magic: &[u8; 8]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let length = bytes.len().min(SECTOR - 12);
    sector[8..8 + length].copy_from_slice(&bytes[..length]);
    sector[..8].copy_from_slice(magic);
    let checksum = crc32c::crc32c(&sector[..SECTOR - 4]);
    sector[SECTOR - 4..].copy_from_slice(&checksum.to_le_bytes());
    sector
}

/// Marker, file names, and the headers of segments, snapshots and slices.
pub fn headers(data: &[u8]) {
    let mut input = Input(data);
    let sealed = input.byte() & 1 != 0;
    let bytes = input.rest();
    if let Some(version) = marker_version(bytes) {
        let again = format!("posthaste spool {version}\n");
        assert_eq!(marker_version(again.as_bytes()), Some(version));
    }
    if let Some(file) = std::str::from_utf8(bytes).ok().and_then(File::parse) {
        assert_eq!(file.to_string().as_bytes(), bytes);
    }
    let mut segment = bytes.to_vec();
    let mut snapshot = bytes.to_vec();
    if sealed {
        segment[..].fill(0);
        segment = sealed_sector(bytes, b"PHSEGMT\x01").to_vec();
        snapshot = sealed_sector(bytes, b"PHSNAPS\x01").to_vec();
    }
    if let HeaderFound::Used(header) = memory::within(0, || SegmentHeader::decode(&segment)) {
        assert_eq!(SegmentHeader::decode(&header.encode()), HeaderFound::Used(header));
    }
    if let SnapshotFound::Header(header) = memory::within(0, || SnapshotHeader::decode(&snapshot)) {
        assert_eq!(SnapshotHeader::decode(&header.encode()), SnapshotFound::Header(header));
    }
    if let Some(header) = memory::within(0, || BatchHeader::decode(bytes)) {
        let mut again = bytes.to_vec();
        header.encode(&mut again);
        assert_eq!(again, bytes);
    }
}

/// A batch of hostile records, whole and then damaged where the input says.
pub fn batch(data: &[u8]) {
    let mut input = Input(data);
    let epoch = input.number() >> 2;
    let damage = input.short();
    let mut bytes = vec![0; BATCH_HEADER];
    let mut payloads = Vec::new();
    while !input.is_over() && payloads.len() < 32 {
        let kind = KINDS[input.below(5)];
        let payload = input.short();
        let (offset, checksum) = batch::append(&mut bytes, kind, payloads.len() as u64, &[payload]);
        payloads.push((kind, offset, payload, checksum));
    }
    let header = BatchHeader {
        length: 0,
        sequence: 5,
        durable: 4,
        epoch,
        nonce: 3,
        first_record: 0,
        records: payloads.len() as u32,
        slot: 1,
        checksum: 0,
    };
    batch::seal(&mut bytes, header);
    let header = BatchHeader::decode(&bytes).expect("sealed");
    assert!(is_whole(&bytes, &header));
    let read: Vec<_> = Records::new(&bytes, epoch).map(|record| record.expect("intact")).collect();
    assert_eq!(read.len(), payloads.len());
    for (record, (kind, offset, payload, checksum)) in read.iter().zip(&payloads) {
        assert_eq!((record.kind, record.offset, record.payload), (*kind, *offset, *payload));
        assert_eq!(record.checksum, *checksum);
    }
    damaged(bytes, damage, epoch, &header);
}

const KINDS: [RecordKind; 5] = [
    RecordKind::Message,
    RecordKind::Moved,
    RecordKind::Chunk,
    RecordKind::Change,
    RecordKind::Void,
];

/// Whatever is changed, the walk ends, stays inside, and goes forward.
fn damaged(mut bytes: Vec<u8>, damage: &[u8], epoch: u64, header: &BatchHeader) {
    let whole = bytes.clone();
    for change in damage.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        bytes[at] ^= change[2];
    }
    if damage.len() % 3 == 1 {
        bytes.truncate(usize::from(damage[0]) * bytes.len() / 256);
    }
    assert!(
        bytes[BATCH_HEADER.min(bytes.len())..] == whole[BATCH_HEADER..]
            || !is_whole(&bytes, header)
    );
    let mut end = BATCH_HEADER;
    memory::within(0, || {
        for record in Records::new(&bytes, epoch) {
            let (from, to) = match record {
                Ok(record) => (record.offset, record.offset + 32 + record.payload.len()),
                Err(bad) => (bad.offset, bad.end),
            };
            assert!(from >= end && to > from && to <= bytes.len().max(end));
            end = to;
        }
    });
}

/// Payloads of records whose checksums are right.
pub fn records(data: &[u8]) {
    memory::within(bound(data), || {
        peek_id(data);
        if let Some(record) = MessageRecord::decode(data) {
            let mut again = Vec::new();
            let MessageRecord { message, transaction, body_bytes, chunks, prefix, envelope } =
                &record;
            encode_head(&mut again, *message, *transaction, *body_bytes, chunks, prefix);
            let again = postcard::to_extend(envelope, again).expect("memory takes it");
            assert_eq!(MessageRecord::decode(&again).as_ref(), Some(&record));
        }
    });
    if let Ok(change) = memory::within(bound(data), || postcard::from_bytes::<Change>(data)) {
        let again = postcard::to_stdvec(&change).expect("memory takes any number of bytes");
        assert_eq!(postcard::from_bytes::<Change>(&again), Ok(change));
    }
    let commits: Vec<u64> = decode_void(data).collect();
    assert_eq!(encode_void(&commits), data[..data.len() / 8 * 8]);
}

/// Slices with hostile payloads, and the blobs of the scheduler in them.
pub fn snapshot(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let header = SliceHeader {
        length: 0,
        generation: input.number(),
        position: input.number() >> 2,
        after: input.number(),
        through: input.number(),
        number: input.byte().into(),
        checksum: 0,
        table: flags & 1 != 0,
    };
    let payload = input.rest();
    let mut slice = vec![0; 64];
    slice.extend_from_slice(payload);
    header.seal(&mut slice);
    let (found, inside) = SliceHeader::decode(&slice).expect("sealed");
    assert_eq!((inside, found.generation, found.table), (payload, header.generation, header.table));
    assert_eq!(found.slice_bytes(), slice.len());
    SliceHeader::decode(payload);
    memory::within(bound(payload), || {
        if let Some(table) = Table::decode(payload) {
            let mut again = Vec::new();
            table.encode(&mut again);
            assert_eq!(Table::decode(&again), Some(table));
        }
    });
    entries(payload);
    if flags & 2 != 0 {
        blob(payload);
    }
}

fn entries(payload: &[u8]) {
    memory::within(bound(payload), || {
        let mut seen = 0;
        for entry in spool::format::snapshot::entries(payload) {
            seen += 32 + entry.blob.len() + 8 * entry.extras.len();
            assert!(seen <= payload.len());
        }
    });
}

/// One message of the scheduler: restored, explained, exported again, and restored from that.
pub fn blob(bytes: &[u8]) {
    let now = Now { wall: Timestamp::from_micros(1_795_000_000_000_000), ..Now::default() };
    let scheduler = || scheduler::Scheduler::new(scheduler::Settings::for_tests(), 1, now);
    let mut first = scheduler();
    let restored = memory::within(bound(bytes) + (64 << 20), || first.restore(bytes, now));
    let Ok(id) = restored else {
        assert!(first.is_empty());
        return;
    };
    assert!(first.contains(id) && first.len() == 1);
    first.explain(id, now);
    first.summary(now);
    let saved = first.export(id, now).expect("it is there");
    let mut second = scheduler();
    assert_eq!(second.restore(&saved, now), Ok(id));
    assert_eq!(second.export(id, now), Some(saved));
    first.apply(&Change::Retire { message: id }, now);
    assert!(!first.contains(id));
}
