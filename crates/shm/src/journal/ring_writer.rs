//! The shard's side of a journal: publishing commits, and giving back what has left.
//!
//! ```text
//!  head                written            settled   tail
//! ──┬─────────────────────┬──────────────────┬───────┬──────────
//!   │ in the log, to be   │ for the log's    │ being │  free, up to head + ring
//!   │ given back          │ thread           │ made  │
//! ──┴─────────────────────┴──────────────────┴───────┴──────────
//! ```
//!
//! 1. An entry is whole before tail is stored behind it (Release): by this one store the commit is
//!    in the journal.
//! 2. Head never goes beyond what the log's thread has written, nor beyond the last commit that all
//!    stores of the arena were made of (settled).
//! 3. Nobody publishes without room: to have asked for it is the caller's duty, and a lack of it a
//!    mistake of ours.
//! 4. The log may have room for less than the ring: the shard takes its word for it once a turn, as
//!    it takes what was written. So within a turn no more is published than the ring had room for
//!    at its beginning. Values that entries name count too, since the log will have them.
//! 5. Named values of one commit that are longer than 7/16 of the ring may take all of that room
//!    but the reserve: removals go on beside them. On a full disk they count whole for them too.
//!    Shorter ones have room in an empty ring beside the largest entry and the reserve.
//! 6. All writers of one shard share one ring, by clones of one handle. They belong to one thread
//!    at a time; it may hand over.
//!
//! The shard's thread.

use super::entry::ChangeHead;
use super::journal_file::JournalFile;
use super::layout::{ENTRY_SHARE, change as c, entry as e, header, reserve_bytes};
use super::thread_owned::ThreadOwned;
use crate::format::layout::round_up;
use crate::format::words::{MappedWords, SharedWords};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Zeros for paddings.
const ZEROS: [u8; 32] = [0; 32];

/// The positions that the shard's thread keeps to itself.
struct RingCursors {
    tail: Cell<u64>,
    head: Cell<u64>,
    /// All commits up to here have had all of their stores.
    settled: Cell<u64>,
    /// Entries may be published up to here.
    end: Cell<u64>,
    /// The same for removals: further than the others beside a long named value.
    removals_end: Cell<u64>,
    /// Entries that name values: the position behind each, and the bytes of its values.
    named: RefCell<VecDeque<(u64, u64)>>,
}

struct RingSide {
    file: Arc<JournalFile>,
    words: MappedWords,
    ring_bytes: u64,
    cursors: ThreadOwned<RingCursors>,
}

/// The shard's side of a journal. Clones share it.
#[derive(Clone)]
pub struct JournalWriter {
    side: Arc<RingSide>,
}

impl JournalWriter {
    /// The one writer's side of a journal.
    ///
    /// # Panics
    /// If it has one already, or is only looked at.
    #[must_use]
    pub fn new(file: &Arc<JournalFile>) -> JournalWriter {
        file.take_writer();
        let (words, ring_bytes) = (file.words(), file.ring_bytes());
        let (tail, head) =
            (words.load64(header::TAIL, Relaxed), words.load64(header::HEAD, Relaxed));
        let end = (head + ring_bytes).min(file.limit());
        let [tail, head, settled, end, removals_end] = [tail, head, tail, end, end].map(Cell::new);
        let named = RefCell::default();
        let cursors = RingCursors { tail, head, settled, end, removals_end, named };
        let cursors = ThreadOwned::new(cursors);
        let side = RingSide { file: Arc::clone(file), words, ring_bytes, cursors };
        JournalWriter { side: Arc::new(side) }
    }

    #[inline]
    fn cursors(&self) -> &RingCursors {
        self.side.cursors.get()
    }

    /// The journal's file.
    #[must_use]
    pub fn file(&self) -> &Arc<JournalFile> {
        &self.side.file
    }

    /// The next thread that uses the ring becomes its owner.
    ///
    /// # Panics
    /// As all calls but [`Self::file`] and [`Self::most_bytes`]: if the ring is another thread's.
    pub fn hand_over(&self) {
        self.side.cursors.hand_over();
    }

    /// Whether entries hold values that lie in runs, rather than to name them.
    pub(crate) fn holds_values(&self) -> bool {
        self.side.file.holds_values()
    }

