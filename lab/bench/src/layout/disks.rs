//! Disks of files: loop devices with a file system each, mounted side by side; and a slow one.
//!
//! Must never outlive its use: dropping it unmounts it and deletes its file.

use crate::machine;
use crate::room::run;
use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use crate::power::FileSystem;

/// Default size of a disk. Files are sparse.
pub const DISK_BYTES: u64 = 2 << 30;
const DISKS_MAX: u32 = 100;
/// Time for which ended processes may keep a file system busy.
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(20);
/// Time between two tries.
const UNMOUNT_REST: Duration = Duration::from_millis(20);
/// Size of the slow disk's file.
const SLOW_BYTES: u64 = 1 << 30;
/// Writes that the slow disk does in a second. One line appended and synced takes ext4 about four of them, so that it
/// waits as long as it would for a disk that turns.
const SLOW_WRITES_PER_SECOND: u32 = 500;
/// Lines by which the slow disk is measured.
const SLOW_SAMPLES: usize = 100;
const LINE_BYTES: usize = 150;

/// Makes a sparse file with a file system in it.
pub fn format(file: &Path, bytes: u64, kind: FileSystem) -> Result<()> {
    let _ = std::fs::remove_file(file); // of a run that was killed
    File::create(file).with_context(|| file.display().to_string())?.set_len(bytes)?;
    let path = file.display().to_string();
    match kind {
        FileSystem::Ext4 => run("mkfs.ext4", ["-q", "-F", "-E", "nodiscard", &path])?,
        FileSystem::Xfs => run("mkfs.xfs", ["-q", "-f", "-K", &path])?,
    };
    Ok(())
}

/// Mounts a file as a loop device, as fast as it is: a killed run may have left that device throttled.
pub fn mount(file: &Path, place: &Path, options: &str) -> Result<()> {
    let [file, path] = [file, place].map(|path| path.display().to_string());
    run("mount", ["-o", options, &file, &path])?;
    if let (Ok(control), Ok(mount)) = (throttle_control(), machine::mount_of(place)) {
        let _ = limit(&control, mount.device, 0); // not ours to say in a container
    }
    Ok(())
}

/// Mounted loop disks.
pub struct Disks {
    places: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// The file that limits the writes of a device, and that device.
    throttle: Option<(PathBuf, machine::Device)>,
    how: String,
}

impl Disks {
    /// Makes disks mounted at `under/disk0`, `under/disk1`, ...; their files lie beside them. All of them share the
    /// disk under `under`: they have journals, locks and queues of their own, not heads of their own.
    pub fn make(count: u32, bytes: u64, kind: FileSystem, under: &Path) -> Result<Disks> {
        ensure!((1..=DISKS_MAX).contains(&count), "{count} disks; there may be 1 to {DISKS_MAX}");
        let how = format!("{count} loop devices of one disk");
        let mut disks = Disks { places: Vec::new(), files: Vec::new(), throttle: None, how };
        for number in 0..count {
            disks.add(&under.join(format!("disk{number}")), bytes, kind, "loop")?;
        }
        Ok(disks)
    }

    /// One disk, mounted at `place`, on which a log written line by line is slow: each write waits until it is on the
    /// disk, and where the kernel can do so (cgroup v1, blkio) the disk does few writes a second. A disk that is merely
    /// slow would slow down nobody: the kernel takes unsynced writes into its memory.
    pub fn slow(place: &Path) -> Result<Disks> {
        let mut disks =
            Disks { places: Vec::new(), files: Vec::new(), throttle: None, how: String::new() };
        disks.add(place, SLOW_BYTES, FileSystem::Ext4, "loop,sync,dirsync")?;
        let throttled = disks.throttle(place);
        let times = line_times(place)?;
        let mean_us = times.iter().sum::<f64>() / times.len() as f64;
        let speed = match throttled {
            Ok(()) => format!("throttled to {SLOW_WRITES_PER_SECOND} writes a second (blkio)"),
            Err(error) => format!("as fast as the disk below ({error})"),
        };
        disks.how = format!(
            "a loop device mounted sync,dirsync, {speed}: a line of {LINE_BYTES} bytes takes {mean_us:.0} us on average"
        );
        Ok(disks)
    }

