//! An entry as its reader gets it: a commit's changes, with the values that they name.
//!
//! 1. An entry was found whole before it is given out.
//! 2. A change that names a value comes with its bytes from the arena: those that are new in it. Of
//!    a journal that holds values, it has them.
//!
//! The log's thread, and the start.

use super::entry::{ChangeHead, EntryHead, Published};
use super::journal_error::JournalError;
use super::journal_file::JournalFile;
use super::layout::Effect;
use super::named_values::{ArenasByStream, NamedRun};
use super::payload::{Payload, StreamChange};
use crate::format::sum;

/// What is compared of the values that entries name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// Those that were written as a whole: their bytes are about to be read anyhow.
    Whole,
    /// All: they may come from an arena that isn't trusted.
    All,
}

/// A commit in a journal.
pub struct JournalEntry<'a> {
    published: Published,
    head: EntryHead,
    arenas: &'a ArenasByStream,
    file: &'a JournalFile,
    compared: Compared,
}

impl<'a> JournalEntry<'a> {
    /// # Safety
    /// The entry stays as it is, and mapped, as long as `'a` lasts.
    #[inline]
    pub(super) unsafe fn new(
        published: Published,
        head: EntryHead,
        (arenas, file): (&'a ArenasByStream, &'a JournalFile),
        compared: Compared,
    ) -> JournalEntry<'a> {
        JournalEntry { published, head, arenas, file, compared }
    }

    /// Whether it holds values that lie in runs, rather than to name them.
    pub(crate) fn holds_values(&self) -> bool {
        self.file.holds_values()
    }

    /// Where it lies in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.published.offset(self.head.position)
    }

    /// The position where it begins.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.head.position
    }

    /// The position behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.head.end
    }

    /// The owner's clock word when the commit began.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.head.clock_ms
    }

    /// The stream of all its changes.
    #[must_use]
    pub fn stream(&self) -> u32 {
        self.head.stream
    }

    /// The number of its first change.
    #[must_use]
    pub fn first_lsn(&self) -> u64 {
        self.head.first_lsn
    }

    /// The number of its last change.
    #[must_use]
    pub fn last_lsn(&self) -> u64 {
        self.head.first_lsn + u64::from(self.head.changes()) - 1
    }

    /// Number of its changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.changes() as usize
    }

    /// Whether it has no change: never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it depends on: stream and LSN of each.
    pub fn needs(&self) -> impl Iterator<Item = (u32, u64)> + use<> {
        self.published.needs(&self.head)
    }

    /// Its changes, as they lie in the entry: without the values that they name.
    #[inline]
    pub(crate) fn raw_changes(
        &self,
    ) -> impl Iterator<Item = (ChangeHead, StreamChange<'a>)> + use<'a> {
        // SAFETY: as was promised to `new`.
        unsafe { self.published.changes(&self.head) }
    }

    /// Its changes, each with the bytes of a value that it names as `rest`.
    #[inline]
    pub fn changes(
        &self,
    ) -> impl Iterator<Item = Result<StreamChange<'a>, JournalError>> + use<'a> {
        let (arenas, file, compared) = (self.arenas, self.file, self.compared);
        self.raw_changes().map(move |(head, change)| {
            let rest = match file.holds_values() {
                true => check_value(&change).map(|()| change.rest),
                false => named_bytes(head.stream, &change, arenas, compared),
            };
            match rest {
                Ok(rest) => Ok(StreamChange { rest, ..change }),
                Err(what) => Err(JournalError::Value {
                    path: file.path().to_path_buf(),
                    stream: head.stream,
                    lsn: head.lsn,
                    what,
                }),
            }
        })
    }
}

/// The run that a change names, if it names one; with the bytes of it that aren't new.
pub(crate) fn named_run(
    change: &StreamChange<'_>,
) -> Result<Option<(NamedRun, u32)>, &'static str> {
    // Most changes name none: that is seen by the record's flags alone.
    let names = match change.effect {
        Effect::Put => Payload::has_run(change.payload),
        Effect::Based => true,
        Effect::Gone | Effect::Clear => false,
    };
    if !names {
        return Ok(None);
    }
    let payload = Payload::parse(change, true)?;
    let of =
        |run| NamedRun { run, value_len: payload.head.value_len, key_len: payload.head.key_len };
    Ok(payload.run.map(|run| (of(run), payload.base_len())))
}

/// A change of a journal that holds values: a whole one has the bytes that were written.
fn check_value(change: &StreamChange<'_>) -> Result<(), &'static str> {
    if change.effect == Effect::Put && Payload::has_run(change.payload) {
        let payload = Payload::parse(change, false)?;
        if payload.run.is_some_and(|run| sum::more(0, payload.value) != run.checksum) {
            return Err(OTHER_SUM);
        }
    }
    Ok(())
}

const OTHER_SUM: &str = "its bytes have another sum than was written";

/// The bytes behind a change of a journal that names values: those of the value that it names, if
/// it names one.
fn named_bytes<'a>(
    stream: u32,
    change: &StreamChange<'a>,
    arenas: &'a ArenasByStream,
    compared: Compared,
) -> Result<&'a [u8], &'static str> {
    let Some((named, had)) = named_run(change)? else { return Ok(change.rest) };
    let arena = arenas.get(&stream).ok_or("its arena isn't at hand")?;
    let value = arena.value(&named)?;
    let compares = compared == Compared::All || change.effect == Effect::Put;
    if compares && sum::more(0, value) != named.run.checksum {
        return Err(OTHER_SUM);
    }
    value.get(had as usize..).ok_or("its base is longer")
}
