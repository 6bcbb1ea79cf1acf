//! `posthaste`, also when it is called as `sendmail`, `mailq` or `newaliases`. Must never hold more
//! than the names of the functions behind the commands: the command line is a library, so that it
//! can be tested.

use daemon::cli::{self, Wiring};
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(std::env::args_os().collect(), &Wiring { run: |_, _| missing(), role: |_| missing() })
}

/// Until the processes are wired up.
fn missing() -> ExitCode {
    eprintln!("posthaste: this build has no processes");
    ExitCode::from(69)
}
