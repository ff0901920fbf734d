//! Appends commits to a chain.
//!
//! ```text
//! add ── the open frame ── write ──> the file ── sync ──> durable, watermark
//! ```
//!
//! 1. What a sync makes durable ends at a multiple of 4,096: no later write touches its blocks.
//! 2. A file is synced before the next one's BEGIN is written, and that is synced before anything
//!    behind it. So a BEGIN on disk proves all before it.
//! 3. A frame's watermark is an end that was synced before the frame was closed.
//! 4. Nothing is tried again behind a failed write or sync of a begun file: the writer is broken.
//! 5. A commit that needs another log's LSN is in no frame before that is durable.
//! 6. A call that fails with [`LogError::Full`] has taken nothing, and may be made again.
//! 7. One sync is under way at most. What is written meanwhile stays unsynced at its end, and no
//!    file is begun before that.
//!
//! One thread, the log's; a [`SyncJob`] that it gives out may run on another.

use crate::error::LogError;
use crate::format::frame::FrameKind;
use crate::format::layout::{BLOCK_BYTES, FILE_BYTES_MOST, FRAME_BYTES, frame as f};
use crate::format::meta::ChainEnd;
use crate::position::{Chain, LogPosition};
use crate::reader::chain_file::ChainFile;
use crate::reader::log_file::ChainKey;
use crate::storage::{Storage, World};
use crate::writer::begun_file::{BegunFile, BegunTold, FileStart};
use crate::writer::chain_files::ChainFiles;
use crate::writer::compose::FrameComposer;
use crate::writer::frame_facts::{BodyFacts, FrameEnd, FrameFacts, frame_length};
use crate::writer::kept_room::KeptRoom;
use crate::writer::long_frame::write_long;
use crate::writer::new_commit::{Added, NewCommit};
use crate::writer::prepare::FilePreparer;
use crate::writer::settings::LogSettings;
use crate::writer::streams::StreamTable;
use crate::writer::sync_job::{SyncEnd, SyncJob};

/// Writes one chain.
#[derive(Debug)]
pub struct LogWriter<S: Storage> {
    pub(super) world: World<S>,
    pub(super) key: ChainKey,
    pub(super) settings: LogSettings,
    pub(super) streams: StreamTable,
    /// The open frame.
    pub(super) composer: FrameComposer,
    /// The file that is being written.
    pub(super) file: BegunFile<S::File>,
    pub(super) files: ChainFiles,
    pub(super) preparer: FilePreparer<S>,
    pub(super) kept: KeptRoom,
    pub(super) begun_told: BegunTold,
    /// All before it was synced.
    pub(super) watermark: LogPosition,
    /// A frame of this file has this watermark.
    pub(super) watermark_told: bool,
    /// Changes were written that no sync covers.
    pub(super) unsynced: bool,
    /// Up to where the sync goes that is under way.
    pub(super) syncing: Option<LogPosition>,
    /// The latest clock word of the chain, ms.
    pub(super) clock_ms: u64,
    /// Why nothing is written any more.
    pub(super) broken: Option<String>,
}

impl<S: Storage> LogWriter<S> {
    /// Appends a commit, or a record again, to the open frame. A full frame is written; a full file
    /// is synced, and the next one begun. `durable` gives the durable LSN of other logs' streams.
    ///
    /// If it waits: call `write` and `sync`, have the other log synced, and try again. If a sync is
    /// under way that must end first: call `end_sync`, and try again.
    ///
    /// # Errors
    /// `Full`: there is no room for the next file; a smaller commit may still fit. `Broken`, or
    /// another error, which breaks the log if [`LogWriter::broken`] says so.
    ///
    /// # Panics
    /// If a stream is unknown, if its LSNs have a gap, or if a change is impossible.
    pub fn add(
        &mut self,
        commit: &NewCommit<'_>,
        durable: &dyn Fn(u32) -> u64,
    ) -> Result<Added, LogError> {
        self.refuse_if_broken()?;
        if !self.is_met(commit.needs, durable) {
            self.write(true)?;
            return Ok(Added::Waits);
        }
        let stream = commit.stream;
        let Some(slot) = self.streams.slot(stream) else {
            panic!("stream {stream} isn't of this log");
        };
        commit.check(self.streams.last(slot));
        let bytes = commit.bytes_in_frame();
        if bytes + f::ROW_BYTES > FRAME_BYTES {
            return self.add_long(commit, slot, bytes);
        }
        let rows = self.streams.framed_with(slot, commit.again);
        if !self.composer.has_room(rows, bytes) {
            self.write_frame(FrameEnd::Block)?;
        }
        // As if the stream had no row yet: some bytes more at a file's end.
        if !self.make_room(f::ROW_BYTES + bytes)? {
            return Ok(Added::Syncs);
        }
        self.composer.push(commit);
        self.clock_ms = self.clock_ms.max(commit.clock_ms);
        if !commit.again {
            self.streams.added(slot, commit.first_lsn, commit.last_lsn());
        }
        Ok(Added::Taken)
    }

