//! `cargo xtask fuzz`: builds the targets with libFuzzer, searches with each, and prints the results.
//!
//! Must never report success for a target that did not run. Besides what `./check` installs, this needs a C++ compiler
//! (`apt-get install g++`), and with `--lines` Rust's llvm-tools (`rustup component add llvm-tools`). It says what is
//! missing.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Upper bound on crashes of one target. The target is not run any more after these.
const CRASHES_MAX: usize = 5;
/// Inputs that are tried to make a crash smaller.
const MINIMISING_RUNS: u32 = 20_000;

/// What is asked for.
#[derive(clap::Args)]
pub struct Options {
    /// Minutes for each target
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Targets that run side by side
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Count the lines of our own code that each corpus reaches, too (a second build)
    #[arg(long)]
    lines: bool,
    /// Put the part of each corpus that is worth keeping into proof/fuzz/seeds
    #[arg(long)]
    keep: bool,
    /// Only these
    targets: Vec<String>,
}

/// A target as `cargo run -p fuzz` lists it.
struct Target {
    name: String,
    dictionary: Option<String>,
    bytes_max: String,
}

/// The result of one target.
#[derive(Default)]
struct Found {
    executions: u64,
    seconds: u64,
    edges: u64,
    corpus: usize,
    crashes: Vec<PathBuf>,
    lines: Option<(u64, u64)>,
}

/// The directories.
struct Places {
    root: PathBuf,
    /// Everything that is not checked in.
    work: PathBuf,
    program: PathBuf,
}

/// Runs all targets; true if nothing was found.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    let targets = targets(root, &options.targets)?;
    let work = target_directory(root).join("fuzz");
    std::fs::create_dir_all(&work)?;
    let program = build(root, &work)?;
    let places = Places { root: root.into(), work, program };
    let mut found = search(&places, &targets, options)?;
    if options.lines {
        count_lines(&places, &targets, &mut found)?;
    }
    if options.keep {
        keep(&places, &targets)?;
    }
    print(&targets, &found);
    Ok(found.values().all(|found| found.crashes.is_empty()))
}

fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn targets(root: &Path, wanted: &[String]) -> Result<Vec<Target>> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root).args(["run", "--quiet", "--package", "fuzz"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the targets could not be listed");
    let text = String::from_utf8(output.stdout)?;
    let all: Vec<Target> = text.lines().filter_map(target).collect();
    for name in wanted {
        ensure!(all.iter().any(|target| target.name == *name), "there is no target {name}");
    }
    Ok(all.into_iter().filter(|one| wanted.is_empty() || wanted.contains(&one.name)).collect())
}

fn target(line: &str) -> Option<Target> {
    let mut columns = line.split('\t').map(String::from);
    let (name, dictionary, bytes_max) = (columns.next()?, columns.next()?, columns.next()?);
    Some(Target { name, dictionary: Some(dictionary).filter(|name| name != "-"), bytes_max })
}

/// Flags that make rustc count edges and show compared values to libFuzzer. Every rustc has this pass, so no nightly
/// version is needed.
const SANITIZER_COVERAGE: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=4";

/// Builds the program that links libFuzzer, in a separate target directory. Otherwise its flags would cause everything
/// else to be built again.
fn build(root: &Path, work: &Path) -> Result<PathBuf> {
    println!("== building with libFuzzer in {}", work.display());
    let here = root.join("proof/fuzz/libfuzzer");
    let triple = host()?;
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&here).args(["build", "--release", "--locked", "--target", &triple]);
    command.env("CARGO_TARGET_DIR", work).env("RUSTFLAGS", SANITIZER_COVERAGE);
    let well = command.status()?.success();
    ensure!(well, "it did not build; where there is no C++ compiler: apt-get install g++");
    Ok(work.join(triple).join("release/libfuzzer"))
}

