//! A spool that was damaged by hand while the mailer was stopped (S127, S128, S130 to S134, S143, S145).
//!
//! Must never be content that the mailer starts: each message that arrives must be as it was sent, and each
//! undamaged message must arrive.

use crate::rig::{Rig, can_trace};
use crate::support::sink::find;
use crate::support::{Client, Setup, token, until};
use crate::volume::run;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A batch, a block and a sector as `docs/spool-format.md` defines them.
const BATCH_HEADER: usize = 64;
const RECORD_HEADER: usize = 32;
const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// Size of a body that fills one block, so that each message is a batch of one block.
const ONE_BLOCK: usize = 2_500;

fn segments(spool: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(spool).unwrap().flatten().map(|entry| entry.path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut segments: Vec<_> = entries.filter(|path| name(path).starts_with("segment-")).collect();
    segments.sort();
    segments
}

/// The file and the offset of the batch of one block that has this message.
fn batch_of(spool: &Path, token: &str) -> (PathBuf, usize) {
    for segment in segments(spool) {
        let bytes = fs::read(&segment).unwrap();
        if let Some(at) = find(&bytes, format!("Subject: {token}").as_bytes()) {
            let block = at / BLOCK * BLOCK;
            assert_eq!(&bytes[block..block + 4], b"PHBT", "not in a batch of one block");
            return (segment, block);
        }
    }
    panic!("{token} is in no segment");
}

/// A kind of damage to a block that holds one message.
type Hurt = fn(&mut [u8]);

fn number(block: &mut [u8], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn u32_at(block: &[u8], at: usize) -> usize {
    u32::from_le_bytes(block[at..at + 4].try_into().unwrap()) as usize
}

/// The offset of the message's record, after the record of its body.
fn message_record(block: &[u8]) -> usize {
    let length = u32_at(block, BATCH_HEADER);
    BATCH_HEADER + RECORD_HEADER + length.next_multiple_of(8)
}

/// Each field of the format, and whole sectors.
const HURTS: &[(&str, Hurt)] = &[
    ("batch magic", |block| block[0] ^= 1),
    ("batch length 0", |block| number(block, 4, 0)),
    ("batch length 2^32-1", |block| number(block, 4, u32::MAX)),
    ("batch length beyond the segment", |block| number(block, 4, 2 << 20)),
    ("batch sequence", |block| block[8] ^= 0x10),
    ("batch durable", |block| block[17] ^= 0x10),
    ("batch epoch", |block| block[24] ^= 1),
    ("batch nonce", |block| block[33] ^= 0x80),
    ("batch records 2^32-1", |block| number(block, 48, u32::MAX)),
    ("batch slot", |block| block[52] ^= 1),
    ("batch checksum", |block| block[57] ^= 4),
    ("record length 0", |block| number(block, 64, 0)),
    ("record length 2^32-1", |block| number(block, 64, u32::MAX)),
    ("record length beyond the batch", |block| number(block, 64, 5000)),
    ("record sequence", |block| block[72] ^= 1),
    ("record epoch", |block| block[80] ^= 1),
    ("record kind", |block| block[88] ^= 3),
    ("record checksum", |block| block[92] ^= 1),
    ("body", |block| block[700] ^= 0x20),
    ("queue id", |block| block[message_record(block) + 32] ^= 1),
    ("transaction", |block| block[message_record(block) + 41] ^= 1),
    ("bytes of the body", |block| block[message_record(block) + 56] ^= 1),
    ("bytes of the prefix", |block| block[message_record(block) + 64] ^= 1),
    ("number of chunks", |block| {
        let at = message_record(block) + 68;
        number(block, at, u32::MAX);
    }),
    ("place of the chunk", |block| block[message_record(block) + 76] ^= 8),
    ("recipient", |block| {
        let at = message_record(block);
        let place = find(&block[at..], b"@sink.test").unwrap();
        block[at + place - 1] ^= 1;
    }),
    ("a sector of zeros", |block| block[SECTOR * 2..SECTOR * 3].fill(0)),
    ("a block of zeros", |block| block.fill(0)),
];

fn hurt(spool: &Path, token: &str, hurt: Hurt) {
    let (segment, at) = batch_of(spool, token);
    let file = fs::OpenOptions::new().read(true).write(true).open(segment).unwrap();
    let mut block = vec![0; BLOCK];
    file.read_exact_at(&mut block, at as u64).unwrap();
    hurt(&mut block);
    file.write_all_at(&block, at as u64).unwrap();
}

/// Waits until all promised messages have arrived, except these.
fn all_but(rig: &mut Rig, hit: &[String]) -> Vec<String> {
    let sink = rig.open_sink();
    let missing = || rig.compare(&sink.mails()).0;
    until("what was not hit", || missing().iter().all(|token| hit.contains(token)).then_some(()));
    missing()
}

#[test]
fn s130_s131_s132_s134_damage_in_any_field_costs_at_most_its_own_message_and_is_reported() {
    let mut rig = Rig::usual();
    let mut hit = Vec::new();
    for _ in HURTS {
        // Each damaged message is between two undamaged ones. The last promise makes all earlier ones known.
        rig.promise(ONE_BLOCK);
        hit.push(rig.promise(ONE_BLOCK));
    }
    let (misdirected, source) = (rig.promise(ONE_BLOCK), rig.promise(ONE_BLOCK));
    rig.promise_many(3, ONE_BLOCK);
    rig.daemon.kill();
    for ((_, how), token) in HURTS.iter().zip(&hit) {
        hurt(&rig.spool(), token, *how);
    }
    // A write to the wrong place: the block of another message, correct in everything but its place.
    let (from, at) = batch_of(&rig.spool(), &source);
    let block = fs::read(from).unwrap()[at..at + BLOCK].to_vec();
    let (to, at) = batch_of(&rig.spool(), &misdirected);
    fs::OpenOptions::new().write(true).open(to).unwrap().write_all_at(&block, at as u64).unwrap();
    hit.push(misdirected);
    let check = rig.daemon.command(&["spool", "check"]);
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(!check.status.success() && said.contains("DAMAGED"), "{said}");
    rig.daemon.start_again();
    rig.daemon.wait_for_log(&["spool damaged"]);
    let lost = all_but(&mut rig, &hit);
    println!("{} hit, {} of them lost; of the others enough was right", hit.len(), lost.len());
    // Messages whose bytes were damaged cannot have arrived as they were sent, and `compare` has seen none.
    assert!(lost.len() >= 5, "the damage was not where it was meant to be: {lost:?}");
    // The remains of the damaged messages are held for an operator, who can delete them.
    let left = rig.daemon.queued();
    assert!(left <= hit.len() as u64, "{left}");
    let delete = rig.daemon.command(&["queue", "delete", "--yes", "--recipient", "*"]);
    assert!(delete.status.success(), "{}", String::from_utf8_lossy(&delete.stderr));
    rig.until_taken();
    rig.wait_for_empty_queue();
}

/// One message is written and not synced when the mailer dies, so it was not promised. Then the loss of power
/// takes some of its sectors.
#[test]
fn s127_s128_a_torn_tail_is_dropped_without_an_alarm_and_all_that_was_promised_comes() {
    if !can_trace() {
        return;
    }
    // Few outcomes, so that the first commit that hangs is that of the message, or the second one.
    let tables = "[retry]\nfirst = \"1h\"\nlongest = \"1h\"\n".to_string();
    let mut rig = Rig::start(Setup { tables, ..Setup::default() });
    rig.promise_many(5, ONE_BLOCK);
    let strace = rig.inject("commit-0", &["fdatasync:delay_enter=10000000"]);
    let torn = format!("{};", token("torn"));
    let word = torn.trim_end_matches(';');
    let mut client =
        Client::in_data(rig.daemon.port, "a@client.test", &format!("{word}@sink.test"));
    client.send(format!("Subject: {torn}\r\n\r\n{}.\r\n", crate::rig::body(&torn, ONE_BLOCK)));
    let written = |path: &PathBuf| find(&fs::read(path).unwrap(), torn.as_bytes()).is_some();
    until("the write", || segments(&rig.spool()).iter().any(written).then_some(()));
    assert!(client.is_silent(Duration::from_millis(50)), "promised before the sync");
    rig.daemon.kill();
    drop(strace);
    let spool = rig.spool();
    let tears: [(&str, Hurt); 6] = [
        ("nothing survived", |block| block.fill(0)),
        ("all but the first sector", |block| block[..SECTOR].fill(0)),
        ("the first sector alone", |block| block[SECTOR..].fill(0)),
        ("every other sector", |block| {
            block.chunks_mut(2 * SECTOR).for_each(|pair| pair[..SECTOR].fill(0));
        }),
        ("old bytes in a hole", |block| block[3 * SECTOR..4 * SECTOR].fill(0x55)),
        ("all of it", |_| {}),
    ];
    for (number, (what, tear)) in tears.into_iter().enumerate() {
        let state = rig.daemon.directory.join(format!("torn-{number}"));
        fs::create_dir(&state).unwrap();
        let copy = state.join("spool");
        run("cp", &["-a", spool.to_str().unwrap(), copy.to_str().unwrap()]);
        hurt(&copy, &torn, tear);
        let mut again = Rig::start(Setup { state: Some(state), ..Setup::default() });
        again.promised_as(&rig);
        again.open_sink();
        again.drain();
        assert!(!again.daemon.log().contains("damaged"), "{what}: {}", again.daemon.log());
        let came = again.open_sink().with(&torn).len();
        // A complete message may be delivered: its client got no reply and will send it again.
        assert!(came == 0 || what == "all of it", "{what}: {came}");
    }
}

/// Size of a body of which five fill a segment.
const LARGE: usize = 180_000;

#[test]
fn s133_missing_cut_and_strange_files_stop_nobody_and_are_reported_and_left_alone() {
    let mut rig = Rig::usual();
    let mut hit = Vec::new();
    for _ in 0..24 {
        hit.push(rig.promise(LARGE));
    }
    rig.promise_many(3, ONE_BLOCK);
    rig.daemon.kill();
    let spool = rig.spool();
    let used = segments(&spool);
    let has =
        |path: &PathBuf, token: &String| find(&fs::read(path).unwrap(), token.as_bytes()).is_some();
    let (missing, cut) = (&used[1], &used[2]);
    hit.retain(|token| has(missing, token) || has(cut, token));
    assert!((4..20).contains(&hit.len()), "{}", hit.len());
    fs::remove_file(missing).unwrap();
    fs::OpenOptions::new().write(true).open(cut).unwrap().set_len(400_000).unwrap();
    let outside = rig.daemon.directory.join("outside");
    fs::write(&outside, "not ours").unwrap();
    fs::write(spool.join("notes.txt"), "a stranger").unwrap();
    std::os::unix::fs::symlink(&outside, spool.join("segment-00000040")).unwrap();
    run("mkfifo", &[spool.join("segment-00000041").to_str().unwrap()]);
    fs::create_dir(spool.join("segment-00000042")).unwrap();
    rig.daemon.start_again();
    let cut = cut.file_name().unwrap().to_str().unwrap();
    rig.daemon.wait_for_log(&["spool damaged", cut]);
    for name in ["notes.txt", "segment-00000040", "segment-00000041", "segment-00000042"] {
        rig.daemon.wait_for_log(&[name, "none of ours"]);
    }
    let lost = all_but(&mut rig, &hit);
    println!("{} in the two segments, {} of them lost", hit.len(), lost.len());
    rig.until_taken();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "not ours");
    assert_eq!(fs::read_to_string(spool.join("notes.txt")).unwrap(), "a stranger");
    assert!(fs::symlink_metadata(spool.join("segment-00000040")).unwrap().is_symlink());
}

#[test]
fn s134_a_segment_that_is_there_twice_delivers_nothing_twice() {
    let mut rig = Rig::usual();
    rig.promise_many(30, ONE_BLOCK);
    rig.daemon.stop();
    let spool = rig.spool();
    for (number, segment) in segments(&spool).iter().take(2).enumerate() {
        let copy = spool.join(format!("segment-{:08}", 50 + number));
        run("cp", &["-a", segment.to_str().unwrap(), copy.to_str().unwrap()]);
    }
    rig.daemon.start_again();
    rig.daemon.wait_for_log(&["segment-00000050", "none of ours"]);
    assert_eq!(rig.drain(), 0);
}

#[test]
fn s143_a_newer_spool_is_refused_by_name_and_not_a_byte_of_it_is_changed() {
    let mut rig = Rig::usual();
    rig.promise_many(5, ONE_BLOCK);
    rig.daemon.stop();
    let spool = rig.spool();
    let format = fs::read_to_string(spool.join("format")).unwrap();
    fs::write(spool.join("format"), "posthaste spool 2\n").unwrap();
    let contents = || -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(&spool).unwrap().flatten().map(|entry| entry.path());
        entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    };
    let before = contents();
    let said = rig.refuses_to_start();
    assert!(said.contains("format 2") && said.contains("newer"), "{said}");
    assert!(contents() == before, "something was changed");
    fs::write(spool.join("format"), format).unwrap();
    rig.daemon.start_again();
    assert_eq!(rig.drain(), 0);
}

/// The spool is read and not mapped. A file that is truncated under the running mailer causes a read error and
/// not a SIGBUS.
#[test]
fn s145_a_segment_cut_short_under_the_running_mailer_costs_its_messages_and_kills_nobody() {
    let mut rig = Rig::usual();
    let mut hit: Vec<_> = (0..8).map(|_| rig.promise(LARGE)).collect();
    rig.promise_many(20, ONE_BLOCK);
    rig.restart();
    let queue = rig.queue();
    let first = &segments(&rig.spool())[0];
    hit.retain(|token| find(&fs::read(first).unwrap(), token.as_bytes()).is_some());
    assert!(!hit.is_empty());
    fs::OpenOptions::new().write(true).open(first).unwrap().set_len(300_000).unwrap();
    let lost = all_but(&mut rig, &hit);
    println!("{} in the segment, {} of them lost", hit.len(), lost.len());
    rig.until_taken();
    assert_eq!(rig.queue(), queue, "the queue process has died");
}
