//! The log's side of a journal: one entry after the other, while the shard publishes more.
//!
//! ```text
//! advance ── tail (Acquire) ── entry ── the log writes it ── written (Release) ── the shard: leave
//! ```
//!
//! 1. An entry stays as it is until the reader has said that it was written: it is lent as long as
//!    the reader isn't used otherwise.
//! 2. So do the runs that it names. They are read from the arenas' mappings, which the reader
//!    keeps.
//! 3. There is one at a time.
//!
//! The log's thread, or a writer that syncs in its place.

use super::entry::{PlainHead, Published};
use super::journal_entry::{Compared, JournalEntry, named_run};
use super::journal_error::JournalError;
use super::journal_file::{JournalFile, damaged};
use super::layout::{Effect, header};
use super::named_values::{ArenasByStream, NamedValues};
use super::payload::Payload;
use crate::format::words::SharedWords;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// A commit of one change that has all its bytes, and depends on nothing: a PUT whose value lies in
/// its record, or a GONE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainEntry<'a> {
    /// The stream.
    pub stream: u32,
    /// The number of its change.
    pub lsn: u64,
    /// What that does.
    pub effect: Effect,
    /// The owner's clock word when the commit began.
    pub clock_ms: u64,
    /// The change's payload.
    pub payload: &'a [u8],
}

/// The log's side of a journal.
pub struct JournalReader {
    file: Arc<JournalFile>,
    arenas: ArenasByStream,
    /// The next entry begins here, or behind a SKIP here.
    position: u64,
    /// A tail that was seen. The shard stores to the tail's line with each entry: a look at each
    /// would have both cores wait for it.
    seen: u64,
}

impl JournalReader {
    /// The one reader of a journal, at the first entry that hasn't left.
    ///
    /// # Panics
    /// If it has one already, or is only looked at.
    #[must_use]
    pub fn new(file: &Arc<JournalFile>) -> JournalReader {
        file.take_reader();
        let position = file.written();
        let file = Arc::clone(file);
        JournalReader { file, arenas: ArenasByStream::new(), position, seen: position }
    }

    /// The journal's file.
    #[must_use]
    pub fn file(&self) -> &Arc<JournalFile> {
        &self.file
    }

    /// Values that a stream's changes name lie in this arena: a [`crate::Region`]. To be told
    /// before its first change is read.
    pub fn set_arena(&mut self, stream: u32, arena: Arc<dyn NamedValues>) {
        self.arenas.insert(stream, arena);
    }

    /// A stream has no more changes.
    pub fn forget_arena(&mut self, stream: u32) {
        self.arenas.remove(&stream);
    }

    /// Reads on from a position at which an entry begins, or will: what is before it is in a base.
    /// It isn't given back by that.
    ///
    /// # Panics
    /// If it was read already, or nothing was published up to there.
    pub fn skip_to(&mut self, position: u64) {
        let is_there = (self.position..=self.tail()).contains(&position);
        assert!(is_there, "{position} isn't between what was read and the tail");
        self.position = position;
    }

    /// The position behind what was read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The position behind all that was published by now.
    #[must_use]
    pub fn tail(&self) -> u64 {
        // SYNC(journal-tail)
        self.file.words().load64(header::TAIL, Acquire)
    }

    /// The next entry; `None` if there is none yet.
    ///
    /// # Errors
    /// If the ring is damaged: our own mistake, or a bit that changed.
    pub fn advance(&mut self) -> Result<Option<JournalEntry<'_>>, JournalError> {
        let tail = self.tail();
        self.advance_to(tail)
    }

    /// The next entry, if it ends at `end` at the latest: a tail that was seen before.
    ///
    /// # Errors
    /// As [`Self::advance`].
    ///
    /// # Panics
    /// If `end` is behind the tail.
    #[inline]
    pub fn advance_to(&mut self, end: u64) -> Result<Option<JournalEntry<'_>>, JournalError> {
        if end <= self.position {
            return Ok(None);
        }
        let published = self.published_to(end);
        let found = published.commit_at(self.position);
        let Some(head) = found.map_err(|fault| damaged(self.file.path(), *fault))? else {
            self.position = end;
            return Ok(None);
        };
        self.position = head.end;
        let of = (&self.arenas, &*self.file);
        // SAFETY: the shard writes where the entry lies only when head is behind it, which waits
        // for `written`; that takes the reader mutably. The file is mapped as long as the reader.
        Ok(Some(unsafe { JournalEntry::new(published, head, of, Compared::Whole) }))
    }

    /// The next entry, as [`Self::advance_to`], if it is plain, and neither damaged nor behind a
    /// SKIP. `None`: that one tells.
    ///
    /// # Panics
    /// If `end` is behind the tail.
    #[inline]
    pub fn advance_plain(&mut self, end: u64) -> Option<PlainEntry<'_>> {
        if end <= self.position {
            return None;
        }
        let published = self.published_to(end);
        let head = published.plain_at(self.position)?;
        // SAFETY: as in `advance_to`.
        let payload =
            unsafe { published.words.bytes(head.payload_at, head.payload_bytes as usize) };
        let PlainHead { stream, lsn, effect, clock_ms, .. } = head;
        if effect == Effect::Put && Payload::has_run(payload) {
            return None;
        }
        self.position = head.end;
        Some(PlainEntry { stream, lsn, effect, clock_ms, payload })
    }

    /// What is published up to `end`, which was seen before.
    fn published_to(&mut self, end: u64) -> Published {
        if end > self.seen {
            self.seen = self.tail();
        }
        assert!(end <= self.seen, "{end} is behind the tail of the journal");
        let (words, ring_bytes) = (self.file.words(), self.file.ring_bytes());
        Published { words, ring_bytes, tail: end }
    }

    /// Whether the entries up to `end`, a tail that was seen before, can be read without others:
    /// none depends on another stream, and none names a value that lies in an arena.
    ///
    /// # Errors
    /// As [`Self::advance`].
    ///
    /// # Panics
    /// If `end` is behind the tail.
    pub fn stand_alone(&self, end: u64) -> Result<bool, JournalError> {
        assert!(end <= self.tail(), "{end} is behind the tail of the journal");
        let (words, ring_bytes) = (self.file.words(), self.file.ring_bytes());
        let published = Published { words, ring_bytes, tail: end };
        let mut at = self.position;
        while let Some(head) =
            published.commit_at(at).map_err(|fault| damaged(self.file.path(), *fault))?
        {
            let names = || {
                // SAFETY: the shard writes where the entry lies only when head is behind it, which
                // waits for `written`; that takes the reader mutably, and nothing is lent further.
                let mut changes = unsafe { published.changes(&head) };
                changes.any(|(_, change)| !matches!(named_run(&change), Ok(None)))
            };
            if published.needs(&head).next().is_some() || !self.file.holds_values() && names() {
                return Ok(false);
            }
            at = head.end;
        }
        Ok(true)
    }

    /// All entries before a position are in the log's file, by a `write` that has returned. The
    /// shard gives them back at the end of its turn.
    ///
    /// # Panics
    /// If they weren't read.
    pub fn written(&mut self, position: u64) {
        assert!(position <= self.position, "what wasn't read isn't written");
        if position > self.file.written() {
            self.file.set_written(position);
        }
    }
}

/// Another reader may begin, at the first entry that wasn't written.
impl Drop for JournalReader {
    fn drop(&mut self) {
        self.file.give_reader_back();
    }
}
