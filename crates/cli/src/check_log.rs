//! `nigh check` of a log's folder, and of the journals beside arenas.
//!
//! 1. The check changes nothing.
//! 2. It judges by the same steps as a start: what it calls damaged, a start refuses.

use crate::output::say;
use crate::render::thousands;
use anyhow::Result;
use nigh_log::{
    ChainReport, LogError, Meta, RealChance, RealClock, RealFolder, World, check_chain, list,
};
use nigh_log::{TenantLine, need_meta, read_meta};
use nigh_shm::{JournalFile, header_of};
use std::path::{Path, PathBuf};
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
            say!("{name}: no log");
            return Ok(false);
        }
        Err(error) => return Ok(refused(&name.to_string(), &error)),
    };
    say!("{name}: the log {:032x}", u128::from_be_bytes(meta.id));
    tell_meta(&meta);
    if is_served {
        say!("    in use, not judged");
        return Ok(false);
    }
    let (mut is_refused, mut is_damaged) = (false, false);
    for chain in &meta.chains {
        match check_chain(&world, &meta, chain, &mut |_| ()) {
            Ok(report) => tell_chain(chain.shard, &report, &meta),
            Err(error) => {
                is_damaged |= error.is_damage();
                is_refused |= refused(&format!("    shard {}", chain.shard), &error);
            }
        }
    }
    if is_damaged {
        say!("    `nigh check {name} --salvage NEW` saves what is whole into another folder");
    }
    Ok(is_refused)
}

fn tell_meta(meta: &Meta) {
    if let Some(mark) = meta.mark {
        say!("    a backup, with the mark {:032x}", u128::from_be_bytes(mark));
    }
    for (number, tenant) in &meta.tenants {
        say!("    tenant {number}: {}, {} partition(s)", tenant.name, tenant.partitions);
    }
    if meta.chains.is_empty() {
        say!("    it has no chain: it is new, or retired");
    }
}

/// Says what a shard's chain has, which is whole.
fn tell_chain(shard: u32, report: &ChainReport, meta: &Meta) {
    let figures = [report.files, report.frames, report.commits, report.changes];
    let [files, frames, commits, changes] = figures.map(|n| thousands(n as f64));
    say!(
        "    shard {shard}: {files} files, {frames} frames, {commits} commits, {changes} changes, \
         {} bytes, whole",
        thousands(report.bytes as f64)
    );
    let [put, based, gone, clear] = report.kinds.map(|n| thousands(n as f64));
    say!(
        "        {put} puts ({} of them again), {based} based on earlier ones, {gone} removals, \
         {clear} clearings; {} files prepared or to be used again",
        thousands(report.again as f64),
        report.spare
    );
    if let Some(torn) = report.torn {
        say!(
            "        a torn end behind {}: {} bytes that were promised to nobody; a start cuts \
             them off",
            torn.at,
            torn.bytes
        );
    }
    for (stream, lsn) in &report.last {
        say!("        {}: up to LSN {lsn}", name_of(meta, *stream));
    }
}

/// Prints what the journals beside arenas have. Whether a start would refuse one.
pub(crate) fn check_journals(folder: &Path, is_served: bool) -> bool {
    let mut is_refused = false;
    for shard in 0..SHARDS_MOST {
        let journal = match JournalFile::look(folder, shard) {
            Ok(None) => continue,
            Ok(Some(journal)) => journal,
            Err(error) => {
                say!("    {error}");
                is_refused = true;
                continue;
            }
        };
        let name = journal.path().display();
        if is_served {
            say!("{name}: in use, not judged");
            continue;
        }
        match journal.contents() {
            Ok(found) => say!(
                "{name}: {} commits of {} changes that may not be in the log, whole",
                thousands(found.commits as f64),
                thousands(found.changes as f64)
            ),
            Err(error) => {
                say!("    {error}");
                is_refused = true;
            }
        }
    }
    is_refused
}

/// Whether the arenas and journals in a folder belong to one of these logs, as a start would judge.
/// Prints what doesn't.
pub(crate) fn belong(folder: &Path, logs: &[&PathBuf], is_served: bool) -> bool {
    let mut ids = Vec::new();
    let mut headers = Vec::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if nigh_store::arena_of_name(name).is_none() {
            continue;
        }
        if let Ok(header) = header_of(&path) {
            ids.push((path.clone(), header.log_id));
            headers.push((path, header));
        }
    }
    let look = |shard| JournalFile::look(folder, shard).ok().flatten();
    let journals: Vec<JournalFile> = (0..SHARDS_MOST).filter_map(look).collect();
    ids.extend(journals.iter().map(|it| (it.path().to_owned(), it.info().log_id)));
    ids.retain(|(_, id)| *id != [0; 16]);
    let Some((_, id)) = ids.first() else {
        say!("{}: nothing here names a log", folder.display());
        return true;
    };
    let hex = |id: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*id));
    let metas = logs.iter().filter_map(|log| {
        let found = RealFolder::open_to_read(log).and_then(|storage| read_meta(&storage));
        Some((*log, found.ok().flatten()?))
    });
    let Some((log, meta)) = metas.into_iter().find(|(_, meta)| meta.id == *id) else {
        say!("{}: its log is {}, which isn't among these", folder.display(), hex(id));
        return false;
    };
    let mut faults = Vec::new();
    for (path, other) in ids.iter().filter(|(_, id)| *id != meta.id) {
        faults.push(format!("{} names another log, {}", path.display(), hex(other)));
    }
    for (path, header) in &headers {
        if header.log_id == [0; 16] && header.committed_lsn > 0 && !meta.chains.is_empty() {
            faults.push(format!("{} has changes that no log has", path.display()));
        }
        let mut lines = meta.tenants.values().filter(|line| line.name == header.tenant);
        let fits =
            |line: &TenantLine| (line.partitions, line.seed) == (header.partitions, header.seed);
        if !lines.next().is_some_and(fits) {
            faults.push(format!("{} isn't as the log's meta says", path.display()));
        }
    }
    for journal in journals.iter().filter(|_| !is_served) {
        let info = journal.info();
        let chain = meta.chains.iter().find(|chain| chain.shard == info.shard);
        if chain.is_some_and(|chain| info.generation > chain.generation) {
            faults.push(format!("{} knows of a newer log than this one", journal.path().display()));
        }
    }
    match faults.is_empty() {
        true => say!("{}: belongs to {}", folder.display(), log.display()),
        false => faults.iter().for_each(|fault| say!("    {fault}")),
    }
    faults.is_empty()
}

/// A stream's tenant and partition.
pub(crate) fn name_of(meta: &Meta, stream: u32) -> String {
    let (number, partition) = (stream >> 8, stream & 0xFF);
    match meta.tenants.get(&number) {
        Some(tenant) => format!("{}, partition {partition}", tenant.name),
        None => format!("tenant {number}, partition {partition}"),
    }
}

fn refused(what: &str, error: &LogError) -> bool {
    say!("{what}: {error}");
    true
}
