//! Faults on demand in a running daemon: a thread stopped or broken at a named place in the code,
//! a wall clock moved. Test builds of the daemon alone know them.
//!
//! Must never outlive the test: the file goes with it.

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

    /// To be in the environment of the daemon.
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

    /// This is done when the points were reached one after the other, each so often.
    pub fn arm(&self, action: u64, steps: &[(Point, u64)]) {
        self.arm_with_key(action, steps, 0);
    }

    /// The same, where the last point counts with this key only.
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

    /// Nothing is done any more; who is frozen stays frozen.
    pub fn disarm(&self) {
        (0..STEPS_MAX).for_each(|at| self.set(STEPS + 2 * at, 0));
    }

    /// How often it was done.
    pub fn done(&self) -> u64 {
        self.get(DONE)
    }

    pub fn wait_until_done(&self, what: &str) {
        until(what, || (self.done() > 0).then_some(()));
    }

    /// Who is frozen goes on.
    pub fn thaw(&self) {
        self.disarm();
        self.set(THAW, 1);
    }

    /// The wall clock of the daemon is so many seconds ahead.
    pub fn set_wall_ahead(&self, seconds: i64) {
        self.set(OFFSET, (seconds * 1_000_000) as u64);
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
