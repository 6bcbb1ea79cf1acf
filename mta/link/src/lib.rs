//! the conversations between our processes, as machines without I/O.

#![cfg_attr(test, allow(clippy::unwrap_used))]
