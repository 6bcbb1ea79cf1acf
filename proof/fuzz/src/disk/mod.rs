//! Everything that is read from the spool's directory.
//!
//! Must never stop at a checksum: hostile content is sealed with the right one, as an attacker who
//! can write to the disk would do it.

pub mod files;
pub mod format;
pub mod open;
