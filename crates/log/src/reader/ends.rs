//! Where a chain ends, by the steps 1 to 6 of docs/formats/log.md, "Recovery".
//!
//! 1. Nothing is changed here, and nothing synced but by [`LogRecovery::sync_all`].
//! 2. What isn't valid below a watermark is [`LogError::Corrupt`]; above all of them it is a torn
//!    tail, which nobody was promised.
//!
//! The thread that starts the shard.

use crate::error::LogError;
use crate::folder::listing::list;
use crate::format::layout::{BLOCK_BYTES, SECTOR_BYTES};
use crate::format::meta::{ChainEnd, Meta};
use crate::format::names::FileName;
use crate::position::{Chain, LogPosition};
use crate::reader::chain_file::ChainFile;
use crate::reader::forward::lasts_from;
use crate::reader::frames::FrameWalk;
use crate::reader::headers::scan_headers;
use crate::reader::log_file::ChainKey;
use crate::reader::search::{FileSearch, ReadBegin};
use crate::reader::so_far::ReadSoFar;
use crate::storage::{Storage, StoredFile, World};
use std::collections::{BTreeMap, BTreeSet};

/// The file in which a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewestFile {
    /// Its number.
    pub number: u64,
    /// Where its last frame ends.
    pub end: u64,
    /// That frame's header sum.
    pub sum: u32,
}

/// What lies behind the end of a chain and was never promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TornTail {
    /// Where it begins.
    pub at: LogPosition,
    /// Bytes up to the end of the last frame whose header is valid.
    pub bytes: u64,
}

/// A chain, and where it ends.
pub struct LogRecovery<S: Storage> {
    /// The file in which it ends. A chain that meta names always has one.
    pub newest: NewestFile,
    /// The oldest file that counts.
    pub oldest: u64,
    /// The last LSN of each stream, but for dropped tenants.
    pub last: BTreeMap<u32, u64>,
    /// The latest clock word in the newest file, ms.
    pub clock_ms: u64,
    /// The files that count, from the oldest to the newest.
    pub files: Vec<ChainFile>,
    /// Files that don't count: below the oldest, void, or never begun. Their heads may be wrong.
    pub spare: Vec<FileName>,
    /// The highest number of any name of the chain.
    pub highest: u64,
    /// What was cut off, if anything was.
    pub torn: Option<TornTail>,
    pub(super) world: World<S>,
    pub(super) meta: Meta,
    pub(super) key: ChainKey,
}

impl<S: Storage> LogRecovery<S> {
    /// Has the system forget what it keeps of a chain's files, but for what it has yet to write: so
    /// a sync that failed in a process before this one leaves nothing that looks as if it were on
    /// disk. Before [`LogRecovery::find`], if nothing tells how that process has ended.
    ///
    /// # Errors
    /// `Io`.
    pub fn forget_cached(world: &World<S>, chain: &Chain) -> Result<(), LogError> {
        let storage = &*world.storage;
        for name in list(storage)?.files.iter().filter(|name| name.is_of(chain)) {
            let name = name.to_string();
            let opened = storage.open(&name);
            let opened = opened.map_err(|error| LogError::io(&name, 0, "opening", error))?;
            opened.iter().for_each(StoredFile::forget_cached);
        }
        Ok(())
    }

