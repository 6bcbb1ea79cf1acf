//! The program `posthaste`, also when it is called as `sendmail`, `mailq` or `newaliases`.
//!
//! Must never hold more than the functions behind the commands, and the allocator, which a program chooses and not its
//! library. The command line is in the library, so that it can be tested.

#[cfg(feature = "jemalloc")]
mod allocator;

use daemon::cli::{self, Wiring};
use daemon::process;
use std::process::ExitCode;

fn main() -> ExitCode {
    let wiring = Wiring { run: process::master::run, role: process::role };
    cli::main(std::env::args_os().collect(), &wiring)
}
