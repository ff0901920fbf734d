//! What a start finds: the log's meta and chains, the journals, the headers of the arenas.
//!
//! 1. Nothing is changed here, but leftovers of what was being made are removed.
//! 2. Ids that contradict each other refuse the start before anything else is looked at.
//! 3. Where no journal of this boot tells how the log's last writer has ended, the log is read from
//!    the disk, and not from the system's cache, which may have what a failed sync has left.
//!
//! The thread that starts the server.

use crate::error::StoreError;
use crate::open::durable::streams_of::Stream;
use crate::open::store_options::StoreOptions;
use nigh_log::{Chain, LogError, LogRecovery, Meta, Storage, World, list, need_meta, read_meta};
use nigh_shm::{ArenaError, HeaderInfo, JournalContents, JournalFile, header_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Most shards that a journal may be of.
pub(super) const SHARDS_MOST: u32 = 64;

/// A journal that an earlier server left.
pub(super) struct FoundJournal {
    pub(super) shard: u32,
    pub(super) file: Arc<JournalFile>,
    pub(super) contents: JournalContents,
    /// It is of this boot.
    pub(super) is_ours: bool,
}

/// What is there before a start changes anything.
pub(super) struct Findings<S: Storage> {
    /// `None`: there is no log yet.
    pub(super) meta: Option<Meta>,
    /// By shard of the chains that count.
    pub(super) chains: Vec<LogRecovery<S>>,
    pub(super) journals: Vec<FoundJournal>,
    /// By stream: headers of arenas that can be read.
    pub(super) headers: BTreeMap<u32, HeaderInfo>,
}

impl<S: Storage> Findings<S> {
    /// Looks at everything.
    pub(super) fn look(
        options: &StoreOptions,
        boot_id: &[u8; 16],
        world: &World<S>,
    ) -> Result<Findings<S>, StoreError> {
        remove_unfinished(&options.dir)?;
        let meta = read_meta(&*world.storage)?;
        need_meta(&list(&*world.storage)?, meta.as_ref())?;
        if meta.as_ref().is_some_and(|meta| meta.mark.is_some()) {
            return Err(LogError::IsBackup.into());
        }
        let journals = journals(&options.dir, boot_id)?;
        let mut findings =
            Findings { meta, chains: Vec::new(), journals, headers: BTreeMap::new() };
        for stream in findings.streams(options, [0; 2]) {
            match header_of(&stream.spec.path) {
                Ok(header) => _ = findings.headers.insert(stream.number, header),
                Err(ArenaError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error @ ArenaError::Io { .. }) => return Err(error.into()),
                Err(_) => {}
            }
        }
        findings.check_ids(options)?;
        if let Some(meta) = &findings.meta {
            let find = |chain: &Chain| {
                // It would tell that a sync has failed.
                if findings.own_journal(chain.shard).is_none() {
                    LogRecovery::forget_cached(world, chain)?;
                }
                LogRecovery::find(world, meta, chain)
            };
            findings.chains = meta.chains.iter().map(find).collect::<Result<_, _>>()?;
        }
        findings.check_age(options)?;
        findings.check_alone(options, boot_id)?;
        Ok(findings)
    }

    /// All streams of the store, the libraries' first.
    pub(super) fn streams(&self, options: &StoreOptions, seeds: [u32; 2]) -> Vec<Stream> {
        let data = (0..options.partitions).map(|it| Stream::data(options, it, seeds[1]));
        std::iter::once(Stream::system(options, seeds[0])).chain(data).collect()
    }

    /// The journal of a shard, if it is of this boot.
    pub(super) fn own_journal(&self, shard: u32) -> Option<&FoundJournal> {
        self.journals.iter().find(|it| it.shard == shard && it.is_ours)
    }

    /// The same, if it is of this chain.
    pub(super) fn journal_of(&self, chain: &Chain) -> Option<&FoundJournal> {
        self.own_journal(chain.shard).filter(|it| it.file.info().generation == chain.generation)
    }

    /// All ids that stand somewhere are the log's.
    fn check_ids(&self, options: &StoreOptions) -> Result<(), StoreError> {
        let of_journals =
            self.journals.iter().map(|it| (it.file.path().to_owned(), it.file.info().log_id));
        let of_arenas = self.headers.values().map(|it| (options.dir.clone(), it.log_id));
        let mut all = of_journals.chain(of_arenas).filter(|(_, id)| *id != [0; 16]);
        match &self.meta {
            None => match all.next() {
                None => Ok(()),
                Some((path, id)) => Err(StoreError::LogMissing { path, id: hex(&id) }),
            },
            Some(meta) => match all.find(|(_, id)| *id != meta.id) {
                None => self.check_unlogged(meta, options),
                Some((path, id)) => {
                    Err(StoreError::OtherLog { path, found: hex(&id), log: hex(&meta.id) })
                }
            },
        }
    }

    /// No arena has changes of a time without a log while another time's log counts.
    fn check_unlogged(&self, meta: &Meta, options: &StoreOptions) -> Result<(), StoreError> {
        let is_unlogged = |it: &&HeaderInfo| it.log_id == [0; 16] && it.committed_lsn > 0;
        match self.headers.values().find(is_unlogged).filter(|_| !meta.chains.is_empty()) {
            None => Ok(()),
            Some(_) => Err(StoreError::Unlogged { dir: options.dir.clone() }),
        }
    }

    /// The log isn't an older copy than the journals know of.
    fn check_age(&self, options: &StoreOptions) -> Result<(), StoreError> {
        for chain in &self.chains {
            let (shard, generation) = (chain.chain().shard, chain.chain().generation);
            let Some(info) = self.own_journal(shard).map(|it| it.file.info()) else { continue };
            let newer = (info.generation, info.newest_file) > (generation, chain.newest.number);
            if newer {
                return Err(StoreError::LogOlder { dir: options.dir.clone(), shard });
            }
        }
        Ok(())
    }

    /// No log went on without memory that has changes which the log lacked then: put behind what
    /// came since, they would make a history that never was.
    fn check_alone(
        &mut self,
        options: &StoreOptions,
        boot_id: &[u8; 16],
    ) -> Result<(), StoreError> {
        let mut unsure = BTreeSet::new();
        for chain in &self.chains {
            let Some(journal) = self.journal_of(&chain.chain()) else { continue };
            let newest = journal.file.info().newest_file;
            // The journal has a file's number before a change is written to it.
            let Some(next) = chain.files.iter().find(|file| file.number > newest) else { continue };
            let had: BTreeMap<u32, u64> = next.lasts.iter().copied().collect();
            let had_all =
                |(stream, last): (&u32, u64)| last <= had.get(stream).copied().unwrap_or(0);
            let is_there = chain.files.iter().any(|file| file.number == newest);
            if is_there && chain.last.iter().all(|(stream, &last)| had_all((stream, last))) {
                continue;
            }
            let is_usable = |it: &HeaderInfo| is_of_boot(it, boot_id);
            let of_chain =
                |(stream, it): &(&u32, &HeaderInfo)| had.contains_key(stream) && is_usable(it);
            let mut arenas = self.headers.iter().filter(of_chain);
            let mut entries = journal.contents.lsns.iter();
            if !entries.all(|(stream, &(_, last))| had_all((stream, last)))
                || !arenas.all(|(stream, it)| had_all((stream, it.committed_lsn)))
            {
                let (dir, shard) = (options.dir.clone(), chain.chain().shard);
                return Err(StoreError::LogWentOn { dir, shard });
            }
            if !is_there {
                // What the log had when it went on isn't known any more.
                unsure.extend(had.into_keys());
            }
        }
        self.headers.retain(|stream, _| !unsure.contains(stream));
        Ok(())
    }

    /// Whether the journal of a shard says that its chain broke, or there is none beside memory
    /// that can be used.
    pub(super) fn is_broken(&self, shard: u32, has_arena: bool) -> bool {
        let Some(chain) = self.chains.get(shard as usize) else { return false };
        match self.own_journal(shard) {
            Some(journal) => journal.file.info().broken >= chain.chain().generation,
            None => has_arena,
        }
    }
}

/// Removes what an earlier server was making when it ended.
fn remove_unfinished(dir: &Path) -> Result<(), StoreError> {
    for name in crate::folder::names::names(dir)? {
        let is_journal = name.starts_with("journal.") && name.ends_with(".new");
        if is_journal || name.ends_with(".arena.new") {
            let path = dir.join(name);
            std::fs::remove_file(&path).map_err(|source| StoreError::Directory { path, source })?;
        }
    }
    Ok(())
}

/// Whether an arena is of this boot: memory that wasn't cut off amid its writes.
pub(super) fn is_of_boot(header: &HeaderInfo, boot_id: &[u8; 16]) -> bool {
    header.boot_id == *boot_id || header.boot_id == [0; 16]
}

fn journals(dir: &Path, boot_id: &[u8; 16]) -> Result<Vec<FoundJournal>, StoreError> {
    let mut found = Vec::new();
    for shard in 0..SHARDS_MOST {
        let Some(file) = JournalFile::open(dir, shard)? else { continue };
        let boot = file.info().boot_id;
        let is_ours = boot == *boot_id || boot == [0; 16];
        let contents = if is_ours { file.contents()? } else { JournalContents::default() };
        found.push(FoundJournal { shard, file: Arc::new(file), contents, is_ours });
    }
    Ok(found)
}

fn hex(id: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}
