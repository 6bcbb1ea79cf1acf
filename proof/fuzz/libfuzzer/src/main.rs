//! Hands libFuzzer's inputs to the target that `POSTHASTE_FUZZ` names. Must never do anything else:
//! what is fuzzed is in the crate `fuzz`, where it can be tested without libFuzzer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TARGET: LazyLock<&fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("POSTHASTE_FUZZ").expect("POSTHASTE_FUZZ names the target");
    fuzz::target(&name).expect("POSTHASTE_FUZZ names one of fuzz::TARGETS")
});

fuzz_target!(|data: &[u8]| {
    (TARGET.run)(data);
});
