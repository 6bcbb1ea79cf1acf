//! The machine of a run: processor, memory, kernel, file system, disk, and the disk's sync time.
//!
//! Must never guess: what the machine does not report is an empty text, and the sync time is measured.

mod disk;
mod group;
mod sync;

pub use disk::{Device, device_under, mount_of};
pub use group::group_of;
pub use sync::sync_times;

use anyhow::{Context, Result};
use report::record::Machine;
use std::path::{Path, PathBuf};

/// The options of `machine`.
#[derive(clap::Args)]
pub struct Options {
    /// The directory whose disk is measured by 0.2 s of small syncs
    #[arg(default_value = ".")]
    path: PathBuf,
}

/// Prints the machine as one JSON line, with all sync times.
pub fn run(options: Options) -> Result<()> {
    let mut value = serde_json::to_value(look(&options.path)?)?;
    value["sync"] = serde_json::to_value(sync_times(&options.path)?)?;
    println!("{value}");
    Ok(())
}

/// Describes the machine and the disk under `path`, a writable directory.
pub fn look(path: &Path) -> Result<Machine> {
    let load = load(); // before we are a load ourselves
    let mount = mount_of(path)?;
    let cores = rustix::thread::sched_getaffinity(None).context("sched_getaffinity")?.count();
    Ok(Machine {
        cpu: cpu(&read("/proc/cpuinfo")),
        cores,
        memory_mib: memory_mib(&read("/proc/meminfo")),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        system: system(),
        disk: mount.disk(),
        file_system: mount.file_system,
        sync_us: sync_times(path)?.median_us,
        load,
    })
}

/// Reads a file of the kernel; empty if it does not exist.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the processor's name, or the machine's type if the kernel knows no name (most ARM machines).
fn cpu(cpuinfo: &str) -> String {
    let named = |wanted: &&str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == *wanted).then(|| value.trim().to_string())
        })
    };
    let names = ["model name", "Processor", "cpu model", "cpu", "Hardware"];
    names.iter().find_map(named).unwrap_or_else(|| std::env::consts::ARCH.to_string())
}

fn memory_mib(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) / 1024
}

fn system() -> String {
    let text = std::fs::read_to_string("/etc/os-release")
        .or_else(|_| std::fs::read_to_string("/usr/lib/os-release"))
        .unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("").trim_matches('"').to_string()
}

/// Returns the load average of the last minute.
pub fn load() -> f64 {
    let text = read("/proc/loadavg");
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_is() {
        if !needs::met(&[needs::Need::RootMount]) {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let machine = look(place.path()).unwrap();
        assert!(machine.cores >= 1 && machine.memory_mib > 0, "{machine:?}");
        assert!(!machine.cpu.is_empty() && !machine.kernel.is_empty(), "{machine:?}");
        assert!(!machine.file_system.is_empty() && !machine.disk.is_empty(), "{machine:?}");
        assert!(machine.sync_us > 0.0, "{machine:?}");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "its file is gone");
    }

    #[test]
    fn a_processor_without_a_model_name_is_named_by_what_there_is() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: A  B\nmodel name\t: C\n"), "A  B");
        assert_eq!(cpu("processor\t: 0\nHardware\t: Board\n"), "Board");
        assert_eq!(cpu("processor\t: 0\n"), std::env::consts::ARCH);
    }

    #[test]
    fn memory_is_told_in_mib() {
        assert_eq!(memory_mib("MemFree: 1 kB\nMemTotal:       4194304 kB\n"), 4096);
        assert_eq!(memory_mib(""), 0);
    }
}
