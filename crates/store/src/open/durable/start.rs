//! Opening a store with a log: docs/formats/journal.md, "Adoption, in steps".
//!
//! ```text
//! look ── adopt arenas or set them aside ── build others ── the log's rest ── their names ── base? ── journals
//! ```
//!
//! 1. All steps can be cut off anywhere and begun again.
//! 2. Nothing is told durable that wasn't synced by this start.
//! 3. Arenas are built before the log gets a new file: a start that a damaged log refuses leaves
//!    its folder as it was, however often it is tried.
//! 4. They get their names behind the log's rest: until then, values that journals name are found
//!    in the arenas that were set aside.
//!
//! The thread that starts the server.

use crate::durability::log_status::LogStatus;
use crate::durability::log_thread::ThreadLog;
use crate::durability::streams::SharedStreams;
use crate::error::StoreError;
use crate::folder::edition::Edition;
use crate::folder::look::look;
use crate::folder::manifest::{MANIFEST, Manifest};
use crate::folder::names::SYSTEM_TENANT;
use crate::open::durable::arenas::{StartStream, StartStreams, beside_aside, strays};
use crate::open::durable::base::{save, write_base};
use crate::open::durable::found::Findings;
use crate::open::durable::journals::renew;
use crate::open::durable::log_options::{BaseCause, LogOptions, OpenedLog, ShardLog, StartReport};
use crate::open::durable::rebuild::{finish_built, make_new, replay_missing};
use crate::open::durable::rest::{named_values, write_rest};
use crate::open::durable::streams_of::{DEFAULT_NUMBER, SYSTEM_NUMBER};
use crate::open::store_options::StoreOptions;
use nigh_log::{
    Chain, LogError, LogWriter, Meta, Secret, Storage, TenantLine, World, list, remove_unnamed,
};
use nigh_shm::{Adoption, Domain, DurableWord, JournalFile, JournalReader, JournalWriter, Writer};
use std::sync::Arc;

/// An arena that was opened: its writer, and its adoption if it was there.
pub(crate) type OpenedArena = (Writer, Option<Adoption>);

/// Opens all arenas of a store, the libraries' first, and its log.
pub(crate) fn open_with_log<S: Storage>(
    options: &StoreOptions,
    log: &LogOptions,
    world: &World<S>,
    domain: &Arc<Domain>,
) -> Result<(Vec<OpenedArena>, OpenedLog<S>), StoreError> {
    let mut findings = Findings::look(options, &log.boot_id, world)?;
    if findings.chains.is_empty() {
        // Nothing else has what an arena had that is missing.
        look(&options.dir, &options.tenant, Edition::Living)?;
    }
    let mut meta = meta_of(&findings, options, world)?;
    let seeds =
        [SYSTEM_NUMBER, DEFAULT_NUMBER].map(|it| meta.tenants.get(&it).map_or(0, |t| t.seed));
    let mut streams = StartStreams::new();
    for stream in findings.streams(options, seeds) {
        streams.insert(stream.number, findings.take(stream, log, domain)?);
    }
    let mut report = StartReport { torn: findings.torn(), ..StartReport::default() };
    let clock_ms = findings.clock_ms(&streams, world);
    let is_broken = findings.some_is_broken(&streams);
    let continues = streams.values().all(|it| it.plan.continues);
    let counts = !findings.chains.is_empty();
    let values = named_values(&streams)?;
    let built = replay_missing(&findings, (&streams, &values), (log, domain), &mut report);
    let built = built.map_err(|error| beside_aside(error, &streams))?;
    let mut writers = Vec::new();
    if counts && continues && !is_broken {
        writers = continue_chains((world, &meta, log), &mut findings, clock_ms)?;
        let written = write_rest(&findings, &streams, &values, &mut writers);
        findings.note_all_broken(&writers);
        report.completed = written?;
    }
    drop(values);
    finish_built(&mut streams, built, clock_ms, [&meta.id, &log.boot_id])?;
    make_new(&mut streams, domain)?;
    let is_behind = streams.values().any(|it| it.plan.needs_base);
    report.base = [
        (!counts, BaseCause::First),
        (is_broken, BaseCause::Broken),
        (meta.chains.len() != log.shards, BaseCause::Shards),
        (is_behind, BaseCause::Behind),
    ]
    .into_iter()
    .find_map(|(holds, cause)| holds.then_some(cause));
    // Before a chain counts: an arena without the id has nothing that the log lacks.
    for it in streams.values_mut() {
        let arena = it.writer.as_mut().expect("each stream has its arena by now");
        arena.set_log_id(&meta.id);
        arena.set_boot_id(&log.boot_id);
    }
    if report.base.is_some() {
        drop(writers);
        let breaks = |generation| findings.ours().iter().for_each(|it| it.set_broken(generation));
        writers = write_base(world, &mut meta, &streams, log, clock_ms, &breaks)?;
    }
    let journals = renew(options, findings.journals, &writers, &meta, log)?;
    remove_replaced(options, &meta, &mut streams, &mut report)?;
    if options.private {
        make_private(options, &streams)?;
    }
    let (shards, shared) = shard_logs(writers, journals, &mut streams, (world, log));
    let arenas = streams
        .into_values()
        .map(|it| (it.writer.expect("each stream has its arena by now"), it.adoption));
    let opened = OpenedLog { world: world.clone(), meta, shards, streams: shared, report };
    Ok((arenas.collect(), opened))
}

