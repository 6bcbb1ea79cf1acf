//! The time that the disk takes to sync 4 KiB: written in place into a filled file, then fdatasync.
//!
//! Must never let the file grow during the measurement: that would time the file system's journal as well.

use anyhow::{Context, Result};
use rustix::fs::fdatasync;
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const WRITE_BYTES: usize = 4096;
const FILE_WRITES: u64 = 256;
const WARM_UP: usize = 10;
const SAMPLES_MAX: usize = 200;
/// Time limit: a slow disk gives fewer samples, not a longer wait.
const TIME_MAX: Duration = Duration::from_millis(400);
/// Smallest number of samples.
const SAMPLES_MIN: usize = 20;

/// The times of the syncs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SyncTimes {
    /// The median, in microseconds.
    pub median_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The number of timed syncs.
    pub samples: usize,
}

/// Measures in the directory `path`.
pub fn sync_times(path: &Path) -> Result<SyncTimes> {
    let name = path.join(format!(".posthaste-lab-sync-{}", std::process::id()));
    let file = File::create(&name).with_context(|| name.display().to_string())?;
    std::fs::remove_file(&name)?; // it ends with us, however we end
    let bytes = [0; WRITE_BYTES];
    for write in 0..FILE_WRITES {
        file.write_all_at(&bytes, write * WRITE_BYTES as u64)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    let start = Instant::now();
    for number in 0..WARM_UP + SAMPLES_MAX {
        let time = sync_one(&file, number as u64 % FILE_WRITES)?;
        if number >= WARM_UP {
            times.push(time);
        }
        if times.len() >= SAMPLES_MIN && start.elapsed() > TIME_MAX {
            break;
        }
    }
    Ok(summary(&mut times))
}

/// Times one write and its sync, in microseconds.
fn sync_one(file: &File, write: u64) -> Result<f64> {
    // Bytes that change, or a disk that compares or compresses would have nothing to do.
    let bytes = [write as u8 ^ 0x55; WRITE_BYTES];
    let start = Instant::now();
    file.write_all_at(&bytes, write * WRITE_BYTES as u64)?;
    fdatasync(file).context("fdatasync")?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

fn summary(times: &mut [f64]) -> SyncTimes {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    SyncTimes { median_us: at(0.5), p99_us: at(0.99), samples: times.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_last_but_one_of_a_hundred_are_told() {
        let mut times: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let found = summary(&mut times);
        assert_eq!(found, SyncTimes { median_us: 50.0, p99_us: 99.0, samples: 101 });
    }
}
