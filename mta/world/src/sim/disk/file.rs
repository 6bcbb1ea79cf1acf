//! One file: what reads show, what the medium holds, and the pending writes.
//!
//! Must never let a pending write reach the medium except by a fate.

use super::content::{FileBytes, pieces};
use super::fate::{PowerCutFate, SECTOR_BYTES};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A file without its name.
#[derive(Clone, Default)]
pub(super) struct SimFile {
    /// The bytes that reads show.
    pub shown: FileBytes,
    /// The bytes that are durable.
    pub durable: FileBytes,
    pub pending: Vec<Write>,
    /// Bytes that have blocks on the disk.
    pub reserved: usize,
    /// Reads show something else than the medium with the pending writes, because a sync failed or a
    /// write goes to another place.
    pub lies: bool,
    /// Sectors of the medium that cannot be read.
    pub bad: BTreeSet<usize>,
}

/// A pending change of a file's bytes.
#[derive(Clone)]
pub(super) enum Write {
    Bytes { offset: usize, bytes: Arc<[u8]>, lands: Landing },
    Extend(usize),
}

/// Where the medium really puts a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Landing {
    Here,
    /// To no place: the write is acknowledged and lost.
    Nowhere,
    /// To this offset of another file, or of the same file.
    At(usize, usize),
}

impl SimFile {
    /// Bytes that the file takes on the disk.
    pub fn room(&self) -> u64 {
        self.shown.len().max(self.reserved) as u64
    }

    /// Adds a pending write, which reads show from now on.
    pub fn write(&mut self, write: Write) {
        write.apply(&mut self.shown);
        if let Write::Bytes { offset, bytes, lands } = &write {
            self.lies |= *lands != Landing::Here;
            self.heal(*offset, bytes.len());
        }
        self.pending.push(write);
    }

    /// A bad sector that is written whole is remapped by the medium and can be read again.
    fn heal(&mut self, offset: usize, length: usize) {
        if self.bad.is_empty() {
            return;
        }
        for (sector, piece) in pieces(offset, length, SECTOR_BYTES) {
            if piece.len() == SECTOR_BYTES {
                self.bad.remove(&sector);
            }
        }
    }

    pub fn is_readable(&self, offset: usize, length: usize) -> bool {
        let sectors = offset / SECTOR_BYTES..(offset + length).div_ceil(SECTOR_BYTES);
        self.bad.range(sectors).next().is_none()
    }

    /// Drops the cache: reads show the medium with the pending writes.
    pub fn forget_cache(&mut self) {
        let here = |write: &Write| write.lands() == Landing::Here;
        self.shown = self.durable.clone();
        self.lies = !self.pending.iter().all(here);
        for write in self.pending.iter().filter(|write| here(write)) {
            write.apply(&mut self.shown);
        }
    }

    /// The sectors of the n-th pending write whose survival makes a difference on the medium.
    pub fn telling(&self, nth: usize) -> Vec<u32> {
        let Write::Bytes { offset, bytes, .. } = &self.pending[nth] else { return Vec::new() };
        let others = || self.pending.iter().enumerate().filter(|(other, _)| *other != nth);
        let mut telling = Vec::new();
        for (number, (sector, piece)) in pieces(*offset, bytes.len(), SECTOR_BYTES).enumerate() {
            let at = offset + piece.start;
            let contested = others().any(|(_, other)| other.touches(sector));
            if contested || !self.durable.has(at, &bytes[piece]) {
                telling.push(number as u32);
            }
        }
        telling
    }
}

impl Write {
    pub fn lands(&self) -> Landing {
        match self {
            Write::Bytes { lands, .. } => *lands,
            Write::Extend(_) => Landing::Here,
        }
    }

    /// The number of sectors that the write touches.
    pub fn sectors(&self) -> u32 {
        match self {
            Write::Bytes { offset, bytes, .. } => {
                pieces(*offset, bytes.len(), SECTOR_BYTES).count() as u32
            }
            Write::Extend(_) => 0,
        }
    }

    fn touches(&self, sector: usize) -> bool {
        match self {
            Write::Bytes { offset, bytes, .. } => {
                let end = (offset + bytes.len()).div_ceil(SECTOR_BYTES);
                (offset / SECTOR_BYTES..end).contains(&sector)
            }
            Write::Extend(_) => false,
        }
    }

    /// Applies the write as its writer meant it.
    pub fn apply(&self, content: &mut FileBytes) {
        match self {
            Write::Bytes { offset, bytes, .. } => content.write(*offset, bytes),
            Write::Extend(bytes) => content.grow(*bytes),
        }
    }

    /// Applies the surviving part to the medium, at the place where the write lands. Sectors begin where
    /// the medium has them, not where the write begins.
    pub fn settle(&self, fate: &PowerCutFate, medium: &mut FileBytes) {
        let (offset, bytes) = match (self, self.lands()) {
            (Write::Extend(bytes), _) if fate.keeps_any() => return medium.grow(*bytes),
            (Write::Extend(_), _) | (_, Landing::Nowhere) => return,
            (Write::Bytes { offset, bytes, .. }, Landing::Here) => (*offset, bytes),
            (Write::Bytes { bytes, .. }, Landing::At(_, offset)) => (offset, bytes),
        };
        match fate {
            PowerCutFate::Survives => medium.write(offset, bytes),
            PowerCutFate::Vanishes => {}
            PowerCutFate::Torn(_) => {
                for (number, (_, piece)) in pieces(offset, bytes.len(), SECTOR_BYTES).enumerate() {
                    if fate.keeps(number as u32) {
                        medium.write(offset + piece.start, &bytes[piece]);
                    }
                }
            }
        }
    }
}