/// The writers of the chains that were found, which go on.
fn continue_chains<S: Storage>(
    (world, meta, log): (&World<S>, &Meta, &LogOptions),
    findings: &mut Findings<S>,
    clock_ms: u64,
) -> Result<Vec<LogWriter<S>>, StoreError> {
    // A conversion that was cut off left them. (Before a base they go, too.)
    remove_unnamed(&*world.storage, &list(&*world.storage)?, meta)?;
    let mut writers = Vec::new();
    // Nothing was written to them since they were found.
    for recovery in std::mem::take(&mut findings.chains) {
        let chain = recovery.chain();
        let begun = LogWriter::begin(world, meta, recovery, log.settings, clock_ms);
        let mut writer = begun.map_err(|error| findings.note_broken(&chain, error))?;
        if let Some(journal) = findings.journal_of(&chain) {
            // A start that is cut off leaves files that this journal's own process has begun.
            let file = Arc::clone(&journal.file);
            writer.tell_begun(move |number| file.set_newest_file(number));
        }
        writers.push(writer);
    }
    Ok(writers)
}

/// Removes the arenas that others have taken the place of, and names them in the report.
fn remove_replaced(
    options: &StoreOptions,
    meta: &Meta,
    streams: &mut StartStreams,
    report: &mut StartReport,
) -> Result<(), StoreError> {
    for it in streams.values_mut() {
        report.set_aside.append(&mut it.aside);
    }
    report.strays = strays(options, meta)?;
    for over in report.set_aside.iter().chain(&report.strays) {
        // Another process that looks at the folder may remove it too.
        let _ = std::fs::remove_file(over);
    }
    Ok(())
}

/// What each shard's log begins with: arenas and journal learn of each other.
fn shard_logs<S: Storage>(
    writers: Vec<LogWriter<S>>,
    journals: Vec<Arc<JournalFile>>,
    streams: &mut StartStreams,
    (world, log): (&World<S>, &LogOptions),
) -> (Vec<ShardLog<S>>, Arc<SharedStreams>) {
    let shared = Arc::new(SharedStreams::default());
    let mut shards = Vec::new();
    for (writer, journal) in writers.into_iter().zip(journals) {
        let number = writer.chain().shard as usize;
        let status = Arc::new(LogStatus::new(log.mode));
        let (ring, mut reader) = (JournalWriter::new(&journal), JournalReader::new(&journal));
        let mut words = Vec::new();
        for it in streams.values_mut().filter(|it| it.stream.shard(log.shards) == number) {
            let stream = it.stream.number;
            let arena = it.writer.as_mut().expect("each stream has its arena by now");
            let word = DurableWord::of(arena.region());
            word.store(writer.durable(stream));
            reader.set_arena(stream, Arc::clone(arena.region()) as _);
            arena.set_journal(&ring, stream);
            shared.add(stream, word.clone(), Arc::clone(&status));
            words.push((stream, word));
        }
        ring.hand_over();
        let log = ThreadLog { world: world.clone(), reader, writer, status, words };
        shards.push(ShardLog { journal: ring, log });
    }
    (shards, shared)
}

/// Takes the arenas' names away: log and journals have all that is there.
fn make_private(options: &StoreOptions, streams: &StartStreams) -> Result<(), StoreError> {
    Manifest::remove(&options.dir).map_err(|source| {
        let path = options.dir.join(MANIFEST);
        StoreError::Directory { path, source }
    })?;
    for it in streams.values() {
        let arena = it.writer.as_ref().expect("each stream has its arena by now");
        arena.region().make_private()?;
    }
    Ok(())
}

