//! `posthaste`, also when it is called as `sendmail`, `mailq` or `newaliases`. Must never hold more
//! than the names of the functions behind the commands: the command line is a library, so that it
//! can be tested.

use daemon::cli::{self, Wiring};
use daemon::settings::{Problem, Settings};

fn main() -> std::process::ExitCode {
    let wiring = Wiring {
        load: |_, file| Err(missing_parser(file)),
        run: |_| Err(MISSING.into()),
        role: |_| Err(MISSING.into()),
        spool_check: |_: &Settings, _, _| Err(MISSING.into()),
        knobs: String::new,
    };
    cli::main(std::env::args_os().collect(), &wiring)
}

/// Said by the commands whose part of the daemon is not wired up yet.
const MISSING: &str = "this build has no such part";

fn missing_parser(file: &str) -> Vec<Problem> {
    let (key, what) = (String::new(), MISSING.into());
    vec![Problem { file: file.into(), place: None, key, what, help: None }]
}
