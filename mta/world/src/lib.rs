//! what lies outside: disk, clock, chance; the real ones and the simulated ones.

#![cfg_attr(test, allow(clippy::unwrap_used))]
