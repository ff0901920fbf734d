//! Makes a backup: copies what counts of all chains up to where they were marked, reads it back,
//! and puts it into the place of an older one.
//!
//! 1. The marks of all chains were set while nothing was committed: together they are one moment.
//! 2. A file that an older backup of this log has, with the same salt and the same end, isn't
//!    copied but linked. What was linked is read back like the rest; if something isn't whole then,
//!    all is copied anew.
//! 3. A source file is read though its log goes on: what was prepared again meanwhile has another
//!    salt, and no frame of the copy would hold.
//!
//! A thread beside those that write the log. Rules: docs/formats/log.md, "Backup and restore".

use crate::backup::copying::{Behind, copy_file, open_same};
use crate::backup::error::BackupError;
use crate::backup::place::BackupPlace;
use crate::backup::progress::{BackupPhase, BackupWatch, Progress};
use crate::backup::verify::verify;
use crate::error::LogError;
use crate::folder::listing::{list, need_meta};
use crate::folder::meta_file::{MetaFault, read_meta, save_meta};
use crate::format::meta::{ChainEnd, Meta};
use crate::position::Chain;
use crate::reader::chain_file::ChainFile;
use crate::reader::ends::LogRecovery;
use crate::reader::log_file::ChainKey;
use crate::storage::{Chance, Storage, World};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that stay free where a backup is made: a log may be there too.
const SPARE_ROOM_BYTES: u64 = 64 << 20;

/// Where a chain was marked: all before it is in the backup, and on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainMark {
    /// The chain.
    pub chain: Chain,
    /// Where it ends.
    pub end: ChainEnd,
}

/// What a backup has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupReport {
    /// Files.
    pub files: u64,
    /// Files that an older backup had already.
    pub reused_files: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Bytes that an older backup had already, heads included.
    pub reused_bytes: u64,
}

/// A file that is in a backup.
type BackupFile = (ChainKey, ChainFile);

/// The meta of a backup, by the log's and the marks of all chains.
///
/// # Errors
/// `Replaced` if these aren't the chains that count.
pub fn backup_meta(
    meta: &Meta,
    marks: &[ChainMark],
    chance: &dyn Chance,
) -> Result<Meta, BackupError> {
    let mut marks = marks.to_vec();
    marks.sort_unstable_by_key(|mark| mark.chain.shard);
    if marks.is_empty() || !meta.chains.iter().eq(marks.iter().map(|mark| &mark.chain)) {
        return Err(BackupError::Replaced);
    }
    let ends = marks.iter().map(|mark| mark.end).collect();
    Ok(Meta { ends, mark: Some(random_id(chance)), ..meta.clone() })
}

/// 16 random bytes.
pub(super) fn random_id(chance: &dyn Chance) -> [u8; 16] {
    (u128::from(chance.word()) << 64 | u128::from(chance.word())).to_be_bytes()
}

/// Makes a backup of a log that is being written. `meta` is by [`backup_meta`]; the files that
/// count by it are held meanwhile.
///
/// # Errors
/// As [`BackupError`] says. The older backup is there as it was, unless the new one is.
pub fn make_backup<S: Storage, P: BackupPlace>(
    log: &World<S>,
    meta: &Meta,
    place: &mut P,
    watch: &mut BackupWatch<'_>,
) -> Result<BackupReport, BackupError> {
    let files = files_of(log, meta).map_err(|error| gone_or_unreadable(&*log.storage, error))?;
    let old = match place.old() {
        Some(folder) => reusable(&beside(log, folder), meta)?,
        None => BTreeMap::new(),
    };
    let mut making = Making { log, meta, files, old, place };
    let mut progress = Progress::new(watch);
    match making.attempt(true, &mut progress) {
        // One of those may have rotted in the older backup.
        Err(BackupError::NotWhole(_)) if progress.reused_bytes() > 0 => {
            making.attempt(false, &mut progress)
        }
        made => made,
    }
}

/// Another folder, with the same clock and chance.
pub(super) fn beside<S, T>(world: &World<S>, storage: Arc<T>) -> World<T> {
    let (clock, chance) = (Arc::clone(&world.clock), Arc::clone(&world.chance));
    World { storage, clock, chance }
}

/// The files that count by a meta.
fn files_of<S: Storage>(world: &World<S>, meta: &Meta) -> Result<Vec<BackupFile>, LogError> {
    let mut files = Vec::new();
    for chain in &meta.chains {
        let key = ChainKey::of(meta, chain);
        let found = LogRecovery::find(world, meta, chain)?;
        files.extend(found.files.into_iter().map(|file| (key, file)));
    }
    Ok(files)
}

/// Why the files can't be found: one that isn't held went between its mark and this look, or it
/// can't be read.
fn gone_or_unreadable<S: Storage>(log: &S, error: LogError) -> BackupError {
    match &error {
        LogError::Missing { file } | LogError::Corrupt { file, .. }
            if matches!(log.open(file), Ok(None)) =>
        {
            BackupError::Gone
        }
        _ => BackupError::Source(error),
    }
}

