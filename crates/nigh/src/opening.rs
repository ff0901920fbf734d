//! Opening a database: what each part needs, in the order in which they stand on each other.
//!
//! ```text
//! folders ── arenas, journals, logs ── a log's thread and an owner for each partition ── upkeep
//! ```
//!
//! 1. What can't be opened leaves nothing running, and no empty folder in memory.
//!
//! The thread that opens.

use crate::error::OpenError;
use crate::folders::{DbFolders, free_bytes};
use crate::healing::LogHealer;
use crate::leftovers;
use crate::log_side::{LogNeeds, LogSide};
use crate::options::{Durability, Options};
use crate::owner::{Owner, OwnerLock};
use crate::participants::Participants;
use crate::shared_db::{DbPartition, SharedDb};
use crate::snapshot_pin::Snapshots;
use crate::upkeep;
use crate::watch::Watches;
use nigh_log::{LogSettings, RealFolder, boot_id};
use nigh_shm::{Domain, ForkMark};
use nigh_store::{Keyspace, LiveLog, LogHealth, LogOptions, OpenedLog, StoreOptions, SyncMode};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Memory that function libraries may take.
const LIBRARY_BYTES: u64 = 8 << 20;

/// Files of a partition's log that may be nearly empty. Each open begins one, and leaves it so if
/// the program ends soon.
const EMPTY_FILES_MOST: u64 = 8;
/// How long an open with more of them waits for compaction, which a program that ends soon cuts
/// off.
const COMPACTION_MOST: Duration = Duration::from_millis(300);
/// Between looks.
const LOOK: Duration = Duration::from_micros(200);

/// What runs while a database is open.
pub(crate) struct OpenParts {
    pub(crate) upkeep: JoinHandle<()>,
    pub(crate) folders: DbFolders,
    pub(crate) keeps_memory: bool,
}

impl OpenParts {
    /// Opens the database in a folder.
    pub(crate) fn open(
        path: &Path,
        options: &Options,
    ) -> Result<(Arc<SharedDb>, OpenParts), OpenError> {
        options.check()?;
        let fork_mark = ForkMark::new().map_err(|source| OpenError::NoPage { source })?;
        let folders = DbFolders::take(path, options)?;
        leftovers::sweep(&folders.memory);
        let opened = open_store(options, &folders);
        let (store, domain) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                folders.undo();
                return Err(error);
            }
        };
        let (shared, upkeep) = start(options, &folders, store, &domain, &Arc::new(fork_mark))?;
        let keeps_memory = options.keeps_memory;
        Ok((shared, OpenParts { upkeep, folders, keeps_memory }))
    }
}

/// Arenas, journals and logs that were opened.
struct OpenedStore {
    keyspace: Keyspace,
    opened: OpenedLog<RealFolder>,
    healer: LogHealer,
    log_file_bytes: u64,
}

/// Opens arenas, journals and logs, with as many partitions as there are.
fn open_store(
    options: &Options,
    folders: &DbFolders,
) -> Result<(OpenedStore, Arc<Domain>), OpenError> {
    folders.remove_unborn();
    let found = folders.partitions()?;
    let partitions = found.or(options.partitions).unwrap_or(1);
    if let Some(wanted) = options.partitions.filter(|it| *it != partitions) {
        let path = folders.path.clone();
        return Err(OpenError::Partitions { path, found: partitions, wanted });
    }
    let domain = Participants::domain(partitions, options.threads_most);
    let capacity = options.capacity_for(partitions, free_bytes())?;
    let mut store = StoreOptions::new(&folders.memory, capacity);
    (store.partitions, store.system_capacity_bytes) = (partitions, LIBRARY_BYTES);
    store.private = !options.is_shared;
    let room = folders.log_room();
    let settings = LogSettings { file_bytes: options.log_file_for(partitions, room) };
    let journal_bytes = options.journal_for(partitions, room);
    let needed = settings.new_chain_bytes(journal_bytes).saturating_mul(partitions as u64);
    if found.is_none() && needed > room.disk_bytes {
        let (path, free) = (folders.path.clone(), room.disk_bytes);
        return Err(OpenError::SmallDisk { path, free, needed });
    }
    let log = LogOptions {
        shards: partitions,
        settings,
        journal_bytes,
        // Where each write waits, files are prepared so that a sync is as short as can be.
        mode: match options.durability {
            Durability::Strong => SyncMode::Always,
            Durability::Eventual => SyncMode::EverySecond,
        },
        boot_id: boot_id().map_err(|source| OpenError::Boot { source })?,
        progress: Arc::new(|_| ()),
    };
    let opened = Keyspace::open_with_log(&store, &log, &folders.world, &domain);
    let (keyspace, _, opened) = opened.map_err(|error| {
        OpenError::of_store(folders.path.clone(), folders.memory.clone(), error)
    })?;
    let live = LiveLog::of_start(&opened, &store, &log);
    let statuses = opened.shards.iter().map(|shard| Arc::clone(&shard.log.status)).collect();
    let healer = LogHealer::new(live, statuses, log.mode);
    let log_file_bytes = settings.file_bytes;
    Ok((OpenedStore { keyspace, opened, healer, log_file_bytes }, domain))
}

