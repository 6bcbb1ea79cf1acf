//! Clients that wait for credit: at DATA, within a body, at its end.
//!
//! Must never depend on how much credit one piece costs.

use super::*;

/// A piece of a body that fills the session's chunk.
fn piece() -> String {
    format!("{}\r\n", "x".repeat(62)).repeat(1 << 10)
}

/// A client whose body has used up a small credit, and that is not read from.
fn starved(bench: &mut Bench) -> Peer {
    bench.connect_queue(1_000);
    let mut peer = bench.connect_at_body(FRIEND);
    bench.say(&mut peer, &piece());
    assert_eq!(peer.client.read_bytes_max(&bench.gateway), 0);
    peer
}

#[test]
fn data_without_a_queue_process_is_deferred_after_ten_seconds() {
    let mut bench = Bench::with(1 << 20);
    let mut peer = bench.connect(FRIEND);
    bench.say(&mut peer, &format!("{PATHS}DATA\r\n"));
    assert_eq!((peer.hear().as_str(), bench.wakeup(&peer)), ("250 250", Some(secs(10))));
    assert_eq!(peer.client.read_bytes_max(&bench.gateway), 0);
    bench.pass_for(&mut peer, secs(9));
    assert_eq!(peer.hear(), "");
    bench.pass_for(&mut peer, secs(1));
    assert_eq!(peer.hear(), "451");
    bench.say(&mut peer, "QUIT\r\n");
    assert_eq!(peer.hear(), "221");
}

#[test]
fn data_is_answered_when_a_queue_process_comes() {
    let mut bench = Bench::with(1 << 20);
    let mut peer = bench.connect(FRIEND);
    bench.say(&mut peer, &format!("{PATHS}DATA\r\n"));
    peer.hear();
    bench.pass_for(&mut peer, secs(9));
    bench.connect_queue(1 << 20);
    bench.run(&mut peer);
    assert_eq!(peer.hear(), "354");
}

#[test]
fn a_client_without_credit_is_read_from_again_when_credit_comes() {
    let mut bench = Bench::with(1 << 20);
    let mut peer = starved(&mut bench);
    assert_eq!(bench.wakeup(&peer), Some(COMMIT_TIMEOUT));
    bench.pass_for(&mut peer, COMMIT_TIMEOUT - secs(1));
    assert_eq!(bench.take_staged(), 1, "its client is woken");
    bench.run(&mut peer);
    bench.say(&mut peer, ".\r\n");
    bench.keep_last();
    bench.run(&mut peer);
    assert_eq!(peer.hear(), "250");
}

#[test]
fn a_body_that_waits_for_credit_too_long_ends_with_421() {
    let mut bench = Bench::with(1 << 20);
    let mut peer = starved(&mut bench);
    bench.pass_for(&mut peer, COMMIT_TIMEOUT);
    assert!(peer.hear_last().starts_with("421 4.3.0"));
    assert_eq!((bench.unstaged.len(), peer.outputs.pop()), (1, Some(SessionOutput::CloseWrite)));
}

/// The next piece was read together with the one before it.
#[test]
fn a_piece_that_waits_for_credit_is_handed_over_once() {
    let mut bench = Bench::with(1 << 20);
    let mut first = starved(&mut bench);
    let mut second = bench.connect(FRIEND);
    bench.say(&mut second, &format!("{PATHS}DATA\r\n"));
    assert_eq!(second.hear(), "250 250", "there is no credit");
    bench.take_staged();
    bench.run(&mut first);
    bench.run(&mut second);
    assert_eq!(second.hear(), "354");
    // Both may send now; who is first spends all the credit.
    bench.say(&mut first, &piece());
    bench.say(&mut second, &piece());
    assert!(bench.staged.iter().all(|(transaction, _)| transaction.number == 1));
    bench.take_staged();
    bench.run(&mut second);
    let [(transaction, bytes)] = bench.staged[..] else { panic!("{:?}", bench.staged) };
    assert_eq!((transaction.number, bytes), (2, 64 << 10));
}

#[test]
fn a_piece_that_never_gets_credit_is_not_handed_over() {
    let mut bench = Bench::with(1 << 20);
    let mut first = starved(&mut bench);
    let mut second = bench.connect(FRIEND);
    bench.say(&mut second, &format!("{PATHS}DATA\r\n"));
    bench.take_staged();
    bench.run(&mut second);
    bench.run(&mut first);
    bench.say(&mut first, &piece());
    second.hear();
    bench.say(&mut second, &piece());
    bench.pass_for(&mut second, COMMIT_TIMEOUT);
    assert!(second.hear_last().starts_with("421 4.3.0"));
    assert!(bench.staged.iter().all(|(transaction, _)| transaction.number == 1));
    // Queue has heard of it nothing but its end.
    bench.release(second);
    assert!(bench.unstaged.iter().all(|transaction| transaction.number != 1));
}

#[test]
fn the_end_of_a_body_without_credit_is_refused_and_the_session_goes_on() {
    let mut bench = Bench::with(1 << 20);
    bench.connect_queue(1_000);
    let mut peer = bench.connect_at_body(FRIEND);
    let mut other = bench.connect_at_body(FRIEND);
    bench.say(&mut other, &piece());
    bench.say(&mut peer, "Subject: x\r\n\r\n.\r\n");
    assert_eq!((peer.hear().as_str(), bench.wakeup(&peer)), ("", Some(COMMIT_TIMEOUT)));
    bench.pass_for(&mut peer, COMMIT_TIMEOUT);
    assert_eq!(peer.hear(), "451");
    assert!(bench.accepted.is_empty());
    bench.take_staged();
    bench.run(&mut other);
    bench.say(&mut peer, &format!("{PATHS}DATA\r\n"));
    assert_eq!(peer.hear(), "250 250 354");
}

#[test]
fn credit_reaches_the_next_client_when_the_first_has_gone() {
    let mut bench = Bench::with(1 << 20);
    let mut waiting: Vec<Peer> = (0..3).map(|_| bench.connect(FRIEND)).collect();
    for peer in &mut waiting {
        bench.say(peer, &format!("{PATHS}DATA\r\n"));
        peer.hear();
    }
    bench.release(waiting.remove(0));
    bench.connect_queue(1 << 20);
    for peer in &mut waiting {
        bench.run(peer);
        assert_eq!(peer.hear(), "354");
    }
}