fn rustc(arguments: &[&str]) -> Result<String> {
    let output = Command::new("rustc").args(arguments).output().context("rustc")?;
    Ok(String::from_utf8(output.stdout)?)
}

fn host() -> Result<String> {
    let text = rustc(&["-vV"])?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(String::from).context("rustc -vV names no host")
}

impl Places {
    fn corpus(&self, target: &Target) -> PathBuf {
        self.work.join("corpus").join(&target.name)
    }

    fn seeds(&self, target: &Target) -> PathBuf {
        self.root.join("proof/fuzz/seeds").join(&target.name)
    }

    fn log(&self, target: &Target) -> PathBuf {
        self.work.join(format!("{}.log", target.name))
    }

    /// The directory in which libFuzzer stores inputs that crash, before they are minimized.
    fn fresh(&self, target: &Target) -> PathBuf {
        self.work.join("fresh").join(&target.name)
    }

    fn libfuzzer(&self, target: &Target) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(&self.program).current_dir(&self.work);
        command.env("POSTHASTE_FUZZ", &target.name).env("RUST_BACKTRACE", "0");
        command.args(["-timeout=20", "-rss_limit_mb=3000"]);
        command.arg(format!("-max_len={}", target.bytes_max));
        command
    }
}

/// A search that is running.
struct Running<'a> {
    target: &'a Target,
    child: Child,
    until: Instant,
    since: Instant,
}

fn search(
    places: &Places,
    targets: &[Target],
    options: &Options,
) -> Result<BTreeMap<String, Found>> {
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let mut waiting = targets.iter();
    let mut running: Vec<Running<'_>> = Vec::new();
    loop {
        while running.len() < options.jobs.max(1)
            && let Some(target) = waiting.next()
        {
            println!("== {}", target.name);
            running.push(start(places, target, Instant::now() + time)?);
        }
        if running.is_empty() {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(200));
        let (ended, still): (Vec<_>, Vec<_>) = running
            .into_iter()
            .map(poll)
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .partition(|(over, _)| *over);
        running = still.into_iter().map(|(_, one)| one).collect();
        for (_, one) in ended {
            let sum = found.entry(one.target.name.clone()).or_default();
            if take(places, &one, sum)?
                && one.until > Instant::now()
                && sum.crashes.len() < CRASHES_MAX
            {
                running.push(start(places, one.target, one.until)?);
            }
        }
    }
}

fn poll(mut one: Running<'_>) -> Result<(bool, Running<'_>)> {
    Ok((one.child.try_wait()?.is_some(), one))
}

fn start<'a>(places: &Places, target: &'a Target, until: Instant) -> Result<Running<'a>> {
    let (corpus, fresh) = (places.corpus(target), places.fresh(target));
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&fresh)?;
    let left = until.saturating_duration_since(Instant::now()).as_secs().max(1);
    let mut command = places.libfuzzer(target);
    command.arg(format!("-max_total_time={left}")).arg("-print_final_stats=1");
    command.arg(format!("-artifact_prefix={}/", fresh.display()));
    if let Some(name) = &target.dictionary {
        let path = places.root.join(format!("proof/fuzz/dictionaries/{name}.dict"));
        command.arg(format!("-dict={}", path.display()));
    }
    command.arg(corpus).arg(places.seeds(target));
    let log = std::fs::File::create(places.log(target))?;
    command.stdout(Stdio::null()).stderr(log);
    Ok(Running { target, child: command.spawn()?, until, since: Instant::now() })
}

