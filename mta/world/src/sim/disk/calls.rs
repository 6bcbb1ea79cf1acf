//! The methods of [`crate::Disk`] on the simulated disk.
//!
//! Must never succeed if the power went out at this step.

use super::file::{SimFile, Write};
use super::machine::Twist;
use super::names::NameChange;
use super::{Call, Disk};
use crate::{DiskError, Entry, Errno, Rng as _, Synced};

fn gone(cut: bool, call: Call, name: &str) -> Result<(), DiskError> {
    if cut { Err(DiskError::new(call.verb(), name, Errno::OFF)) } else { Ok(()) }
}

impl crate::Disk for Disk {
    fn list(&self) -> Result<Vec<Entry>, DiskError> {
        let mut machine = self.machine();
        machine.enter(Call::List, ".")?;
        let entry = |(name, at): (&String, usize)| Entry {
            name: name.clone(),
            bytes: machine.files[at].shown.len() as u64,
            regular: true,
        };
        Ok(machine.names.iter().map(entry).collect())
    }

    fn create(&self, name: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Create, name)?.cut;
        if machine.names.get(name).is_some() {
            return Err(DiskError::new("create", name, Errno::EXISTS));
        }
        machine.files.push(SimFile::default());
        let at = machine.files.len() - 1;
        machine.names.change(NameChange::Create(name.into(), at));
        gone(cut, Call::Create, name)
    }

    fn allocate(&self, name: &str, bytes: u64, extend: bool) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Allocate, name)?.cut;
        let at = machine.at(Call::Allocate, name)?;
        let more = bytes.saturating_sub(machine.files[at].room());
        if machine.used().saturating_add(more) > machine.room {
            return Err(DiskError::new("allocate", name, Errno::FULL));
        }
        let file = &mut machine.files[at];
        file.reserved = file.reserved.max(bytes as usize);
        if extend {
            file.write(Write::Extend(bytes as usize));
        }
        gone(cut, Call::Allocate, name)
    }

    fn read_at(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let twist = machine.enter(Call::Read, name)?.twist;
        let at = machine.at(Call::Read, name)?;
        let file = &machine.files[at];
        if !file.is_readable(offset as usize, into.len()) {
            return Err(DiskError::new("read", name, Errno::IO));
        }
        if !file.shown.read(offset as usize, into) {
            return Err(DiskError::new("read", name, Errno::SHORT));
        }
        if matches!(twist, Some(Twist::Flip)) && !into.is_empty() {
            let bit = machine.chance.below(into.len() as u64 * 8) as usize;
            into[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(())
    }

    fn write_at(&self, name: &str, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let entered = machine.enter(Call::Write, name)?;
        let at = machine.at(Call::Write, name)?;
        let lands = machine.landing(entered.twist.as_ref());
        let write = |part: usize| {
            let bytes = from[..part].into();
            Write::Bytes { offset: offset as usize, bytes, lands }
        };
        if let Some(Twist::Short(errno)) = entered.twist {
            let part = machine.chance.below(from.len() as u64) as usize;
            machine.files[at].write(write(part));
            return Err(DiskError::new("write", name, errno));
        }
        let end = offset + from.len() as u64;
        let more = end.saturating_sub(machine.files[at].room());
        if machine.used().saturating_add(more) > machine.room {
            let part = from.len() / 2;
            if more < part as u64 {
                machine.files[at].write(write(part));
            }
            return Err(DiskError::new("write", name, Errno::FULL));
        }
        machine.files[at].write(write(from.len()));
        gone(entered.cut, Call::Write, name)
    }

    fn sync(&self, name: &str) -> Result<Synced, DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Sync, name)?.cut;
        let at = machine.at(Call::Sync, name)?;
        gone(cut, Call::Sync, name)?;
        machine.sync(at);
        Ok(synced::sync_succeeded())
    }

    fn sync_dir(&self) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::SyncDir, ".")?.cut;
        gone(cut, Call::SyncDir, ".")?;
        machine.names.sync();
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Remove, name)?.cut;
        machine.at(Call::Remove, name)?;
        machine.names.change(NameChange::Remove(name.into()));
        gone(cut, Call::Remove, name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let cut = machine.enter(Call::Rename, from)?.cut;
        machine.at(Call::Rename, from)?;
        machine.names.change(NameChange::Rename(from.into(), to.into()));
        gone(cut, Call::Rename, from)
    }

    /// Reads show from here on what a cut could not take, and no longer what a failed sync lost.
    fn forget_cache(&self, name: &str) -> Result<(), DiskError> {
        let mut machine = self.machine();
        let at = machine.at(Call::Read, name)?;
        machine.files[at].forget_cache();
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
