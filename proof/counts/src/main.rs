//! `posthaste-counts PATH`: carries messages through one station of the mailer and says how many
//! allocations each took; under callgrind also how many instructions.
//!
//! The sans-io crates run here as they run in the daemon; what the daemon puts around them
//! (tokio's tasks, sockets, threads, the log) is not part of it. `cargo xtask counts` runs all
//! paths and compares them with `counts.toml`. Must never read a clock, nor count what this
//! program does to play the rest of the world.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod allocator;
mod commit;
mod growth;
mod house;
mod letter;
mod memory_disk;
mod meter;
mod next_hop;
mod paths;
mod receive;
mod reference;
mod schedule;
mod seeds;
mod send;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => {
            paths::PATHS.iter().for_each(|path| println!("{} {}", path.name, path.what));
            ExitCode::SUCCESS
        }
        ["growth"] => {
            for row in growth::ROWS {
                let growth::Row { name, n, what, sorts, fixed, .. } = row;
                println!("{name}\t{n}\t{what}\t{sorts}\t{fixed}");
            }
            ExitCode::SUCCESS
        }
        ["growth", name, n] => {
            let row = growth::ROWS.iter().find(|row| row.name == name);
            match (row, n.parse()) {
                (Some(row), Ok(n)) => {
                    println!("{}", (row.run)(n));
                    ExitCode::SUCCESS
                }
                _ => complain(&format!("there is no row {name}, or {n} is no number")),
            }
        }
        [name] => match paths::PATHS.iter().find(|path| path.name == name) {
            Some(path) => {
                println!("{}", (path.run)());
                ExitCode::SUCCESS
            }
            None => complain(&format!("there is no path {name}; `list` names them")),
        },
        _ => complain("one of: list, the name of a path, growth, growth ROW N"),
    }
}

fn complain(text: &str) -> ExitCode {
    eprintln!("posthaste-counts: {text}");
    ExitCode::FAILURE
}
