//! Everything that one process of ours says to another.
//!
//! Must never trust the other end: each is taken for one that a stranger took over.

pub mod decoders;
pub mod frames;
pub mod queue;
