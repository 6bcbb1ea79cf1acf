//! `posthaste`, also when it is called as `sendmail`, `mailq` or `newaliases`. Must never hold more
//! than the names of the functions behind the commands: the command line is a library, so that it
//! can be tested; and the allocator, which is a matter of a program and not of its library.

#[cfg(feature = "jemalloc")]
mod allocator;

use daemon::cli::{self, Wiring};
use daemon::process;
use std::process::ExitCode;

fn main() -> ExitCode {
    let wiring = Wiring { run: process::master::run, role: process::role };
    cli::main(std::env::args_os().collect(), &wiring)
}