    /// Writes all that was added. If a sync follows, the frame ends on a block.
    ///
    /// # Errors
    /// `Broken`, or `Io`, which breaks the log.
    pub fn write(&mut self, sync_follows: bool) -> Result<(), LogError> {
        self.refuse_if_broken()?;
        let end = if sync_follows { FrameEnd::Block } else { FrameEnd::Sector };
        if self.composer.is_empty() { Ok(()) } else { self.write_frame(end) }
    }

    /// Writes all that was added, and makes it durable; also, on disk, which file is the oldest
    /// that counts. If that rises by this very sync, another one is due.
    ///
    /// # Errors
    /// `Broken`, or `Io`, which breaks the log.
    ///
    /// # Panics
    /// If a sync is under way.
    pub fn sync(&mut self) -> Result<(), LogError> {
        let job = self.begin_sync()?;
        job.map_or(Ok(()), |job| self.end_sync(job.run()))?;
        if self.files.must_tell() && !self.file.has_room() && self.is_next_ready() {
            return self.next_file(0);
        }
        Ok(())
    }

    /// Writes all that was added, and begins a sync of it. Run the job, on any thread, and tell its
    /// end by [`LogWriter::end_sync`]; go on adding and writing meanwhile. `None`: there is nothing
    /// to sync.
    ///
    /// # Errors
    /// `Broken`, or `Io`, which breaks the log.
    ///
    /// # Panics
    /// If a sync is under way.
    pub fn begin_sync(&mut self) -> Result<Option<SyncJob<S::File>>, LogError> {
        self.refuse_if_broken()?;
        self.refuse_two_syncs();
        if self.is_synced() {
            return Ok(None);
        }
        let job = self.sync_job()?;
        if job.is_none() && self.files.must_tell() && self.is_next_ready() {
            // Here is no room to say which file is the oldest.
            self.next_file(0)?;
        }
        Ok(job)
    }

    /// A sync has ended: what it covers is durable.
    ///
    /// # Errors
    /// `Broken`: nothing counts as durable any more that didn't before. `Io` if the sync failed,
    /// which breaks the log.
    ///
    /// # Panics
    /// If it isn't the one under way.
    pub fn end_sync(&mut self, end: SyncEnd) -> Result<(), LogError> {
        let SyncEnd { covers, done } = end;
        assert_eq!(self.syncing, Some(covers), "the sync that ends is the one under way");
        self.refuse_if_broken()?;
        self.or_break(done)?;
        self.sync_ended();
        Ok(())
    }