/// Starts a log's thread for each partition, and the upkeep.
fn start(
    options: &Options,
    folders: &DbFolders,
    store: OpenedStore,
    domain: &Arc<Domain>,
    fork_mark: &Arc<ForkMark>,
) -> Result<(Arc<SharedDb>, JoinHandle<()>), OpenError> {
    let OpenedStore { keyspace, opened, healer, log_file_bytes } = store;
    let keeper: Arc<OnceLock<Thread>> = Arc::default();
    let woken = Arc::clone(&keeper);
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        if let Some(thread) = woken.get() {
            thread.unpark();
        }
    });
    let watches = Arc::new(Watches::new(fork_mark, opened.meta.id));
    let needs = LogNeeds {
        streams: &opened.streams,
        file_bytes: log_file_bytes,
        wake: &wake,
        watches: &watches,
    };
    let partitions = keyspace.partitions();
    let hold_bytes = options.snapshot_hold_of(keyspace.capacity_bytes());
    let snapshot_hold_bytes = hold_bytes / partitions as u64;
    let mut shared = SharedDb {
        partitions: Vec::with_capacity(partitions),
        participants: Participants::new(domain, partitions, options.threads_most, fork_mark),
        watches: Arc::clone(&watches),
        world: folders.world.clone(),
        durability: options.durability,
        snapshot_hold_bytes,
        watch_bytes: options.watch_bytes,
        #[cfg(feature = "functions")]
        function_limit_ms: options.function_limit_ms(),
        fork_mark: Arc::clone(fork_mark),
        ends: AtomicBool::new(false),
    };
    let mut has_empty_files = false;
    let owned = keyspace.divide(partitions).into_iter().enumerate();
    for ((number, keyspace), shard) in owned.zip(opened.shards) {
        // The log's thread may compact from its first pass on.
        shard.log.status.tell_live(keyspace.live_bytes());
        let (unused, all) = (shard.log.writer.unused_bytes(), shard.log.writer.counted_bytes());
        let (log, side) = LogSide::start((number, shard), needs).inspect_err(|_| {
            shared.close_logs();
        })?;
        let is_full = log.status().health() == LogHealth::Full;
        let is_mostly_unused = unused > (all - unused).max(EMPTY_FILES_MOST * log_file_bytes);
        has_empty_files |= is_mostly_unused || is_full && unused > 0;
        let reader = keyspace.reader(number).clone();
        let libraries = (number == 0).then(|| keyspace.part(0).library_reader().clone());
        let snapshots = Snapshots::new(snapshot_hold_bytes);
        let owner = Owner::new((number, keyspace), domain.join(), side, snapshots);
        let owner = OwnerLock::new(owner, fork_mark);
        shared.partitions.push(DbPartition { reader, libraries, owner, log });
    }
    let shared = Arc::new(shared);
    let upkeep = upkeep::start(Arc::clone(&shared), healer).map_err(|source| {
        shared.close_logs();
        OpenError::Thread { source }
    })?;
    let _ = keeper.set(upkeep.thread().clone());
    if has_empty_files {
        wait_for_compaction(&shared);
    }
    Ok((shared, upkeep))
}

/// Waits until the logs need no compaction, for a while.
fn wait_for_compaction(shared: &SharedDb) {
    let end = Instant::now() + COMPACTION_MOST;
    while shared.partitions.iter().any(|it| it.log.compacts()) && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
}
