//! A disk that lies in every way a real one may, and in no other. This is its contract:
//!
//! - A write, a change of length, a creation, a removal and a renaming are *pending* until synced.
//!   `sync` settles one file's bytes, `sync_dir` the names. Neither settles the other.
//! - At a power cut each pending operation, independently of all others and in the order in which
//!   they were made, survives, vanishes, or (a write) is torn: each of its 512-byte sectors
//!   survives or not. A sector is never torn inside.
//! - After a failed `sync` its pending operations are lost or half done as after a cut, but reads
//!   still show them until the power is cut or the cache forgotten; no later `sync` brings them back.
//! - When the power goes, the operation it went at may have happened in part (it counts as
//!   pending), and every operation after it fails until [`Disk::power_on`].
//! - By plan, calls fail with any errno ([`Disk::fail_nth`], [`Disk::fail_always`]), room ends
//!   ([`Disk::set_room`]; a refused write may leave a part), and stored bits flip ([`Disk::flip`]).
//!
//! Must never keep a promise that it was not asked for by a sync.

use super::Chance;
use crate::{Chance as _, DiskError, Entry, Errno};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The grain at which a write is torn.
pub const SECTOR_BYTES: usize = 512;

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

/// The simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<Machine>>);

struct Machine {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    chance: Chance,
    steps: u64,
    cut_at: Option<u64>,
    off: bool,
    failing_nth: BTreeMap<(Call, u64), Errno>,
    failing_always: BTreeMap<Call, Errno>,
    calls: BTreeMap<Call, u64>,
    room: u64,
}

#[derive(Clone, Default)]
struct File {
    /// What reads show.
    shown: Vec<u8>,
    /// What is on the medium for certain.
    durable: Vec<u8>,
    pending: Vec<Write>,
    /// Bytes that have blocks.
    reserved: usize,
}

#[derive(Clone)]
enum Write {
    Bytes(usize, Vec<u8>),
    Extend(usize),
}

enum NameChange {
    Create(String, usize),
    Remove(String),
    Rename(String, String),
}

