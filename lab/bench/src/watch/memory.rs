//! Memory of a family of processes, sampled by a thread of ours.
//!
//! Must never cost more than a hundredth of a core: it rests a hundred times as long as it worked.

use super::family::Family;
use procfs::process::Process;
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shortest rest between two looks.
const REST_MIN: Duration = Duration::from_millis(100);
/// Longest rest between two looks.
const REST_MAX: Duration = Duration::from_secs(5);
/// Rest for each unit of time that a look took.
const REST_FACTOR: u32 = 100;

/// The largest values seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// The proportional set size over all processes, in MiB.
    pub pss_mib: f64,
    /// Processes at once.
    pub processes: usize,
    /// Number of looks.
    pub looks: u32,
}

/// The thread.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Peak>,
}

impl Sampler {
    /// Begins to look.
    pub fn begin(family: Family) -> Sampler {
        let (stop, stopped) = channel();
        Sampler { stop, thread: std::thread::spawn(move || sample(&family, &stopped)) }
    }

    /// Looks once more and returns what was seen.
    pub fn end(self) -> Peak {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

fn sample(family: &Family, stopped: &Receiver<()>) -> Peak {
    let mut peak = Peak::default();
    loop {
        let cost = peak.look(family);
        let rest = (cost * REST_FACTOR).clamp(REST_MIN, REST_MAX);
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            peak.look(family);
            return peak;
        }
    }
}

impl Peak {
    /// Looks once; returns the CPU time that the look took.
    fn look(&mut self, family: &Family) -> Duration {
        let start = worked();
        let pids = family.pids();
        let bytes: u64 = pids.iter().filter_map(|pid| pss_bytes(*pid)).sum();
        self.pss_mib = self.pss_mib.max(bytes as f64 / f64::from(1 << 20));
        self.processes = self.processes.max(pids.len());
        self.looks += 1;
        worked().saturating_sub(start)
    }
}

/// CPU time of this thread.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The proportional set size of a process. `None` if it has ended or must not be read.
fn pss_bytes(pid: u32) -> Option<u64> {
    let rollup = Process::new(pid.try_into().ok()?).ok()?.smaps_rollup().ok()?;
    rollup.memory_map_rollup.0.first()?.extension.map.get("Pss").copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const WORK: &str = "import os, time\n\
        x = bytearray(b'x') * (64 << 20)\nopen('full', 'w').close()\n\
        while not os.path.exists('go'): time.sleep(.01)\n\
        del x\nopen('less', 'w').close()\ntime.sleep(60)";

    fn await_file(path: &std::path::Path) {
        let end = std::time::Instant::now() + Duration::from_secs(30);
        while !path.exists() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn memory_that_was_given_back_stays_in_the_peak() {
        let place = tempfile::tempdir().unwrap();
        let mut python =
            Command::new("python3").args(["-c", WORK]).current_dir(&place).spawn().unwrap();
        let family = Family::below(&[python.id()]);
        await_file(&place.path().join("full"));
        let mut peak = Peak::default();
        peak.look(&family);
        std::fs::write(place.path().join("go"), "").unwrap();
        await_file(&place.path().join("less"));
        peak.look(&family);
        let sampler = Sampler::begin(family);
        let later = sampler.end();
        python.kill().unwrap();
        python.wait().unwrap();
        if std::path::Path::new("/proc/self/smaps_rollup").exists() {
            assert!(peak.pss_mib > 64.0, "{peak:?}");
            assert!(later.pss_mib > 0.0 && later.pss_mib < 64.0, "{later:?}");
        }
        assert_eq!((peak.processes, peak.looks, later.processes, later.looks), (1, 2, 1, 2));
    }
}
