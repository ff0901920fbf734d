//! What the journals of an earlier process have of one stream, for the adoption of its arena.
//!
//! 1. Journals of different makings may stand beside each other, if a start was cut off. They have
//!    different parts of a stream.
//!
//! The start.

use crate::error::ArenaError;
use crate::format::format_fault::FormatFault;
use crate::journal::contents::Stop;
use crate::journal::journal_entry::{JournalEntry, named_run};
use crate::journal::journal_file::JournalFile;
use crate::journal::named_values::{ArenasByStream, NamedRun};

/// The journals in which changes of a stream may be that its arena lacks.
#[derive(Default, Clone, Copy)]
pub struct StreamJournal<'a> {
    /// The journals, checked by [`JournalFile::contents`].
    pub journals: &'a [&'a JournalFile],
    /// The arena's stream.
    pub stream: u32,
    /// The last LSN of the stream that is in the log.
    pub logged_lsn: u64,
}

/// What the journals have of a stream.
pub(super) struct JournalLeft<'a> {
    /// Those that have some of it, in its order.
    journals: Vec<&'a JournalFile>,
    stream: u32,
    /// Values that changes name which aren't in the log, or not committed.
    pub(super) claims: Vec<NamedRun>,
    /// The arena's committed LSN when it was found.
    pub(super) committed_lsn: u64,
    /// The last number in the journals, or 0.
    pub(super) last_lsn: u64,
}

impl<'a> JournalLeft<'a> {
    pub(super) fn of(
        journal: &StreamJournal<'a>,
        committed_lsn: u64,
    ) -> Result<JournalLeft<'a>, ArenaError> {
        let claimed_from = journal.logged_lsn.min(committed_lsn);
        let (stream, mut claims, mut found) = (journal.stream, Vec::new(), Vec::new());
        for &file in journal.journals {
            let mut lsns = None;
            each_of(file, stream, &mut |entry| {
                let (first, _) = lsns.unwrap_or((entry.first_lsn(), 0));
                lsns = Some((first, entry.last_lsn()));
                if entry.holds_values() {
                    return Ok(());
                }
                for (_, change) in entry.raw_changes().filter(|(_, it)| it.lsn > claimed_from) {
                    let named = named_run(&change).map_err(|what| {
                        let fault = FormatFault::new(entry.offset(), "change", "whole", what);
                        fault.at(file.path())
                    })?;
                    claims.extend(named.map(|(run, _)| run));
                }
                Ok(())
            })?;
            found.extend(lsns.map(|lsns| (lsns, file)));
        }
        found.sort_unstable_by_key(|&(lsns, _)| lsns);
        let last_lsn = found.last().map_or(0, |&((_, last), _)| last);
        let journals = found.into_iter().map(|(_, file)| file).collect();
        Ok(JournalLeft { journals, stream, claims, committed_lsn, last_lsn })
    }

    /// Each commit of the stream, in order.
    pub(super) fn each(
        &self,
        f: &mut dyn FnMut(&JournalFile, &JournalEntry<'_>) -> Result<(), ArenaError>,
    ) -> Result<(), ArenaError> {
        self.journals
            .iter()
            .try_for_each(|file| each_of(file, self.stream, &mut |entry| f(file, entry)))
    }
}

/// Each commit of a stream in a journal.
fn each_of(
    file: &JournalFile,
    stream: u32,
    f: &mut dyn FnMut(&JournalEntry<'_>) -> Result<(), ArenaError>,
) -> Result<(), ArenaError> {
    let walked = file.each_entry(&ArenasByStream::new(), &mut |entry| {
        if entry.stream() == stream { f(entry).map_err(Stop::Refused) } else { Ok(()) }
    });
    walked.map_err(|stop| match stop {
        Stop::Fault(fault) => fault.at(file.path()),
        Stop::Refused(error) => error,
    })
}
