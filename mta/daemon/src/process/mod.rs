//! One file a role: who I am, what I give up, whom I talk to, loop.
//!
//! Must never run two roles in one process.

pub mod child;
pub mod config;
pub mod local;
pub mod master;
pub mod panics;
pub mod queue;
pub mod receive;
pub mod send;
pub mod wiring;

use link::control::Role;
use std::process::ExitCode;

/// Runs a role in this process, which master has started for it.
pub fn role(name: &str) -> ExitCode {
    let Ok(role) = name.parse::<Role>() else {
        crate::log::complain(&format!("{name} is not the name of a role"));
        return ExitCode::from(64); // EX_USAGE
    };
    // What `top` and `pkill` go by; else it is the name of what was started: `exe`.
    if let Ok(comm) = std::ffi::CString::new(format!("posthaste-{name}")) {
        let _ = rustix::thread::set_name(&comm);
    }
    if role == Role::Config {
        return match config::role() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => ended(role, &error),
        };
    }
    panics::end_the_process(role.name());
    let start = match child::Start::read(role) {
        Ok(Some(start)) => start,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return ended(role, &error),
    };
    let ran = match role {
        Role::Receive => receive::run(start),
        Role::Queue => queue::run(start),
        Role::Send => send::role::run(start),
        Role::Local => local::run(start),
        Role::Master | Role::Config | Role::Mailbox => {
            Err(std::io::Error::other("not a role of a child"))
        }
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ended(role, &error),
    }
}

fn ended(role: Role, error: &dyn std::error::Error) -> ExitCode {
    crate::log::complain(&format!("{} process: {error}", role.name()));
    ExitCode::FAILURE
}