/// The log's meta, checked against the options; a new one if there is none.
pub(super) fn meta_of<S: Storage>(
    findings: &Findings<S>,
    options: &StoreOptions,
    world: &World<S>,
) -> Result<Meta, StoreError> {
    let partitions = u32::try_from(options.partitions).expect("at most MOST_PARTITIONS");
    if let Some(meta) = findings.meta.as_ref().filter(|meta| !meta.chains.is_empty()) {
        let tenant = meta.tenants.get(&DEFAULT_NUMBER);
        if let Some(tenant) = tenant.filter(|it| it.partitions != partitions) {
            return Err(StoreError::Partitions {
                dir: options.dir.clone(),
                found: tenant.partitions as usize,
                wanted: options.partitions,
            });
        }
        if tenant.is_some_and(|it| it.name == options.tenant) {
            return Ok(meta.clone());
        }
    }
    let random = || {
        let (a, b) = (world.chance.word(), world.chance.word());
        (u128::from(a) | u128::from(b) << 64).to_le_bytes()
    };
    let mut meta = findings.meta.clone().unwrap_or_else(|| Meta::new(random(), Secret(random())));
    let tenants =
        [(SYSTEM_NUMBER, SYSTEM_TENANT, 1), (DEFAULT_NUMBER, &options.tenant, partitions)];
    for (number, name, partitions) in tenants {
        if meta.chains.is_empty() || !meta.tenants.contains_key(&number) {
            let arena = findings.headers.range(number << 8..(number + 1) << 8).next();
            // A line that is there is of a log that is over: the arenas may be of a later time.
            let seed = arena.map(|(_, header)| header.seed);
            let seed = seed.or_else(|| meta.tenants.get(&number).map(|line| line.seed));
            #[expect(clippy::cast_possible_truncation, reason = "32 random bits")]
            let seed = seed.unwrap_or_else(|| world.chance.word() as u32);
            let line = TenantLine { name: name.to_owned(), partitions, seed };
            meta.tenants.insert(number, line);
        }
        meta.next_tenant = meta.next_tenant.max(number + 1);
    }
    save(world, &meta)?;
    Ok(meta)
}

impl<S: Storage> Findings<S> {
    fn torn(&self) -> Vec<(u32, nigh_log::TornTail)> {
        let of = self.chains.iter();
        of.filter_map(|chain| chain.torn.map(|torn| (chain.chain().shard, torn))).collect()
    }

    /// The latest time that anybody has judged expiry by.
    fn clock_ms(&self, streams: &StartStreams, world: &World<S>) -> u64 {
        let chains = self.chains.iter().map(|chain| chain.clock_ms);
        let journals = self.journals.iter().map(|it| it.contents.clock_ms);
        let arenas = streams.values().filter_map(|it| it.writer.as_ref());
        let arenas = arenas.map(|writer| writer.reader().clock_ms());
        chains.chain(journals).chain(arenas).fold(world.clock.unix_ms(), u64::max)
    }

    /// A chain couldn't be gone on with. If a write or sync failed, that is noted in its journal: a
    /// later start must not believe a sync that succeeds on pages which never reached the disk.
    fn note_broken(&self, chain: &Chain, error: LogError) -> LogError {
        let journal = self.own_journal(chain.shard);
        if let Some(journal) = journal.filter(|_| !matches!(error, LogError::Full { .. })) {
            journal.file.set_broken(chain.generation);
        }
        error
    }

    /// The same of those that broke while they were written.
    fn note_all_broken(&self, writers: &[LogWriter<S>]) {
        for writer in writers.iter().filter(|writer| writer.broken().is_some()) {
            let Chain { shard, generation, .. } = writer.chain();
            if let Some(it) = self.own_journal(shard) {
                it.file.set_broken(generation);
            }
        }
    }

    /// Whether the chain of some shard broke.
    fn some_is_broken(&self, streams: &StartStreams) -> bool {
        let chains = self.chains.len();
        self.chains.iter().any(|chain| {
            let shard = chain.chain().shard;
            let of = |it: &&StartStream| it.stream.shard(chains) == shard as usize;
            let has_arena = streams.values().filter(of).any(|it| it.writer.is_some());
            self.is_broken(shard, has_arena)
        })
    }
}
