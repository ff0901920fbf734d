//! Beginning to write a chain: one that a start goes on with, or a new one.
//!
//! 1. The first thing that is written is the BEGIN of a new file: nothing is written behind what a
//!    start found.
//! 2. What was found is synced before that BEGIN, so that it proves all before it.
//!
//! The log's thread.

use crate::error::LogError;
use crate::format::meta::Meta;
use crate::position::{Chain, LogPosition};
use crate::reader::chain_file::ChainFile;
use crate::reader::ends::LogRecovery;
use crate::reader::log_file::ChainKey;
use crate::storage::{Storage, World};
use crate::writer::begun_file::{BegunTold, FileStart};
use crate::writer::chain_files::ChainFiles;
use crate::writer::compose::FrameComposer;
use crate::writer::kept_room::KeptRoom;
use crate::writer::log_writer::{LogWriter, chain_file, file_sizes};
use crate::writer::prepare::FilePreparer;
use crate::writer::settings::LogSettings;
use crate::writer::streams::StreamTable;

/// What a chain's first BEGIN of this writer stands on.
struct ChainStart {
    files: Vec<ChainFile>,
    /// Where they end; zeros: there are none.
    end: LogPosition,
    end_sum: u32,
    lasts: Vec<(u32, u64)>,
    clock_ms: u64,
    unnamed: bool,
}

impl<S: Storage> LogWriter<S> {
    /// Goes on with a chain that meta names: syncs what was found, and begins a new file. All last
    /// LSNs are durable then. `clock_ms` is the latest of the machine's clock and of the clock
    /// words of all chains and journals.
    ///
    /// # Errors
    /// `Full`: nothing was begun, and it may be tried again. Another one: nothing may be written to
    /// this chain any more; it is broken, as if a writer had failed.
    pub fn begin(
        world: &World<S>,
        meta: &Meta,
        recovery: LogRecovery<S>,
        settings: LogSettings,
        clock_ms: u64,
    ) -> Result<LogWriter<S>, LogError> {
        recovery.sync_all()?;
        let key = ChainKey::of(meta, &recovery.chain());
        let mut preparer = FilePreparer::new(world, key, recovery.highest, &recovery.spare);
        let (_, wanted) = file_sizes(recovery.last.len(), 0, settings);
        preparer.take_left(wanted);
        let newest = recovery.newest;
        let start = ChainStart {
            files: recovery.files,
            end: LogPosition { file: newest.number, position: newest.end },
            end_sum: newest.sum,
            lasts: recovery.last.into_iter().collect(),
            clock_ms: clock_ms.max(recovery.clock_ms),
            unnamed: false,
        };
        LogWriter::start(world, key, settings, preparer, start)
    }

    /// Begins a new chain with its first file. Nothing in it counts until meta names it; then call
    /// [`LogWriter::named`]. `lasts` has the last LSN of each stream of the shard, in order.
    ///
    /// # Errors
    /// `Full`, or another error; files of the chain may be left.
    ///
    /// # Panics
    /// If the streams aren't in order.
    pub fn begin_chain(
        world: &World<S>,
        meta: &Meta,
        chain: Chain,
        lasts: &[(u32, u64)],
        settings: LogSettings,
        clock_ms: u64,
    ) -> Result<LogWriter<S>, LogError> {
        let key = ChainKey::of(meta, &chain);
        let preparer = FilePreparer::new(world, key, 0, &[]);
        let (files, end, lasts) = (Vec::new(), LogPosition::default(), lasts.to_vec());
        let start = ChainStart { files, end, end_sum: 0, lasts, clock_ms, unnamed: true };
        LogWriter::start(world, key, settings, preparer, start)
    }

    fn start(
        world: &World<S>,
        key: ChainKey,
        settings: LogSettings,
        mut preparer: FilePreparer<S>,
        start: ChainStart,
    ) -> Result<LogWriter<S>, LogError> {
        let streams = StreamTable::new(start.lasts.iter().copied());
        let (least, wanted) = file_sizes(streams.count(), 0, settings);
        // A start that goes on holds its clients up, so it writes no zeros; a new chain has none.
        let mut file = match start.unnamed {
            true => preparer.take(least, wanted)?,
            false => preparer.take_soon(least, wanted)?,
        };
        let first = file.name.number;
        file.begin(&FileStart {
            predecessor: start.end,
            before_sum: start.end_sum,
            oldest: start.files.first().map_or(first, |oldest| oldest.number),
            lasts: &start.lasts,
            clock_ms: start.clock_ms,
            unix_ms: world.clock.unix_ms(),
        })?;
        file.sync()?;
        let mut files = start.files;
        files.push(chain_file(&file, start.lasts));
        Ok(LogWriter {
            world: world.clone(),
            key,
            settings,
            composer: FrameComposer::new(streams.count()),
            streams,
            watermark: file.at(),
            file,
            files: ChainFiles::new(files, start.unnamed),
            preparer,
            kept: KeptRoom::default(),
            begun_told: BegunTold::default(),
            watermark_told: false,
            unsynced: false,
            syncing: None,
            clock_ms: start.clock_ms,
            broken: None,
        })
    }
}
