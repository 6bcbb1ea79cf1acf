//! The memory of a queued message, counted at the allocator.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use scheduler::{HeldBy, Settings};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator unchanged; counting touches no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MESSAGES: u64 = 100_000;
const DESTINATIONS: u64 = 10_000;
const SENDERS: u64 = 1_000;

/// Returns the bytes of a message: held, or ready behind a full process limit. Each message has another sender than its
/// neighbours at the same destination.
fn cost(held: bool) -> (f64, Bench) {
    let mut bench = Bench::new(Settings { attempts_in_flight_max: 0, ..Settings::for_tests() });
    let before = BYTES.load(Ordering::Relaxed);
    for id in 0..MESSAGES {
        let to = format!("user.{id:07}@destination{:06}.test", id % DESTINATIONS);
        let sender = format!("sender{}@example.test", (id + id / DESTINATIONS) % SENDERS);
        let held = held.then_some(HeldBy::Operator);
        bench.send(Mail { held, ..mail(id + 1, &sender, &[&to]) });
    }
    let bytes = BYTES.load(Ordering::Relaxed) - before;
    (bytes as f64 / MESSAGES as f64, bench)
}

#[test]
fn a_queued_message_takes_at_most_150_bytes_and_one_that_is_ready_40_more() {
    let (held, mut bench) = cost(true);
    println!("held or waiting for the schedule: {held:.1} bytes a message");
    assert!(held <= 150.0, "{held}");
    let (ready, other) = cost(false);
    println!("ready: {ready:.1} bytes a message");
    assert!(ready <= 190.0, "{ready}");
    drop(other);

    let before = BYTES.load(Ordering::Relaxed);
    for id in 0..MESSAGES {
        bench.scheduler.delete(mail::MessageId(id + 1), bench.now);
        bench.drain();
    }
    assert!(bench.scheduler.is_empty());
    for id in 0..MESSAGES {
        let to = format!("user.{id:07}@other{:06}.test", id % DESTINATIONS);
        let held = Some(HeldBy::Operator);
        bench.send(Mail { held, ..mail(MESSAGES + id + 1, "a@a.test", &[&to]) });
    }
    let after = BYTES.load(Ordering::Relaxed);
    println!("after all were replaced by others: {:.1}", after as f64 / MESSAGES as f64);
    assert!(after as f64 <= before as f64 * 1.2, "{before} {after}");
}