    /// Whether a sync was begun, and its end not told.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Whether all that was added is durable, and the disk has the oldest file that counts, or
    /// can't get it before the next file is prepared.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        let can_tell = self.file.has_room() || self.is_next_ready();
        self.is_durable() && (self.files.all_told() || !can_tell)
    }

    /// If nothing follows a sync for a while: a frame without changes, which tells the watermark.
    /// Does nothing if a frame has told it, or something isn't durable.
    ///
    /// # Errors
    /// `Broken`, or `Io`, which breaks the log.
    pub fn idle_frame(&mut self) -> Result<(), LogError> {
        self.refuse_if_broken()?;
        if self.is_durable() && !self.watermark_told && self.file.has_room() {
            self.write_frame(FrameEnd::Sector)?;
        }
        Ok(())
    }

    /// A clean end: all is durable, and the watermark that says so too.
    ///
    /// # Errors
    /// `Broken`, or `Io`, which breaks the log.
    ///
    /// # Panics
    /// If a sync is under way.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.sync()?;
        self.idle_frame()?;
        self.sync_file()?;
        // A file that was released while the sync before ran has left by this one.
        self.sync()
    }

    /// Ends a frame here and syncs it: where a backup of the chain ends.
    ///
    /// # Errors
    /// `Broken`, or `Io`, which breaks the log.
    ///
    /// # Panics
    /// If a sync is under way.
    pub fn end_frame(&mut self) -> Result<ChainEnd, LogError> {
        self.refuse_if_broken()?;
        self.sync_file()?;
        let (shard, at) = (self.key.chain.shard, self.file.at());
        Ok(ChainEnd { shard, at, sum: self.file.last_sum })
    }

    /// The last durable LSN of a stream; 0 if there is none. In a chain that meta doesn't name, it
    /// counts when meta does.
    #[must_use]
    pub fn durable(&self, stream: u32) -> u64 {
        self.streams.ends(stream).1
    }

    /// The last written LSN of a stream; 0 if there is none. What the kernel has survives the
    /// process.
    #[must_use]
    pub fn written(&self, stream: u32) -> u64 {
        self.streams.ends(stream).0
    }

    /// Behind all frames that were written.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        self.file.at()
    }

    /// Whether something was added that no frame has yet.
    #[must_use]
    pub fn has_open_frame(&self) -> bool {
        !self.composer.is_empty()
    }

    /// Bytes of what was added that no frame has yet.
    #[must_use]
    pub fn open_bytes(&self) -> u64 {
        self.composer.body_bytes(self.streams.framed()) as u64
    }

    /// Each stream with its last written and its last durable LSN, in order of streams.
    pub fn streams(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.streams.iter()
    }

    /// The first failure, if there was one.
    #[must_use]
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The chain.
    #[must_use]
    pub fn chain(&self) -> Chain {
        self.key.chain
    }

    pub(super) fn refuse_if_broken(&self) -> Result<(), LogError> {
        match &self.broken {
            None => Ok(()),
            Some(cause) => Err(LogError::Broken { cause: cause.clone() }),
        }
    }

    fn is_met(&self, needs: &[(u32, u64)], durable: &dyn Fn(u32) -> u64) -> bool {
        // What stands in this chain was added before, and is never behind what needs it.
        let own = |stream| self.streams.is_there(stream);
        needs.iter().all(|&(stream, lsn)| own(stream) || durable(stream) >= lsn)
    }

    /// Whether a BEGIN can be written without preparing a file.
    fn is_next_ready(&self) -> bool {
        let (least, _) = file_sizes(self.streams.count(), 0, self.settings);
        self.preparer.ready_bytes() >= least
    }

    /// Whether all that was added is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.composer.is_empty() && !self.unsynced && self.syncing.is_none()
    }

    fn refuse_two_syncs(&self) {
        assert!(self.syncing.is_none(), "one sync at a time");
    }

    /// Makes room for so many bytes more in the open frame's body, in the next file if they don't
    /// fit into this one. `false`: that can't be begun while a sync is under way.
    fn make_room(&mut self, more: usize) -> Result<bool, LogError> {
        let body = self.composer.body_bytes(self.streams.framed()) + more;
        let length = frame_length(self.file.position, body as u64, FrameEnd::Sector);
        if self.file.position + length <= self.file.changes_end() {
            return Ok(true);
        }
        if self.syncing.is_some() {
            return Ok(false);
        }
        self.next_file((f::BYTES + more) as u64)?;
        Ok(true)
    }

    /// Writes a commit that is longer than a frame is else.
    fn add_long(
        &mut self,
        commit: &NewCommit<'_>,
        slot: usize,
        bytes: usize,
    ) -> Result<Added, LogError> {
        // It begins on a block, as its pieces do.
        self.write(true)?;
        let rows = usize::from(!commit.again);
        let body_bytes = rows * f::ROW_BYTES + bytes;
        if !self.make_room(body_bytes)? {
            return Ok(Added::Syncs);
        }
        let body = BodyFacts {
            bytes: body_bytes as u64,
            rows: u32::from(!commit.again),
            changes: u32::try_from(commit.changes.len()).expect("a commit fits in memory"),
            clock_ms: commit.clock_ms,
        };
        let facts = self.facts(FrameEnd::Block);
        let done = write_long(&self.file, &facts, commit, &body);
        let sum = self.or_break(done)?;
        self.clock_ms = self.clock_ms.max(commit.clock_ms);
        if !commit.again {
            self.streams.added(slot, commit.first_lsn, commit.last_lsn());
        }
        self.frame_written(facts.length(body.bytes), sum, true);
        Ok(Added::Taken)
    }

    /// Closes the open frame, which may be empty, and writes it.
    fn write_frame(&mut self, end: FrameEnd) -> Result<(), LogError> {
        let (facts, changes) = (self.facts(end), !self.composer.is_empty());
        let rows = self.streams.framed();
        let (frame, sum) = self.composer.close(&facts, self.streams.rows(), rows);
        let length = frame.len() as u64;
        let done = self.file.write(facts.at.position, frame);
        self.or_break(done)?;
        self.composer.clear(self.streams.count());
        self.frame_written(length, sum, changes);
        Ok(())
    }

    fn frame_written(&mut self, length: u64, sum: u32, changes: bool) {
        self.file.advance(length, sum);
        self.streams.frame_written();
        self.files.frame_written();
        self.watermark_told = true;
        self.unsynced |= changes;
    }

    /// What the next frame's header says.
    fn facts(&self, end: FrameEnd) -> FrameFacts {
        FrameFacts {
            kind: FrameKind::Changes,
            at: self.file.at(),
            key: self.file.key,
            before_sum: self.file.last_sum,
            watermark: self.watermark,
            oldest: self.files.oldest(),
            unix_ms: self.world.clock.unix_ms(),
            end,
        }
    }

    /// Writes what was added, fills the block, and begins a sync of the file, unless nothing was
    /// written.
    fn sync_job(&mut self) -> Result<Option<SyncJob<S::File>>, LogError> {
        let tells = self.files.must_tell() && self.file.has_room();
        if !self.composer.is_empty() || !self.file.is_at_block() || tells {
            self.write_frame(FrameEnd::Block)?;
        }
        if self.file.at() == self.watermark {
            return Ok(None);
        }
        self.sync_begun();
        Ok(Some(self.file.sync_job()))
    }

    /// Writes what was added, fills the block, and syncs the file, unless nothing was written.
    fn sync_file(&mut self) -> Result<(), LogError> {
        self.refuse_two_syncs();
        let job = self.sync_job()?;
        job.map_or(Ok(()), |job| self.end_sync(job.run()))
    }

    /// A sync begins of all that was written.
    fn sync_begun(&mut self) {
        self.syncing = Some(self.file.at());
        self.unsynced = false;
        self.streams.sync_begins();
        self.files.sync_begins();
    }

    /// What the sync under way covers is on disk.
    fn sync_ended(&mut self) {
        self.watermark = self.syncing.take().expect("a sync that was begun");
        self.watermark_told = false;
        self.streams.sync_ends();
        for gone in self.files.sync_ends(self.is_durable()) {
            self.preparer.add_spare(gone.number, gone.file_bytes);
        }
    }

    /// Writes what was added, syncs the file, and begins the next one, with room for a frame of so
    /// many bytes. Without room on the disk nothing is done.
    fn next_file(&mut self, frame_bytes: u64) -> Result<(), LogError> {
        let (least, wanted) = file_sizes(self.streams.count(), frame_bytes, self.settings);
        assert!(least <= FILE_BYTES_MOST, "a frame of {frame_bytes} bytes fits in no file");
        let mut next = self.preparer.take(least, wanted)?;
        self.sync_file()?;
        self.files.ended(self.file.position, self.file.last_sum);
        let lasts = self.streams.lasts();
        let start = FileStart {
            predecessor: self.file.at(),
            before_sum: self.file.last_sum,
            oldest: self.files.oldest(),
            lasts: &lasts,
            clock_ms: self.clock_ms,
            unix_ms: self.world.clock.unix_ms(),
        };
        let begun = next.begin(&start).and_then(|()| next.sync());
        self.or_break(begun)?;
        self.begun_told.tell(next.name.number);
        self.files.begun(chain_file(&next, lasts));
        self.files.frame_written();
        self.file = next;
        self.sync_begun();
        self.sync_ended();
        Ok(())
    }

    /// Passes a result of the begun file on; an error breaks the log.
    fn or_break<T>(&mut self, done: Result<T, LogError>) -> Result<T, LogError> {
        done.inspect_err(|error| self.broken = Some(error.to_string()))
    }
}

/// Sizes of the next file: the least one, in which a frame of so many bytes fits behind BEGIN, and
/// the usual one.
pub(super) fn file_sizes(streams: usize, frame_bytes: u64, settings: LogSettings) -> (u64, u64) {
    let begin = frame_length(BLOCK_BYTES, (streams * f::ROW_BYTES) as u64, FrameEnd::Block);
    // The head, BEGIN, the frame, and a block for frames without changes.
    let least = |frame: u64| 2 * BLOCK_BYTES + begin + frame.next_multiple_of(BLOCK_BYTES);
    (least(frame_bytes), least(BLOCK_BYTES).max(settings.rounded_bytes()))
}

/// A begun file, as the chain's list has it; where it ends is known later.
pub(super) fn chain_file<F>(file: &BegunFile<F>, lasts: Vec<(u32, u64)>) -> ChainFile {
    ChainFile {
        number: file.name.number,
        salt: file.key.salt,
        file_bytes: file.file_bytes,
        end: 0,
        end_sum: 0,
        lasts,
    }
}
