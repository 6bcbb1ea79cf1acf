//! The end of the process, for a client in each state.
//!
//! Must never end a transaction that its client can still finish.

use super::*;

#[test]
fn a_client_without_a_transaction_is_told_421() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(STRANGER);
    bench.shut_down();
    bench.exchange();
    assert_eq!(bench.alarms, [Output::WakeAll]);
    bench.run(&mut peer);
    assert!(peer.hear_last().starts_with("421 4.3.2"));
    assert_eq!(peer.outputs, [SessionOutput::CloseWrite]);
    bench.hear(&mut peer, SessionInput::Eof);
    assert!(peer.closed);
    bench.release(peer);
    assert_eq!(bench.gateway.open_connections(), 0);
}

#[test]
fn a_transaction_is_finished_and_then_the_client_is_told() {
    let mut bench = Bench::new();
    let mut peer = bench.connect(STRANGER);
    bench.say(&mut peer, "MAIL FROM:<a@far.test>\r\n");
    bench.shut_down();
    bench.run(&mut peer);
    bench.say(&mut peer, "RCPT TO:<ann@local.test>\r\nDATA\r\n");
    bench.say(&mut peer, "x\r\n.\r\n");
    assert_eq!(peer.hear(), "250 250 354");
    bench.keep_last();
    bench.run(&mut peer);
    assert_eq!(peer.hear(), "250 421");
}

#[test]
fn who_waits_for_credit_or_for_an_answer_goes_on_waiting() {
    let mut bench = Bench::with(1 << 20);
    let mut at_data = bench.connect(STRANGER);
    bench.say(&mut at_data, &format!("{PATHS}DATA\r\n"));
    bench.shut_down();
    bench.run(&mut at_data);
    assert_eq!(at_data.hear(), "250 250");
    bench.connect_queue(1 << 20);
    bench.run(&mut at_data);
    assert_eq!(at_data.hear(), "354");
    bench.say(&mut at_data, "x\r\n.\r\n");
    bench.run(&mut at_data);
    bench.refuse_last(Refusal::Full);
    bench.run(&mut at_data);
    assert_eq!(at_data.hear(), "452 421");
}

/// A connection that comes in the last moment.
#[test]
fn a_client_that_connects_during_the_shutdown_is_told_421() {
    let mut bench = Bench::new();
    bench.shut_down();
    let mut peer = bench.try_connect(STRANGER).unwrap();
    assert_eq!(peer.hear(), "220 421");
}

#[test]
fn the_last_replies_have_no_longer_than_a_goodbye() {
    for deaf_before in [true, false] {
        let mut bench = Bench::new();
        let mut peer = bench.connect(STRANGER);
        if deaf_before {
            peer.deaf = true;
            bench.say(&mut peer, "QUIT\r\n");
            assert_eq!(bench.wakeup(&peer), Some(secs(300)));
        }
        bench.shut_down();
        peer.deaf = true;
        bench.run(&mut peer);
        assert_eq!(bench.wakeup(&peer), Some(Duration::from_millis(500)));
        bench.pass_for(&mut peer, Duration::from_millis(500));
        assert_eq!(peer.outputs, [SessionOutput::Close]);
    }
}
