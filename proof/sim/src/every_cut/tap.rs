//! A disk that keeps a copy of itself from before each operation that could change something.
//!
//! Must never change what the disk under it does.

use std::sync::{Mutex, MutexGuard, PoisonError};
use world::sim::Disk;
use world::{DiskError, Entry, Synced};

/// The name of the file that is synced instead.
const OTHER_FILE: &str = "other";

/// The disk and its copies. The power may go at each of them: an operation that it goes at is
/// pending in the next.
pub struct Tap {
    disk: Disk,
    ignores_syncs: bool,
    /// Has one file, [`OTHER_FILE`]: its sync is the evidence that a lying disk shows.
    elsewhere: Disk,
    copies: Mutex<Vec<Disk>>,
}

impl Tap {
    /// Begins to keep copies.
    pub fn new(disk: Disk) -> Tap {
        let elsewhere = Disk::new(0);
        elsewhere.put(OTHER_FILE, b"");
        Tap { disk, ignores_syncs: false, elsewhere, copies: Mutex::default() }
    }

    /// A disk that lies about what it has of the log, as a negative control.
    pub fn ignoring_syncs(disk: Disk) -> Tap {
        Tap { ignores_syncs: true, ..Tap::new(disk) }
    }

    /// The copies made since the last call, oldest first.
    pub fn take(&self) -> Vec<Disk> {
        std::mem::take(&mut *self.held())
    }

    /// The disk itself.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    fn held(&self) -> MutexGuard<'_, Vec<Disk>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stepping(&self) -> &Disk {
        self.held().push(self.disk.forked(0));
        &self.disk
    }
}

impl world::Disk for Tap {
    fn list(&self) -> Result<Vec<Entry>, DiskError> {
        self.disk.list()
    }
    fn create(&self, name: &str) -> Result<(), DiskError> {
        self.stepping().create(name)
    }
    fn allocate(&self, name: &str, bytes: u64, extend: bool) -> Result<(), DiskError> {
        self.stepping().allocate(name, bytes, extend)
    }
    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read_at(name, offset, into)
    }
    fn write_at(&self, name: &str, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        self.stepping().write_at(name, offset, from)
    }
    fn sync(&self, name: &str) -> Result<Synced, DiskError> {
        let disk = self.stepping();
        let ignored = self.ignores_syncs && name.starts_with("segment-");
        if ignored { self.elsewhere.sync(OTHER_FILE) } else { disk.sync(name) }
    }
    fn sync_dir(&self) -> Result<(), DiskError> {
        self.stepping().sync_dir()
    }
    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.stepping().remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.stepping().rename(from, to)
    }
    fn forget_cache(&self, name: &str) -> Result<(), DiskError> {
        self.disk.forget_cache(name)
    }
    fn lock(&self, name: &str) -> Result<(), DiskError> {
        self.disk.lock(name)
    }
    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.disk.free_bytes()
    }
}
