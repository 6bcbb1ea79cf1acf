//! A disk in memory that costs nothing of what is counted: the medium is not what is measured.
//!
//! Must never sync, lose or delay anything; power cuts are the simulator's.

use crate::meter::outside;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use world::{Disk, DiskError, Entry, Errno, Synced};

/// What a spare segment is filled with.
const ZEROS: [u8; 4096] = [0; 4096];

/// One directory.
pub struct MemoryDisk {
    files: Mutex<BTreeMap<String, File>>,
    /// Has one file, [`OTHER_FILE`]: only a disk of `world` gives the evidence of a sync.
    other: world::sim::Disk,
}

/// The name of the file that is synced instead.
const OTHER_FILE: &str = "other";

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        let other = world::sim::Disk::new(0);
        other.put(OTHER_FILE, b"");
        MemoryDisk { files: Mutex::default(), other }
    }
}

/// A file reads as zeros behind what was written.
#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    length: usize,
}

impl File {
    fn write(&mut self, offset: usize, from: &[u8]) {
        self.length = self.length.max(offset + from.len());
        let is_new = offset >= self.bytes.len();
        if is_new && from.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()]) {
            return;
        }
        if self.bytes.len() < offset + from.len() {
            self.bytes.resize(offset + from.len(), 0);
        }
        self.bytes[offset..][..from.len()].copy_from_slice(from);
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Errno> {
        if offset + into.len() > self.length {
            return Err(Errno::SHORT);
        }
        into.fill(0);
        let there = self.bytes.get(offset..).unwrap_or_default();
        let count = there.len().min(into.len());
        into[..count].copy_from_slice(&there[..count]);
        Ok(())
    }
}

impl MemoryDisk {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        self.files.lock().expect("there is one thread")
    }

    fn with<T>(
        &self,
        call: &'static str,
        name: &str,
        work: impl FnOnce(&mut File) -> Result<T, Errno>,
    ) -> Result<T, DiskError> {
        outside(|| {
            let done = self.files().get_mut(name).map_or(Err(Errno::MISSING), work);
            done.map_err(|errno| DiskError::new(call, name, errno))
        })
    }
}

impl Disk for MemoryDisk {
    fn list(&self) -> Result<Vec<Entry>, DiskError> {
        let entry = |(name, file): (&String, &File)| Entry {
            name: name.clone(),
            bytes: file.length as u64,
            regular: true,
        };
        outside(|| Ok(self.files().iter().map(entry).collect()))
    }

    fn create(&self, name: &str) -> Result<(), DiskError> {
        outside(|| {
            self.files().entry(name.into()).or_default();
        });
        Ok(())
    }

    fn allocate(&self, name: &str, bytes: u64, extend: bool) -> Result<(), DiskError> {
        self.with("allocate", name, |file| {
            file.length = if extend { bytes as usize } else { file.length };
            Ok(())
        })
    }

    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.with("read", name, |file| file.read(offset as usize, into))
    }

    fn write_at(&self, name: &str, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        self.with("write", name, |file| {
            file.write(offset as usize, from);
            Ok(())
        })
    }

    fn sync(&self, name: &str) -> Result<Synced, DiskError> {
        self.with("sync", name, |_| Ok(()))?;
        outside(|| self.other.sync(OTHER_FILE))
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        outside(|| self.files().remove(name));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        outside(|| {
            let mut files = self.files();
            let missing = || DiskError::new("rename", from, Errno::MISSING);
            let file = files.remove(from).ok_or_else(missing)?;
            files.insert(to.into(), file);
            Ok(())
        })
    }

    fn forget_cache(&self, _name: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<(), DiskError> {
        self.create(name)
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        Ok(1 << 40)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_zeros_stand_behind_it() {
        let disk = MemoryDisk::default();
        disk.create("a").unwrap();
        disk.write_at("a", 4, &[0; 1_000]).unwrap();
        disk.write_at("a", 2, b"xyz").unwrap();
        let mut found = [9; 8];
        disk.read_at("a", 0, &mut found).unwrap();
        assert_eq!(&found, b"\0\0xyz\0\0\0");
        assert_eq!(disk.read_at("a", 1_000, &mut found).unwrap_err().errno, Errno::SHORT);
        assert_eq!(disk.read_at("b", 0, &mut found).unwrap_err().errno, Errno::MISSING);
    }
}
