//! A fixed piece of work that no change of ours touches: it tells whether two machines count alike.
//!
//! Must never use a crate of ours, nor change without a new `counts.toml`.

use crate::meter::{Count, Meter, Part};
use std::collections::HashMap;
use std::hint::black_box;

const ROUNDS: u64 = 200;

/// Counts it: what mail needs of the standard library, the allocator and libc.
pub fn count() -> Count {
    let mut meter = Meter::new(Part::Reference);
    meter.run(Part::Reference, || round(0));
    meter.start();
    (0..ROUNDS).for_each(|number| meter.run(Part::Reference, || round(number)));
    meter.passed(ROUNDS);
    meter.count()
}

/// Copies, formats, sorts, hashes, allocates.
fn round(number: u64) {
    let body = vec![number as u8; 4096];
    let copies: Vec<Vec<u8>> = (0..4).map(|_| black_box(&body).clone()).collect();
    black_box(&copies);
    let words: Vec<String> = (0..40).map(|at| format!("user{}.{at}@sink.test", number)).collect();
    let by_name: HashMap<&str, usize> =
        words.iter().enumerate().map(|(at, word)| (word.as_str(), at)).collect();
    let found: usize = words.iter().filter_map(|word| by_name.get(word.as_str())).sum();
    let mut mixed: Vec<u64> =
        (0..200u64).map(|at| (at + number).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    mixed.sort_unstable();
    black_box((found, mixed));
}
