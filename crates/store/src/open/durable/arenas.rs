//! The arenas of a start: adopted where they can be, else set aside for the log to build anew.
//!
//! ```text
//! header ── boot, seed, partitions ── adopted beside the journals ── has all? ──> served
//!       └───────────────────── no ────────────────────────────────────┴──> aside ──> built from the log
//! ```
//!
//! 1. A file is set aside by a renaming, and removed only when what took its place is whole. It is
//!    set aside for what is wrong with it, or for what it lacks; not if the system gives no memory
//!    or descriptors now: that refuses the start, and passes.
//! 2. With no log that counts, an arena that can't be adopted refuses the start: nothing else has
//!    its keys.
//! 3. An arena of the log that counts, of a partition that the tenant hasn't, is what a conversion
//!    left: the log has its keys, in other partitions.
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::folder::names::{names, partitions_there, path_of};
use crate::open::durable::found::{Findings, is_of_boot};
use crate::open::durable::log_options::LogOptions;
use crate::open::durable::plan::{ArenaLsns, Origin, StreamFacts, StreamPlan};
use crate::open::durable::streams_of::Stream;
use crate::open::store_options::StoreOptions;
use nigh_log::{Meta, Storage};
use nigh_shm::{
    Adoption, ArenaError, Domain, JournalFile, StreamJournal, WriteError, Writer, header_of,
};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A stream at a start.
pub(super) struct StartStream {
    pub(super) stream: Stream,
    pub(super) plan: StreamPlan,
    /// First and last LSN in the journals.
    pub(super) journal: Option<(u64, u64)>,
    /// The last LSN in the log.
    pub(super) log_last: Option<u64>,
    /// The arena, once there is one.
    pub(super) writer: Option<Writer>,
    pub(super) adoption: Option<Adoption>,
    /// Files that were set aside, by this start or by earlier ones that were cut off.
    pub(super) aside: Vec<PathBuf>,
}

/// The streams of a start, by number.
pub(super) type StartStreams = BTreeMap<u32, StartStream>;

impl<S: Storage> Findings<S> {
    /// Adopts the arena of a stream, or sets it aside, and says how it goes on.
    pub(super) fn take(
        &self,
        stream: Stream,
        log: &LogOptions,
        domain: &Arc<Domain>,
    ) -> Result<StartStream, StoreError> {
        let number = stream.number;
        let chain = self.chains.get(stream.shard(self.chains.len().max(1)));
        let log_last = chain.map(|chain| chain.last.get(&number).copied().unwrap_or(0));
        let journal = self.journaled(number);
        let facts = StreamFacts { log_last, journal, arena: None };
        let adopted = self.adopt(&stream, &facts, log, domain)?;
        let committed = self.headers.get(&number).map_or(0, |header| header.committed_lsn);
        let arena = adopted.as_ref().map(|(writer, _)| ArenaLsns { committed, last: writer.lsn() });
        let facts = StreamFacts { arena, ..facts };
        let older = || StoreError::LogOlder { dir: dir_of(&stream.spec.path), shard: 0 };
        let plan = facts.plan().ok_or_else(older)?;
        let (mut writer, mut adoption) = (None, None);
        if plan.origin == Origin::Arena {
            let (adopted, found) = adopted.expect("an arena that is adopted is there");
            (writer, adoption) = (Some(adopted), Some(found));
        } else {
            drop(adopted);
            set_aside(&stream.spec.path)?;
        }
        let aside = all_aside(&stream.spec.path)?;
        Ok(StartStream { stream, plan, journal, log_last, writer, adoption, aside })
    }

