//! A message leaves as its client sent it, and its sender learns the outcome.

#![allow(clippy::unwrap_used)]

mod bench;

use bench::{Bench, envelope, report, settings, spool_settings};
use link::admin::{Action, Answer, Filter};
use link::receive::{ReceiverEvent, SessionMemory};
use link::send::Attempt;
use mail::{Enhanced, MessageId, Outcome, Refusal};
use std::time::Duration;
use world::Clock as _;
use world::Errno;
use world::sim::Call;

const HEADERS: &[u8] = b"Subject: x\r\nTo: a\r\n";

fn message(bytes: usize) -> Vec<u8> {
    let body = (0..bytes).map(|at| b'a' + (at % 23) as u8);
    HEADERS.iter().copied().chain(*b"\r\n").chain(body).collect()
}

fn deferred() -> Outcome {
    Outcome::Deferred(report(450, Enhanced(4, 2, 0)))
}

impl Bench {
    fn send_in_pieces(&mut self, number: u64, to: &str, bytes: &[u8], piece: usize) {
        let mut pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
        let last = pieces.pop().unwrap_or_default();
        pieces.iter().for_each(|piece| self.receiver.stage(number, piece));
        self.receiver.accept(number, envelope(&[to]), last);
        self.run();
    }

    /// Returns the message of an attempt: the bytes that came with it, or those that the process fetches.
    fn bytes_of(&mut self, attempt: &Attempt) -> Vec<u8> {
        if self.pieces.is_empty() {
            for offset in (0..attempt.body.bytes).step_by(10_000) {
                self.sender.fetch(attempt.id, attempt.message, offset, 10_000);
                self.run_for(5);
            }
        }
        self.pieces.drain(..).flat_map(|(_, _, bytes)| bytes).collect()
    }
}

#[test]
fn a_message_comes_out_as_it_came_in_from_memory_and_from_the_disk() {
    for (bytes, piece) in [(10, 1_000), (3_000, 700), (30_000, 30_000), (100_000, 9_000)] {
        let (mut bench, sent) = (Bench::new(), message(bytes));
        bench.reads_at_once = true;
        bench.send_in_pieces(1, "a@a.test", &sent, piece);
        for from in ["memory", "disk"] {
            let attempt = bench.attempts[0].clone();
            let got = bench.bytes_of(&attempt);
            let (prefix, body) = got.split_at(attempt.body.prefix_bytes as usize);
            assert!(prefix.starts_with(b"Received: "), "{bytes} from {from}");
            assert!(body == sent, "{bytes} from {from}");
            bench.answer("a@a.test", deferred());
            bench.send(2, &["b@b.test"]); // replaces the message in the cache
            bench.attempts.clear();
            bench.pieces.clear();
            bench.clock.advance(Duration::from_secs(3_600));
            bench.run();
        }
    }
}

#[test]
fn a_fetch_for_an_attempt_that_is_not_under_way_is_answered() {
    let mut bench = Bench::new();
    bench.sender.fetch(77, MessageId(1), 0, 10);
    bench.run();
    assert_eq!(bench.pieces.len(), 1);
}

#[test]
fn an_operator_sees_the_headers_of_a_message_and_nothing_of_its_body() {
    for bytes in [10, 30_000] {
        let mut bench = Bench::new();
        bench.reads_at_once = true;
        bench.send_in_pieces(1, "a@a.test", &message(bytes), 3_000);
        let id = bench.attempts[0].message;
        bench.queue.admin_show(1, id, bench.clock.now());
        bench.run();
        let Answer::Shown(shown) = &bench.answers[0] else { panic!("{:?}", bench.answers) };
        assert!(shown.headers.starts_with(b"Received: ") && shown.headers.ends_with(HEADERS));
    }
}

#[test]
fn a_list_of_ids_is_shown_page_by_page() {
    let mut bench = Bench::new();
    for number in 0..7 {
        bench.send(number, &[&format!("a@d{number}.test")]);
    }
    let ids: Vec<MessageId> = bench.attempts.iter().map(|attempt| attempt.message).collect();
    let filter = Filter { ids: ids.clone(), ..Filter::default() };
    let (mut seen, mut pages, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let answer = bench.queue.admin_list(&filter, after, 3, bench.clock.now());
        let Answer::Page(page) = answer else { panic!("{answer:?}") };
        pages.push(page.rows.len());
        seen.extend(page.rows.iter().map(|row| row.message));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((seen, pages), (ids, vec![3, 3, 1]));
}

#[test]
fn a_notice_is_sent_from_memory() {
    let mut bench = Bench::with(
        queue::Settings { message_cache_bytes_max: 1 << 20, ..settings() },
        spool_settings(),
    );
    bench.send(1, &["a@a.test"]);
    bench.pieces.clear();
    bench.answer("a@a.test", Outcome::Failed(report(550, Enhanced(5, 1, 1))));
    let notice = bench.attempts[0].clone();
    assert_eq!(notice.recipients[0].1.address.to_string(), "sender@from.test");
    assert!(bench.reads.is_empty());
    assert_eq!(bench.bytes_of(&notice).len() as u64, notice.body.bytes);
}

#[test]
fn a_client_hears_of_each_refusal_and_it_is_counted() {
    let cases = [
        (true, 1 << 20, Refusal::Broken), // when the message should become durable
        (false, 2_000, Refusal::Busy),    // at the end of the message
        (false, 500, Refusal::Busy),      // at the first piece of the message
    ];
    for (disk_fails, staged_bytes_max, refusal) in cases {
        let spool = spool::Settings { staged_bytes_max, ..spool_settings() };
        let mut bench = Bench::with(settings(), spool);
        bench.disk.fail_always(Call::Sync, disk_fails.then_some(Errno::IO));
        bench.send_in_pieces(1, "a@a.test", &message(2_500), 1_500);
        bench.run_for(2_000);
        assert_eq!(bench.heard, [ReceiverEvent::Refused { number: 1, refusal }]);
        let counters = bench.queue.counters();
        assert_eq!((counters.accepted, counters.refused), (0, 1));
    }
}

#[test]
fn the_memory_of_sessions_is_known_for_each_receiving_process() {
    let mut bench = Bench::new();
    bench.run();
    let memory = SessionMemory { refused: 5, ..SessionMemory::default() };
    assert!(bench.receiver.tell_memory(memory));
    bench.run();
    assert_eq!(bench.queue.receiver_memory().collect::<Vec<_>>(), [(0, memory)]);
}

#[test]
fn a_deleted_message_is_unknown_to_an_operator() {
    let mut bench = Bench::new();
    bench.send(1, &["a@a.test"]);
    let (id, now) = (bench.attempts[0].message, bench.clock.now());
    bench.queue.admin_act(1, Action::Delete, &Filter::default(), None, false, now);
    bench.run();
    bench.queue.admin_show(2, id, bench.clock.now());
    bench.run();
    assert_eq!(bench.answers.last(), Some(&Answer::Unknown(id)));
}
