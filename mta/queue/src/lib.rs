//! the queue process without its I/O: spool, scheduler and link wired together.

#![cfg_attr(test, allow(clippy::unwrap_used))]
