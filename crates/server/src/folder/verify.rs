//! `--verify`: the checksums of all records are compared before they are served.
//!
//! 1. Nothing is changed: a record with a wrong checksum is named and served, as without.
//! 2. What else is wrong is for opening to refuse.
//!
//! Thread: the one that starts the server, which holds the folder's lock.

use nigh_shm::BadRecord;
use nigh_store::arena_of_name;
use std::io;
use std::path::{Path, PathBuf};
use std::slice::EscapeAscii;
use std::time::Instant;

/// Bad records of an arena that are named.
const NAMED_MAX: usize = 20;
/// Bytes of a key that are logged.
const KEY_BYTES: usize = 100;

/// Compares the checksums in all arenas of a folder, and logs the bad ones.
pub(crate) fn compare_sums(dir: &Path) -> io::Result<()> {
    for path in arenas_in(dir)? {
        let arena = path.display();
        let begun = Instant::now();
        tracing::info!("comparing the checksums in {arena}");
        let Ok(report) = nigh_shm::verify(&path) else { continue };
        let bad = report.bad_records.len() as u64 + report.more_bad_records;
        let (keys, bytes) = (report.keys, report.live_bytes);
        let took_ms = begun.elapsed().as_millis();
        tracing::info!(keys, bytes, bad, took_ms, "the checksums in {arena} are compared");
        for BadRecord { key, finding, .. } in report.bad_records.iter().take(NAMED_MAX) {
            let key = shown_key(key);
            let (at, what) = (finding.offset, &finding.what);
            tracing::error!(
                "key \"{key}\" in {arena} at {at:#x}: {what}; write it anew or delete it"
            );
        }
        if bad > NAMED_MAX as u64 {
            tracing::error!("{bad} records in {arena} are bad; `nigh check` lists them");
        }
    }
    Ok(())
}

/// A key as it is logged.
pub(crate) fn shown_key(key: &[u8]) -> EscapeAscii<'_> {
    key[..key.len().min(KEY_BYTES)].escape_ascii()
}

/// The arenas in a folder, in the order of their names.
pub(crate) fn arenas_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| arena_of_name(name).is_some()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
