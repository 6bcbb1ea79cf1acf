//! A copy of the working tree for trials of bugs: copied, changed, built, run, and restored.
//!
//! Must never leave a bug in the copy for the next trial, and never wait for a run without a bound.

use super::list::{Canary, Edit};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Minutes of one swarm at most.
const MINUTES_MAX: u64 = 20;
/// What a swarm that heeds its minutes may take longer: one run, and that again to tell of it.
const GRACE_SECONDS: u64 = 300;
/// Between two looks whether a swarm has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The copy.
pub struct Tree {
    root: PathBuf,
    tree: PathBuf,
    build: PathBuf,
}

/// What came of a swarm.
pub struct Ran {
    /// The first seed that failed.
    pub seed: Option<u64>,
    /// What it failed, each once.
    pub checks: Vec<String>,
    /// The simulator's own word for it.
    ended: Option<bool>,
    finding: String,
}

impl Tree {
    /// Brings the copy up to date; what is the same keeps its time, so that little is built again.
    pub fn copy(root: &Path, place: &Path) -> Result<Tree> {
        let (tree, build) = (place.join("tree"), place.join("build"));
        let tree = Tree { root: root.into(), tree, build };
        let files = crate::tidy::files(root)?;
        for file in &files {
            tree.restore(file)?;
        }
        tree.forget_others(&tree.tree.clone(), &files.into_iter().collect())?;
        Ok(tree)
    }

    /// Takes files away that the working tree has no more.
    fn forget_others(&self, folder: &Path, files: &BTreeSet<String>) -> Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(&self.tree)?.to_string_lossy().into_owned();
            if path.is_dir() {
                self.forget_others(&path, files)?;
            } else if !files.contains(&name) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn restore(&self, file: &str) -> Result<()> {
        let wanted = std::fs::read(self.root.join(file)).with_context(|| file.to_owned())?;
        self.put(file, &wanted)
    }

    fn put(&self, file: &str, wanted: &[u8]) -> Result<()> {
        let path = self.tree.join(file);
        if std::fs::read(&path).is_ok_and(|there| there == wanted) {
            return Ok(());
        }
        std::fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        std::fs::write(&path, wanted).with_context(|| file.to_owned())
    }

    /// Does something while the bug is in the copy.
    pub fn with<T>(&self, canary: &Canary, act: impl FnOnce(&Tree) -> Result<T>) -> Result<T> {
        for Edit { file, .. } in &canary.edit {
            self.restore(file)?;
        }
        for edit in &canary.edit {
            let code = std::fs::read_to_string(self.tree.join(&edit.file))?;
            self.put(&edit.file, edit.apply(&code)?.as_bytes())?;
        }
        let came = act(self);
        for Edit { file, .. } in &canary.edit {
            self.restore(file)?;
        }
        came
    }

    /// Builds the simulator. Hides the compiler's warnings about the bug.
    pub fn build(&self) -> Result<()> {
        let words = ["build", "--quiet", "--profile", "quick", "--package", "sim"];
        let status = Command::new(env!("CARGO"))
            .current_dir(&self.tree)
            .args(words)
            .env("CARGO_TARGET_DIR", &self.build)
            .env("RUSTFLAGS", "-Awarnings")
            .status()?;
        ensure!(status.success(), "cargo {}: {status}", words.join(" "));
        Ok(())
    }

    /// Runs this number of seeds in order.
    pub fn swarm(&self, first: u64, seeds: u64) -> Result<Ran> {
        let told = self.build.join("swarm.txt");
        let mut child = Command::new(self.build.join("quick").join("posthaste-sim"))
            .args(["swarm", "--raw", "--threads", "2"])
            .args(["--first", &first.to_string(), "--seeds", &seeds.to_string()])
            .args(["--minutes", &MINUTES_MAX.to_string()])
            .stdout(std::fs::File::create(&told)?)
            .stderr(Stdio::null())
            .spawn()
            .context("the simulator does not start")?;
        let until = Instant::now() + Duration::from_secs(MINUTES_MAX * 60 + GRACE_SECONDS);
        let ended = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status.success());
            }
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(LOOK);
        };
        Ok(Ran { ended, ..read(&std::fs::read_to_string(&told)?, seeds) })
    }
}

/// What the simulator has printed.
fn read(text: &str, seeds: u64) -> Ran {
    let after = |line: &str, word: &str| Some(line.split_once(word)?.1.to_owned());
    let number = |rest: String| rest.split(' ').next()?.parse::<u64>().ok();
    let seed = text.lines().find_map(|line| number(after(line, "--replay ")?));
    let of = |line: &str| {
        let check = after(line, "Finding { check: ")?;
        check.split(',').next().map(str::to_owned)
    };
    let mut checks: BTreeSet<String> = text.lines().filter_map(of).collect();
    if text.lines().any(|line| line.starts_with("seed ") && line.ends_with(" panics")) {
        checks.insert("panic".into());
    }
    if text.lines().any(|line| line.contains(" went two ways")) {
        checks.insert("Chance".into());
    }
    let finding = text.lines().find(|line| line.starts_with("Finding")).unwrap_or_default();
    let ran = text.lines().find_map(|line| number(line.to_owned()).filter(|_| seed.is_none()));
    let whole = seed.is_some() || ran == Some(seeds);
    let finding = if whole { finding.to_owned() } else { "it ran out of time".to_owned() };
    Ran { seed, checks: checks.into_iter().collect(), ended: None, finding }
}

impl Ran {
    /// Nothing was found in all the seeds.
    pub fn passed(&self) -> bool {
        self.ended == Some(true) && self.finding.is_empty()
    }

    /// In a line.
    pub fn told(&self) -> String {
        let Ran { seed, checks, ended, finding } = self;
        match (seed, ended) {
            (Some(seed), _) => format!("seed {seed} fails {}: {finding}", checks.join(", ")),
            (None, None) => "it hangs".into(),
            (None, Some(true)) if finding.is_empty() => "nothing found".into(),
            (None, _) => format!("no seed named: {finding}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_simulator_prints_is_read() {
        let failed = "seeds from 1\n40 seeds, 7 messages promised\n\
            Finding { check: Lost, text: \"m1r0 (Taken) is nowhere\" }\n\
            cargo xtask swarm --replay 33\n";
        let ran = read(failed, 500);
        assert_eq!((ran.seed, &ran.checks[..]), (Some(33), &["Lost".to_owned()][..]));
        assert!(!Ran { ended: Some(false), ..ran }.passed());
        let panicked = read("3 seeds, 1\nseed 2 panics\ncargo xtask swarm --replay 2\n", 9);
        assert_eq!((panicked.seed, &panicked.checks[..]), (Some(2), &["panic".to_owned()][..]));
        let well = read("seeds from 1\n9 seeds, 0 messages\nno check failed\n", 9);
        assert!(Ran { ended: Some(true), ..well }.passed());
    }

    #[test]
    fn a_swarm_that_ran_out_of_time_has_not_passed() {
        let short = read("seeds from 1\n8 seeds, 0 messages\nno check failed\n", 9);
        assert!(!Ran { ended: Some(true), ..short }.passed());
    }
}
