//! Which file system lies under a path, and which disk under that.
//!
//! Must never fail for lack of a name: a file system without a device (tmpfs, overlay) is named by its source.

use anyhow::{Context, Result};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Depth to which loop devices, partitions and maps are followed.
const DEPTH_MAX: usize = 6;

/// A block device's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver.
    pub major: u32,
    /// The driver's device.
    pub minor: u32,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// Its type, such as `ext4`.
    pub file_system: String,
    /// Its source: `/dev/vda`, or a word.
    pub source: String,
    /// Its device; major 0 if it has none.
    pub device: Device,
}

/// Returns the file system of `path`.
pub fn mount_of(path: &Path) -> Result<Mount> {
    let path = path.canonicalize().with_context(|| path.display().to_string())?;
    let number = std::fs::metadata(&path)?.dev();
    let own = Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
    let text = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let above =
        text.lines().filter_map(Mount::parse).filter(|mount| path.starts_with(&mount.point));
    // The longest mount point; of several the last, which lies over the others. One that has the path's own device
    // goes before one that was covered by a mount further up.
    let rank = |mount: &Mount| (mount.device == own, mount.point.as_os_str().len());
    let found = above.max_by_key(rank);
    found.with_context(|| format!("{} lies in no mount that is told of", path.display()))
}

/// Returns the whole disk under `path`, whose flushes the kernel counts; `None` if there is no block device.
pub fn device_under(path: &Path) -> Result<Option<Device>> {
    let mount = mount_of(path)?;
    Ok(mount.block_device().map(|device| device.whole(DEPTH_MAX)))
}

impl Mount {
    /// Parses a line of /proc/self/mountinfo.
    fn parse(line: &str) -> Option<Mount> {
        let (own, rest) = line.split_once(" - ")?;
        let mut own = own.split(' ').skip(2);
        let device = Device::parse(own.next()?)?;
        let point = PathBuf::from(std::ffi::OsString::from_vec(unescape(own.nth(1)?)));
        let mut rest = rest.split(' ');
        let file_system = rest.next()?.to_string();
        let source = String::from_utf8_lossy(&unescape(rest.next()?)).into_owned();
        Some(Mount { point, file_system, source, device })
    }

    /// Describes the device with its model; loop devices with their file and that file's disk.
    pub fn disk(&self) -> String {
        self.disk_to(DEPTH_MAX)
    }

    fn disk_to(&self, depth: usize) -> String {
        match self.block_device() {
            Some(device) if depth > 0 => device.words(depth),
            _ => self.source.clone(),
        }
    }

    /// Returns the block device. Some file systems (btrfs) have device numbers of their own, but are mounted from a
    /// device.
    fn block_device(&self) -> Option<Device> {
        let mounted_from = || {
            let number = std::fs::metadata(&self.source).ok()?.rdev();
            let device =
                Device { major: rustix::fs::major(number), minor: rustix::fs::minor(number) };
            (device.major != 0).then_some(device)
        };
        if self.device.major != 0 { Some(self.device) } else { mounted_from() }
    }
}

impl Device {
    fn parse(text: &str) -> Option<Device> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    fn directory(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }

    /// Returns its name, such as `vda`.
    fn name(self) -> String {
        let link = std::fs::read_link(self.directory()).unwrap_or_default();
        let name = link.file_name().map(|name| String::from_utf8_lossy(name.as_bytes()).into());
        name.unwrap_or_else(|| format!("{}:{}", self.major, self.minor))
    }

    fn file(self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.directory().join(name)).ok()?;
        Some(text.trim().to_string()).filter(|text| !text.is_empty())
    }

    /// Returns the disk of a partition or the one disk of a map (LVM, encryption), else itself. Loop devices are disks.
    fn whole(self, depth: usize) -> Device {
        match self.below() {
            Some(below) if depth > 0 => below.whole(depth - 1),
            _ => self,
        }
    }

    fn below(self) -> Option<Device> {
        let directory = self.directory();
        if directory.join("partition").exists() {
            let disk = directory.canonicalize().ok()?.parent()?.join("dev");
            return Device::parse(&std::fs::read_to_string(disk).ok()?);
        }
        let mut slaves = std::fs::read_dir(directory.join("slaves")).ok()?.flatten();
        let first = slaves.next()?.path().join("dev");
        match slaves.next() {
            None => Device::parse(&std::fs::read_to_string(first).ok()?),
            Some(_) => None,
        }
    }

    fn words(self, depth: usize) -> String {
        let name = self.name();
        if let Some(file) = self.file("loop/backing_file") {
            let directory = Path::new(&file).parent().unwrap_or(Path::new("/"));
            // In a mount namespace of our own the file may be out of sight.
            let below = mount_of(directory).map(|mount| mount.disk_to(depth - 1));
            return match below {
                Ok(below) => format!("/dev/{name} on {file} on {below}"),
                Err(_) => format!("/dev/{name} on {file}"),
            };
        }
        if let Some(below) = self.below() {
            return format!("/dev/{name} on {}", below.words(depth.saturating_sub(1)));
        }
        let driver = || {
            let link = std::fs::read_link(self.directory().join("device/driver")).ok()?;
            Some(link.file_name()?.to_string_lossy().into_owned())
        };
        match self.file("device/model").or_else(driver) {
            Some(model) => format!("/dev/{name} ({model})"),
            None => format!("/dev/{name}"),
        }
    }
}

/// Replaces the octal escapes of spaces and the like.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        let octal = |at: usize| bytes.get(at).filter(|byte| (b'0'..=b'7').contains(byte));
        match (first, octal(1), octal(2), octal(3)) {
            (b'\\', Some(a), Some(b), Some(c)) => {
                out.push(((a - b'0') & 3) << 6 | (b - b'0') << 3 | (c - b'0'));
                bytes = &bytes[4..];
            }
            _ => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_its_escapes_and_optional_fields() {
        let line = r"36 35 98:0 /root /mnt/a\040b rw,noatime shared:1 master:2 - ext4 /dev/sda1 rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(mount.device, Device { major: 98, minor: 0 });
        assert_eq!((mount.file_system.as_str(), mount.source.as_str()), ("ext4", "/dev/sda1"));
        assert_eq!(Mount::parse("nonsense"), None);
    }

    #[test]
    fn proc_is_found_as_what_it_is() {
        let mount = mount_of(Path::new("/proc/self")).unwrap();
        assert_eq!(mount.file_system, "proc");
        assert_eq!(device_under(Path::new("/proc")).unwrap(), None);
        assert_eq!(mount.disk(), mount.source);
    }

    #[test]
    fn a_disk_that_is_told_of_is_one_the_kernel_counts() {
        if !needs::met(&[needs::Need::RootMount]) {
            return;
        }
        let Some(device) = device_under(Path::new("/")).unwrap() else { return }; // a container's overlay
        let stats = std::fs::read_to_string("/proc/diskstats").unwrap();
        let wanted = [device.major.to_string(), device.minor.to_string()];
        let counted = |line: &str| line.split_ascii_whitespace().take(2).eq(wanted.iter());
        assert!(stats.lines().any(counted), "{device:?}");
    }
}
