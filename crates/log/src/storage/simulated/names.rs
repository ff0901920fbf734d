//! The names of the simulated folder: those that are seen, and those on the disk.
//!
//! 1. Only a sync of the folder moves names to the disk; a file's sync doesn't.
//! 2. A renaming is kept or lost as one. It may be kept though an earlier change is lost.

use crate::storage::Chance;
use crate::storage::simulated::ambient::once_in;
use crate::storage::simulated::content::CutLuck;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
enum NameChange {
    Made { name: String, file: u64 },
    Removed { name: String, file: u64 },
    Renamed { from: String, to: String, file: u64 },
}

impl NameChange {
    fn file(&self) -> u64 {
        let (NameChange::Made { file, .. }
        | NameChange::Removed { file, .. }
        | NameChange::Renamed { file, .. }) = self;
        *file
    }
}

type NameMap = BTreeMap<String, u64>;

/// The names, each with the number of its file.
#[derive(Debug, Clone, Default)]
pub(super) struct FolderNames {
    seen: NameMap,
    disk: NameMap,
    unsynced: Vec<NameChange>,
}

impl FolderNames {
    /// The names that are seen.
    pub(super) fn seen(&self) -> &BTreeMap<String, u64> {
        &self.seen
    }

    /// The files that have a name, or to which a power cut may leave one.
    pub(super) fn may_be_named(&self) -> BTreeSet<u64> {
        let stands = self.seen.values().chain(self.disk.values()).copied();
        stands.chain(self.unsynced.iter().map(NameChange::file)).collect()
    }

    /// Gives a file a name.
    pub(super) fn make(&mut self, name: &str, file: u64) {
        self.change(NameChange::Made { name: name.into(), file });
    }

    /// Gives a file a name that is on the disk.
    pub(super) fn make_synced(&mut self, name: &str, file: u64) {
        self.seen.insert(name.into(), file);
        self.disk.insert(name.into(), file);
    }

    /// Removes a name, if it is there.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(&file) = self.seen.get(name) {
            self.change(NameChange::Removed { name: name.into(), file });
        }
    }

    /// Renames; false if there is no such name.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(&file) = self.seen.get(from) else {
            return false;
        };
        self.change(NameChange::Renamed { from: from.into(), to: to.into(), file });
        true
    }

    fn change(&mut self, change: NameChange) {
        apply(&mut self.seen, &change);
        self.unsynced.push(change);
    }

    /// All changes since the last sync are on the disk.
    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            apply(&mut self.disk, &change);
        }
    }

    /// A sync fails: some changes are on the disk, and no later sync moves the others.
    pub(super) fn fail_sync(&mut self, chance: &dyn Chance) {
        for change in std::mem::take(&mut self.unsynced) {
            if once_in(chance, 2) {
                apply(&mut self.disk, &change);
            }
        }
    }

    /// The names when power comes back.
    pub(super) fn power_cut(&self, luck: &CutLuck, chance: &dyn Chance) -> FolderNames {
        let mut disk = self.disk.clone();
        for change in &self.unsynced {
            if !luck.loses(chance) {
                apply(&mut disk, change);
            }
        }
        FolderNames { seen: disk.clone(), disk, unsynced: Vec::new() }
    }
}

fn apply(names: &mut NameMap, change: &NameChange) {
    match change {
        NameChange::Made { name, file } => drop(names.insert(name.clone(), *file)),
        NameChange::Removed { name, file } => {
            if names.get(name) == Some(file) {
                names.remove(name);
            }
        }
        NameChange::Renamed { from, to, file } => {
            if names.get(from) == Some(file) {
                names.remove(from);
            }
            names.insert(to.clone(), *file);
        }
    }
}
