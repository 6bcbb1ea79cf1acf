//! The end of the process, in each state of an attempt.

use super::*;

#[test]
fn a_process_without_work_is_drained_at_once_and_queue_is_told() {
    let mut bench = own();
    assert!(!bench.machine.is_drained());
    bench.handle(Input::Drain);
    assert!(bench.machine.is_drained() && bench.drains_told);
}

#[test]
fn a_drain_waits_for_no_body_and_begins_no_delivery() {
    let mut bench = own();
    bench.large(1, &["a"], 1 << 20);
    bench.handle(Input::Drain);
    assert!(bench.machine.is_drained());
    bench.small(2, &["a"]);
    bench.answer(1);
    assert!(bench.delivering().is_empty() && bench.machine.is_drained());
    // Without a result both are made again.
    assert!(bench.told().is_empty());
}

#[test]
fn a_message_that_is_whole_only_after_the_drain_goes_to_none_of_its_recipients() {
    for to in [["ann", "nobody", "bob"], ["nobody", "ann", "bob"]] {
        let mut bench = accounts();
        bench.large(1, &to, INLINE_BYTES_MAX + 1);
        bench.handle(Input::Drain);
        bench.answer(1);
        // Another process delivers it to all: who had it from here would have it twice.
        assert!(bench.delivering().is_empty() && bench.ends.is_empty(), "{to:?}");
        assert!(bench.machine.is_drained() && bench.told().is_empty(), "{to:?}");
    }
}

#[test]
fn a_drain_waits_for_the_batches_under_way_and_tells_their_results() {
    let mut bench = own();
    bench.small(1, &["a"]);
    bench.small(2, &["a"]);
    bench.handle(Input::Drain);
    assert!(!bench.machine.is_drained());
    bench.deliver("a");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
    assert!(bench.machine.is_drained() && bench.delivering().is_empty());
}

#[test]
fn a_drain_ends_an_attempt_of_which_a_recipient_has_the_message() {
    let mut bench = own();
    bench.small(1, &["a", "b", "c", "d", "e"]);
    bench.small(2, &["f"]);
    bench.handle(Input::Drain);
    bench.deliver("a");
    assert_eq!(bench.delivering(), [(1, "d"), (1, "e")]);
    assert!(!bench.machine.is_drained());
    bench.deliver("e");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"; 5])]);
    assert!(bench.machine.is_drained());
}

#[test]
fn a_drain_whose_time_is_over_tells_the_outcomes_that_are_known() {
    let mut bench = accounts();
    bench.small(1, &["ann", "bob", "nobody"]);
    bench.small(2, &["ann"]);
    bench.deliver("bob");
    bench.handle(Input::Drain);
    assert_eq!(bench.wait(), LIMITS.drain_time_max);
    assert!(bench.machine.is_drained());
    let told = vec![(1, "2.0.0".to_owned()), (2, "5.1.1".to_owned())];
    assert_eq!(bench.told(), [(1, told)]);
}

#[test]
fn a_drain_with_a_worker_that_dies_ends_with_the_outcomes_of_its_batch() {
    let mut bench = accounts();
    bench.small(1, &["ann"]);
    bench.handle(Input::Drain);
    bench.die(bench.worker_of("ann"));
    assert_eq!(bench.told(), [codes(1, &["4.3.0"])]);
    assert!(bench.machine.is_drained());
}

#[test]
fn a_drain_without_a_stream_waits_for_one_while_results_are_not_recorded() {
    let mut bench = own();
    bench.small(1, &["a"]);
    bench.machine.handle(Input::Disconnected, bench.now);
    bench.machine.handle(Input::Drain, bench.now);
    bench.deliver("a");
    assert!(!bench.machine.is_drained());
    bench.results.clear();
    bench.connect();
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
    assert!(bench.drains_told && bench.machine.is_drained());
}

#[test]
fn a_second_drain_gives_no_more_time() {
    let mut bench = own();
    bench.small(1, &["a"]);
    bench.handle(Input::Drain);
    bench.pass(Duration::from_secs(5));
    bench.handle(Input::Drain);
    assert_eq!(bench.wait(), LIMITS.drain_time_max - Duration::from_secs(5));
    assert!(bench.machine.is_drained());
}

#[test]
fn a_queue_process_that_comes_during_a_drain_is_told_and_its_attempts_are_left_alone() {
    let mut bench = own();
    bench.small(1, &["a"]);
    bench.handle(Input::Drain);
    bench.drains_told = false;
    bench.connect();
    assert!(bench.drains_told);
    bench.small(2, &["a"]);
    bench.deliver("a");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
    assert!(bench.machine.is_drained());
}
