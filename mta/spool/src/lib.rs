//! the promise: append, group commit, recover, retire.

#![cfg_attr(test, allow(clippy::unwrap_used))]
