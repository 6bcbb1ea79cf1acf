//! The processes. The file of each role says what its process does, what it gives up, and which messages it accepts.
//!
//! Must never run two roles in one process.

pub mod child;
pub mod config;
pub mod local;
pub mod master;
pub mod panics;
pub mod queue;
pub mod queue_link;
pub mod receive;
pub mod sealed_config;
pub mod send;
pub mod wiring;

use link::control::Role;
use std::process::ExitCode;

/// Runs a role in this process. Master starts one process for each role.
pub fn role(name: &str) -> ExitCode {
    let Ok(role) = name.parse::<Role>() else {
        crate::log::complain(&format!("{name} is not the name of a role"));
        return ExitCode::from(64); // EX_USAGE
    };
    // The name that `top` and `pkill` use. Without this it would be `exe`, the name of the file that was started.
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
    let start = match child::ChildStart::read(role) {
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
