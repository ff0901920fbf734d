//! The databases that files name: threads share one, and the last one closes it.
//!
//! Invariant: a database's own threads may run on every core. They inherit the cores of the thread
//! that opens it, which is kept on one.

use super::command_file::{CommandFile, FileCommand};
use anyhow::{Context, Result, anyhow};
use nigh::{Db, Durability, Options};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All databases that the files name.
pub(super) struct Databases<'a> {
    dir: &'a Path,
    options: Options,
    cores: CpuSet,
    slots: BTreeMap<&'a str, Mutex<Slot>>,
    /// Of the logs of those that were closed.
    syncs: AtomicU64,
}

#[derive(Default)]
struct Slot {
    /// Some file opens it strong.
    strong: bool,
    open: Option<Arc<Db>>,
    users: usize,
}

impl<'a> Databases<'a> {
    /// Of these files; none is open yet. Called by a thread that may use all cores.
    pub(super) fn of(
        files: &[CommandFile<'a>],
        dir: &'a Path,
        options: Options,
        strong: bool,
    ) -> Result<Databases<'a>> {
        let mut slots: BTreeMap<&str, Slot> = BTreeMap::new();
        for (_, command) in files.iter().flat_map(|file| &file.commands) {
            if let FileCommand::Open { name, strong: is_strong } = command {
                slots.entry(name).or_default().strong |= strong || *is_strong;
            }
        }
        let slots = slots.into_iter().map(|(name, slot)| (name, Mutex::new(slot))).collect();
        let cores =
            sched_getaffinity(None).context("the system doesn't tell this process's cores")?;
        Ok(Databases { dir, options, cores, slots, syncs: AtomicU64::new(0) })
    }

    fn slot(&self, name: &str) -> MutexGuard<'_, Slot> {
        self.slots[name].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a database, or joins those that have it open.
    pub(super) fn open(&self, name: &str) -> Result<Arc<Db>> {
        let mut slot = self.slot(name);
        let db = match &slot.open {
            Some(db) => Arc::clone(db),
            None => {
                let options = match slot.strong {
                    true => self.options.clone().durability(Durability::Strong),
                    false => self.options.clone(),
                };
                let own = sched_getaffinity(None)?;
                sched_setaffinity(None, &self.cores)?;
                let opened = Db::open(self.dir.join(name), &options);
                sched_setaffinity(None, &own)?;
                // Its text has all; its source would say a part again.
                let opened = opened.map_err(|error| anyhow!("{error}"))?;
                Arc::clone(slot.open.insert(Arc::new(opened)))
            }
        };
        slot.users += 1;
        Ok(db)
    }

    /// How often the logs were synced, of databases that were closed.
    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Leaves a database, which `open` gave; closes it if nobody else has it.
    pub(super) fn close(&self, name: &str, db: Arc<Db>) -> Result<()> {
        let mut slot = self.slot(name);
        drop(db);
        slot.users -= 1;
        if slot.users > 0 {
            return Ok(());
        }
        match slot.open.take().and_then(Arc::into_inner) {
            Some(db) => {
                self.syncs.fetch_add(db.stats()?.syncs, Ordering::Relaxed);
                Ok(db.close()?)
            }
            None => unreachable!("whoever has it is counted"),
        }
    }
}