impl Disk {
    /// An empty disk; `seed` decides what survives a cut.
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(Machine {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            chance: Chance::seeded(seed),
            steps: 0,
            cut_at: None,
            off: false,
            failing_nth: BTreeMap::new(),
            failing_always: BTreeMap::new(),
            calls: BTreeMap::new(),
            room: u64::MAX,
        })))
    }

    /// Operations so far that could change something; the unit of [`Disk::cut_at`].
    pub fn steps(&self) -> u64 {
        self.machine().steps
    }

    /// The power goes at this step, counted from the disk's beginning.
    pub fn cut_at(&self, step: Option<u64>) {
        self.machine().cut_at = step;
    }

    /// The power goes now.
    pub fn cut(&self) {
        self.machine().off = true;
    }

    /// Whether the power is gone.
    pub fn is_off(&self) -> bool {
        self.machine().off
    }

    /// Decides what survived and lets the machine start again, without any plan.
    pub fn power_on(&self) {
        let mut machine = self.machine();
        machine.settle_after_cut();
        machine.off = false;
        machine.cut_at = None;
        machine.failing_nth.clear();
        machine.failing_always.clear();
    }

    /// The n-th call of this kind from now (1 is the next) fails.
    pub fn fail_nth(&self, call: Call, nth: u64, errno: Errno) {
        let mut machine = self.machine();
        let at = machine.calls.get(&call).copied().unwrap_or(0) + nth;
        machine.failing_nth.insert((call, at), errno);
    }

    /// Every call of this kind fails until told otherwise.
    pub fn fail_always(&self, call: Call, errno: Option<Errno>) {
        let mut machine = self.machine();
        match errno {
            Some(errno) => machine.failing_always.insert(call, errno),
            None => machine.failing_always.remove(&call),
        };
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
        let mut machine = self.machine();
        let Some(at) = machine.names.get(name).copied() else { return };
        let file = &mut machine.files[at];
        change(&mut file.shown);
        file.durable = file.shown.clone();
        file.pending.clear();
    }

    /// Flips one bit of a file.
    pub fn flip(&self, name: &str, byte: usize, bit: u8) {
        self.damage(name, |bytes| bytes[byte] ^= 1 << (bit & 7));
    }

    /// A file's bytes as reads show them; `None` where there is none.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let machine = self.machine();
        machine.names.get(name).map(|at| machine.files[*at].shown.clone())
    }

    /// Puts a whole durable file there, as a restored backup would.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut machine = self.machine();
        let (shown, durable) = (bytes.to_vec(), bytes.to_vec());
        let file = File { shown, durable, ..File::default() };
        machine.files.push(file);
        let at = machine.files.len() - 1;
        machine.names.insert(name.into(), at);
        machine.durable_names.insert(name.into(), at);
    }

    /// A disk of its own with the same bytes, all durable: a backup copy made while running.
    pub fn copied(&self, seed: u64) -> Disk {
        let copy = Disk::new(seed);
        let machine = self.machine();
        for (name, at) in &machine.names {
            copy.put(name, &machine.files[*at].shown);
        }
        copy
    }

    /// A disk of its own in the very same state, pending operations included, with other luck.
    pub fn forked(&self, seed: u64) -> Disk {
        let copy = Disk::new(seed);
        let machine = self.machine();
        let mut other = copy.machine();
        other.files = machine.files.clone();
        other.names = machine.names.clone();
        other.durable_names = machine.durable_names.clone();
        other.pending_names = machine.pending_names.iter().map(NameChange::copy).collect();
        other.room = machine.room;
        drop(other);
        copy
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machine {
    /// Counts a call; an error if the power is gone or the plan says so. `Ok(true)`: the power
    /// goes at this very step.
    fn enter(&mut self, call: Call, name: &str) -> Result<bool, DiskError> {
        let verb = verb(call);
        if self.off {
            return Err(DiskError::new(verb, name, Errno::OFF));
        }
        let nth = self.calls.entry(call).or_insert(0);
        *nth += 1;
        let planned = self.failing_nth.remove(&(call, *nth));
        if let Some(errno) = planned.or(self.failing_always.get(&call).copied()) {
            if call == Call::Sync {
                self.fail_sync(name);
            }
            return Err(DiskError::new(verb, name, errno));
        }
        if matches!(call, Call::List | Call::Read) {
            return Ok(false);
        }
        self.steps += 1;
        self.off = self.cut_at.is_some_and(|step| self.steps >= step);
        Ok(self.off)
    }

    fn at(&self, call: Call, name: &str) -> Result<usize, DiskError> {
        let missing = || DiskError::new(verb(call), name, Errno::MISSING);
        self.names.get(name).copied().ok_or_else(missing)
    }

    fn used(&self) -> u64 {
        self.names.values().map(|at| self.files[*at].room()).sum()
    }

    fn fail_sync(&mut self, name: &str) {
        if let Some(at) = self.names.get(name).copied() {
            let lost = std::mem::take(&mut self.files[at].pending);
            self.settle(at, lost);
        }
    }

    /// Each operation survives, vanishes or is torn.
    fn settle(&mut self, at: usize, pending: Vec<Write>) {
        for write in pending {
            let luck = self.chance.below(3);
            let (chance, durable) = (&mut self.chance, &mut self.files[at].durable);
            match (luck, write) {
                (0, _) => {}
                (1, Write::Bytes(offset, bytes)) => tear(durable, offset, &bytes, chance),
                (_, write) => write.apply(durable),
            }
        }
    }

    fn settle_after_cut(&mut self) {
        for at in 0..self.files.len() {
            let pending = std::mem::take(&mut self.files[at].pending);
            self.settle(at, pending);
            self.files[at].shown = self.files[at].durable.clone();
        }
        for change in std::mem::take(&mut self.pending_names) {
            if self.chance.below(2) == 0 {
                change.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
    }

    fn write(&mut self, at: usize, write: Write) {
        write.apply(&mut self.files[at].shown);
        self.files[at].pending.push(write);
    }
}

impl File {
    /// What it takes on the disk.
    fn room(&self) -> u64 {
        self.shown.len().max(self.reserved) as u64
    }
}

impl Write {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Write::Bytes(offset, bytes) => {
                grow(file, offset + bytes.len());
                file[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Write::Extend(bytes) => grow(file, *bytes),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            NameChange::Create(name, at) => {
                names.insert(name.clone(), *at);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Rename(from, to) => {
                if let Some(at) = names.remove(from) {
                    names.insert(to.clone(), at);
                }
            }
        }
    }

    fn copy(&self) -> NameChange {
        match self {
            NameChange::Create(name, at) => NameChange::Create(name.clone(), *at),
            NameChange::Remove(name) => NameChange::Remove(name.clone()),
            NameChange::Rename(from, to) => NameChange::Rename(from.clone(), to.clone()),
        }
    }
}

fn grow(file: &mut Vec<u8>, bytes: usize) {
    if file.len() < bytes {
        file.resize(bytes, 0);
    }
}

/// Sectors are cut where the medium has them, not where the write began.
fn tear(file: &mut Vec<u8>, offset: usize, bytes: &[u8], chance: &mut Chance) {
    let mut done = 0;
    while done < bytes.len() {
        let piece = (SECTOR_BYTES - (offset + done) % SECTOR_BYTES).min(bytes.len() - done);
        if chance.below(2) == 0 {
            let at = offset + done;
            grow(file, at + piece);
            file[at..at + piece].copy_from_slice(&bytes[done..done + piece]);
        }
        done += piece;
    }
}

fn verb(call: Call) -> &'static str {
    match call {
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

fn gone(cut: bool, call: Call, name: &str) -> Result<(), DiskError> {
    if cut { Err(DiskError::new(verb(call), name, Errno::OFF)) } else { Ok(()) }
}

impl crate::Disk for Disk {
    fn list(&self) -> Result<Vec<Entry>, DiskError> {
        let mut machine = self.machine();
        machine.enter(Call::List, ".")?;
        let entry = |(name, at): (&String, &usize)| Entry {
            name: name.clone(),
            bytes: machine.files[*at].shown.len() as u64,
            regular: true,
        };
        Ok(machine.names.iter().map(entry).collect())
    }

    fn create(&self, name: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Create, name)?;
        if machine.names.contains_key(name) {
            return Err(DiskError::new("create", name, Errno::EXISTS));
        }
        machine.files.push(File::default());
        let at = machine.files.len() - 1;
        machine.names.insert(name.into(), at);
        machine.pending_names.push(NameChange::Create(name.into(), at));
        gone(cut, Call::Create, name)
    }

    fn allocate(&self, name: &str, bytes: u64, extend: bool) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Allocate, name)?;
        let at = machine.at(Call::Allocate, name)?;
        let more = bytes.saturating_sub(machine.files[at].room());
        if machine.used().saturating_add(more) > machine.room {
            return Err(DiskError::new("allocate", name, Errno::FULL));
        }
        let reserved = machine.files[at].reserved.max(bytes as usize);
        machine.files[at].reserved = reserved;
        if extend {
            machine.write(at, Write::Extend(bytes as usize));
        }
        gone(cut, Call::Allocate, name)
    }

    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let mut machine = self.machine();
        machine.enter(Call::Read, name)?;
        let at = machine.at(Call::Read, name)?;
        let shown = &machine.files[at].shown;
        let range = offset as usize..offset as usize + into.len();
        match shown.get(range) {
            Some(bytes) => into.copy_from_slice(bytes),
            None => return Err(DiskError::new("read", name, Errno::SHORT)),
        }
        Ok(())
    }

    fn write_at(&self, name: &str, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Write, name)?;
        let at = machine.at(Call::Write, name)?;
        let end = offset + from.len() as u64;
        let more = end.saturating_sub(machine.files[at].room());
        if machine.used().saturating_add(more) > machine.room {
            let part = from.len() / 2;
            if more < part as u64 {
                machine.write(at, Write::Bytes(offset as usize, from[..part].to_vec()));
            }
            return Err(DiskError::new("write", name, Errno::FULL));
        }
        machine.write(at, Write::Bytes(offset as usize, from.to_vec()));
        gone(cut, Call::Write, name)
    }

    fn sync(&self, name: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Sync, name)?;
        let at = machine.at(Call::Sync, name)?;
        gone(cut, Call::Sync, name)?;
        let File { durable, pending, .. } = &mut machine.files[at];
        pending.drain(..).for_each(|write| write.apply(durable));
        Ok(())
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::SyncDir, ".")?;
        gone(cut, Call::SyncDir, ".")?;
        let pending = std::mem::take(&mut machine.pending_names);
        pending.iter().for_each(|change| change.apply(&mut machine.durable_names));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Remove, name)?;
        machine.at(Call::Remove, name)?;
        machine.names.remove(name);
        machine.pending_names.push(NameChange::Remove(name.into()));
        gone(cut, Call::Remove, name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Rename, from)?;
        let at = machine.at(Call::Rename, from)?;
        machine.names.remove(from);
        machine.names.insert(to.into(), at);
        machine.pending_names.push(NameChange::Rename(from.into(), to.into()));
        gone(cut, Call::Rename, from)
    }

    /// Reads show from here on what a cut could not take, and no longer what a failed sync lost.
    fn forget_cache(&self, name: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let at = machine.at(Call::Read, name)?;
        let file = &mut machine.files[at];
        let mut medium = file.durable.clone();
        file.pending.iter().for_each(|write| write.apply(&mut medium));
        file.shown = medium;
        Ok(())
    }

    fn lock(&self, _name: &str) -> Result<(), DiskError> {
        Ok(()) // processes are not simulated here; the real disk's lock has its own tests
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let machine = self.machine();
        Ok(machine.room.saturating_sub(machine.used()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Disk as _;

    fn read(disk: &Disk, bytes: usize) -> Vec<u8> {
        let mut into = vec![0; bytes];
        disk.read_at("a", 0, &mut into).unwrap();
        into
    }

    fn written(seed: u64) -> Disk {
        let disk = Disk::new(seed);
        disk.create("a").unwrap();
        disk.write_at("a", 0, &[1; 2048]).unwrap();
        disk
    }

    #[test]
    fn what_was_synced_survives_every_cut_and_what_was_not_has_every_fate() {
        let mut fates = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let disk = written(seed);
            disk.sync("a").unwrap();
            disk.sync_dir().unwrap();
            disk.write_at("a", 0, &[2; 2048]).unwrap();
            disk.cut();
            assert!(disk.write_at("a", 0, b"x").is_err());
            disk.power_on();
            let bytes = read(&disk, 2048);
            assert!(bytes.chunks(SECTOR_BYTES).all(|s| s.iter().all(|b| *b == s[0])));
            fates.insert(bytes.chunks(SECTOR_BYTES).map(|s| s[0]).collect::<Vec<_>>());
        }
        assert_eq!(fates.len(), 16, "each subset of four sectors");
    }

    #[test]
    fn a_synced_file_without_a_synced_name_may_be_gone() {
        let survived = (0..100).filter(|seed| {
            let disk = written(*seed);
            disk.sync("a").unwrap();
            disk.cut();
            disk.power_on();
            disk.bytes("a").is_some_and(|bytes| bytes == [1; 2048])
        });
        assert!((1..100).contains(&survived.count()));
    }

    #[test]
    fn a_failed_sync_still_reads_well_and_no_later_sync_brings_it_back() {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = written(seed);
            disk.sync_dir().unwrap();
            disk.fail_nth(Call::Sync, 1, Errno::IO);
            assert_eq!(disk.sync("a").unwrap_err().errno, Errno::IO);
            assert_eq!(read(&disk, 2048), [1; 2048]);
            disk.sync("a").unwrap();
            disk.cut();
            disk.power_on();
            lost += usize::from(disk.bytes("a").unwrap() != [1; 2048]);
        }
        assert!(lost > 10, "{lost}");
    }

    #[test]
    fn a_full_disk_refuses_and_may_keep_a_part() {
        let disk = written(1);
        disk.set_room(3000);
        assert!(disk.write_at("a", 1024, &[3; 4096]).unwrap_err().is_full());
        assert!(disk.allocate("a", 4096, true).unwrap_err().is_full());
        assert_eq!(disk.free_bytes().unwrap(), 952);
    }

    #[test]
    fn the_power_goes_at_the_step_that_was_named() {
        let disk = written(1);
        disk.cut_at(Some(disk.steps() + 2));
        disk.sync("a").unwrap();
        assert_eq!(disk.sync_dir().unwrap_err().errno, Errno::OFF);
        assert!(disk.is_off());
    }
}
