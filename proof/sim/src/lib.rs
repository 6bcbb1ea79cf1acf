//! The whole mailer in one thread under a virtual clock: power cuts, dying processes, bad
//! networks, and a ledger that judges what became of every message.
//!
//! `smtp`, `policy`, `link`, `spool`, `scheduler`, `queue`, `local` and `delivery` run here as they run in
//! the daemon; this crate stands where `daemon` stands: it carries bytes, does the disk's work and
//! turns the clock. All of it follows from one seed and a [`plan::Plan`], so that each failure can
//! be seen again. Must never read a real clock, thread, file, socket or random number.
//!
//! | module | what it plays |
//! |---|---|
//! | [`plan`] | what happens: settings, messages, faults, all drawn from a seed |
//! | [`stage`] | time, events, the network, and the faults as they come due |
//! | [`receive`], [`send`], [`local`], [`queue_station`] | the processes of the daemon |
//! | [`client`], [`sink`] | the world outside: clients and next hops |
//! | [`ledger`] | the judge |
//! | [`run`] | one plan from its beginning to the verdict |
//! | [`small`] | a failing plan made small |
//! | [`every_cut`] | one small workload, cut at every step with every subset of what is pending |

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod client;
pub mod every_cut;
pub mod ledger;
mod lie;
pub mod local;
pub mod net;
pub mod plan;
pub mod queue_station;
pub mod receive;
pub mod run;
pub mod send;
pub mod sink;
pub mod small;
pub mod stage;
