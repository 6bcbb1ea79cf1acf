//! Faults in a running daemon: a thread that stops or fails at a named point in the code, or a moved wall
//! clock. Only test builds of the daemon contain the points.
//!
//! Must never survive the test: the file is removed with it.

use super::{token, until};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
pub use world::real::faults::Point;
use world::real::faults::armed::{
    ACTION, BYTES, DONE, ENVIRONMENT, KEY, OFFSET, STEP, STEPS, STEPS_MAX, THAW,
};
pub use world::real::faults::armed::{FORBIDDEN, FREEZE, FREEZE_ALL, PANIC, PANIC_ALWAYS};

/// The file of faults of one daemon.
pub struct Faults {
    path: PathBuf,
    file: File,
}

impl Faults {
    pub fn new() -> Faults {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(token("faults"));
        std::fs::write(&path, [0; BYTES]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        Faults { path, file }
    }

    /// The environment of the daemon.
    pub fn environment(&self) -> Vec<(String, String)> {
        vec![(ENVIRONMENT.into(), self.path.to_str().unwrap().into())]
    }

    fn set(&self, word: usize, value: u64) {
        self.file.write_all_at(&value.to_ne_bytes(), word as u64 * 8).unwrap();
    }

    fn get(&self, word: usize) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, word as u64 * 8).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// Sets an action for the moment when the points were reached one after the other, each this number of
    /// times.
    pub fn arm(&self, action: u64, steps: &[(Point, u64)]) {
        self.arm_with_key(action, steps, 0);
    }

    /// The same, but the last point counts only with this key.
    pub fn arm_with_key(&self, action: u64, steps: &[(Point, u64)], key: u64) {
        assert!(!steps.is_empty() && steps.len() < STEPS_MAX);
        self.disarm();
        for (at, (point, count)) in steps.iter().enumerate().skip(1) {
            self.set(STEPS + 2 * at + 1, *count);
            self.set(STEPS + 2 * at, *point as u64);
        }
        self.set(STEPS + 1, steps[0].1);
        for (word, value) in [(ACTION, action), (KEY, key), (THAW, 0), (DONE, 0), (STEP, 0)] {
            self.set(word, value);
        }
        self.set(STEPS, steps[0].0 as u64);
    }

    /// Cancels the action. Stopped threads stay stopped.
    pub fn disarm(&self) {
        (0..STEPS_MAX).for_each(|at| self.set(STEPS + 2 * at, 0));
    }

    /// The number of times that the action happened.
    pub fn done(&self) -> u64 {
        self.get(DONE)
    }

    pub fn wait_until_done(&self, what: &str) {
        until(what, || (self.done() > 0).then_some(()));
    }

    /// Lets stopped threads continue.
    pub fn thaw(&self) {
        self.disarm();
        self.set(THAW, 1);
    }

    /// Sets the wall clock of the daemon ahead by `seconds`.
    pub fn set_wall_ahead(&self, seconds: i64) {
        self.set(OFFSET, (seconds * 1_000_000) as u64);
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
