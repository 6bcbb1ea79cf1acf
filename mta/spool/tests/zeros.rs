//! Zeros are written ahead of the log and never delay mail.

#![allow(clippy::unwrap_used)]

mod support;

use bytes::Bytes;
use mail::{Now, TransactionId};
use spool::{Io, IoWork, Output, Settings, Spool};
use std::time::Duration;
use support::envelope;
use world::Clock as _;
use world::sim::{Clock, Disk};

const SEGMENT_BYTES: u64 = 4 << 20;
const SLICE_BYTES: u64 = 64 << 10;
const SPARES: u64 = 3;

/// A spool whose background I/O and commits take a fixed time.
struct Fresh {
    disk: Disk,
    clock: Clock,
    spool: Spool,
    under_way: Vec<Io>,
    zeros: u64,
    log: u64,
    last: u64,
}

impl Fresh {
    fn start() -> Fresh {
        let settings = Settings {
            segment_bytes: SEGMENT_BYTES as u32,
            batch_bytes_max: 256 << 10,
            zero_slice_bytes: SLICE_BYTES as u32,
            spares: SPARES as usize,
            keep_free_bytes: 0,
            ..Settings::for_tests()
        };
        let disk = Disk::new(1);
        let (spool, _) = spool::open(&disk, settings, 1, &mut |_| {}).unwrap();
        let clock = Clock::starting(mail::Timestamp::from_micros(1_000_000));
        Fresh { disk, clock, spool, under_way: Vec::new(), zeros: 0, log: 0, last: 0 }
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    /// Lets the disk work for this long. Each I/O takes a millisecond, and those of one kind run one after another.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            while let Some(output) = self.spool.poll(self.now()) {
                if let Output::Io(io) = output {
                    self.under_way.push(io);
                }
            }
            self.clock.advance(Duration::from_millis(1));
            for io in std::mem::take(&mut self.under_way) {
                match io.work() {
                    IoWork::Zero { bytes, .. } => self.zeros += u64::from(*bytes),
                    IoWork::Write { buffer, offset, .. } if *offset > 0 => {
                        self.log += buffer.len() as u64
                    }
                    _ => {}
                }
                let done = spool::execute(&self.disk, io);
                self.spool.handle(done, self.now());
            }
        }
    }

    fn accept(&mut self, bytes: usize) {
        self.last += 1;
        let transaction = TransactionId { incarnation: 7, number: self.last };
        self.spool.stage(transaction, Bytes::from(vec![b'x'; bytes])).unwrap();
        let (now, to) = (self.now(), envelope("user@example.org"));
        let message = self.spool.next_message_id(now);
        self.spool.accept(message, transaction, &to, b"", now).unwrap();
    }
}

#[test]
fn r239_under_load_zeros_keep_step_with_the_log_and_the_log_never_waits_for_them() {
    let mut fresh = Fresh::start();
    fresh.run(70); // until the first segment is zeroed, a slice in each millisecond
    let before = fresh.zeros;
    for _ in 0..3_000 {
        fresh.accept(8_000);
        fresh.run(1);
    }
    fresh.run(5);
    assert!(fresh.log > 5 * SEGMENT_BYTES, "{}", fresh.log);
    // Each byte of the log brings two bytes of zeros, the first segment is needed at once, and some zeros may be left
    // over.
    let most = before + SEGMENT_BYTES + 2 * fresh.log;
    assert!(fresh.zeros <= most, "{} zeros for {} of the log", fresh.zeros, fresh.log);
    assert!(fresh.zeros > fresh.log, "{} zeros for {} of the log", fresh.zeros, fresh.log);
    assert_eq!(fresh.spool.usage().zeroing_fallbacks, 0);
}

#[test]
fn r239_at_the_first_messages_only_what_is_needed_is_zeroed_and_the_rest_when_it_is_quiet() {
    let mut fresh = Fresh::start();
    for _ in 0..400 {
        fresh.accept(1_000);
        fresh.run(1);
    }
    let most = SEGMENT_BYTES + 2 * fresh.log + SLICE_BYTES;
    assert!(fresh.zeros <= most, "{} zeros for {} of the log", fresh.zeros, fresh.log);
    fresh.run(2_000);
    assert!(
        fresh.zeros >= (SPARES + 1) * SEGMENT_BYTES,
        "the spares are complete: {}",
        fresh.zeros
    );
    let zeros = fresh.zeros;
    fresh.run(2_000);
    assert_eq!(fresh.zeros, zeros, "and no more than they");
    assert!(fresh.spool.next_wakeup().is_none(), "nothing waits");
}
