//! both ends of the conversation with the world, without I/O.

#![cfg_attr(test, allow(clippy::unwrap_used))]
