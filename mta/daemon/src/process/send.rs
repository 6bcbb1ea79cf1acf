//! The send process.
