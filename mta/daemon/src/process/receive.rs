//! The receive process.
