//! facts in, verdict out.

#![cfg_attr(test, allow(clippy::unwrap_used))]
