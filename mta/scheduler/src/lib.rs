//! who is tried when, and how many at once.

#![cfg_attr(test, allow(clippy::unwrap_used))]