    /// Bytes of the largest entry. A commit that takes more is refused.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        self.side.ring_bytes / ENTRY_SHARE
    }

    /// Whether there is room for a commit of so many bytes ([`super::layout::CommitSize`]). The
    /// last part of the ring is for those that do nothing but remove.
    #[must_use]
    #[inline]
    pub fn has_room(&self, bytes: u64, removes_only: bool) -> bool {
        let cursors = self.cursors();
        let (end, kept) = match removes_only {
            true => (&cursors.removals_end, 0),
            false => (&cursors.end, reserve_bytes(self.side.ring_bytes)),
        };
        let free = end.get().saturating_sub(cursors.tail.get());
        // Twice over: a SKIP may come before it.
        bytes.saturating_mul(2).saturating_add(kept) <= free
    }

    /// Whether there is room for one that names values of so many bytes: they count as if they lay
    /// in the ring, but one commit with long ones needs only that no others wait.
    #[must_use]
    pub fn has_room_to_name(&self, bytes: u64, named_bytes: u64) -> bool {
        let (ring, cursors) = (self.side.ring_bytes, self.cursors());
        if self.is_long(named_bytes) {
            return cursors.named.borrow().is_empty() && self.has_room(bytes, false);
        }
        let free = cursors.end.get().saturating_sub(cursors.tail.get());
        bytes * 2 + named_bytes + reserve_bytes(ring) <= free
    }

    /// Whether values of one commit are too long to count as if they lay in the ring: beside an
    /// entry of [`Self::most_bytes`], twice over, and the reserve.
    fn is_long(&self, named_bytes: u64) -> bool {
        let ring = self.side.ring_bytes;
        named_bytes > ring - 2 * self.most_bytes() - reserve_bytes(ring)
    }

    /// The last entry names values of so many bytes.
    pub(crate) fn note_named(&self, bytes: u64) {
        let cursors = self.cursors();
        cursors.named.borrow_mut().push_back((cursors.tail.get(), bytes));
        self.set_ends(cursors.end.get().saturating_sub(bytes), cursors.removals_end.get());
    }

    /// Sets up to where may be published, removals up to `most` if a long value has left them no
    /// more. (It waited until no other was named, so it is the first.)
    fn set_ends(&self, end: u64, most: u64) {
        let cursors = self.cursors();
        let long =
            cursors.named.borrow().front().copied().filter(|&(_, bytes)| self.is_long(bytes));
        let kept = long.map_or(0, |(position, _)| position + reserve_bytes(self.side.ring_bytes));
        cursors.end.set(end);
        cursors.removals_end.set(end.max(kept.min(most)));
    }

    /// Bytes that are in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let cursors = self.cursors();
        cursors.tail.get() - cursors.head.get()
    }

    /// The position behind all that was published.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.cursors().tail.get()
    }

    /// The position before which all was given back.
    #[must_use]
    #[inline]
    pub fn left(&self) -> u64 {
        self.cursors().head.get()
    }

    /// Gives back what the log's thread has written, and looks up to where it has room. To be
    /// called at the end of a turn. Returns whether there is more room than before.
    pub fn leave(&self) -> bool {
        let cursors = self.cursors();
        let head = self.side.file.written().min(cursors.settled.get());
        if head > cursors.head.get() {
            cursors.head.set(head);
            self.side.words.store64(header::HEAD, head, Release);
        }
        let head = cursors.head.get();
        let mut named = cursors.named.borrow_mut();
        while named.front().is_some_and(|&(position, _)| position <= head) {
            named.pop_front();
        }
        let named_bytes: u64 = named.iter().map(|&(_, bytes)| bytes).sum();
        drop(named);
        let ring_end = head + self.side.ring_bytes;
        let limit = self.side.file.limit().saturating_sub(named_bytes);
        let before = (cursors.end.get(), cursors.removals_end.get());
        self.set_ends(ring_end.saturating_sub(named_bytes).min(limit), ring_end.min(limit));
        cursors.end.get() > before.0 || cursors.removals_end.get() > before.1
    }

    /// All stores of what was published have been made.
    #[inline]
    pub(crate) fn settle(&self) {
        let cursors = self.cursors();
        cursors.settled.set(cursors.tail.get());
    }

    /// Begins an entry of so many bytes, of so many changes.
    ///
    /// # Panics
    /// If there is no room, or it would be too long.
    #[inline]
    pub(crate) fn begin(
        &self,
        bytes: u64,
        needs: &[(u32, u64)],
        changes: u32,
        clock_ms: u64,
    ) -> EntryEncoder<'_> {
        let side = &*self.side;
        let cursors = side.cursors.get();
        let bytes = round_up(bytes, e::ALIGN);
        assert!(bytes <= self.most_bytes(), "a commit of {bytes} bytes is too large for a journal");
        let (tail, mask) = (cursors.tail.get(), side.ring_bytes - 1);
        let to_end = side.ring_bytes - (tail & mask);
        let skipped = if bytes > to_end { to_end } else { 0 };
        let position = tail + skipped;
        let free = side.ring_bytes - (tail - cursors.head.get());
        assert!(
            skipped + bytes <= free,
            "{bytes} bytes without room in a journal: {free} are free"
        );
        if skipped != 0 {
            side.write_head(tail, skipped, (e::KIND_SKIP, 0, 0), 0);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
        let count = needs.len() as u16;
        side.write_head(position, bytes, (e::KIND_COMMIT, count, changes), clock_ms);
        let mut at = side.offset(position) + e::HEADER_BYTES;
        for &(stream, lsn) in needs {
            side.words.store64(at, stream.into(), Relaxed);
            side.words.store64(at + 8, lsn, Relaxed);
            at += e::NEED_BYTES;
        }
        EntryEncoder {
            side,
            cursors,
            at,
            end: side.offset(position) + bytes,
            tail: position + bytes,
        }
    }
}

