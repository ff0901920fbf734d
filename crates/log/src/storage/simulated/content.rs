//! The bytes of one file: what reads see, and what is on the disk.
//!
//! 1. Only a sync moves bytes to the disk. Until then a power cut keeps, loses, mixes or ruins each
//!    sector by itself; of a sector that was written several times, any version may be there.
//! 2. A ruined write ruins its block of 4,096 bytes as a whole, synced sectors too.
//! 3. A changed length is on the disk only behind a sync of all.

use crate::format::layout::{BLOCK_BYTES, SECTOR_BYTES};
use crate::storage::Chance;
use crate::storage::simulated::ambient::{below, once_in};
use std::collections::BTreeMap;

const SECTOR: usize = 512;
const SECTORS_OF_BLOCK: usize = 8;
const _: () = assert!(SECTOR as u64 == SECTOR_BYTES);
const _: () = assert!((SECTOR * SECTORS_OF_BLOCK) as u64 == BLOCK_BYTES);

type Sector = [u8; SECTOR];

/// How much of what isn't synced a power cut keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct CutLuck {
    /// Sectors and names are lost once in so many; 0: none is lost.
    lost_once_in: u64,
    /// A block with a lost sector is ruined once in so many.
    ruined_once_in: u64,
}

impl CutLuck {
    /// Chosen anew for each cut, so that all, nothing, and most of it is kept often enough.
    pub(super) fn choose(chance: &dyn Chance) -> CutLuck {
        const LOST: [u64; 6] = [0, 1, 2, 2, 8, 64];
        const RUINED: [u64; 3] = [2, 16, 1 << 32];
        let of = |choices: &[u64]| {
            let count = choices.len() as u64;
            let at = usize::try_from(below(chance, count)).unwrap_or(0);
            choices.get(at).copied().unwrap_or(1)
        };
        CutLuck { lost_once_in: of(&LOST), ruined_once_in: of(&RUINED) }
    }

    /// Whether one thing is lost.
    pub(super) fn loses(&self, chance: &dyn Chance) -> bool {
        self.lost_once_in > 0 && once_in(chance, self.lost_once_in)
    }
}

/// The bytes of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileContent {
    /// What reads see.
    cached: Vec<u8>,
    /// What is on the disk; zeros behind its end.
    disk: Vec<u8>,
    /// The file's length by the disk, bytes.
    disk_bytes: usize,
    /// Sectors that aren't synced, each with the versions between the disk's and the cached one.
    unsynced: BTreeMap<usize, Vec<Sector>>,
}

impl FileContent {
    /// A file with these bytes, all on the disk.
    pub(super) fn synced(bytes: Vec<u8>) -> FileContent {
        let disk_bytes = bytes.len();
        FileContent { disk: bytes.clone(), cached: bytes, disk_bytes, unsynced: BTreeMap::new() }
    }

