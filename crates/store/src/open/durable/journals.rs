//! The journals that a start leaves: one for each shard, without entries.
//!
//! 1. Those that fit are used again; others are made new, each by a renaming.
//! 2. They are emptied or replaced only when log and arenas have what they had.
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::open::durable::found::{FoundJournal, SHARDS_MOST};
use crate::open::durable::log_options::LogOptions;
use crate::open::store_options::StoreOptions;
use nigh_log::{LogWriter, Meta, Storage};
use nigh_shm::{JournalFile, JournalSpec, journal_path};
use std::sync::Arc;

/// Makes or empties the journals of all shards, whose chains are these; removes others.
pub(super) fn renew<S: Storage>(
    options: &StoreOptions,
    found: Vec<FoundJournal>,
    writers: &[LogWriter<S>],
    meta: &Meta,
    log: &LogOptions,
) -> Result<Vec<Arc<JournalFile>>, StoreError> {
    let mut kept: Vec<Option<Arc<JournalFile>>> = writers.iter().map(|_| None).collect();
    for it in found {
        let info = it.file.info();
        let is_alike =
            info.ring_bytes == log.journal_bytes && it.file.holds_values() == options.private;
        let fits = it.is_ours && info.log_id == meta.id && is_alike;
        if let Some(place) = kept.get_mut(it.shard as usize).filter(|_| fits) {
            *place = Some(it.file);
        }
    }
    let mut journals = Vec::new();
    for (writer, kept) in writers.iter().zip(kept) {
        let chain = writer.chain();
        let spec = JournalSpec {
            shard: chain.shard,
            ring_bytes: log.journal_bytes,
            log_id: meta.id,
            boot_id: log.boot_id,
            holds_values: options.private,
        };
        let journal = match kept {
            Some(journal) => {
                journal.drop_entries();
                journal
            }
            None => Arc::new(JournalFile::create(&options.dir, &spec)?),
        };
        journal.set_newest_file(writer.newest_file());
        journal.set_generation(chain.generation);
        journal.set_boot_id(&log.boot_id);
        journals.push(journal);
    }
    for shard in u32::try_from(writers.len()).unwrap_or(SHARDS_MOST)..SHARDS_MOST {
        let path = journal_path(&options.dir, shard);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::Directory { path, source });
            }
            _ => {}
        }
    }
    Ok(journals)
}
