//! What a campaign of the laboratory leaves: its lines, and the page that is made of them.
//!
//! Must never know a mailer by name, or show a figure without what it was measured on.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod record;
