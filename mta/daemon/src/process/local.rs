//! The local process.
