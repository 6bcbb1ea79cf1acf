//! The scheduler alone: lists, their replies and destinations, and what a restart makes of them.
//!
//! Must never count what the test does to bring it there.

use super::{counted, deferred, due, envelope, scattered};
use crate::house::domain;
use crate::meter::Count;
use mail::{Enhanced, Envelope, Instant, MessageId, NextHop, Now, Outcome, Reply, Timestamp};
use scheduler::{Arrival, ArrivingRecipient, Output, PlannedAttempt, Scheduler, Settings};
use std::time::Duration;

const LIST: MessageId = MessageId(1);
const START: Now = Now {
    monotonic: Instant::from_nanos(1_000_000_000_000),
    wall: Timestamp::from_micros(1_795_253_400_000_000),
};

pub fn adopted(n: usize) -> Count {
    let mut scheduler = with_list(n, false);
    let all: Vec<u32> = scattered(n).collect();
    let (count, adopted) =
        counted(|| all.iter().filter(|at| scheduler.adopt(LIST, &[**at], START).is_some()).count());
    assert_eq!(adopted, n);
    count
}

pub fn saved_replies(n: usize) -> Count {
    let mut scheduler = with_list(n, false);
    (0..n as u32).for_each(|at| scheduler.apply(&due(LIST, at), START));
    saved(&scheduler, 1)
}

pub fn saved_destinations(n: usize) -> Count {
    saved(&with_list(n, true), 1)
}

pub fn saved_messages(n: usize) -> Count {
    saved(&with_messages(n), n)
}

pub fn restored(n: usize) -> Count {
    let bytes = with_list(n, true).export(LIST, START).expect("it is there");
    let mut scheduler = empty();
    let (count, restored) = counted(|| scheduler.restore(&bytes, START));
    assert_eq!(restored, Ok(LIST));
    count
}

pub fn attempts(n: usize) -> Count {
    let mut scheduler = with_list(n, false);
    let (count, tried) = counted(|| {
        let mut tried = 0;
        while let Some(output) = scheduler.poll(START) {
            if let Output::Attempt(attempt) = output {
                tried += attempt.recipients.len();
                scheduler.outcome(attempt.attempt, &delivered(&attempt), START);
            }
        }
        tried
    });
    assert_eq!((tried, scheduler.len()), (n, 0));
    count
}

pub fn outcomes(n: usize) -> Count {
    let mut scheduler = with_list(n, true);
    let (count, tried) = counted(|| {
        let mut tried = 0;
        while let Some(output) = scheduler.poll(START) {
            if let Output::Attempt(attempt) = output {
                tried += 1;
                scheduler.outcome(attempt.attempt, &[deferred(attempt.recipients[0])], START);
            }
        }
        tried
    });
    assert_eq!(tried, n);
    count
}

pub fn expired(n: usize) -> Count {
    let mut scheduler = with_messages(n);
    scheduler.pause(true, false);
    let late = Duration::from_secs(10 * 86_400);
    let mut now = START;
    (now.monotonic, now.wall) = (now.monotonic + late, now.wall + late);
    let (count, ()) = counted(|| {
        while !scheduler.is_empty() {
            while scheduler.poll(now).is_some() {}
            now.monotonic = now.monotonic + Duration::from_millis(25);
        }
    });
    count
}

fn saved(scheduler: &Scheduler, messages: usize) -> Count {
    let (count, saved) = counted(|| scheduler.export_from(None, usize::MAX, START));
    assert_eq!(saved.len(), messages);
    count
}

fn delivered(attempt: &PlannedAttempt) -> Vec<(u32, Outcome)> {
    let report =
        mail::Report { reply: Reply::new(250, Enhanced(2, 0, 0), "ok"), ..super::report(0) };
    let one = |at: &u32| (*at, Outcome::Delivered { report: report.clone(), relayed: false });
    attempt.recipients.iter().map(one).collect()
}

fn empty() -> Scheduler {
    Scheduler::new(Settings::for_tests(), 1, START)
}

/// One message to `n` recipients.
fn with_list(recipients: usize, destinations: bool) -> Scheduler {
    let mut scheduler = empty();
    arrive(&mut scheduler, LIST, &envelope(recipients, destinations));
    scheduler
}

/// A scheduler with messages of one recipient each, to one destination.
fn with_messages(messages: usize) -> Scheduler {
    let (mut scheduler, envelope) = (empty(), envelope(1, false));
    (0..messages).for_each(|at| arrive(&mut scheduler, MessageId(at as u64 + 1), &envelope));
    scheduler
}

fn arrive(scheduler: &mut Scheduler, message: MessageId, envelope: &Envelope) {
    let domains = envelope.recipients.iter().map(|one| one.address.domain().as_str());
    let hops: Vec<_> = domains.map(|name| NextHop::Mx(domain(name))).collect();
    let all = envelope.recipients.iter().zip(&hops).map(|(one, hop)| ArrivingRecipient {
        address: &one.address,
        hop,
        notify: one.notify,
    });
    let arrival = Arrival {
        message,
        arrived: START.wall,
        bytes: 4_000,
        sender: &envelope.from.sender,
        recipients: &all.collect::<Vec<_>>(),
        held: None,
        priority: 0,
    };
    scheduler.arrive(&arrival, START).expect("it is new");
}
