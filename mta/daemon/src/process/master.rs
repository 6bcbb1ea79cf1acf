//! The master process.
