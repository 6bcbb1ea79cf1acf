//! The laboratory's statistics: samples in, figures and verdicts out.
//!
//! Must never draw lots but from a seed that it is given, or call two things the same because no difference was found.

#![cfg_attr(test, allow(clippy::unwrap_used))]
