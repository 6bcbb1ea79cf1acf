//! Server sessions: any bytes, and any way of cutting them.
//!
//! Must never let time pass where two runs are compared.

use super::talk::{Answers, Driver, script, settings, talk};
use crate::input::Input;
use mail::{Enhanced, Reply};
use std::time::Duration;

/// Any bytes, times and ends, in any order.
pub fn session(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let settings = settings(flags);
    let bits = input.short();
    let mut driver = Driver::new(&settings, Answers::of(bits));
    if flags & 32 != 0 {
        driver.feed(b"");
        driver.feed(&script::greeted(settings.lmtp));
    }
    while !input.is_over() {
        match input.byte() {
            // Before what is in the output was written: an early talker.
            0 => {
                let used = driver.session.receive(input.short(), driver.now);
                assert!(used <= 255);
                driver.poll();
            }
            1 => driver.pass(Duration::from_secs(u64::from(input.byte()))),
            2 => driver.pass(Duration::from_secs(u64::from(input.u16()))),
            3 => driver.session.shutdown(driver.now),
            4 => {
                let reply = Reply::new(421, Enhanced(4, 3, 0), "mx.test the driver cannot go on");
                driver.session.hang_up(&reply, driver.now);
            }
            5 => driver.drain(),
            6 => driver.feed(b"\r\n.\r\n"),
            7 => driver.feed(b"MAIL FROM:<a@b.test>\r\nRCPT TO:<x@y.test>\r\nDATA\r\n"),
            _ => driver.feed(input.short()),
        }
        if let Some(due) = driver.session.next_wakeup() {
            assert!(!driver.session.is_closed() && !driver.session.awaits_answer());
            assert!(due.since(driver.now.monotonic) <= settings.transaction_time_max);
        }
        driver.poll();
    }
    driver.eof();
    driver.finish();
}

/// The same bytes whole, byte by byte and cut in any way.
pub fn cuts(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let settings = settings(flags);
    let (bits, cuts) = (input.short(), input.short());
    let mut stream = Vec::new();
    if flags & 32 != 0 {
        stream.extend(script::greeted(settings.lmtp));
    }
    stream.extend(input.rest());
    let whole = talk(&settings, &stream, &[], Answers::of(bits));
    assert_eq!(talk(&settings, &stream, &[1], Answers::of(bits)), whole, "byte by byte");
    assert_eq!(talk(&settings, &stream, cuts, Answers::of(bits)), whole, "cut by {cuts:?}");
}