    /// Returns the mount points.
    pub fn places(&self) -> &[PathBuf] {
        &self.places
    }

    /// Describes them, with what was measured.
    pub fn how(&self) -> &str {
        &self.how
    }

    fn add(&mut self, place: &Path, bytes: u64, kind: FileSystem, options: &str) -> Result<()> {
        let file = place.with_extension("image");
        std::fs::create_dir_all(place).with_context(|| place.display().to_string())?;
        self.files.push(file.clone());
        format(&file, bytes, kind)?;
        mount(&file, place, options)?;
        self.places.push(place.to_path_buf());
        Ok(())
    }

    fn throttle(&mut self, place: &Path) -> Result<()> {
        let device = machine::mount_of(place)?.device;
        let control = throttle_control()?;
        limit(&control, device, SLOW_WRITES_PER_SECOND)?;
        self.throttle = Some((control, device));
        Ok(())
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        if let Some((control, device)) = &self.throttle {
            let _ = limit(control, *device, 0); // the device is about to go
        }
        for place in self.places.iter().rev() {
            unmount(place);
            let _ = std::fs::remove_dir(place); // someone may have put something below it
        }
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Unmounts, waiting for programs with open files; at last lazily.
fn unmount(place: &Path) {
    let path = place.display().to_string();
    let end = Instant::now() + UNMOUNT_TIME_MAX;
    while run("umount", [&path]).is_err() {
        if Instant::now() >= end {
            let _ = run("umount", ["-l", &path]); // the room's end does the rest
            return;
        }
        std::thread::sleep(UNMOUNT_REST);
    }
}

/// The file by which the writes a second of a device are bounded, for the group in which we and our children are.
fn throttle_control() -> Result<PathBuf> {
    let group = machine::group_of("blkio").context("no cgroup v1 with blkio")?;
    let control = group.join("blkio.throttle.write_iops_device");
    ensure!(control.exists(), "no blkio throttle");
    Ok(control)
}

/// 0: no bound.
fn limit(control: &Path, device: machine::Device, per_second: u32) -> Result<()> {
    let text = format!("{}:{} {per_second}", device.major, device.minor);
    OpenOptions::new().write(true).open(control)?.write_all(text.as_bytes())?;
    Ok(())
}

/// Measures how long it takes to append a line, in microseconds.
fn line_times(place: &Path) -> Result<Vec<f64>> {
    let path = place.join("measured");
    let mut file = File::create(&path)?;
    let line = [b'x'; LINE_BYTES];
    let mut times = Vec::new();
    for _ in 0..SLOW_SAMPLES {
        let start = Instant::now();
        file.write_all(&line)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_mount() -> bool {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().display().to_string();
        let mounted = run("mount", ["-t", "tmpfs", "none", &path]).is_ok();
        let loops = Path::new("/dev/loop-control").exists();
        mounted && run("umount", [&path]).is_ok() && loops
    }

    #[test]
    fn a_disk_has_a_file_system_of_its_own_and_goes_without_a_trace() {
        if !may_mount() {
            return; // an ordinary user, or a container
        }
        let place = tempfile::tempdir().unwrap();
        let below = machine::mount_of(place.path()).unwrap();
        let disks = Disks::make(2, 64 << 20, FileSystem::Ext4, place.path()).unwrap();
        let mounts: Vec<_> =
            disks.places().iter().map(|place| machine::mount_of(place).unwrap()).collect();
        assert!(mounts[0].device != mounts[1].device && mounts[0].device != below.device);
        assert_eq!(mounts[1].file_system, "ext4");
        assert!(mounts[1].disk().contains("disk1.image on "), "{}", mounts[1].disk());
        drop(disks);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_slow_disk_says_how_slow_it_is() {
        if !may_mount() {
            return; // an ordinary user, or a container
        }
        let place = tempfile::tempdir().unwrap();
        let disks = Disks::slow(&place.path().join("log")).unwrap();
        assert!(disks.how().contains("a line of 150 bytes takes"), "{}", disks.how());
        std::fs::write(disks.places()[0].join("mail.log"), "line\n").unwrap();
        drop(disks);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
