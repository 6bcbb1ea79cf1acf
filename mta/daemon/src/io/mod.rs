//! Sockets and timers: between our processes, to clients and to next hops.
//!
//! Must never look into a frame or a command: the crates `link` and `smtp` define them.

pub mod control;
pub mod socket;
pub mod stream;
pub mod timer;

/// Identifies the build and the version of messages between processes. Peers with different values disconnect at once.
/// All processes run the same file (`/proc/self/exe` of master), so they only differ if something is badly wrong.
pub const BUILD: u64 = {
    let text = concat!(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")).as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ LINK_VERSION;
    let mut at = 0;
    while at < text.len() {
        hash = (hash ^ text[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
};

/// Incremented with each change of a message between our processes.
const LINK_VERSION: u64 = 6;
