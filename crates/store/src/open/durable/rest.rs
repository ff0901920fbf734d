//! The log's rest: what journals have and the log doesn't is written to it, in new files.
//!
//! 1. A chain of which a stream has a gap before its journal gets nothing; none does if one broke.
//! 2. Chains are written together, each commit behind what it needs: a power cut may come here too.
//!
//! The thread that starts the server.

use crate::durability::log_sink::kind_of;
use crate::error::StoreError;
use crate::open::durable::arenas::StartStreams;
use crate::open::durable::found::Findings;
use nigh_log::{Added, LogWriter, NewChange, NewCommit, Storage};
use nigh_shm::{ArenasByStream, AsideArena, JournalEntry, JournalFile};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Where values are that entries name: in adopted arenas, and in those that were set aside. Before
/// an arena that was built has taken the place of one of these.
pub(super) fn named_values(streams: &StartStreams) -> Result<ArenasByStream, StoreError> {
    let mut arenas = ArenasByStream::new();
    for (number, it) in streams {
        if let Some(writer) = &it.writer {
            arenas.insert(*number, Arc::clone(writer.region()) as _);
        } else if it.journal.is_some() {
            let aside = it.aside.iter().filter_map(|aside| AsideArena::open(aside).ok());
            let aside: Vec<AsideArena> = aside.collect();
            if !aside.is_empty() {
                arenas.insert(*number, Arc::new(aside));
            }
        }
    }
    Ok(arenas)
}

/// Writes to each chain what its journal has beyond it, with the values that it names from
/// `arenas`, and syncs all. Returns how many commits that were. `writers` are by shard of the
/// chains.
pub(super) fn write_rest<S: Storage>(
    findings: &Findings<S>,
    streams: &StartStreams,
    arenas: &ArenasByStream,
    writers: &mut [LogWriter<S>],
) -> Result<u64, StoreError> {
    let chains = writers.len();
    let shard_of = |number: u32| streams.get(&number).map(|it| it.stream.shard(chains));
    // By stream: the last LSN that was added.
    let mut added: BTreeMap<u32, u64> =
        streams.iter().map(|(number, it)| (*number, it.log_last.unwrap_or(0))).collect();
    let mut completed = 0;
    loop {
        let (mut waits, mut took) = (false, 0);
        let durable: BTreeMap<u32, u64> = writers
            .iter()
            .flat_map(|writer| writer.streams().map(|(stream, _, durable)| (stream, durable)))
            .collect();
        for journal in findings.ours() {
            // A shard's later commits wait behind one that waits.
            let blocked = Cell::new(false);
            journal.each_commit(arenas, &mut |entry: &JournalEntry<'_>| {
                let number = entry.stream();
                let (Some(shard), Some(last)) = (shard_of(number), added.get_mut(&number)) else {
                    return Ok(());
                };
                if blocked.get() || !is_news(entry, *last, journal)? {
                    return Ok(());
                }
                let writer = writers.get_mut(shard).expect("a shard of the chains");
                match add(writer, entry, &durable)? {
                    Added::Taken => {
                        *last = entry.last_lsn();
                        took += 1;
                    }
                    // No sync is under way here.
                    Added::Waits | Added::Syncs => {
                        blocked.set(true);
                        waits = true;
                    }
                }
                Ok::<(), StoreError>(())
            })?;
        }
        for writer in writers.iter_mut() {
            writer.write(true)?;
            writer.sync()?;
        }
        completed += took;
        if !waits {
            return Ok(completed);
        }
        if took == 0 {
            return Err(StoreError::JournalCircle);
        }
    }
}

/// Whether the log, which has a stream up to `last`, lacks an entry of a journal.
///
/// # Errors
/// It has a part of it. A commit lies in the log as a whole: so another one has its numbers there,
/// and the log went on without this memory.
pub(super) fn is_news(
    entry: &JournalEntry<'_>,
    last: u64,
    journal: &JournalFile,
) -> Result<bool, StoreError> {
    if entry.first_lsn() <= last && last < entry.last_lsn() {
        let dir = journal.path().parent().unwrap_or(Path::new(".")).to_owned();
        return Err(StoreError::LogWentOn { dir, shard: journal.shard() });
    }
    Ok(entry.last_lsn() > last)
}

fn add<S: Storage>(
    writer: &mut LogWriter<S>,
    entry: &JournalEntry<'_>,
    durable: &BTreeMap<u32, u64>,
) -> Result<Added, StoreError> {
    let needs: Vec<(u32, u64)> = entry.needs().collect();
    let changes = entry.changes().collect::<Result<Vec<_>, _>>()?;
    let payloads: Vec<[&[u8]; 2]> = changes.iter().map(|it| [it.payload, it.rest]).collect();
    let new: Vec<NewChange<'_>> = changes
        .iter()
        .zip(&payloads)
        .map(|(it, payload)| NewChange { kind: kind_of(it.effect), payload })
        .collect();
    let commit = NewCommit {
        stream: entry.stream(),
        first_lsn: entry.first_lsn(),
        again: false,
        changes: &new,
        needs: &needs,
        clock_ms: entry.clock_ms(),
    };
    let of = |stream| durable.get(&stream).copied().unwrap_or(u64::MAX);
    Ok(writer.add(&commit, &of)?)
}