    /// First and last LSN of a stream in all journals of this boot.
    pub(super) fn journaled(&self, stream: u32) -> Option<(u64, u64)> {
        let of = self.journals.iter().filter_map(|it| it.contents.lsns.get(&stream).copied());
        of.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The journals that a start goes by.
    pub(super) fn ours(&self) -> Vec<&JournalFile> {
        self.journals.iter().filter(|it| it.is_ours).map(|it| &*it.file).collect()
    }

    /// `None` if there is no arena, or none that can be used beside a log.
    fn adopt(
        &self,
        stream: &Stream,
        facts: &StreamFacts,
        log: &LogOptions,
        domain: &Arc<Domain>,
    ) -> Result<Option<(Writer, Adoption)>, StoreError> {
        let spec = &stream.spec;
        let counts = facts.log_last.is_some();
        let is_there = spec.path.try_exists();
        let is_there =
            is_there.map_err(|source| StoreError::Directory { path: spec.path.clone(), source })?;
        if !is_there {
            return Ok(None);
        }
        let header = self.headers.get(&stream.number);
        let is_of_boot = header.is_some_and(|it| is_of_boot(it, &log.boot_id));
        let is_same = header.is_some_and(|it| {
            it.partitions == spec.partitions && spec.seed.is_none_or(|seed| seed == it.seed)
        });
        let has_gap = header
            .is_none_or(|it| facts.journal.is_some_and(|(first, _)| it.committed_lsn + 1 < first));
        if counts && (!is_of_boot || !is_same || has_gap) {
            return Ok(None);
        }
        let journals = self.ours();
        let logged_lsn = facts.log_last.unwrap_or(0);
        let beside = StreamJournal { journals: &journals, stream: stream.number, logged_lsn };
        match Writer::adopt_beside(spec, domain, &beside) {
            Ok(adopted) => Ok(Some(adopted)),
            // The log has what it had.
            Err(error) if counts && !passes(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether an arena couldn't be adopted for what the system lacks now. One that has reached its
/// capacity finds room in an arena that is built.
fn passes(error: &ArenaError) -> bool {
    match error {
        ArenaError::Io { .. } => true,
        ArenaError::Memory { cause, .. } => {
            matches!(cause, WriteError::Denied(_) | WriteError::Busy)
        }
        _ => false,
    }
}

/// The error of arenas that couldn't be built, with the files set aside that have memory too.
pub(super) fn beside_aside(error: StoreError, streams: &StartStreams) -> StoreError {
    let lacks_room = match &error {
        StoreError::Replay { is_denied, .. } => *is_denied,
        StoreError::Arena(error) => passes(error),
        _ => false,
    };
    let has_aside = streams.values().filter(|it| !it.aside.is_empty());
    let has_aside: Vec<&StartStream> = has_aside.collect();
    if !lacks_room || has_aside.is_empty() {
        return error;
    }
    // Entries behind the log name values in them.
    let is_needed = |it: &&StartStream| it.journal.map(|(_, last)| last) > it.log_last;
    let is_needed = has_aside.iter().any(is_needed);
    let files: Vec<PathBuf> = has_aside.iter().flat_map(|it| it.aside.clone()).collect();
    let blocks = files.iter().filter_map(|file| file.metadata().ok()).map(|it| it.blocks());
    let bytes = blocks.sum::<u64>() * 512;
    StoreError::BesideAside { what: error.to_string(), files, bytes, is_needed }
}

/// The arenas of the log `meta` that are of partitions which there aren't.
pub(super) fn strays(options: &StoreOptions, meta: &Meta) -> Result<Vec<PathBuf>, StoreError> {
    let there = partitions_there(&options.dir, &options.tenant)?;
    let beyond = there.into_iter().filter(|&partition| partition >= options.partitions);
    let paths = beyond.map(|partition| path_of(&options.dir, &options.tenant, partition));
    Ok(paths.filter(|path| header_of(path).is_ok_and(|it| it.log_id == meta.id)).collect())
}

fn dir_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new(".")).to_owned()
}

/// Renames a file that isn't used, if it is there; one that was set aside before is kept.
fn set_aside(path: &Path) -> Result<(), StoreError> {
    let failed = |path: &Path, source| StoreError::Directory { path: path.to_owned(), source };
    if !path.try_exists().map_err(|source| failed(path, source))? {
        return Ok(());
    }
    for number in 0..u32::MAX {
        let mut name = path.to_path_buf().into_os_string();
        name.push(if number == 0 { ".aside".to_owned() } else { format!(".aside.{number}") });
        let aside = PathBuf::from(name);
        if !aside.try_exists().map_err(|source| failed(&aside, source))? {
            // Its readers look for the next one. If they can't be told, they find out by the name.
            let _ = nigh_shm::end_file(path);
            std::fs::rename(path, &aside).map_err(|source| failed(path, source))?;
            return Ok(());
        }
    }
    unreachable!("a folder has fewer files")
}

/// The files of an arena that were set aside and are still there.
fn all_aside(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_aside = |other: &String| {
        let behind = other.strip_prefix(name.as_str()).and_then(|it| it.strip_prefix(".aside"));
        behind.is_some_and(|it| it.is_empty() || it.starts_with('.'))
    };
    let dir = dir_of(path);
    let names = names(&dir)?.into_iter().filter(is_aside);
    Ok(names.map(|name| dir.join(name)).collect())
}
