//! What a mailer used between two moments: CPU time and memory of all its processes, and what reached the disk.
//!
//! Must never call the disk's figures the mailer's own: the kernel counts them for everyone on that disk.

use super::cpu::{Meter, Times};
use super::family::Family;
use super::memory::Sampler;
use crate::machine::Device;
use procfs::DiskStat;
use serde::Serialize;

const SECTOR_BYTES: u64 = 512;

/// A measurement in progress.
pub struct Usage {
    meter: Meter,
    times: Times,
    sampler: Sampler,
    device: Option<Device>,
    disk: Option<Disk>,
}

/// What was used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Used {
    /// CPU time in user mode, in seconds.
    pub cpu_user_s: f64,
    /// CPU time in the kernel, in seconds.
    pub cpu_system_s: f64,
    /// Peak of the proportional set size of all processes, in MiB; `None` if the kernel does not report it.
    pub peak_pss_mib: Option<f64>,
    /// Largest number of concurrent processes.
    pub processes_max: usize,
    /// Flushes of the disk's cache by all programs; `None` if the kernel does not count them.
    pub disk_flushes: Option<u64>,
    /// Bytes written to the disk by all programs.
    pub disk_written_bytes: Option<u64>,
    /// The way of measuring.
    pub how: String,
}

impl Usage {
    /// Begins to measure. `device` is the disk under the queue, see `machine::device_under`.
    pub fn begin(family: &Family, device: Option<Device>) -> Usage {
        let meter = Meter::of(family);
        let sampler = Sampler::begin(family.clone());
        let disk = device.and_then(Disk::now);
        Usage { times: meter.read(), meter, sampler, device, disk }
    }

    /// Ends the measurement. The mailer must still run, because /proc shows no ended processes.
    pub fn end(self) -> Used {
        let times = self.meter.read();
        let after = self.device.and_then(Disk::now);
        let peak = self.sampler.end();
        let disk = self.disk.zip(after);
        let how = format!(
            "CPU: {}; memory: sum of Pss in smaps_rollup, {} looks; disk: /proc/diskstats, everyone's",
            self.meter.how(),
            peak.looks
        );
        Used {
            // The kernel shares a sum between the two by estimate; either may seem to step back a little.
            cpu_user_s: (times.user_s - self.times.user_s).max(0.0),
            cpu_system_s: (times.system_s - self.times.system_s).max(0.0),
            peak_pss_mib: (peak.pss_mib > 0.0).then_some(peak.pss_mib),
            processes_max: peak.processes,
            disk_flushes: disk
                .and_then(|(before, after)| Some(after.flushes?.saturating_sub(before.flushes?))),
            disk_written_bytes: disk
                .map(|(before, after)| after.written_bytes.saturating_sub(before.written_bytes)),
            how,
        }
    }
}

/// Counters of a disk since the machine started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Disk {
    written_bytes: u64,
    /// Since Linux 5.5.
    flushes: Option<u64>,
}

impl Disk {
    fn now(device: Device) -> Option<Disk> {
        let is_own = |disk: &DiskStat| {
            (disk.major.unsigned_abs(), disk.minor.unsigned_abs()) == (device.major, device.minor)
        };
        let disk = procfs::diskstats().ok()?.into_iter().find(is_own)?;
        Some(Disk { written_bytes: disk.sectors_written * SECTOR_BYTES, flushes: disk.flushes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_busy_process_used_cpu_time_and_memory() {
        let mut shell = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let usage = Usage::begin(&Family::below(&[shell.id()]), None);
        std::thread::sleep(std::time::Duration::from_millis(400));
        let used = usage.end();
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(used.cpu_user_s + used.cpu_system_s > 0.0, "{used:?}");
        assert_eq!((used.processes_max, used.disk_flushes), (1, None));
    }
}