/// Adds the output of one search. Returns true if it ended with a crash.
fn take(places: &Places, one: &Running<'_>, sum: &mut Found) -> Result<bool> {
    let log = std::fs::read(places.log(one.target))?;
    let log = String::from_utf8_lossy(&log);
    let stat = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let Some(executions) = stat.and_then(|text| text.trim().parse::<u64>().ok()) else {
        bail!("{} did not run: {}", one.target.name, places.log(one.target).display());
    };
    sum.executions += executions;
    sum.seconds += one.since.elapsed().as_secs();
    sum.edges = sum
        .edges
        .max(log.lines().filter_map(|line| number_after(line, "cov: ")).max().unwrap_or(0));
    sum.corpus = std::fs::read_dir(places.corpus(one.target))?.count();
    let mut crashed = false;
    for entry in std::fs::read_dir(places.fresh(one.target))? {
        let path = entry?.path();
        let slow = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("slow-"));
        if !slow {
            crashed = true;
            let kept = minimise(places, one.target, &path)?;
            let panic = log.lines().skip_while(|line| !line.contains("panicked")).take(2);
            println!("CRASH in {}: {}", one.target.name, panic.collect::<Vec<_>>().join(" "));
            println!("  cargo run -p fuzz -- {} {}", one.target.name, kept.display());
            sum.crashes.push(kept);
        }
        std::fs::remove_file(path)?;
    }
    Ok(crashed)
}

fn number_after(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    rest.split(' ').next()?.parse().ok()
}

/// Minimizes an input that crashes and stores it with the sources, where it serves as a test.
fn minimise(places: &Places, target: &Target, crash: &Path) -> Result<PathBuf> {
    let folder = places.root.join("proof/fuzz/crashes").join(&target.name);
    std::fs::create_dir_all(&folder)?;
    let name = crash.file_name().context("a crash has a name")?;
    let kept = folder.join(name);
    std::fs::copy(crash, &kept)?;
    let small = places.work.join("small");
    let _ = std::fs::remove_file(&small);
    let mut command = places.libfuzzer(target);
    command.args(["-minimize_crash=1", "-max_total_time=60"]);
    command.arg(format!("-runs={MINIMISING_RUNS}"));
    command.arg(format!("-exact_artifact_path={}", small.display())).arg(&kept);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    // What got smaller must still crash: a step that failed for another reason leaves a file, too.
    if std::fs::metadata(&small).is_ok_and(|found| found.len() > 0) {
        let mut command = places.libfuzzer(target);
        command.arg(&small).stdout(Stdio::null()).stderr(Stdio::null());
        if !command.status()?.success() {
            std::fs::copy(&small, &kept)?;
        }
    }
    Ok(kept)
}

/// Lines of our own code that each corpus reaches, by a build that counts them.
fn count_lines(
    places: &Places,
    targets: &[Target],
    found: &mut BTreeMap<String, Found>,
) -> Result<()> {
    let tools = PathBuf::from(rustc(&["--print", "sysroot"])?.trim())
        .join("lib/rustlib")
        .join(host()?)
        .join("bin");
    let (merge, cover) = (tools.join("llvm-profdata"), tools.join("llvm-cov"));
    ensure!(cover.exists(), "--lines needs llvm-tools: rustup component add llvm-tools");
    println!("== building to count lines");
    let counted = places.work.join("lines");
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&places.root).args(["build", "--quiet", "--package", "fuzz"]);
    command.env("CARGO_TARGET_DIR", &counted).env("RUSTFLAGS", "-Cinstrument-coverage");
    // Build scripts and macros count, too.
    command.env("LLVM_PROFILE_FILE", counted.join("build-%p.profraw"));
    ensure!(command.status()?.success(), "it did not build");
    let program = counted.join("debug/fuzz");
    for target in targets {
        let raw = counted.join(format!("{}.profraw", target.name));
        let data = counted.join(format!("{}.profdata", target.name));
        let mut command = Command::new(&program);
        command.arg(&target.name).arg(places.corpus(target)).arg(places.seeds(target));
        command.env("LLVM_PROFILE_FILE", &raw).stdout(Stdio::null());
        ensure!(command.status()?.success(), "{} does not hold on its corpus", target.name);
        let merged = Command::new(&merge)
            .args(["merge", "-sparse"])
            .arg(&raw)
            .arg("-o")
            .arg(&data)
            .status()?;
        ensure!(merged.success(), "llvm-profdata failed");
        let mut command = Command::new(&cover);
        command.args([
            "export",
            "--summary-only",
            "--format=lcov",
            "--ignore-filename-regex=(registry|rustc|proof)/",
        ]);
        command.arg(format!("--instr-profile={}", data.display())).arg(&program);
        let text = String::from_utf8(command.output()?.stdout)?;
        found.entry(target.name.clone()).or_default().lines = Some(lines(&text));
    }
    Ok(())
}

