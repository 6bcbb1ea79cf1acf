//! Neither a question about a long queue nor a message that comes due in it costs a look at the rest of the queue.
//!
//! Must never read a clock of the machine: pages and outputs show how much was looked at.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, mail};
use mail::NextHop;
use scheduler::{Filter, Settings};

/// Three times as many messages as one call of `list` looks at.
const OTHERS: u64 = 30_000;

fn to(destination: &str) -> Filter {
    Filter { destination: Some(destination.into()), ..Filter::default() }
}

fn deep() -> Bench {
    let mut bench = Bench::new(Settings { attempts_in_flight_max: 0, ..Settings::for_tests() });
    for id in 0..OTHERS {
        bench.send(mail(2 * id + 2, "a@a.test", &[&format!("b@other{}.test", id % 3_000)]));
        if id % 10_000 == 5 {
            bench.send(mail(2 * id + 3, "a@a.test", &["b@Few.test", "c@few.test"]));
        }
    }
    bench
}

#[test]
fn the_mail_of_one_destination_is_listed_without_a_look_at_the_others() {
    let mut bench = deep();
    // Waiting, held or tried makes no difference.
    bench.scheduler.hold(mail::MessageId(13), bench.now);
    let page = bench.scheduler.list(&to("few.TEST"), None, 100, bench.now);
    let ids: Vec<u64> = page.rows.iter().map(|row| row.message.0).collect();
    assert_eq!((ids, page.next), (vec![13, 20_013, 40_013], None));
    let after = Some(mail::MessageId(13));
    let page = bench.scheduler.list(&to("few.test"), after, 1, bench.now);
    assert_eq!((page.rows[0].message.0, page.next.unwrap().0), (20_013, 20_013));
    let nobody = bench.scheduler.list(&to("nobody.test"), None, 100, bench.now);
    assert_eq!((nobody.rows.len(), nobody.next), (0, None));
}

#[test]
fn a_destination_that_is_done_is_on_no_list_and_its_place_can_be_anothers() {
    let mut bench = deep();
    for id in [13, 40_013] {
        bench.scheduler.delete(mail::MessageId(id), bench.now);
    }
    bench.drain();
    bench.send(mail(90_001, "a@a.test", &["b@few.test"]));
    bench.send(mail(90_002, "a@a.test", &["b@new.test"]));
    let page = bench.scheduler.list(&to("few.test"), None, 100, bench.now);
    let ids: Vec<u64> = page.rows.iter().map(|row| row.message.0).collect();
    assert_eq!((ids, page.next), (vec![20_013, 90_001], None));
}

#[test]
fn a_domain_whose_mail_goes_another_way_is_found_there() {
    let mut bench = deep();
    let relay = mail::Domain::parse("relay.test").unwrap();
    let hop = NextHop::Smtp(mail::Host::Name(relay), 25);
    bench.scheduler.reroute(mail::MessageId(20_013), &[(0, &hop)], bench.now);
    for name in ["few.test", "smtp:relay.test:25"] {
        let page = bench.scheduler.list(&to(name), None, 100, bench.now);
        let found = page.rows.iter().any(|row| row.message.0 == 20_013);
        assert!(found && page.next.is_none(), "{name}");
    }
}

#[test]
fn after_a_restart_the_lists_are_the_same() {
    let bench = deep();
    let all = bench.scheduler.export_from(None, usize::MAX, bench.now);
    let mut other = Bench::new(Settings { attempts_in_flight_max: 0, ..Settings::for_tests() });
    for (_, bytes) in &all {
        other.scheduler.restore(bytes, other.now).unwrap();
    }
    let page = |bench: &Bench| bench.scheduler.list(&to("few.test"), None, 100, bench.now);
    assert_eq!(page(&other).rows.len(), 3);
    assert_eq!(page(&other).next, None);
    let ids: Vec<_> = [13, 14, 20_013].map(mail::MessageId).into();
    let alone = |id: &mail::MessageId| Some((*id, bench.scheduler.export(*id, bench.now)?));
    let all: Vec<_> = ids.iter().filter_map(alone).collect();
    // The first and the last have two recipients, the second has one.
    for (recipients_max, taken) in [(usize::MAX, 3), (4, 2), (3, 2), (2, 1), (0, 1)] {
        let some = bench.scheduler.export_all(&ids, recipients_max, bench.now);
        assert_eq!(some, (all[..taken].to_vec(), taken), "{recipients_max}");
    }
}

/// Returns the outputs and calls of `poll` that the expiry of one message takes, among this many others that wait for
/// theirs.
fn cost_of_an_expiry(among: u64) -> (usize, usize) {
    let settings = Settings { attempts_in_flight_max: 0, ..Settings::for_tests() };
    let (expire, hour) = (settings.retry.expire, common::seconds(3600));
    let mut bench = Bench::new(settings);
    bench.send(mail(1, "a@a.test", &["b@dead.test"]));
    bench.pass(expire - hour);
    bench.drain();
    for id in 0..among {
        bench.send(mail(id + 2, "a@a.test", &[&format!("b@o{}.test", id % 100)]));
    }
    bench.pass(hour);
    let (mut outputs, mut calls) = (0, 0);
    while bench.scheduler.contains(mail::MessageId(1)) {
        outputs += bench.drain().len();
        calls += 1;
        assert!(calls < 100, "it does not expire");
    }
    (outputs, calls)
}

#[test]
fn an_expiry_costs_the_same_among_many_as_among_few() {
    assert_eq!(cost_of_an_expiry(10), cost_of_an_expiry(OTHERS));
}
