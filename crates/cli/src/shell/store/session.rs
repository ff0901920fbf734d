//! What the commands of a store's shell work on.
//!
//! Invariant: with a reader, nothing writes: [`Session::owner`] refuses it in one place.

use anyhow::{Result, bail};
use nigh::{Db, DbReader, Watch, WriteBatch, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The database: this process's, or one that another process has open.
pub(super) enum OpenStore {
    Owner(Db),
    Reader(DbReader),
}

/// A shell's database, and what lines before have set.
pub(super) struct Session {
    pub(super) store: OpenStore,
    /// `strong on`.
    pub(super) strong: bool,
    /// Between `batch begin` and its end.
    pub(super) batch: Option<WriteBatch>,
    pub(super) watch: Option<Watch>,
    pub(super) interrupt: Interrupt,
}

impl Session {
    pub(super) fn new(store: OpenStore, interrupt: Interrupt) -> Session {
        Session { store, strong: false, batch: None, watch: None, interrupt }
    }

    /// The database, for a command that only its owner can do.
    pub(super) fn owner(&self) -> Result<&Db> {
        match &self.store {
            OpenStore::Owner(db) => Ok(db),
            OpenStore::Reader(_) => {
                bail!(
                    "this shell only reads: start it without --read-only, when no process has \
                       the database open"
                )
            }
        }
    }

    /// How a write is done.
    pub(super) fn write_options(&self, expires_in: Option<Duration>) -> WriteOptions {
        let options = if self.strong { WriteOptions::strong() } else { WriteOptions::eventual() };
        match expires_in {
            Some(time) => options.expires_in(time),
            None => options,
        }
    }
}

/// Ctrl-C: while a command waits for something, it ends the wait; else it ends the process.
pub(super) struct Interrupt {
    ends_process: Arc<AtomicBool>,
    came: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches the signal.
    pub(super) fn catch() -> Result<Interrupt> {
        let interrupt = Interrupt {
            ends_process: Arc::new(AtomicBool::new(true)),
            came: Arc::new(AtomicBool::new(false)),
        };
        let signal = signal_hook::consts::SIGINT;
        let ends_process = Arc::clone(&interrupt.ends_process);
        signal_hook::flag::register_conditional_default(signal, ends_process)?;
        signal_hook::flag::register(signal, Arc::clone(&interrupt.came))?;
        Ok(interrupt)
    }

    /// Waits in steps: calls `step` until it says that it is done, or the signal comes.
    pub(super) fn during(&self, mut step: impl FnMut() -> Result<bool>) -> Result<()> {
        self.came.store(false, Ordering::Relaxed);
        self.ends_process.store(false, Ordering::Relaxed);
        let mut outcome = Ok(false);
        while matches!(outcome, Ok(false)) && !self.came.load(Ordering::Relaxed) {
            outcome = step();
        }
        self.ends_process.store(true, Ordering::Relaxed);
        outcome.map(drop)
    }
}
