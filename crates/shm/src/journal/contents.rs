//! All that a journal holds which another process left: for a start, and `nigh check`.
//!
//! 1. Nobody writes to the journal meanwhile: it has no writer yet.
//! 2. Entries are checked as a whole, each record's sum too, before anything goes by them.
//!
//! The start; `nigh check`.

use super::entry::Published;
use super::journal_entry::{Compared, JournalEntry};
use super::journal_error::JournalError;
use super::journal_file::{JournalFile, damaged};
use super::layout::{Effect, header};
use super::named_values::ArenasByStream;
use super::payload::Payload;
use crate::format::format_fault::{FormatFault, ensure};
use crate::format::words::SharedWords;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Acquire;

/// What the entries of a journal are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalContents {
    /// Commits.
    pub commits: u64,
    /// Changes.
    pub changes: u64,
    /// First and last LSN of each stream.
    pub lsns: BTreeMap<u32, (u64, u64)>,
    /// The latest clock word of any commit.
    pub clock_ms: u64,
}

impl JournalFile {
    /// Checks all entries, and counts them.
    ///
    /// # Errors
    /// [`JournalError::Damaged`], with the place.
    ///
    /// # Panics
    /// If the journal has a writer.
    pub fn contents(&self) -> Result<JournalContents, JournalError> {
        let mut contents = JournalContents::default();
        self.each_entry(&ArenasByStream::new(), &mut |entry| contents.take(entry))
            .map_err(|fault| damaged(self.path(), fault))?;
        Ok(contents)
    }

    /// Gives out all commits in order, with the values that they name from these arenas, whose sums
    /// are compared.
    ///
    /// # Errors
    /// [`JournalError::Damaged`]; or what `f` says.
    ///
    /// # Panics
    /// If the journal has a writer.
    pub fn each_commit<E: From<JournalError>>(
        &self,
        arenas: &ArenasByStream,
        f: &mut dyn FnMut(&JournalEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each_entry(arenas, &mut |entry| f(entry).map_err(Stop::Refused)).map_err(|stop| {
            match stop {
                Stop::Fault(fault) => damaged(self.path(), fault).into(),
                Stop::Refused(error) => error,
            }
        })
    }

    /// The same, with faults as they are.
    pub(crate) fn each_entry<E: From<FormatFault>>(
        &self,
        arenas: &ArenasByStream,
        f: &mut dyn FnMut(&JournalEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.has_no_writer();
        let (words, ring_bytes) = (self.words(), self.ring_bytes());
        let tail = words.load64(header::TAIL, Acquire);
        let published = Published { words, ring_bytes, tail };
        let mut position = words.load64(header::HEAD, Acquire);
        while let Some(head) = published.commit_at(position).map_err(|fault| *fault)? {
            position = head.end;
            let of = (arenas, self);
            // SAFETY: nobody writes to the journal, as it has no writer; it is mapped as long as
            // this value.
            f(&unsafe { JournalEntry::new(published, head, of, Compared::All) })?;
        }
        Ok(())
    }
}

/// Why a walk over the entries ended early.
pub(crate) enum Stop<E> {
    Fault(FormatFault),
    Refused(E),
}

impl<E> From<FormatFault> for Stop<E> {
    fn from(fault: FormatFault) -> Stop<E> {
        Stop::Fault(fault)
    }
}

impl JournalContents {
    fn take(&mut self, entry: &JournalEntry<'_>) -> Result<(), FormatFault> {
        let at = entry.offset();
        for (_, change) in entry.raw_changes() {
            if change.effect != Effect::Clear {
                let payload = Payload::parse(&change, !entry.holds_values());
                let whole = payload.and_then(|it| it.check_sum());
                whole.map_err(|what| {
                    let found = format!("{what} (LSN {})", change.lsn);
                    FormatFault::new(at, "change of an entry", "whole", found)
                })?;
            }
        }
        let (first, stream) = (entry.first_lsn(), entry.stream());
        let known = self.lsns.entry(stream).or_insert((first, first - 1));
        ensure(first == known.1 + 1, || {
            let expected = format!("{} of stream {stream}", known.1 + 1);
            FormatFault::new(at, "first LSN of an entry", expected, first)
        })?;
        known.1 = entry.last_lsn();
        self.commits += 1;
        self.changes += entry.len() as u64;
        self.clock_ms = self.clock_ms.max(entry.clock_ms());
        Ok(())
    }
}
