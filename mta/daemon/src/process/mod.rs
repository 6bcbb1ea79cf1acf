//! One file a role: who I am, what I give up, whom I talk to, loop.

pub mod child;
pub mod config;
pub mod local;
pub mod master;
pub mod queue;
pub mod receive;
pub mod send;
