//! The file system's shutdown ioctl: nothing reaches the disk any more, as after a power cut.
//!
//! Must never be called for a file system that is in use by others.

use anyhow::{Context, Result};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};
use std::path::Path;

/// `XFS_IOC_GOINGDOWN` and `EXT4_IOC_SHUTDOWN`: `_IOR('X', 125, __u32)`.
const GOING_DOWN: Opcode = opcode::read::<u32>(b'X', 125);
/// Not even the journal is flushed.
const NO_LOG_FLUSH: u32 = 2;

/// Cuts the power of the file system mounted at `mount`.
pub fn shutdown(mount: &Path) -> Result<()> {
    let directory = std::fs::File::open(mount).with_context(|| mount.display().to_string())?;
    // SAFETY: ext4 and xfs define this request as reading one u32 through the pointer that `Setter` passes; any other
    // file system refuses it with ENOTTY. Nothing is written through the pointer.
    unsafe { ioctl(&directory, Setter::<GOING_DOWN, u32>::new(NO_LOG_FLUSH)) }
        .with_context(|| format!("the shutdown ioctl of {}", mount.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_that_of_the_kernels_headers_and_other_file_systems_refuse_it() {
        assert_eq!(GOING_DOWN, 0x8004_587d);
        assert!(shutdown(Path::new("/proc")).is_err());
    }
}