    /// Finds where a chain ends: steps 1 to 6, but for the syncs of step 6, and without the frames
    /// of step 5, which [`LogRecovery::replay`] checks.
    ///
    /// # Errors
    /// `Io`, `Head`, `NewerVersion`, `Missing`, `Corrupt`, `Gap` or `Body`.
    pub fn find(world: &World<S>, meta: &Meta, chain: &Chain) -> Result<LogRecovery<S>, LogError> {
        let key = ChainKey::of(meta, chain);
        let mut search = FileSearch::list(&*world.storage, &key)?;
        let end = end_line(meta, chain);
        let (number, begin) = match end {
            Some(end) => (end.at.file, named_begin(&search, end)?),
            None => newest_begin(&mut search)?,
        };
        let tail = NewestRead::read(&search, meta, number, end)?;
        let torn = if end.is_some() { None } else { tail.judge(&search)? };
        let oldest = tail.so_far.oldest;
        // An `end` line says that no file above counts, so their heads don't matter.
        let heads = end.map_or(u64::MAX, |end| end.at.file);
        let wrong = search.wrong.range(oldest..=heads).next().map(|(&number, _)| number);
        if let Some(error) = wrong.and_then(|number| search.wrong.remove(&number)) {
            return Err(error);
        }
        let files = predecessors(&search, meta, begin, oldest, &tail.newest)?;
        let counts: BTreeSet<u64> = files.iter().map(|file| file.number).collect();
        let spare = search.numbers.iter().filter(|number| !counts.contains(number));
        Ok(LogRecovery {
            newest: tail.newest,
            oldest,
            last: tail.so_far.last,
            clock_ms: tail.clock_ms,
            spare: spare.map(|&number| key.name(number)).collect(),
            files,
            highest: search.numbers.last().copied().unwrap_or(0),
            torn,
            world: world.clone(),
            meta: meta.clone(),
            key,
        })
    }

    /// Makes all durable that was found: the files that count, and their names. Then the last LSNs
    /// count as durable.
    ///
    /// # Errors
    /// `Io` or `Missing`: nothing may be counted.
    pub fn sync_all(&self) -> Result<(), LogError> {
        let storage = &self.world.storage;
        for file in &self.files {
            let name = self.key.name(file.number).to_string();
            let failed = |doing| move |error| (doing, error);
            let opened = storage.open(&name).map_err(failed("opening"));
            let synced = opened.and_then(|file| {
                file.map(|file| file.sync_data().map_err(failed("syncing"))).transpose()
            });
            match synced {
                Ok(Some(())) => {}
                Ok(None) => return Err(LogError::Missing { file: name }),
                Err((doing, error)) => return Err(LogError::io(&name, 0, doing, error)),
            }
        }
        let synced = storage.sync_folder();
        synced.map_err(|error| LogError::io(".", 0, "syncing the folder", error))
    }

    /// Bytes of the frames that count.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.end.saturating_sub(BLOCK_BYTES)).sum()
    }

    /// The chain.
    #[must_use]
    pub fn chain(&self) -> Chain {
        self.key.chain
    }
}

/// Where a backup's meta says that the chain ends.
pub(super) fn end_line<'m>(meta: &'m Meta, chain: &Chain) -> Option<&'m ChainEnd> {
    let named = meta.chains.contains(chain);
    meta.ends.iter().find(|end| named && end.shard == chain.shard)
}

/// The newest file's BEGIN, which an `end` line names.
fn named_begin<S: Storage>(
    search: &FileSearch<'_, S>,
    end: &ChainEnd,
) -> Result<ReadBegin, LogError> {
    search.begin(end.at.file)?.ok_or_else(|| LogError::Corrupt {
        file: search.name(end.at.file),
        position: BLOCK_BYTES,
        watermark: end.at,
        last: Vec::new(),
    })
}

/// The highest file whose BEGIN is valid.
fn newest_begin<S: Storage>(search: &mut FileSearch<'_, S>) -> Result<(u64, ReadBegin), LogError> {
    for number in search.right().rev() {
        if let Some(begin) = search.begin(number)? {
            return Ok((number, begin));
        }
    }
    if let Some((_, error)) = search.wrong.pop_last() {
        return Err(error);
    }
    let number = search.numbers.last().copied().unwrap_or(1);
    Err(LogError::Corrupt {
        file: search.name(number),
        position: BLOCK_BYTES,
        watermark: LogPosition { file: number, position: 2 * BLOCK_BYTES },
        last: Vec::new(),
    })
}

/// The newest file, read up to its end.
struct NewestRead {
    newest: NewestFile,
    so_far: ReadSoFar,
    clock_ms: u64,
}

