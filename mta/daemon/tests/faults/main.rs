//! Faults of processes, resources and clocks on the real daemon: X184 to X204, N106 to N117.
//!
//! Faults of storage have a program of their own. Stops, reloads and roles killed one by one are in
//! `restart.rs` and `kill.rs`.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

#[cfg(debug_assertions)]
mod clock;
#[cfg(debug_assertions)]
mod failpoints;
mod field;
mod operators;
mod process;
mod resources;
mod streams;

/// A release build must not contain the name of the file of faults. The compiler ensures this in
/// `world/src/real/faults`, and `cargo xtask tidy` checks it.
#[test]
fn faults_on_demand_are_in_test_builds_alone() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_posthaste")).unwrap();
    let knows = support::sink::find(&program, b"POSTHASTE_TEST_FAULTS").is_some();
    assert_eq!(knows, cfg!(debug_assertions));
}
