//! A simulated disk that fails in every way in which a real disk may fail, and in no other. Its contract:
//!
//! - A write, a change of length, a creation, a removal and a renaming are *pending* until they are
//!   synced. `sync` settles the bytes of one file, `sync_dir` the names. Neither does both.
//! - At a power cut each pending operation, independently of all others and in the order in which
//!   they were made, survives, vanishes, or (a write) is torn: each of its 512-byte sectors
//!   survives or not. A sector itself is never torn. The random generator decides
//!   ([`Disk::power_on`]), or the caller does ([`Disk::pending`], [`Disk::power_on_with`]), so that
//!   every subset can be tried.
//! - After a failed `sync` the pending operations are lost or half done as after a power cut, but reads
//!   show them until the power is cut or the cache is dropped. No later `sync` brings them back.
//! - The operation at which the power goes out may have happened in part (it counts as pending), and
//!   every later operation fails until the power is on again.
//!
//! By plan, until the power is on again:
//!
//! - A call fails with any errno and does nothing ([`Disk::fail_nth`], [`Disk::fail_always`]).
//! - A write fails and does a part ([`Disk::short_nth`]). Room ends ([`Disk::set_room`], which stays
//!   after a power cut), and a refused write may leave a part.
//! - A read returns one wrong bit, and the right one the next time ([`Disk::flip_nth_read`]).
//!
//! Some faults break the assumptions that a mailer may make about the medium. After those a mailer
//! must only notice and report the damage, and never return damaged bytes as good:
//!
//! - Stored bits flip ([`Disk::flip`], [`Disk::damage`]); sectors cannot be read until they are
//!   written whole ([`Disk::bad_sector`]).
//! - A write is acknowledged, through a sync too, and never gets to the medium
//!   ([`Disk::lose_nth`]), or gets to another place of this file or another
//!   ([`Disk::misdirect_nth`]). Until the power is cut or the cache is dropped, reads show what was
//!   meant, and the place that was hit shows its old bytes.
//!
//! A fork ([`Disk::forked`]) and a power cut copy only pages that are written, so that a workload can
//! be cut in a thousand ways at each of its steps.
//!
//! Must never make anything durable that no sync asked for.

mod calls;
mod content;
mod fate;
mod file;
mod machine;
mod names;
#[cfg(test)]
mod tests;

pub use fate::{PowerCutFate, SECTOR_BYTES, Sectors, UnsyncedOperation, What};

use crate::Errno;
use content::FileBytes;
use file::SimFile;
use machine::{Machine, Twist};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls that can be planned to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the verbs of the trait
pub enum Call {
    List,
    Create,
    Allocate,
    Read,
    Write,
    Sync,
    SyncDir,
    Remove,
    Rename,
}

impl Call {
    fn verb(self) -> &'static str {
        match self {
            Call::List => "list",
            Call::Create => "create",
            Call::Allocate => "allocate",
            Call::Read => "read",
            Call::Write => "write",
            Call::Sync => "sync",
            Call::SyncDir => "sync_dir",
            Call::Remove => "remove",
            Call::Rename => "rename",
        }
    }
}

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<Machine>>);

