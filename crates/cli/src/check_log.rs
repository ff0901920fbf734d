//! `nigh check` of a log's folder, and of the journals beside arenas.
//!
//! 1. The check changes nothing.
//! 2. It judges by the same steps as a start: what it calls damaged, a start refuses.

use crate::render::thousands;
use anyhow::Result;
use nigh_log::{LogError, Meta, RealChance, RealClock, RealFolder, World, check_chain, list};
use nigh_log::{need_meta, read_meta};
use nigh_shm::JournalFile;
use std::path::Path;
use std::sync::Arc;

/// Most shards that have journals.
const SHARDS_MOST: u32 = 64;
/// The file that makes a folder a log's.
const META: &str = "meta";

/// Whether a folder is a log's.
pub(crate) fn is_log(folder: &Path) -> bool {
    let is_file = |name: &str| name.starts_with('g') && name.ends_with(".log");
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.any(|name| name == META || is_file(&name))
}

/// Prints what a log has. Whether a start would refuse it.
pub(crate) fn check(folder: &Path, is_served: bool) -> Result<bool> {
    let world = World {
        storage: Arc::new(RealFolder::open_to_read(folder)?),
        clock: Arc::new(RealClock::new()),
        chance: Arc::new(RealChance),
    };
    let name = folder.display();
    let found = read_meta(&*world.storage).and_then(|meta| {
        need_meta(&list(&*world.storage)?, meta.as_ref())?;
        Ok(meta)
    });
    let meta = match found {
        Ok(Some(meta)) => meta,
        Ok(None) => {
            println!("{name}: no log");
            return Ok(false);
        }
        Err(error) => return Ok(refused(&name.to_string(), &error)),
    };
    println!("{name}: the log {:032x}", u128::from_be_bytes(meta.id));
    if let Some(mark) = meta.mark {
        println!("    a backup, with the mark {:032x}", u128::from_be_bytes(mark));
    }
    for (number, tenant) in &meta.tenants {
        println!("    tenant {number}: {}, {} partition(s)", tenant.name, tenant.partitions);
    }
    if meta.chains.is_empty() {
        println!("    it has no chain: it is new, or retired");
    }
    if is_served {
        println!("    in use, not judged");
        return Ok(false);
    }
    let mut is_refused = false;
    for chain in &meta.chains {
        match check_chain(&world, &meta, chain, &mut |_| ()) {
            Ok(report) => {
                let figures = [report.files, report.frames, report.commits, report.changes];
                let [files, frames, commits, changes] = figures.map(|n| thousands(n as f64));
                println!(
                    "    shard {}: {files} files, {frames} frames, {commits} commits, {changes} \
                     changes, {} bytes, whole",
                    chain.shard,
                    thousands(report.bytes as f64)
                );
                if let Some(torn) = report.torn {
                    println!(
                        "        a torn end behind {}: {} bytes that were promised to nobody; a start \
                         cuts them off",
                        torn.at, torn.bytes
                    );
                }
                for (stream, lsn) in &report.last {
                    println!("        {}: up to LSN {lsn}", name_of(&meta, *stream));
                }
            }
            Err(error) => is_refused |= refused(&format!("    shard {}", chain.shard), &error),
        }
    }
    Ok(is_refused)
}

/// Prints what the journals beside arenas have. Whether a start would refuse one.
pub(crate) fn check_journals(folder: &Path, is_served: bool) -> bool {
    let mut is_refused = false;
    for shard in 0..SHARDS_MOST {
        let journal = match JournalFile::look(folder, shard) {
            Ok(None) => continue,
            Ok(Some(journal)) => journal,
            Err(error) => {
                println!("    {error}");
                is_refused = true;
                continue;
            }
        };
        let name = journal.path().display();
        if is_served {
            println!("{name}: in use, not judged");
            continue;
        }
        match journal.contents() {
            Ok(found) => println!(
                "{name}: {} commits of {} changes that may not be in the log, whole",
                thousands(found.commits as f64),
                thousands(found.changes as f64)
            ),
            Err(error) => {
                println!("    {error}");
                is_refused = true;
            }
        }
    }
    is_refused
}

fn name_of(meta: &Meta, stream: u32) -> String {
    let (number, partition) = (stream >> 8, stream & 0xFF);
    match meta.tenants.get(&number) {
        Some(tenant) => format!("{}, partition {partition}", tenant.name),
        None => format!("tenant {number}, partition {partition}"),
    }
}

fn refused(what: &str, error: &LogError) -> bool {
    println!("{what}: {error}");
    true
}
