//! Large bodies.

use super::*;
use link::send::CHUNK_BYTES_MAX;

const CHUNK: u64 = CHUNK_BYTES_MAX as u64;

#[test]
fn no_more_messages_are_fetched_at_once_than_the_bound_allows() {
    let mut bench = own();
    for id in 1..=4 {
        bench.large(id, &["a"], 2 * CHUNK);
    }
    let asked =
        |bench: &Bench| bench.fetches.iter().map(|(id, at, _)| (*id, *at)).collect::<Vec<_>>();
    assert_eq!(asked(&bench), vec![(1, 0), (2, 0)]);
    bench.answer(1);
    assert_eq!(asked(&bench), vec![(2, 0), (1, CHUNK)]);
    bench.answer(1);
    assert_eq!(asked(&bench), vec![(2, 0), (3, 0)]);
    bench.damage(2);
    assert_eq!(asked(&bench), vec![(3, 0), (4, 0)]);
    assert_eq!(bench.delivering(), [(1, "a")]);
    assert_eq!(bench.told(), [codes(2, &["4.3.0"])]);
}

#[test]
fn the_last_chunk_is_as_long_as_the_rest() {
    let mut bench = own();
    bench.large(1, &["a"], CHUNK + 10);
    bench.answer(1);
    assert_eq!(bench.fetches, [(1, CHUNK, 10)]);
    bench.answer(1);
    let worker = bench.worker_of("a");
    assert_eq!(bench.batches[&worker][0].message.len() as u64, CHUNK + 10);
}

#[test]
fn a_new_queue_process_is_asked_again_for_what_the_former_one_did_not_answer() {
    let mut bench = own();
    bench.large(1, &["a"], 3 * CHUNK);
    bench.answer(1);
    assert_eq!(bench.fetches, [(1, CHUNK, CHUNK_BYTES_MAX)]);
    bench.connect();
    assert_eq!(bench.fetches, [(1, CHUNK, CHUNK_BYTES_MAX)]);
    bench.answer(1);
    bench.answer(1);
    let worker = bench.worker_of("a");
    assert_eq!(bench.batches[&worker][0].message.len() as u64, 3 * CHUNK);
}

#[test]
fn a_chunk_that_comes_twice_counts_once() {
    let mut bench = own();
    bench.large(1, &["a"], 2 * CHUNK);
    bench.chunk(1, 0, CHUNK as usize);
    bench.chunk(1, 0, CHUNK as usize);
    bench.chunk(1, CHUNK, CHUNK as usize);
    bench.chunk(1, CHUNK, CHUNK as usize);
    bench.chunk(9, 0, 1);
    let worker = bench.worker_of("a");
    assert_eq!(bench.batches[&worker][0].message.len() as u64, 2 * CHUNK);
    bench.deliver("a");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
}

#[test]
fn while_a_piece_is_being_staged_a_new_queue_process_is_asked_for_nothing() {
    let mut bench = own();
    bench.stages = false;
    bench.large(1, &["a"], 2 * CHUNK);
    bench.answer(1);
    bench.connect();
    assert_eq!(bench.fetches, []);
    bench.stage_next();
    bench.run();
    assert_eq!(bench.fetches, [(1, CHUNK, CHUNK_BYTES_MAX)]);
    bench.answer(1);
    bench.stage_next();
    bench.run();
    bench.deliver("a");
    assert_eq!(bench.told(), [codes(1, &["2.0.0"])]);
}

#[test]
fn a_body_that_is_damaged_or_too_short_defers_each_recipient_and_leaves_nothing_staged() {
    for too_short in [false, true] {
        let mut bench = own();
        bench.large(1, &["a", "b"], 2 * CHUNK);
        bench.answer(1);
        match too_short {
            true => bench.chunk(1, CHUNK, 0),
            false => bench.damage(1),
        }
        assert_eq!(bench.told(), [codes(1, &["4.3.0", "4.3.0"])]);
        assert!(bench.staged.is_empty());
    }
}

#[test]
fn a_message_that_cannot_be_staged_is_deferred_and_the_next_one_is_fetched() {
    let mut bench = own();
    bench.stages = false;
    for id in 1..=3 {
        bench.large(id, &["a", "b"], 2 * CHUNK);
    }
    bench.answer(1);
    let full = Reply::new(452, Enhanced(4, 3, 1), "disk is full");
    bench.handle(Input::StageFailed { attempt: 1, reply: full });
    assert_eq!(bench.told(), [codes(1, &["4.3.1", "4.3.1"])]);
    assert_eq!(bench.fetches.last(), Some(&(3, 0, CHUNK_BYTES_MAX)));
    // A chunk that comes after that is nobody's.
    bench.chunk(1, CHUNK, 10);
    assert!(bench.told().is_empty());
}