impl NewestRead {
    /// Reads its frames while they are valid, or up to where an `end` line says.
    fn read<S: Storage>(
        search: &FileSearch<'_, S>,
        meta: &Meta,
        number: u64,
        end: Option<&ChainEnd>,
    ) -> Result<NewestRead, LogError> {
        let mut walk = FrameWalk::begin(search.open(number)?, None);
        let limit = end.map_or(u64::MAX, |end| end.at.position);
        walk.set_limit(limit);
        let newest = NewestFile { number, end: BLOCK_BYTES, sum: 0 };
        let mut read = NewestRead { newest, so_far: ReadSoFar::default(), clock_ms: 0 };
        let mut last_at = BLOCK_BYTES;
        while let Some(header) = walk.advance()? {
            let body = walk.parsed(&header)?;
            read.so_far.take(Some(meta), &walk.file().name, &header, &body)?;
            read.clock_ms = read.clock_ms.max(header.clock_ms);
            last_at = header.at.position;
            read.newest.end = walk.position();
            read.newest.sum = header.header_sum;
        }
        let found = (read.newest.end, read.newest.sum);
        match end {
            Some(end) if found != (end.at.position, end.sum) => {
                let at = if found.0 == limit { last_at } else { found.0 };
                Err(read.corrupt(search, number, at, end.at))
            }
            _ => Ok(read),
        }
    }

    /// Tells a torn tail from damage, here and in the files above, which were never begun.
    fn judge<S: Storage>(&self, search: &FileSearch<'_, S>) -> Result<Option<TornTail>, LogError> {
        for above in search.right().filter(|&number| number > self.newest.number) {
            // No frame follows a BEGIN that isn't on disk, and that has a block at least.
            let begun = LogPosition { file: above, position: 2 * BLOCK_BYTES };
            let mut mark = None;
            scan_headers(&search.open(above)?, BLOCK_BYTES + SECTOR_BYTES, &mut |seen| {
                mark = mark.max(Some(seen.watermark.max(begun)));
            })?;
            if let Some(mark) = mark {
                return Err(self.corrupt(search, above, BLOCK_BYTES, mark));
            }
        }
        let file = search.open(self.newest.number)?;
        let at = file.at(self.newest.end);
        // Watermarks of frames before the end are before it.
        let (mut mark, mut bytes) = (LogPosition::default(), 0);
        scan_headers(&file, at.position, &mut |seen| {
            mark = mark.max(seen.watermark);
            bytes = bytes.max(seen.position + seen.length - at.position);
        })?;
        if mark > at {
            return Err(self.corrupt(search, at.file, at.position, mark));
        }
        Ok((bytes > 0).then_some(TornTail { at, bytes }))
    }

    fn corrupt<S: Storage>(
        &self,
        search: &FileSearch<'_, S>,
        number: u64,
        position: u64,
        watermark: LogPosition,
    ) -> LogError {
        let (file, last) = (search.name(number), self.so_far.lasts());
        LogError::Corrupt { file, position, watermark, last }
    }
}

/// The files that count, found from the newest back by what each BEGIN says of its predecessor.
fn predecessors<S: Storage>(
    search: &FileSearch<'_, S>,
    meta: &Meta,
    newest: ReadBegin,
    oldest: u64,
    end: &NewestFile,
) -> Result<Vec<ChainFile>, LogError> {
    let mut files = vec![newest.ending(end.end, end.sum)];
    let mut begin = newest;
    while begin.header.watermark.file >= oldest {
        let end = begin.header.watermark;
        let before = search.begin(end.file)?;
        let whole = |before: &ReadBegin| {
            (before.header.end().position..=before.file_bytes).contains(&end.position)
        };
        let Some(before) = before.filter(whole) else {
            return Err(LogError::Corrupt {
                file: search.name(end.file),
                position: BLOCK_BYTES,
                watermark: end,
                last: lasts_from(search, meta, oldest),
            });
        };
        files.push(before.ending(end.position, begin.header.before_sum));
        begin = before;
    }
    files.reverse();
    Ok(files)
}