impl RingSide {
    #[inline]
    fn offset(&self, position: u64) -> u64 {
        header::BYTES + (position & (self.ring_bytes - 1))
    }

    #[inline]
    fn write_head(
        &self,
        position: u64,
        bytes: u64,
        (kind, needs, changes): (u16, u16, u32),
        clock_ms: u64,
    ) {
        let at = self.offset(position);
        let counts = u64::from(kind) | u64::from(needs) << 16 | u64::from(changes) << 32;
        self.words.store64(at + e::POSITION, position, Relaxed);
        self.words.store64(at + e::BYTES, bytes, Relaxed);
        self.words.store64(at + e::KIND, counts, Relaxed);
        self.words.store64(at + e::CLOCK, clock_ms, Relaxed);
    }
}

/// An entry that is being written; nobody knows of it before [`Self::publish`].
pub(crate) struct EntryEncoder<'a> {
    side: &'a RingSide,
    cursors: &'a RingCursors,
    /// Offset of the next byte in the file.
    at: u64,
    /// Offset of the entry's end.
    end: u64,
    /// The position behind it.
    tail: u64,
}

impl EntryEncoder<'_> {
    /// The header of the next change.
    #[inline]
    pub(crate) fn change(&mut self, head: ChangeHead) {
        debug_assert!(self.at.is_multiple_of(c::ALIGN) && self.at < self.end);
        for (i, word) in (0u64..).step_by(8).zip(head.to_words()) {
            self.side.words.store64(self.at + i, word, Relaxed);
        }
        self.at += c::HEADER_BYTES;
    }

    /// Bytes of its payload.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.side.words.copy_in(self.at, bytes);
        self.at += bytes.len() as u64;
    }

    /// So many zeros, up to 32.
    #[inline]
    pub(crate) fn zeros(&mut self, count: u64) {
        if count != 0 {
            self.bytes(&ZEROS[..usize::try_from(count).expect("at most 32")]);
        }
    }

    /// The words and the offset where bytes come next, for callers that write them there
    /// themselves; then so many are taken.
    pub(crate) fn take(&mut self, bytes: u64) -> (MappedWords, u64) {
        self.at += bytes;
        (self.side.words, self.at - bytes)
    }

    /// Zeros behind a payload.
    #[inline]
    pub(crate) fn end_change(&mut self) {
        self.zeros(round_up(self.at, c::ALIGN) - self.at);
    }

    /// Publishes the entry. Returns the position behind it.
    #[inline]
    pub(crate) fn publish(mut self) -> u64 {
        let unused = self.end.checked_sub(self.at).filter(|&unused| unused < e::ALIGN);
        self.zeros(unused.expect("an entry is as long as was said"));
        self.cursors.tail.set(self.tail);
        // SYNC(journal-tail): the log's thread, or the next process, sees the whole entry.
        self.side.words.store64(header::TAIL, self.tail, Release);
        self.tail
    }
}
