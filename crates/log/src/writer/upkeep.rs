//! What a writer does beside appending: files ahead of need, compaction, streams that come and go.
//!
//! ```text
//! victim ── the owner looks at its changes ──> judged ── standing keys ──> release ── sync, sync
//! ```
//!
//! The log's thread. Rules: docs/formats/log.md, Compaction.

use crate::error::LogError;
use crate::format::layout::{BLOCK_BYTES, frame as f};
use crate::reader::victim::VictimReader;
use crate::storage::Storage;
use crate::writer::begun_file::BegunTold;
use crate::writer::frame_facts::{FrameEnd, frame_length};
use crate::writer::kept_room::KeptRoom;
use crate::writer::log_writer::{LogWriter, file_sizes};
use crate::writer::prepare::Ahead;

impl<S: Storage> LogWriter<S> {
    /// One bounded step towards the files that are to be there ahead of need: space is set aside,
    /// at most 1 MiB is written, or one file synced or removed. `true`: they are there, and nothing
    /// is left to do.
    ///
    /// # Errors
    /// `Full`: writes have to be refused; try again in a second. Another error is as harmless.
    /// `Broken`: no file is begun any more.
    pub fn prepare(&mut self) -> Result<bool, LogError> {
        self.refuse_if_broken()?;
        self.preparer.step(self.ahead())
    }

    /// From now on so much room is set aside that, with a full disk, so many bytes of changes can
    /// still be written, removals too, and files compacted.
    pub fn keep_room(&mut self, backlog_bytes: u64) {
        self.kept = KeptRoom { backlog: backlog_bytes };
    }

