//! Memory that is full: at connect, MAIL, RCPT, DATA and within a body. Connections above their limit.
//!
//! Must never end a session that is open.

use super::*;
use crate::{MESSAGE_BYTES_MIN, READ_BYTES_MAX, SESSION_BYTES_MIN};

/// Upper bound on what a session without a transaction counts with.
const SESSION_BYTES_MAX: usize = SESSION_BYTES_MIN + (1 << 10);

fn bound(bench: &mut Bench, bytes_max: usize) {
    let settings = Settings { session_memory_bytes_max: bytes_max as u64, ..bench.settings };
    bench.gateway.reload(policy(), settings);
}

#[test]
fn n099_a_connection_too_many_is_turned_away() {
    let mut bench = Bench::new();
    bench.listener.limits.connections_per_client = 1;
    let first = bench.connect(STRANGER);
    let turned_away = bench.try_connect(STRANGER).err().unwrap();
    let mut bytes = Vec::new();
    turned_away.encode(&mut bytes);
    assert_eq!(bytes, b"421 4.7.0 too many connections from your address\r\n");
    assert_eq!(bench.gateway.open_connections(), 1);
    bench.release(first);
    bench.connect(STRANGER);
}

#[test]
fn a_connection_without_room_is_told_421_and_counts_nothing() {
    let mut bench = Bench::with(3 * SESSION_BYTES_MAX as u64);
    let first = bench.connect(FRIEND);
    let _others = [bench.connect(FRIEND), bench.connect(FRIEND)];
    let refused = bench.try_connect(FRIEND).err().unwrap();
    assert_eq!((refused.code, refused.enhanced), (421, Some(mail::Enhanced(4, 3, 2))));
    assert_eq!(bench.gateway.open_connections(), 3);
    bench.release(first);
    bench.connect(FRIEND);
}

/// What a connection that is refused for its number took of the memory is given back.
#[test]
fn a_connection_above_the_limit_holds_no_memory() {
    let mut bench = Bench::with(2 * SESSION_BYTES_MAX as u64);
    bench.listener.limits.connections_max = 1;
    let _first = bench.connect(FRIEND);
    for _ in 0..3 {
        assert_eq!(bench.try_connect(FRIEND).err().unwrap().code, 421);
    }
    bench.listener.limits.connections_max = 2;
    bench.connect(FRIEND);
}

#[test]
fn mail_rcpt_and_data_without_room_are_deferred_with_452_and_the_session_goes_on() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(FRIEND);
    let _filler: Vec<Peer> = (0..40).map(|_| bench.connect(FRIEND)).collect();
    let full = |bench: &mut Bench| bound(bench, 40 * SESSION_BYTES_MIN);
    let free = |bench: &mut Bench| bound(bench, 10 << 20);
    for (before, command) in [
        ("", "MAIL FROM:<a@far.test>\r\n"),
        ("MAIL FROM:<a@far.test>\r\n", "RCPT TO:<ann@local.test>\r\n"),
        ("RCPT TO:<ann@local.test>\r\n", "DATA\r\n"),
    ] {
        free(&mut bench);
        if !before.is_empty() {
            bench.say(&mut peer, before);
            assert_eq!(peer.hear(), "250");
        }
        full(&mut bench);
        bench.say(&mut peer, command);
        assert_eq!(peer.hear_last(), "452 4.3.1 Insufficient system storage", "{command}");
    }
    free(&mut bench);
    bench.say(&mut peer, &format!("{PATHS}DATA\r\n"));
    assert_eq!(peer.hear(), "250 250 354");
}

#[test]
fn data_wants_room_for_a_piece_of_the_body() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(FRIEND);
    let _filler: Vec<Peer> = (0..40).map(|_| bench.connect(FRIEND)).collect();
    bench.say(&mut peer, PATHS);
    peer.hear();
    bound(&mut bench, 41 * SESSION_BYTES_MIN + READ_BYTES_MAX);
    bench.say(&mut peer, "DATA\r\n");
    assert_eq!(peer.hear(), "452");
    bench.say(&mut peer, PATHS);
    bound(&mut bench, 41 * SESSION_BYTES_MAX + READ_BYTES_MAX + (8 << 10));
    bench.say(&mut peer, "DATA\r\n");
    assert_eq!(peer.hear(), "250 250 354");
}

