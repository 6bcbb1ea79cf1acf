//! one attempt to one outcome, without I/O.

#![cfg_attr(test, allow(clippy::unwrap_used))]
