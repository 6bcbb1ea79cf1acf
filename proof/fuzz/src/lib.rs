//! One pure function for every parser and every decoder: any bytes in, and what must hold of them is
//! asserted. libFuzzer searches with them (`cargo xtask fuzz`); an ordinary test runs all seeds and
//! all crashes that were ever found through them.
//!
//! Must never keep anything from one input to the next, nor ask the system for time or chance: an
//! input that fails once fails always.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod disk;
mod inner;
mod input;
mod machines;
pub mod memory;
mod smtp;
mod targets;
mod text;

pub use targets::{TARGETS, Target, target};