impl Disk {
    /// Returns an empty disk. `seed` decides what survives a power cut.
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(Machine::new(seed))))
    }

    /// The number of operations so far that could change something; the unit of [`Disk::cut_at`].
    pub fn steps(&self) -> u64 {
        self.machine().steps
    }

    /// Cuts the power at this step, counted from the start of the disk.
    pub fn cut_at(&self, step: Option<u64>) {
        self.machine().plan.cut_at = step;
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.machine().off = true;
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.machine().off
    }

    /// The pending operations in the order in which [`Disk::power_on_with`] takes their fates: the writes
    /// by file and in the order in which they were made, then the changes of names.
    pub fn pending(&self) -> Vec<UnsyncedOperation> {
        self.machine().pending()
    }

    /// Switches the power on. The random generator decides what survived, and all plans are dropped.
    pub fn power_on(&self) {
        self.machine().power_on(None);
    }

    /// Switches the power on with these fates of the [pending](Disk::pending) operations. An operation
    /// without a fate vanishes.
    pub fn power_on_with(&self, fates: &[PowerCutFate]) {
        self.machine().power_on(Some(fates));
    }

    /// The n-th call of this kind from now (1 is the next) fails and does nothing; a sync loses
    /// what was pending.
    pub fn fail_nth(&self, call: Call, nth: u64, errno: Errno) {
        self.plan(call, nth, Twist::Fail(errno));
    }

    /// Every call of this kind fails until told otherwise.
    pub fn fail_always(&self, call: Call, errno: Option<Errno>) {
        let mut machine = self.machine();
        match errno {
            Some(errno) => machine.plan.always.insert(call, errno),
            None => machine.plan.always.remove(&call),
        };
    }

    /// The n-th write from now writes a part and fails.
    pub fn short_nth(&self, nth: u64, errno: Errno) {
        self.plan(Call::Write, nth, Twist::Short(errno));
    }

    /// The n-th write from now is acknowledged and never reaches the medium.
    pub fn lose_nth(&self, nth: u64) {
        self.plan(Call::Write, nth, Twist::Lose);
    }

    /// The n-th write from now reaches this place instead of its own, or none if there is no such file.
    pub fn misdirect_nth(&self, nth: u64, name: &str, offset: u64) {
        self.plan(Call::Write, nth, Twist::Misdirect(name.into(), offset as usize));
    }

    /// The n-th read from now returns one wrong bit.
    pub fn flip_nth_read(&self, nth: u64) {
        self.plan(Call::Read, nth, Twist::Flip);
    }

    fn plan(&self, call: Call, nth: u64, twist: Twist) {
        let mut machine = self.machine();
        let at = machine.calls.get(&call).copied().unwrap_or(0) + nth;
        machine.plan.nth.insert((call, at), twist);
    }

    /// The sector around this byte cannot be read until it is written whole.
    pub fn bad_sector(&self, name: &str, byte: usize) {
        self.change(name, |file| {
            file.bad.insert(byte / SECTOR_BYTES);
        });
    }

    /// Sets the bytes that all files together may have.
    pub fn set_room(&self, bytes: u64) {
        self.machine().room = bytes;
    }

    /// The number of calls of one kind so far.
    pub fn calls(&self, call: Call) -> u64 {
        self.machine().calls.get(&call).copied().unwrap_or(0)
    }

    /// Changes the bytes of a file on the medium and in what reads show, without any call.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.change(name, |file| {
            let mut bytes = file.shown.to_vec();
            change(&mut bytes);
            file.shown = FileBytes::from_bytes(&bytes);
            file.durable = file.shown.clone();
            file.lies = false;
            file.pending.clear();
        });
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut SimFile)) {
        let mut machine = self.machine();
        if let Some(at) = machine.names.get(name) {
            change(&mut machine.files[at]);
        }
    }

    /// Flips one bit of a file.
    pub fn flip(&self, name: &str, byte: usize, bit: u8) {
        self.damage(name, |bytes| bytes[byte] ^= 1 << (bit & 7));
    }

    /// The bytes of a file as reads show them; `None` if there is no such file.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let machine = self.machine();
        machine.names.get(name).map(|at| machine.files[at].shown.to_vec())
    }

    /// Adds a durable file, as a restored backup does.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.put_content(name, FileBytes::from_bytes(bytes));
    }

    fn put_content(&self, name: &str, shown: FileBytes) {
        let mut machine = self.machine();
        machine.files.push(SimFile { durable: shown.clone(), shown, ..SimFile::default() });
        let at = machine.files.len() - 1;
        machine.names.put(name, at);
    }

    /// Returns a separate disk with the same bytes, all durable, like a backup made while running.
    pub fn copied(&self, seed: u64) -> Disk {
        let copy = Disk::new(seed);
        let machine = self.machine();
        for (name, at) in machine.names.iter() {
            copy.put_content(name, machine.files[at].shown.clone());
        }
        copy
    }

    /// Returns a separate disk in the same state, with the same pending operations, another seed and no
    /// plan.
    pub fn forked(&self, seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(self.machine().forked(seed))))
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
