//! The config process.
