//! A log that begins, ends and heals while the server serves.
//!
//! ```text
//! begin: checks, meta without chains, journals ──┐
//! a log that broke: its threads end ─────────────┤
//!                                                v
//! a new generation ── owners attach ── chains ── threads: Walks .. Walked ── ask ── Synced ── one renaming ── Counts
//!       └───────────── whatever fails: the base's files go, the next try begins at the generation ──────────┘
//! retire: meta without chains ── threads end ── journals go ── owners leave ── files go
//! ```
//!
//! 1. Nothing counts before the renaming that names all chains; nothing old goes before that
//!    counts.
//! 2. If it isn't known whether a renaming counts, all chains are broken, and no file goes until a
//!    later one has counted.
//! 3. Journals go before the owners leave them: an entry that nobody holds runs for must not be
//!    found by a start.
//!
//! One thread, which belongs to the log. Rules: docs/formats/log.md, Bases.

use crate::durability::base_stage::LogStage;
use crate::durability::log_status::{LogHealth, LogStatus};
use crate::durability::log_thread::ThreadLog;
use crate::durability::streams::SharedStreams;
use crate::error::StoreError;
use crate::open::durable::attached::{AttachedShard, LogBerth};
use crate::open::durable::base::{chains_of, name_chains, next_generation, of_fault};
use crate::open::durable::found::Findings;
use crate::open::durable::log_options::{LogOptions, OpenedLog};
use crate::open::durable::retire::remove_journals;
use crate::open::durable::start::meta_of;
use crate::open::durable::streams_of::{DEFAULT_NUMBER, SYSTEM_NUMBER};
use crate::open::store_options::StoreOptions;
use nigh_log::{
    Chain, LogWriter, Meta, MetaFault, Storage, World, list, read_meta, remove_chains, save_meta,
};
use nigh_shm::{JournalFile, JournalReader, JournalSpec, JournalWriter};
use std::path::PathBuf;
use std::sync::Arc;

/// Why a base doesn't count, or a log isn't retired.
#[derive(Debug, thiserror::Error)]
pub enum LiveFault {
    /// All is as it was.
    #[error("{0}")]
    Unchanged(StoreError),
    /// The log is broken, by the rules: whether meta was changed isn't known.
    #[error("{0}; whether it was changed isn't known")]
    InDoubt(StoreError),
}

/// What a base is waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseLook {
    /// It is being written.
    Goes,
    /// All is synced: it may be named.
    Whole,
    /// It can't be written, by this cause.
    Failed(String),
}

/// See the header of this file.
pub struct LiveLog<S: Storage> {
    world: World<S>,
    meta: Meta,
    dir: PathBuf,
    options: LogOptions,
    /// By shard.
    journals: Vec<Arc<JournalFile>>,
    /// The generation of the base that is being written.
    base: Option<u64>,
    /// Chains that an earlier renaming may have named.
    doubtful: Vec<Chain>,
}

impl<S: Storage> LiveLog<S> {
    /// The log that a start has opened.
    #[must_use]
    pub fn of_start(opened: &OpenedLog<S>, options: &StoreOptions, log: &LogOptions) -> Self {
        LiveLog {
            world: opened.world.clone(),
            meta: opened.meta.clone(),
            dir: options.dir.clone(),
            options: log.clone(),
            journals: opened.shards.iter().map(|it| Arc::clone(it.journal.file())).collect(),
            base: None,
            doubtful: Vec::new(),
        }
    }

    /// Begins a log for arenas that are served without: makes its meta and the journals. Nothing
    /// counts yet.
    ///
    /// # Errors
    /// What a start would refuse; the arenas are as they were then.
    pub fn begin(
        options: &StoreOptions,
        log: &LogOptions,
        world: &World<S>,
    ) -> Result<(Self, Vec<JournalWriter>), StoreError> {
        if read_meta(&*world.storage)?.is_some_and(|meta| !meta.chains.is_empty()) {
            return Err(StoreError::Unlogged { dir: options.dir.clone() });
        }
        let findings = Findings::look(options, &log.boot_id, world)?;
        let meta = meta_of(&findings, options, world)?;
        for (number, header) in &findings.headers {
            let tenant = meta.tenants.get(&(number >> 8));
            if tenant.is_none_or(|tenant| tenant.seed != header.seed) {
                let seeds = [SYSTEM_NUMBER, DEFAULT_NUMBER].map(|_| 0);
                let streams = findings.streams(options, seeds);
                let path = streams.into_iter().find(|it| it.number == *number);
                let path = path.map_or_else(|| options.dir.clone(), |it| it.spec.path);
                return Err(StoreError::Foreign { path });
            }
        }
        drop(findings);
        let mut it = LiveLog {
            world: world.clone(),
            meta,
            dir: options.dir.clone(),
            options: log.clone(),
            journals: Vec::new(),
            base: None,
            doubtful: Vec::new(),
        };
        match it.make_journals() {
            Ok(writers) => Ok((it, writers)),
            Err(error) => {
                let _ = remove_journals(&it.dir);
                Err(error)
            }
        }
    }

