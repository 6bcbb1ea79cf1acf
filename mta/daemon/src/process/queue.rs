//! The queue process.