#[test]
fn a_body_without_room_is_read_and_dropped_and_refused_at_its_end() {
    let mut bench = Bench::new();
    let mut peer = bench.connect_at_body(FRIEND);
    let _filler: Vec<Peer> = (0..40).map(|_| bench.connect(FRIEND)).collect();
    let line = format!("{}\r\n", "x".repeat(998));
    bench.say(&mut peer, &line.repeat(70));
    assert_eq!(bench.staged.len(), 1);
    bound(&mut bench, 40 * SESSION_BYTES_MIN);
    bench.say(&mut peer, &line.repeat(70));
    assert_eq!((peer.hear().as_str(), bench.unstaged.len()), ("", 1));
    bound(&mut bench, 10 << 20);
    bench.say(&mut peer, &format!("{line}.\r\n"));
    assert_eq!(peer.hear(), "452");
    bench.say(&mut peer, "NOOP\r\n");
    assert_eq!((peer.hear().as_str(), bench.accepted.len()), ("250", 0));
}

/// Another message cannot have more recipients either: the client has to send it in two.
#[test]
fn recipients_that_no_memory_would_do_for_are_for_another_message() {
    let mut bench = Bench::with(MESSAGE_BYTES_MIN as u64);
    bench.connect_queue(1 << 20);
    let mut peer = bench.connect(FRIEND);
    bench.say(&mut peer, "MAIL FROM:<a@far.test>\r\n");
    let mut accepted = 0;
    let refused = loop {
        bench.say(&mut peer, &format!("RCPT TO:<r{accepted}@{}.test>\r\n", "d".repeat(50)));
        let reply = peer.hear_last();
        if !reply.starts_with("250") {
            break reply;
        }
        accepted += 1;
    };
    assert!(refused.starts_with("452 4.5.3") && accepted > 5, "{accepted} {refused}");
    bench.say(&mut peer, "DATA\r\n");
    assert_eq!(peer.hear(), "354");
}

#[test]
fn a_session_without_room_is_read_from_in_small_pieces() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(FRIEND);
    assert_eq!(peer.client.read_bytes_max(&bench.gateway), READ_BYTES_MAX);
    bound(&mut bench, SESSION_BYTES_MIN);
    assert_eq!(peer.client.read_bytes_max(&bench.gateway), 1 << 10);
}

#[test]
fn a_shortage_is_told_to_queue_and_to_the_log_and_then_nothing_is_looked_at() {
    let mut bench = Bench::new();
    bench.exchange();
    assert_eq!(bench.gateway.next_wakeup(), None, "all is well");
    let mut peer = bench.connect(FRIEND);
    bound(&mut bench, 0);
    bench.say(&mut peer, "MAIL FROM:<a@far.test>\r\n");
    bound(&mut bench, 10 << 20);
    let mut looks = 0;
    while let Some(at) = bench.gateway.next_wakeup() {
        bench.pass(at.since(bench.now.monotonic));
        looks += 1;
        assert!(looks < 100, "it never ends");
    }
    let short = |output: &Output| matches!(output, Output::MemoryShort(short) if short.refused > 0);
    assert_eq!(bench.alarms.iter().filter(|output| short(output)).count(), 1);
    let told = bench.queue.as_ref().unwrap().memory();
    assert_eq!((told.refused, told.shortage), (1, None));
}

#[test]
fn while_strangers_hold_much_each_client_is_looked_at_and_a_silent_one_makes_room() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(STRANGER);
    bench.say(&mut peer, PATHS);
    bound(&mut bench, SESSION_BYTES_MIN + 3_000);
    bench.pass_for(&mut peer, secs(5));
    assert!(bench.alarms.contains(&Output::WakeAll));
    bench.pass_for(&mut peer, secs(5));
    assert!(peer.hear_last().starts_with("421 4.4.2"));
}

#[test]
fn the_absence_of_a_queue_process_is_logged_every_minute() {
    let mut bench = Bench::with(1 << 20);
    (0..75).for_each(|_| bench.pass(secs(1)));
    let absent = [10, 70].map(|seconds| Output::QueueAbsent(secs(seconds)));
    assert_eq!(bench.alarms, absent);
}
