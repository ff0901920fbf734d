//! What a writer does beside appending: files ahead of need, compaction, streams that come and go.
//!
//! ```text
//! victim ── the owner looks at its changes ──> judged ── standing keys ──> release ── sync, sync
//! ```
//!
//! The log's thread. Rules: docs/formats/log.md, Compaction.

use crate::error::LogError;
use crate::reader::victim::VictimReader;
use crate::storage::Storage;
use crate::writer::frame_facts::{FrameEnd, frame_length};
use crate::writer::log_writer::{LogWriter, file_sizes};

impl<S: Storage> LogWriter<S> {
    /// One bounded step towards a prepared file: at most 1 MiB is written, or one file synced or
    /// removed. `true`: it is there, and nothing is left to do.
    ///
    /// # Errors
    /// `Full`: writes have to be refused once the last file is full; try again in a second. Another
    /// error is as harmless. `Broken`: no file is begun any more.
    pub fn prepare(&mut self) -> Result<bool, LogError> {
        self.refuse_if_broken()?;
        let (_, wanted) = file_sizes(self.streams.count(), 0, self.settings);
        self.preparer.step(wanted)
    }

    /// Whether files that are made from now on are written with zeros first: so if syncs are many
    /// and somebody waits for them. As it begins: yes.
    pub fn write_zeros(&mut self, yes: bool) {
        self.preparer.write_zeros(yes);
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

    /// Bytes that changes may still have in the file being written and in the prepared one: what a
    /// victim's records need to have if the disk is full.
    #[must_use]
    pub fn room(&self) -> u64 {
        let (least, _) = file_sizes(self.streams.count(), 0, self.settings);
        let body = self.composer.body_bytes(self.streams.framed()) as u64;
        let open = frame_length(self.file.position, body, FrameEnd::Sector);
        let here = self.file.changes_end().saturating_sub(self.file.position + open);
        here + self.preparer.ready_bytes().saturating_sub(least)
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
