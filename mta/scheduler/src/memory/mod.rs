//! Flat memory for millions of messages: slabs, texts, symbols, reports, ids.
//!
//! Must never know what a message waits for.

pub(crate) mod ids;
pub(crate) mod numbers;
pub(crate) mod reports;
pub(crate) mod shards;
pub(crate) mod slab;
pub(crate) mod symbols;
pub(crate) mod texts;

pub(crate) use ids::IdIndex;
pub(crate) use numbers::Numbers;
pub(crate) use reports::Reports;
pub(crate) use slab::Slab;
pub(crate) use symbols::Symbols;

/// Marks an absent place, such as the end of a list.
pub(crate) const NONE: u32 = u32::MAX;