/// Lines that were reached, and all lines of the files of which any was.
fn lines(lcov: &str) -> (u64, u64) {
    let number = |line: &str, word: &str| line.strip_prefix(word)?.parse::<u64>().ok();
    let (mut all, mut reached) = (0, 0);
    let mut file = 0;
    for line in lcov.lines() {
        if let Some(count) = number(line, "LF:") {
            file = count;
        } else if let Some(hit) = number(line, "LH:").filter(|hit| *hit > 0) {
            reached += hit;
            all += file;
        }
    }
    (reached, all)
}

/// The smallest part of each corpus that reaches as much goes to the seeds, as far as it is small.
fn keep(places: &Places, targets: &[Target]) -> Result<()> {
    for target in targets {
        let reduced = places.work.join("reduced");
        let _ = std::fs::remove_dir_all(&reduced);
        std::fs::create_dir_all(&reduced)?;
        let mut command = places.libfuzzer(target);
        command.arg("-merge=1").arg(&reduced).arg(places.seeds(target)).arg(places.corpus(target));
        let well = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?.success();
        ensure!(well, "{}: its corpus could not be reduced", target.name);
        let mut files: Vec<(u64, PathBuf)> = Vec::new();
        for entry in std::fs::read_dir(&reduced)? {
            let entry = entry?;
            files.push((entry.metadata()?.len(), entry.path()));
        }
        files.sort();
        let mut bytes = 0;
        for (length, path) in files.iter().take(KEPT_FILES_MAX) {
            bytes += length;
            if bytes > KEPT_BYTES_MAX {
                break;
            }
            let name = path.file_name().context("it has a name")?;
            std::fs::copy(path, places.seeds(target).join(name))?;
        }
    }
    Ok(())
}

/// What is kept of one target's corpus, so that the sources stay small.
const KEPT_FILES_MAX: usize = 40;
const KEPT_BYTES_MAX: u64 = 8 << 10;

fn print(targets: &[Target], found: &BTreeMap<String, Found>) {
    println!();
    println!("| target | time | executions | edges | corpus | lines | crashes |");
    println!("|---|---|---|---|---|---|---|");
    for target in targets {
        let Some(found) = found.get(&target.name) else { continue };
        let lines = found.lines.map_or("-".into(), |(reached, all)| format!("{reached} of {all}"));
        println!(
            "| {} | {} s | {} | {} | {} | {lines} | {} |",
            target.name,
            found.seconds,
            found.executions,
            found.edges,
            found.corpus,
            found.crashes.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_target_and_what_libfuzzer_and_llvm_cov_say_are_read() {
        let read = target("bdat\tsmtp\t2048\twords").unwrap();
        assert_eq!(
            (&*read.name, read.dictionary.as_deref(), &*read.bytes_max),
            ("bdat", Some("smtp"), "2048")
        );
        assert_eq!(target("spool_open\t-\t9\twords").unwrap().dictionary, None);
        let line = "#473\tDONE   cov: 3580 ft: 8302 corp: 166/4642b";
        assert_eq!(number_after(line, "cov: "), Some(3580));
        let lcov = "SF:a\nLF:10\nLH:4\nend_of_record\nSF:b\nLF:7\nLH:0\nend_of_record\n";
        assert_eq!(lines(lcov), (4, 10), "a file that was not entered does not count");
    }
}