/// The files of an older backup, by name. One that is damaged has none: it is replaced.
fn reusable<S: Storage>(
    old: &World<S>,
    meta: &Meta,
) -> Result<BTreeMap<String, ChainFile>, BackupError> {
    let foreign = |what: String| {
        let text =
            format!("what lies there isn't a backup of this log: {what}: name another folder");
        Err(BackupError::place(text))
    };
    let read = read_meta(&*old.storage);
    let before = match read {
        Ok(Some(before)) => before,
        Ok(None) => {
            let named = list(&*old.storage).and_then(|listing| need_meta(&listing, None));
            return match named {
                Ok(()) => Ok(BTreeMap::new()),
                Err(error) => foreign(error.to_string()),
            };
        }
        Err(error) => return foreign(error.to_string()),
    };
    if before.mark.is_none() {
        return foreign("it is a log's folder".into());
    }
    if before.id != meta.id {
        return foreign(format!("it is of the log {:032x}", u128::from_be_bytes(before.id)));
    }
    let mut files = BTreeMap::new();
    for chain in before.chains.iter().filter(|chain| meta.chains.contains(chain)) {
        let key = ChainKey::of(&before, chain);
        // A chain that can't be read is copied anew.
        if let Ok(found) = LogRecovery::find(old, &before, chain) {
            let named =
                found.files.into_iter().map(|file| (key.name(file.number).to_string(), file));
            files.extend(named);
        }
    }
    Ok(files)
}

/// A backup that is being made.
struct Making<'m, S: Storage, P> {
    log: &'m World<S>,
    meta: &'m Meta,
    files: Vec<BackupFile>,
    old: BTreeMap<String, ChainFile>,
    place: &'m mut P,
}

impl<S: Storage, P: BackupPlace> Making<'_, S, P> {
    /// Makes it; nothing of it is left if that fails.
    fn attempt(
        &mut self,
        reuses: bool,
        progress: &mut Progress<'_, '_>,
    ) -> Result<BackupReport, BackupError> {
        let made = self.fill(reuses, progress).and_then(|report| {
            self.place.publish()?;
            Ok(report)
        });
        made.inspect_err(|_| self.place.give_up())
    }

    fn fill(
        &mut self,
        reuses: bool,
        progress: &mut Progress<'_, '_>,
    ) -> Result<BackupReport, BackupError> {
        let is_there = |(key, file): &&BackupFile| {
            reuses && self.old.get(&key.name(file.number).to_string()) == Some(file)
        };
        let all_bytes: u64 = self.files.iter().map(|(_, file)| file.end).sum();
        let there: u64 = self.files.iter().filter(is_there).map(|(_, file)| file.end).sum();
        self.need_room(all_bytes - there)?;
        progress.begin(BackupPhase::Copying, all_bytes);
        let folder = self.place.begin()?;
        let mut reused_files = 0;
        for of in &self.files {
            let (key, file) = of;
            let name = key.name(file.number).to_string();
            let linked = is_there(&of) && {
                let linked = self.place.link(&name);
                linked.map_err(|e| BackupError::Target(LogError::io(&name, 0, "linking", e)))?
            };
            if linked {
                reused_files += 1;
                progress.reused(file.end);
            } else {
                let (from, id) = (&*self.log.storage, &self.meta.id);
                copy_file(from, &*folder, key, file, id, Behind::Hole, progress)?;
            }
            self.place.forget_cached(&name);
        }
        save_meta(&*folder, self.meta).map_err(|fault| match fault {
            MetaFault::Unchanged(error) | MetaFault::InDoubt(error) => BackupError::Target(error),
        })?;
        let copy = beside(self.log, folder);
        let meta = read_meta(&*copy.storage).map_err(BackupError::NotWhole)?;
        if meta.as_ref() != Some(self.meta) {
            let what = "it isn't as it was written".to_owned();
            return Err(BackupError::NotWhole(LogError::Meta { line: 0, what }));
        }
        let read = verify(&copy, self.meta, progress, BackupError::NotWhole);
        let bytes = read.map_err(|error| self.or_gone(error))?;
        let (files, reused_bytes) = (self.files.len() as u64, progress.reused_bytes());
        Ok(BackupReport { files, reused_files, bytes, reused_bytes })
    }

    fn need_room(&self, bytes: u64) -> Result<(), BackupError> {
        let room = self.place.room_bytes();
        let failed = |error| BackupError::Target(LogError::io(".", 0, "asking for room", error));
        let room = room.map_err(failed)?;
        if room < bytes.saturating_add(SPARE_ROOM_BYTES) {
            return Err(BackupError::NoRoom { bytes, room, spare: SPARE_ROOM_BYTES });
        }
        Ok(())
    }

    /// A copy that isn't whole because what was copied went.
    fn or_gone(&self, error: BackupError) -> BackupError {
        let same = |(key, file): &BackupFile| open_same(&*self.log.storage, key, file).map(drop);
        let is_gone = |gone: Result<(), BackupError>| matches!(gone, Err(BackupError::Gone));
        match error {
            BackupError::NotWhole(_) if self.files.iter().map(same).any(is_gone) => {
                BackupError::Gone
            }
            error => error,
        }
    }
}