    fn make_journals(&mut self) -> Result<Vec<JournalWriter>, StoreError> {
        remove_journals(&self.dir)?;
        for shard in 0..self.shards() {
            let spec = JournalSpec {
                shard,
                ring_bytes: self.options.journal_bytes,
                log_id: self.meta.id,
                boot_id: self.options.boot_id,
                // A log that begins while arenas are served finds them in files.
                holds_values: false,
            };
            self.journals.push(Arc::new(JournalFile::create(&self.dir, &spec)?));
        }
        let writers = self.journals.iter().map(|journal| {
            let writer = JournalWriter::new(journal);
            writer.hand_over();
            writer
        });
        Ok(writers.collect())
    }

    fn shards(&self) -> u32 {
        u32::try_from(self.options.shards).expect("at most 64 shards")
    }

    /// What each shard has to know of the log.
    #[must_use]
    pub fn berths(&self) -> Vec<LogBerth> {
        let (log_id, boot_id, shards) = (self.meta.id, self.options.boot_id, self.options.shards);
        (0..shards).map(|shard| LogBerth { log_id, boot_id, shard, shards }).collect()
    }

    /// Whether a log counts, or may count by a renaming in doubt.
    #[must_use]
    pub fn counts(&self) -> bool {
        !self.meta.chains.is_empty() || !self.doubtful.is_empty()
    }

    /// The log's world.
    #[must_use]
    pub fn world(&self) -> &World<S> {
        &self.world
    }

    /// Begins a base; its generation counts behind this.
    ///
    /// # Errors
    /// Meta can't be written; it may be tried again.
    pub fn begin_base(&mut self) -> Result<(), StoreError> {
        self.base = None;
        self.base = Some(next_generation(&self.world, &mut self.meta)?);
        Ok(())
    }

    /// Begins the chains of a base whose shards have attached. No thread of an earlier base reads
    /// the journals any more.
    ///
    /// # Errors
    /// A file can't be made: the base has failed.
    ///
    /// # Panics
    /// If none was begun, or not all shards have attached.
    pub fn begin_chains(
        &mut self,
        mut attached: Vec<AttachedShard>,
        statuses: &[Arc<LogStatus>],
    ) -> Result<(Vec<ThreadLog<S>>, Arc<SharedStreams>), StoreError> {
        let generation = self.base.expect("a base was begun");
        attached.sort_unstable_by_key(|it| it.shard);
        assert_eq!(attached.len(), self.journals.len(), "all shards take part");
        let clocks = attached.iter().map(|it| it.clock_ms);
        let clock_ms = clocks.fold(self.world.clock.unix_ms(), u64::max);
        let (shared, mut logs) = (Arc::new(SharedStreams::default()), Vec::new());
        let chains = chains_of(generation, self.shards());
        let parts = attached.into_iter().zip(&self.journals).zip(statuses).zip(chains);
        for (((shard, journal), status), chain) in parts {
            let lasts: Vec<_> = shard.streams.iter().map(|it| (it.number, it.last)).collect();
            let settings = self.options.settings;
            let writer =
                LogWriter::begin_chain(&self.world, &self.meta, chain, &lasts, settings, clock_ms)?;
            let mut reader = JournalReader::new(journal);
            reader.skip_to(shard.tail);
            let mut words = Vec::new();
            for it in shard.streams {
                reader.set_arena(it.number, it.arena as _);
                shared.add(it.number, it.word.clone(), Arc::clone(status));
                words.push((it.number, it.word));
            }
            let (world, status) = (self.world.clone(), Arc::clone(status));
            logs.push(ThreadLog { world, reader, writer, status, words });
        }
        Ok((logs, shared))
    }

