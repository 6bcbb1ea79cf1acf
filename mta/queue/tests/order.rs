//! The records of one message reach the log in order, whatever must be read in between.

#![allow(clippy::unwrap_used)]

mod bench;

use bench::{Bench, envelope, report};
use mail::{Enhanced, Outcome};

/// A message to two recipients, one of which is refused. The read for the notice has not ended.
fn refused() -> Bench {
    let mut bench = Bench::new();
    bench.send(1, &["a@a.test", "b@b.test"]);
    bench.send(2, &["c@c.test"]); // replaces the first message in the cache
    bench.answer("a@a.test", Outcome::Failed(report(550, Enhanced(5, 1, 1))));
    assert_eq!(bench.reads.len(), 1);
    bench
}

#[test]
fn a_message_does_not_end_before_the_notice_that_waits_for_a_read_is_stored() {
    let mut bench = refused();
    let report = report(250, Enhanced(2, 0, 0));
    bench.answer("b@b.test", Outcome::Delivered { report, relayed: false });
    let first = ("sender@from.test".to_string(), vec![0, 1]);
    assert_eq!(
        bench.after_a_cut()[0],
        first,
        "neither the end of the message nor the failure is durable"
    );
    bench.read();
    let senders: Vec<_> = bench.after_a_cut().into_iter().map(|(sender, _)| sender).collect();
    assert_eq!(senders, ["sender@from.test", ""], "the second message and the notice");
}

#[test]
fn a_durable_result_is_told_with_the_next_attempt_or_after_a_while() {
    let mut bench = Bench::new();
    let delivered =
        || Outcome::Delivered { report: report(250, Enhanced(2, 0, 0)), relayed: false };
    bench.send(1, &["a@a.test"]);
    let first = bench.say("a@a.test", delivered());
    bench.run_for(50);
    assert_eq!(bench.after_a_cut(), [], "the result is durable");
    assert!(bench.sender.is_open(first), "no frame was sent for the result alone");
    bench.receiver.accept(2, envelope(&["b@b.test"]), b"Subject: x\r\n\r\nbody\r\n");
    bench.run_for(30);
    assert!(!bench.sender.is_open(first), "the next attempt tells of the result");
    let second = bench.say("b@b.test", delivered());
    bench.run();
    assert!(!bench.sender.is_open(second), "without another attempt the result is told alone");
}

#[test]
fn a_snapshot_knows_nothing_of_a_failure_whose_notice_waits_for_a_read() {
    let mut bench = refused();
    let before = bench.queue.usage().snapshots;
    for number in 3..12 {
        bench.send(number, &["d@d.test"]);
    }
    assert_eq!(bench.after_a_cut()[0].1, [0, 1], "the failure is not known");
    bench.read();
    for number in 12..24 {
        bench.send(number, &["d@d.test"]);
    }
    assert!(bench.queue.usage().snapshots > before, "there are snapshots again");
    let found = bench.after_a_cut();
    assert_eq!(found[0].1, [1]);
    assert!(found.iter().any(|(sender, _)| sender.is_empty()), "the notice is there");
}
