//! The parts of every test over a real socket: a running daemon, a client that sends exactly the given bytes,
//! and a next hop that remembers what it received.
//!
//! Must never use the daemon except through its sockets, its files and its command line.

#![allow(dead_code, unused_imports, clippy::unwrap_used, missing_docs)]

pub mod client;
pub mod daemon;
#[cfg(debug_assertions)]
pub mod faults;
pub mod load;
pub mod sink;

pub use client::{Client, Reply};
pub use daemon::{Daemon, Setup};
pub use sink::{Mail, Script, Sink};

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Upper bound on the time that anything that must happen may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a word that no other message of this test run contains.
pub fn token(name: &str) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed))
}

/// Repeats the question until there is an answer.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a port that no process uses now.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The path of a Postfix tool, installed or unpacked by `./check`.
pub fn postfix_tool(name: &str) -> std::process::Command {
    let unpacked = std::env::var_os("POSTHASTE_TEST_POSTFIX").map(std::path::PathBuf::from);
    let installed = std::path::Path::new("/usr/sbin").join(name);
    match unpacked {
        Some(root) if root.join("usr/sbin").join(name).exists() => {
            let mut command = std::process::Command::new(root.join("usr/sbin").join(name));
            command.env("LD_LIBRARY_PATH", root.join("usr/lib/postfix"));
            command
        }
        _ => std::process::Command::new(installed),
    }
}
