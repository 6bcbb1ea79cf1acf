//! The state of the simulated disk: files, names, random generator, and the planned faults.
//!
//! Must never do more for a failing call than the plan says.

use super::Call;
use super::fate::{PowerCutFate, UnsyncedOperation, What};
use super::file::{Landing, SimFile, Write};
use super::names::FileNames;
use crate::sim::Rng;
use crate::{DiskError, Errno, Rng as _};
use std::collections::BTreeMap;

/// The whole state.
pub(super) struct Machine {
    pub files: Vec<SimFile>,
    pub names: FileNames,
    pub chance: Rng,
    pub steps: u64,
    pub off: bool,
    pub plan: PlannedFaults,
    pub calls: BTreeMap<Call, u64>,
    pub room: u64,
}

/// The planned faults. A power cut drops them.
#[derive(Default)]
pub(super) struct PlannedFaults {
    pub cut_at: Option<u64>,
    /// Faults by the number of the call since the start of the disk.
    pub nth: BTreeMap<(Call, u64), Twist>,
    pub always: BTreeMap<Call, Errno>,
}

/// The fault of one call.
#[derive(Clone, Debug)]
pub(super) enum Twist {
    /// The call fails and does nothing.
    Fail(Errno),
    /// A write fails and writes a part.
    Short(Errno),
    /// A write reaches this offset of this file.
    Misdirect(String, usize),
    /// A write is acknowledged and never reaches the medium.
    Lose,
    /// A read returns one wrong bit.
    Flip,
}

/// What happens to a call that does not fail at once.
pub(super) struct Entered {
    /// The power goes out at this step.
    pub cut: bool,
    pub twist: Option<Twist>,
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine {
            files: Vec::new(),
            names: FileNames::default(),
            chance: Rng::seeded(seed),
            steps: 0,
            off: false,
            plan: PlannedFaults::default(),
            calls: BTreeMap::new(),
            room: u64::MAX,
        }
    }

    /// Returns the same state with another seed and without a plan.
    pub fn forked(&self, seed: u64) -> Machine {
        let (files, names) = (self.files.clone(), self.names.clone());
        Machine { files, names, room: self.room, ..Machine::new(seed) }
    }

    /// Counts a call; an error if the power is gone or the plan says so.
    pub fn enter(&mut self, call: Call, name: &str) -> Result<Entered, DiskError> {
        if self.off {
            return Err(DiskError::new(call.verb(), name, Errno::OFF));
        }
        let nth = self.calls.entry(call).or_insert(0);
        *nth += 1;
        let twist = self.plan.nth.remove(&(call, *nth));
        let always = || self.plan.always.get(&call).copied();
        let planned = match &twist {
            Some(Twist::Fail(errno)) => Some(*errno),
            _ => always(),
        };
        if let Some(errno) = planned {
            if call == Call::Sync {
                self.fail_sync(name);
            }
            return Err(DiskError::new(call.verb(), name, errno));
        }
        if matches!(call, Call::List | Call::Read) {
            return Ok(Entered { cut: false, twist });
        }
        self.steps += 1;
        self.off = self.plan.cut_at.is_some_and(|step| self.steps >= step);
        Ok(Entered { cut: self.off, twist })
    }

    pub fn at(&self, call: Call, name: &str) -> Result<usize, DiskError> {
        let missing = || DiskError::new(call.verb(), name, Errno::MISSING);
        self.names.get(name).ok_or_else(missing)
    }

    /// Bytes that all files with names take.
    pub fn used(&self) -> u64 {
        self.names.iter().map(|(_, at)| self.files[at].room()).sum()
    }

    /// Where a write with this fault lands.
    pub fn landing(&self, twist: Option<&Twist>) -> Landing {
        match twist {
            Some(Twist::Lose) => Landing::Nowhere,
            Some(Twist::Misdirect(name, offset)) => {
                self.names.get(name).map_or(Landing::Nowhere, |at| Landing::At(at, *offset))
            }
            _ => Landing::Here,
        }
    }

    /// Brings all pending writes of the file to the medium, each to the place where it lands.
    pub fn sync(&mut self, at: usize) {
        let file = &mut self.files[at];
        let pending = std::mem::take(&mut file.pending);
        if file.lies {
            pending.iter().for_each(|write| self.settle(at, write, &PowerCutFate::Survives));
        } else {
            file.durable = file.shown.clone();
        }
    }

    /// Treats the pending writes as after a power cut, while reads still show them.
    fn fail_sync(&mut self, name: &str) {
        let Some(at) = self.names.get(name) else { return };
        let lost = std::mem::take(&mut self.files[at].pending);
        self.files[at].lies |= !lost.is_empty();
        for write in lost {
            let fate = PowerCutFate::by_chance(write.sectors(), &mut self.chance);
            self.settle(at, &write, &fate);
        }
    }

    fn settle(&mut self, at: usize, write: &Write, fate: &PowerCutFate) {
        let target = match write.lands() {
            Landing::At(other, _) => other,
            _ => at,
        };
        write.settle(fate, &mut self.files[target].durable);
        self.files[target].lies |= write.lands() != Landing::Here;
    }

    /// Switches the power on. Without fates the random generator decides.
    pub fn power_on(&mut self, fates: Option<&[PowerCutFate]>) {
        let mut fates = fates.map(|fates| fates.iter());
        for at in 0..self.files.len() {
            for write in std::mem::take(&mut self.files[at].pending) {
                let fate = match &mut fates {
                    Some(fates) => fates.next().cloned().unwrap_or(PowerCutFate::Vanishes),
                    None => PowerCutFate::by_chance(write.sectors(), &mut self.chance),
                };
                self.settle(at, &write, &fate);
            }
        }
        let chance = &mut self.chance;
        self.names.settle(|| match &mut fates {
            Some(fates) => fates.next().cloned().unwrap_or(PowerCutFate::Vanishes),
            None if chance.below(2) == 0 => PowerCutFate::Survives,
            None => PowerCutFate::Vanishes,
        });
        for file in &mut self.files {
            file.shown = file.durable.clone();
            file.lies = false;
        }
        self.off = false;
        self.plan = PlannedFaults::default();
    }

    /// The pending operations, in the order in which `power_on` takes their fates.
    pub fn pending(&self) -> Vec<UnsyncedOperation> {
        let mut all = Vec::new();
        for (at, file) in self.files.iter().enumerate() {
            for (nth, write) in file.pending.iter().enumerate() {
                let what = match write {
                    Write::Bytes { offset, bytes, .. } => {
                        What::Write { offset: *offset as u64, bytes: bytes.len() as u64 }
                    }
                    Write::Extend(bytes) => What::Extend { bytes: *bytes as u64 },
                };
                let (name, sectors) = (self.names.name_of(at), write.sectors());
                all.push(UnsyncedOperation { name, what, sectors, telling: file.telling(nth) });
            }
        }
        for change in &self.names.pending {
            let (name, what) = change.described();
            all.push(UnsyncedOperation { name, what, sectors: 0, telling: Vec::new() });
        }
        all
    }
}
