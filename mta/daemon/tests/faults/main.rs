//! Faults of processes, resources and clocks on the real daemon: X184 to X204, N106 to N117.
//! Storage has a program of its own. Stops, reloads and roles killed one by one are in
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

/// The name of the file of faults is what a release build must not know (the compiler sees to it
/// in `world/src/real/faults`, `cargo xtask tidy` to that).
#[test]
fn faults_on_demand_are_in_test_builds_alone() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_posthaste")).unwrap();
    let knows = support::sink::find(&program, b"POSTHASTE_TEST_FAULTS").is_some();
    assert_eq!(knows, cfg!(debug_assertions));
}