    /// How far a base is; asks for the sync behind all walks when they have ended.
    #[must_use]
    pub fn look(&self, statuses: &[Arc<LogStatus>]) -> BaseLook {
        let failed = statuses.iter().find(|it| it.health() == LogHealth::Broken);
        if let Some(failed) = failed {
            return BaseLook::Failed(failed.cause());
        }
        let all = |stage| statuses.iter().all(|it| it.stage() == stage);
        if all(LogStage::Walked) {
            statuses.iter().for_each(|it| it.set_stage(LogStage::Syncs));
        }
        if all(LogStage::Synced) { BaseLook::Whole } else { BaseLook::Goes }
    }

    /// Has a whole base count; then the files of what counted before go. Returns what hinders that.
    ///
    /// # Errors
    /// [`LiveFault`]: the base has failed.
    ///
    /// # Panics
    /// If none was begun.
    pub fn name_base(&mut self, statuses: &[Arc<LogStatus>]) -> Result<Option<String>, LiveFault> {
        let generation = self.base.expect("a base was begun");
        let (before, shards) = (self.meta.clone(), self.shards());
        if let Err(fault) = name_chains(&self.world, &mut self.meta, generation, shards) {
            self.meta = before;
            return Err(self.judge(fault, chains_of(generation, shards).collect()));
        }
        self.base = None;
        statuses.iter().for_each(|it| it.set_stage(LogStage::Counts));
        Ok(self.remove_old(before.chains))
    }

    /// A base has failed, and its threads have ended: its files go, unless it may count. Returns
    /// what hinders that.
    pub fn drop_base(&mut self) -> Option<String> {
        let generation = self.base.take()?;
        if self.doubtful.iter().any(|chain| chain.generation == generation) {
            return None;
        }
        self.remove(&chains_of(generation, self.shards()).collect::<Vec<_>>())
    }

    /// Retires the log: no chain counts any more. Its files are still there.
    ///
    /// # Errors
    /// [`LiveFault`]: the log isn't retired. If that is in doubt, the log is broken: its threads
    /// are told.
    pub fn retire(&mut self, statuses: &[Arc<LogStatus>]) -> Result<(), LiveFault> {
        let before = self.meta.clone();
        self.meta.chains.clear();
        (self.meta.ends, self.meta.mark) = (Vec::new(), None);
        match save_meta(&*self.world.storage, &self.meta) {
            Ok(()) => {
                self.doubtful.extend(before.chains);
                if let Some(base) = self.base.take() {
                    self.doubtful.extend(chains_of(base, self.shards()));
                }
                Ok(())
            }
            Err(fault) => {
                self.meta = before;
                let fault = self.judge(fault, Vec::new());
                if let LiveFault::InDoubt(error) = &fault {
                    let broken = |it: &&Arc<LogStatus>| it.health() != LogHealth::Broken;
                    for status in statuses.iter().filter(broken) {
                        status.tell_health(LogHealth::Broken, error.to_string());
                    }
                }
                Err(fault)
            }
        }
    }

    /// Whether the log's files have all that the journals have. Owners and threads have ended.
    pub(crate) fn has_all(&self) -> bool {
        let mut readers = self.journals.iter().map(JournalReader::new);
        readers.all(|reader| reader.position() == reader.tail())
    }

    /// Removes the journals: what owners leave behind this is found by no start. No thread reads
    /// them any more.
    ///
    /// # Errors
    /// The folder can't be changed.
    pub fn remove_journals(&mut self) -> Result<(), StoreError> {
        remove_journals(&self.dir)
    }

    /// Removes the files of a log that was retired. Returns what hinders that.
    pub fn remove_files(&mut self) -> Option<String> {
        self.remove_old(Vec::new())
    }

    /// Notes what a fault of meta means.
    fn judge(&mut self, fault: MetaFault, chains: Vec<Chain>) -> LiveFault {
        let is_in_doubt = matches!(fault, MetaFault::InDoubt(_));
        let error = of_fault(fault);
        if !is_in_doubt {
            return LiveFault::Unchanged(error);
        }
        let newest = self.meta.next_generation - 1;
        self.journals.iter().for_each(|journal| journal.set_broken(newest));
        self.doubtful.extend(chains);
        LiveFault::InDoubt(error)
    }

    /// A meta counts that names none of these chains, nor those that were in doubt.
    fn remove_old(&mut self, mut chains: Vec<Chain>) -> Option<String> {
        chains.append(&mut self.doubtful);
        self.remove(&chains)
    }

    fn remove(&self, chains: &[Chain]) -> Option<String> {
        let storage = &*self.world.storage;
        let removed = list(storage).and_then(|listing| remove_chains(storage, &listing, chains));
        removed.err().map(|error| error.to_string())
    }
}
