//! A disk that lies in every way a real one may, and in no other. This is its contract:
//!
//! - A write, a change of length, a creation, a removal and a renaming are *pending* until synced.
//!   `sync` settles one file's bytes, `sync_dir` the names. Neither settles the other.
//! - At a power cut each pending operation, independently of all others and in the order in which
//!   they were made, survives, vanishes, or (a write) is torn: each of its 512-byte sectors
//!   survives or not. A sector is never torn inside. Luck decides ([`Disk::power_on`]) or the
//!   caller ([`Disk::pending`], [`Disk::power_on_with`]), so that every subset can be tried.
//! - After a failed `sync` its pending operations are lost or half done as after a cut, but reads
//!   still show them until the power is cut or the cache forgotten; no later `sync` brings them back.
//! - When the power goes, the operation it went at may have happened in part (it counts as
//!   pending), and every operation after it fails until the power is on again.
//!
//! By plan, until the power is on again:
//!
//! - Calls fail with any errno and have done nothing ([`Disk::fail_nth`], [`Disk::fail_always`]).
//! - A write fails and has done a part ([`Disk::short_nth`]); room ends ([`Disk::set_room`], which
//!   outlives the power), and a refused write may leave a part.
//! - One bit of what is read is wrong, and right the next time ([`Disk::flip_nth_read`]).
//!
//! And what breaks the assumptions that a mailer may make about the medium, so that nothing but
//! this may be asked of it then: damage is noticed and told, and never given out as good:
//!
//! - Stored bits flip ([`Disk::flip`], [`Disk::damage`]); sectors cannot be read until they are
//!   written whole ([`Disk::bad_sector`]).
//! - A write is acknowledged, through a sync too, and never gets to the medium
//!   ([`Disk::lose_nth`]), or gets to another place of this file or another
//!   ([`Disk::misdirect_nth`]). Reads show what was meant until the power is cut or the cache
//!   forgotten, and the place that was hit shows its old bytes for as long.
//!
//! A fork ([`Disk::forked`]) and a cut copy no page that is not written, so that a workload can be
//! cut a thousand ways at each of its steps.
//!
//! Must never keep a promise that it was not asked for by a sync.

mod calls;
mod content;
mod fate;
mod file;
mod machine;
mod names;
#[cfg(test)]
mod tests;

pub use fate::{Fate, Pending, SECTOR_BYTES, Sectors, What};

use crate::Errno;
use content::Content;
use file::File;
use machine::{Machine, Twist};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What can be planned to fail.
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
    /// An empty disk; `seed` decides what survives a cut.
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(Machine::new(seed))))
    }

    /// Operations so far that could change something; the unit of [`Disk::cut_at`].
    pub fn steps(&self) -> u64 {
        self.machine().steps
    }

    /// The power goes at this step, counted from the disk's beginning.
    pub fn cut_at(&self, step: Option<u64>) {
        self.machine().plan.cut_at = step;
    }

    /// The power goes now.
    pub fn cut(&self) {
        self.machine().off = true;
    }

    /// Whether the power is gone.
    pub fn is_off(&self) -> bool {
        self.machine().off
    }

    /// What is pending, in the order in which [`Disk::power_on_with`] takes its fates: the writes
    /// by file and in the order in which they were made, then the changes of names.
    pub fn pending(&self) -> Vec<Pending> {
        self.machine().pending()
    }

    /// Luck decides what survived, and the machine can start again, without any plan.
    pub fn power_on(&self) {
        self.machine().power_on(None);
    }

    /// The same, but these are the fates of what is [pending](Disk::pending); what has none
    /// vanishes.
    pub fn power_on_with(&self, fates: &[Fate]) {
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

    /// The n-th write from now does a part and fails.
    pub fn short_nth(&self, nth: u64, errno: Errno) {
        self.plan(Call::Write, nth, Twist::Short(errno));
    }

    /// The n-th write from now is acknowledged and never gets to the medium.
    pub fn lose_nth(&self, nth: u64) {
        self.plan(Call::Write, nth, Twist::Lose);
    }

    /// The n-th write from now gets to this place instead of its own; to none if there is no such
    /// file then.
    pub fn misdirect_nth(&self, nth: u64, name: &str, offset: u64) {
        self.plan(Call::Write, nth, Twist::Misdirect(name.into(), offset as usize));
    }

    /// The n-th read from now has one bit wrong.
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

    /// Bytes that all files together may have.
    pub fn set_room(&self, bytes: u64) {
        self.machine().room = bytes;
    }

    /// Calls of one kind so far.
    pub fn calls(&self, call: Call) -> u64 {
        self.machine().calls.get(&call).copied().unwrap_or(0)
    }

    /// Changes stored bytes behind everyone's back, on the medium and in what reads show.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.change(name, |file| {
            let mut bytes = file.shown.to_vec();
            change(&mut bytes);
            file.shown = Content::from_bytes(&bytes);
            file.durable = file.shown.clone();
            file.lies = false;
            file.pending.clear();
        });
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut File)) {
        let mut machine = self.machine();
        if let Some(at) = machine.names.get(name) {
            change(&mut machine.files[at]);
        }
    }

    /// Flips one bit of a file.
    pub fn flip(&self, name: &str, byte: usize, bit: u8) {
        self.damage(name, |bytes| bytes[byte] ^= 1 << (bit & 7));
    }

    /// A file's bytes as reads show them; `None` where there is none.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let machine = self.machine();
        machine.names.get(name).map(|at| machine.files[at].shown.to_vec())
    }

    /// Puts a whole durable file there, as a restored backup would.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.put_content(name, Content::from_bytes(bytes));
    }

    fn put_content(&self, name: &str, shown: Content) {
        let mut machine = self.machine();
        machine.files.push(File { durable: shown.clone(), shown, ..File::default() });
        let at = machine.files.len() - 1;
        machine.names.put(name, at);
    }

    /// A disk of its own with the same bytes, all durable: a backup copy made while running.
    pub fn copied(&self, seed: u64) -> Disk {
        let copy = Disk::new(seed);
        let machine = self.machine();
        for (name, at) in machine.names.iter() {
            copy.put_content(name, machine.files[at].shown.clone());
        }
        copy
    }

    /// A disk of its own in the very same state, pending operations included, with other luck and
    /// without a plan.
    pub fn forked(&self, seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(self.machine().forked(seed))))
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
