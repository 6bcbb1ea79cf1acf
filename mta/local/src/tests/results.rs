//! Each recipient gets one outcome, each attempt one result.

use super::*;

#[test]
fn a_result_is_told_with_its_last_recipient_s_outcome() {
    let mut bench = accounts();
    bench.small(1, &["ann", "bob", "nobody", "../x"]);
    assert_eq!(bench.told(), []);
    bench.deliver("bob");
    assert_eq!(bench.told(), []);
    bench.deliver("ann");
    assert_eq!(bench.told(), [codes(1, &["2.0.0", "2.0.0", "5.1.1", "5.1.1"])]);
    let logged: Vec<&str> = bench.ends.iter().map(|(who, _)| who.as_str()).collect();
    assert_eq!(logged, ["../x", "nobody", "bob", "ann"]);
}

#[test]
fn a_result_is_told_once_and_to_a_new_queue_process_only_until_it_is_recorded() {
    let mut bench = own();
    bench.small(1, &["a"]);
    bench.small(2, &["a"]);
    bench.deliver("a");
    bench.deliver("a");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"]), codes(2, &["2.0.0"])]);
    bench.queue.recorded(vec![1]);
    bench.run();
    assert_eq!(bench.told(), []);
    bench.connect();
    assert_eq!((bench.told(), &bench.under_way[..]), (vec![codes(2, &["2.0.0"])], &[2][..]));
    bench.queue.recorded(vec![2]);
    bench.run();
    bench.connect();
    assert_eq!((bench.told(), bench.under_way.len()), (vec![], 0));
}

#[test]
fn an_attempt_without_recipients_has_its_result_at_once() {
    let mut bench = own();
    bench.small(1, &[]);
    assert_eq!(bench.told(), [codes(1, &[])]);
}

#[test]
fn a_result_that_is_known_without_a_stream_is_told_over_the_next_one() {
    let mut bench = own();
    bench.small(1, &["a"]);
    bench.machine.handle(Input::Disconnected, bench.now);
    bench.deliver("a");
    bench.results.clear();
    bench.connect();
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
}

#[test]
fn what_queue_says_wrongly_ends_the_stream_and_loses_nothing() {
    let mut bench = own();
    bench.small(1, &["a"]);
    bench.machine.handle(Input::Received(&mut BytesMut::from(&[0xfe; 9][..])), bench.now);
    assert!(matches!(bench.machine.poll(bench.now), Some(Output::HangUp(_))));
    bench.connect();
    bench.deliver("a");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
}