    /// What reads see.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.cached
    }

    /// Makes the file so long, if it is shorter.
    pub(super) fn extend(&mut self, bytes: usize) {
        if self.cached.len() < bytes {
            self.cached.resize(bytes, 0);
        }
    }

    /// Writes bytes behind each other, from a position on.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        self.extend(end);
        for sector in at / SECTOR..end.div_ceil(SECTOR) {
            let now = sector_of(&self.cached, sector);
            self.unsynced.entry(sector).and_modify(|v| v.push(now)).or_default();
        }
        if let Some(into) = self.cached.get_mut(at..end) {
            into.copy_from_slice(bytes);
        }
    }

    /// Moves what was written to the disk; the length too if `all` says so.
    pub(super) fn sync(&mut self, all: bool) {
        for sector in std::mem::take(&mut self.unsynced).into_keys() {
            set_sector(&mut self.disk, sector, &sector_of(&self.cached, sector));
        }
        if all {
            self.disk_bytes = self.cached.len();
        }
    }

    /// A sync fails: some sectors are on the disk, and no later sync moves the others.
    pub(super) fn fail_sync(&mut self, all: bool, chance: &dyn Chance) {
        for sector in std::mem::take(&mut self.unsynced).into_keys() {
            if once_in(chance, 2) {
                set_sector(&mut self.disk, sector, &sector_of(&self.cached, sector));
            }
        }
        if all && once_in(chance, 2) {
            self.disk_bytes = self.cached.len();
        }
    }

    /// The cache forgets what it needn't write: later reads see the disk.
    pub(super) fn forget(&mut self) {
        for sector in 0..self.cached.len().div_ceil(SECTOR) {
            if !self.unsynced.contains_key(&sector) {
                let on_disk = sector_of(&self.disk, sector);
                set_within(&mut self.cached, sector, &on_disk);
            }
        }
    }

    /// What is there when power comes back.
    pub(super) fn power_cut(&self, luck: &CutLuck, chance: &dyn Chance) -> FileContent {
        let mut disk = self.disk.clone();
        let mut ruined = Vec::new();
        for (&sector, between) in &self.unsynced {
            let old = sector_of(&self.disk, sector);
            let new = sector_of(&self.cached, sector);
            let lost = luck.loses(chance);
            if lost && once_in(chance, luck.ruined_once_in) {
                ruined.push(sector);
            }
            let is = if lost { half_written(&old, &new, between, chance) } else { new };
            set_sector(&mut disk, sector, &is);
        }
        ruined.iter().for_each(|&sector| ruin(&mut disk, sector, chance));
        let bytes = self.bytes_behind_cut(luck, chance);
        disk.resize(bytes, 0);
        FileContent::synced(disk)
    }

    /// The length by the disk, the new one, or one between.
    fn bytes_behind_cut(&self, luck: &CutLuck, chance: &dyn Chance) -> usize {
        let (old, new) = (self.disk_bytes, self.cached.len());
        if !luck.loses(chance) {
            return new;
        }
        let more = new.saturating_sub(old) / SECTOR;
        let some = below(chance, more as u64 + 1);
        if once_in(chance, 2) { old } else { old + usize::try_from(some).unwrap_or(0) * SECTOR }
    }
}

/// A sector that isn't the newest: the old one, one between, or a mix.
fn half_written(old: &Sector, new: &Sector, between: &[Sector], chance: &dyn Chance) -> Sector {
    let pick = usize::try_from(below(chance, between.len() as u64 + 1)).unwrap_or(0);
    let mut is = *between.get(pick).unwrap_or(old);
    if once_in(chance, 8) {
        let written = usize::try_from(below(chance, SECTOR_BYTES)).unwrap_or(0);
        copy(&mut is, new.get(..written).unwrap_or_default());
    }
    is
}

/// Fills the block of a sector with anything.
fn ruin(disk: &mut Vec<u8>, sector: usize, chance: &dyn Chance) {
    let first = sector / SECTORS_OF_BLOCK * SECTORS_OF_BLOCK;
    for sector in first..first + SECTORS_OF_BLOCK {
        let mut any = [0; SECTOR];
        for word in any.chunks_exact_mut(8) {
            word.copy_from_slice(&chance.word().to_le_bytes());
        }
        set_sector(disk, sector, &any);
    }
}

fn sector_of(bytes: &[u8], sector: usize) -> Sector {
    let mut is = [0; SECTOR];
    copy(&mut is, bytes.get(sector * SECTOR..).unwrap_or_default());
    is
}

fn set_sector(bytes: &mut Vec<u8>, sector: usize, is: &Sector) {
    if bytes.len() < (sector + 1) * SECTOR {
        bytes.resize((sector + 1) * SECTOR, 0);
    }
    set_within(bytes, sector, is);
}

fn set_within(bytes: &mut [u8], sector: usize, is: &Sector) {
    copy(bytes.get_mut(sector * SECTOR..).unwrap_or_default(), is);
}

/// Copies as many bytes as both have; returns how many.
pub(super) fn copy(into: &mut [u8], from: &[u8]) -> usize {
    let bytes = into.len().min(from.len());
    if let (Some(into), Some(from)) = (into.get_mut(..bytes), from.get(..bytes)) {
        into.copy_from_slice(from);
    }
    bytes
}
