//! Everything that a stranger says over a connection.
//!
//! Must never look into a session but through its public verbs.

pub mod client;
pub mod framing;
pub mod server;
pub mod talk;
pub mod words;
