//! Builds `posthaste-counts`, runs each path under callgrind, and reads what was counted.
//!
//! Must never accept a run in which callgrind has counted nothing.

use super::kept::{Counts, Path, Tools};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What stands between the marks for the outside world: it has no cost in callgrind's file.
const OUTSIDE: &str = "next_hop::NextHop::hear";
/// The functions at which callgrind turns its counting over.
const MARKS: &[&str] = &["*counted_by_callgrind*", "*left_out_by_callgrind*"];

/// Counts all paths, as many at once as there are processors.
pub fn all(root: &FilePath) -> Result<Counts> {
    let tools = tools()?;
    let program = build(root, "release")?;
    let folder = target_directory(root).join("counts");
    std::fs::create_dir_all(&folder)?;
    let listed = said_by(Command::new(&program).arg("list"))?;
    let names = listed.lines().filter_map(|line| line.split(' ').next()).map(String::from);
    let path = side_by_side(names.collect(), |name| {
        let path = one(&program, &folder, name, std::slice::from_ref(name));
        Ok((name.clone(), path.with_context(|| name.clone())?))
    });
    Ok(Counts { tools, path: path?.into_iter().collect() })
}

/// Does this for each, as many at once as there are processors; what comes back is in their order.
pub fn side_by_side<I: Sync, T: Send>(
    all: Vec<I>,
    work: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(at) else { return };
            let done = work(one);
            found.lock().expect("no worker panics with it").insert(at, done);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    found.into_inner().expect("no worker panics with it").into_values().collect()
}

fn tools() -> Result<Tools> {
    let valgrind = said_by(Command::new("valgrind").arg("--version"))
        .context("this needs valgrind: apt-get install valgrind, or ./check")?;
    let rustc = said_by(Command::new("rustc").arg("--version"))?;
    let rustc = rustc.trim().trim_start_matches("rustc ").to_owned();
    let machine = std::env::consts::ARCH.to_owned();
    Ok(Tools { machine, rustc, valgrind: valgrind.trim().to_owned() })
}

pub fn build(root: &FilePath, profile: &str) -> Result<PathBuf> {
    let arguments = ["build", "--quiet", "--profile", profile, "--package", "counts"];
    let status = Command::new(env!("CARGO")).current_dir(root).args(arguments).status()?;
    ensure!(status.success(), "posthaste-counts does not build");
    // The only profile whose folder has another name.
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_directory(root).join(folder).join("posthaste-counts"))
}

pub fn target_directory(root: &FilePath) -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR");
    given.map_or_else(|| root.join("target"), |given| root.join(given))
}

/// One run of the program. The environment is empty, since its length moves the stack.
pub fn one(
    program: &FilePath,
    folder: &FilePath,
    name: &str,
    arguments: &[String],
) -> Result<Path> {
    let file = folder.join(format!("{name}.out"));
    let mut command = Command::new("valgrind");
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.args(["--tool=callgrind", "--cache-sim=no", "--branch-sim=no", "--quiet"]);
    command.arg("--collect-atstart=no");
    command.args(MARKS.iter().map(|mark| format!("--toggle-collect={mark}")));
    command.arg(format!("--callgrind-out-file={}", file.display()));
    let said = said_by(command.arg(program).args(arguments))?;
    let text = std::fs::read_to_string(&file)?;
    per_message(&said, &text)
}

/// From what the program said and callgrind's file.
fn per_message(said: &str, file: &str) -> Result<Path> {
    let said: BTreeMap<&str, f64> = said
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    let of = |name: &str| said.get(name).copied().with_context(|| format!("no {name} was said"));
    let messages = of("messages")?;
    let instructions = total(file).context("callgrind's file has no total")? as f64;
    ensure!(messages > 0.0 && instructions > 0.0, "nothing was counted: are the marks gone?");
    ensure!(!file.contains(OUTSIDE), "the outside world was counted: are the marks gone?");
    Ok(Path {
        instructions: instructions / messages,
        allocations: of("allocations")? / messages,
        bytes: of("bytes")? / messages,
        why: String::new(),
    })
}

/// The sum of all parts of callgrind's output.
fn total(file: &str) -> Option<u64> {
    let totals = file.lines().filter_map(|line| line.strip_prefix("totals: "));
    totals.map(|total| total.trim().parse::<u64>().ok()).sum()
}

pub fn said_by(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} failed: {complaint}", command.get_program());
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_message_are_the_totals_divided_by_the_messages() {
        let said = "messages=500 allocations=9500 bytes=8864900\n";
        let path = per_message(said, "events: Ir\nfn=(1) a\n1 2\ntotals: 21374188\n").unwrap();
        assert_eq!((path.instructions, path.allocations, path.bytes), (42748.376, 19.0, 17729.8));
    }

    #[test]
    fn a_run_that_counted_nothing_is_no_run() {
        assert!(per_message("messages=5 allocations=1 bytes=1", "totals: 0").is_err());
        assert!(per_message("messages=5 allocations=1 bytes=1", "events: Ir").is_err());
        assert!(per_message("allocations=1 bytes=1", "totals: 7").is_err());
        let mixed = format!("fn=(1) posthaste_counts::{OUTSIDE}\ntotals: 7");
        assert!(per_message("messages=5 allocations=1 bytes=1", &mixed).is_err());
    }
}