    /// Whether some of the room isn't set aside that is kept: [`LogWriter::prepare`] is due before
    /// more is added, or the disk is full.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.preparer.lacks(self.ahead())
    }

    /// Bytes that may be added beside what compaction needs, on a full disk.
    #[must_use]
    pub fn room_to_add(&self) -> u64 {
        let end = KeptRoom::end(self.ahead().file_bytes, self.files.longest());
        self.room().saturating_sub(end)
    }

    /// Bytes that the oldest file's records take at most if they are appended again.
    #[must_use]
    pub fn room_to_compact(&self) -> u64 {
        KeptRoom::once_more(self.files.oldest_bytes())
    }

    fn ahead(&self) -> Ahead {
        let (overhead, file_bytes) = file_sizes(self.streams.count(), 0, self.settings);
        let room = self.kept.all(file_bytes, self.files.longest());
        Ahead { file_bytes, overhead, room }
    }

    /// Whether files that are made from now on are written with zeros first: so if syncs are many
    /// and somebody waits for them. As it begins: yes.
    pub fn write_zeros(&mut self, yes: bool) {
        self.preparer.write_zeros(yes);
    }

    /// From now on this is told the number of each file that is begun, the present one first: when
    /// its BEGIN is on disk, and before anything is written behind that.
    pub fn tell_begun(&mut self, told: impl Fn(u64) + Send + 'static) {
        told(self.newest_file());
        self.begun_told = BegunTold(Some(Box::new(told)));
    }

    /// Number of the newest file whose BEGIN is on disk.
    #[must_use]
    pub fn newest_file(&self) -> u64 {
        self.file.name.number
    }

    /// Bytes of all files of the chain, with those that don't count or are being made.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.bytes() + self.preparer.bytes()
    }

    /// Bytes of the files that count.
    #[must_use]
    pub fn counted_bytes(&self) -> u64 {
        self.files.bytes()
    }

    /// Bytes of the files that count and were written to their end, and that no frame has: a
    /// process that ends soon leaves its file nearly empty.
    #[must_use]
    pub fn unused_bytes(&self) -> u64 {
        self.files.unused_bytes()
    }

    /// Bytes that frames with changes have in the files that count.
    #[must_use]
    pub fn changes_bytes(&self) -> u64 {
        let overhead = self.ahead().overhead * self.files.count() as u64;
        self.files.bytes().saturating_sub(overhead + self.room_here())
    }

    /// Bytes that changes may still have in the file being written, and in those set aside.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room_here() + self.preparer.room(self.ahead().overhead)
    }

    /// Whether commits that take so many bytes in a journal, none of them long, fit into the file
    /// that is being written: a journal needs more for a commit than a frame does.
    #[must_use]
    pub fn fits_here(&self, journal_bytes: u64) -> bool {
        // Two frames: the open one, and another that it may have no room for.
        let heads = 2 * (f::BYTES + self.streams.count() * f::ROW_BYTES) as u64 + 2 * BLOCK_BYTES;
        self.room_here() >= journal_bytes + heads
    }

    fn room_here(&self) -> u64 {
        let open = frame_length(self.file.position, self.open_bytes(), FrameEnd::Sector);
        self.file.changes_end().saturating_sub(self.file.position + open)
    }

    /// A new tenant's stream: it has no change yet.
    pub fn add_stream(&mut self, stream: u32) {
        self.streams.add(stream);
        if self.composer.is_empty() {
            self.composer.clear(self.streams.count());
        }
    }

    /// A dropped tenant's stream: nothing is added to it from now on, and no BEGIN lists it.
    pub fn drop_stream(&mut self, stream: u32) {
        self.streams.remove(stream);
    }

    /// Meta names this chain, and that counts: before, [`LogWriter::file_of`] gives 0 for changes
    /// of before the chain, and no file is compacted. Only for a chain that was new.
    pub fn named(&mut self) {
        self.files.named();
    }

    /// The oldest file that counts by what is on disk.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.files.oldest_on_disk()
    }

    /// The oldest file that counts as the next frame says it: the next victim.
    #[must_use]
    pub fn next_victim(&self) -> u64 {
        self.files.oldest()
    }

    /// The next file to be compacted, from now on under way. `None`: one is, or only the file that
    /// is being written is left.
    ///
    /// # Errors
    /// `Broken`. If the file can't be opened: it stays, and the shard needs a base.
    pub fn victim(&mut self) -> Result<Option<VictimReader<S>>, LogError> {
        self.refuse_if_broken()?;
        let Some(victim) = self.files.choose_victim() else { return Ok(None) };
        let opened = VictimReader::open(&*self.world.storage, &self.key, victim);
        match opened {
            Ok(reader) => Ok(Some(reader)),
            Err(error) => {
                self.files.victim_failed();
                Err(error)
            }
        }
    }

    /// The file that is being compacted, to be read again from a frame on. `None`: none is.
    ///
    /// # Errors
    /// As [`VictimReader::open`].
    pub fn victim_at(&self, frame: u64) -> Result<Option<VictimReader<S>>, LogError> {
        let victim = self.files.victim_under_way();
        let open = |file| VictimReader::open_at(&*self.world.storage, &self.key, file, frame);
        victim.map(open).transpose()
    }

    /// The last LSN of each stream in a file that is compacted, and in all before it.
    ///
    /// # Panics
    /// If this isn't the victim.
    #[must_use]
    pub fn lasts_behind(&self, victim: u64) -> Vec<(u32, u64)> {
        self.files.lasts_behind(victim)
    }

    /// The owner has looked at all changes of the victim: [`LogWriter::file_of`] gives files behind
    /// it from now on.
    ///
    /// # Panics
    /// If this isn't the victim.
    pub fn judged(&mut self, victim: u64) {
        self.files.judged(victim);
    }

    /// All that the victim needed was added, and all that made its records dead. It goes when that
    /// is synced, and a frame that says so is synced.
    ///
    /// # Panics
    /// If this isn't the victim, or wasn't judged.
    pub fn release(&mut self, victim: u64) {
        let is_durable = self.is_durable();
        self.files.release(victim, is_durable);
    }

    /// Whether a released file waits for a sync to go.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.files.is_leaving()
    }

    /// A file that is ≤ each one with the change that has this LSN, or with its record appended
    /// again. 0: it may be of before a chain that meta doesn't name.
    #[must_use]
    pub fn file_of(&self, stream: u32, lsn: u64) -> u64 {
        self.files.file_of(stream, lsn)
    }

    /// Bytes of files that don't count, and are held.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.preparer.held_bytes()
    }

    /// Followers read files from this number on: these aren't prepared again or removed.
    pub fn hold(&mut self, from: Option<u64>) {
        self.preparer.hold(from);
    }
}
