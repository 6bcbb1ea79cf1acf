//! `cargo run -p fuzz -- TARGET FILE...`: runs inputs through a target once more, as they were found.
//! Without arguments it lists the targets. Must never catch a panic: it is what is looked for.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        fuzz::TARGETS.iter().for_each(|target| println!("{}\t{}", target.name, line(target)));
        return ExitCode::SUCCESS;
    };
    let Some(target) = fuzz::target(&name) else {
        eprintln!("there is no target {name}; `cargo run -p fuzz` lists them");
        return ExitCode::FAILURE;
    };
    let mut count = 0;
    for path in arguments.flat_map(|path| files(Path::new(&path))) {
        match std::fs::read(&path) {
            Ok(bytes) => (target.run)(&bytes),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
        count += 1;
    }
    println!("{name}: {count} inputs held");
    ExitCode::SUCCESS
}

/// What `cargo xtask fuzz` wants to know.
fn line(target: &fuzz::Target) -> String {
    let dictionary = target.dictionary.unwrap_or("-");
    format!("{dictionary}\t{}\t{}", target.bytes_max, target.what)
}

/// The file, or all files of the folder.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return vec![path.into()] };
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}
