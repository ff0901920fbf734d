//! What `nigh check` says of a chain, and what can be saved of a damaged one.
//!
//! 1. Both only read. A salvage goes into a copy, and is never a start.
//! 2. A salvaged chain is cut at its first bad frame: what is kept is a state that once was, and
//!    what is lost is named.
//!
//! Any thread, while nobody writes.

use crate::error::LogError;
use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::frame_body::FrameBody;
use crate::format::layout::BLOCK_BYTES;
use crate::format::meta::Meta;
use crate::position::{Chain, LogPosition};
use crate::reader::commits::{CommitReceiver, give};
use crate::reader::ends::{LogRecovery, TornTail, end_line};
use crate::reader::forward::{ReadForward, read_forward};
use crate::reader::frames::FrameWalk;
use crate::reader::headers::scan_headers;
use crate::reader::log_file::ChainKey;
use crate::reader::search::FileSearch;
use crate::storage::{Storage, World};
use std::collections::BTreeMap;

/// What a whole chain has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChainReport {
    /// Files that count.
    pub files: u64,
    /// Files that don't.
    pub spare: u64,
    /// Frames.
    pub frames: u64,
    /// Fresh commits, dropped tenants' included.
    pub commits: u64,
    /// Changes, those that were appended again included.
    pub changes: u64,
    /// Changes that were appended again.
    pub again: u64,
    /// Bytes of frames.
    pub bytes: u64,
    /// Bytes of payloads.
    pub payload_bytes: u64,
    /// What a start would cut off.
    pub torn: Option<TornTail>,
    /// The last LSN of each stream, but for dropped tenants.
    pub last: BTreeMap<u32, u64>,
}

impl ChainReport {
    fn count(&mut self, header: &FrameHeader, body: &FrameBody<'_>) {
        self.frames += 1;
        self.bytes += header.length;
        self.changes += body.changes.len() as u64;
        for change in &body.changes {
            self.again += u64::from(change.header.again);
            self.payload_bytes += u64::from(change.header.payload_bytes);
        }
        let fresh = body.commits().filter(|commit| commit.iter().all(|c| !c.header.again));
        self.commits += fresh.count() as u64;
    }
}

/// Reads a whole chain, as a start and a replay would.
///
/// # Errors
/// What is wrong with it, as of [`LogRecovery::find`] and [`LogRecovery::replay`].
pub fn check_chain<S: Storage>(
    world: &World<S>,
    meta: &Meta,
    chain: &Chain,
    progress: &mut dyn FnMut(u64),
) -> Result<ChainReport, LogError> {
    let recovery = LogRecovery::find(world, meta, chain)?;
    let mut report = ChainReport {
        files: recovery.files.len() as u64,
        spare: recovery.spare.len() as u64,
        torn: recovery.torn,
        last: recovery.last.clone(),
        ..ChainReport::default()
    };
    recovery.frames(&mut |_, header, body| {
        report.count(header, body);
        progress(report.bytes);
        Ok(())
    })?;
    Ok(report)
}

/// The LSNs of a stream that are lost. There may be more behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostLsns {
    /// The stream.
    pub stream: u32,
    /// The first that is lost.
    pub first: u64,
    /// The last that is known of.
    pub last: u64,
}

/// Where a chain is damaged first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFrame {
    /// The file's name.
    pub file: String,
    /// Where the frame begins.
    pub position: u64,
    /// What is wrong.
    pub what: String,
}

/// A file of which something is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostFile {
    /// Its name.
    pub file: String,
    /// From where on; 0: all of it.
    pub position: u64,
}

/// What was saved of a chain, and what is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedChain {
    /// The oldest file that counts.
    pub oldest: u64,
    /// Where the chain is cut.
    pub end: LogPosition,
    /// The header sum of the last frame before; `None`: nothing could be saved.
    pub sum: Option<u32>,
    /// The first bad frame; `None`: the chain is whole, or ends with a torn tail.
    pub bad: Option<BadFrame>,
    /// The last LSN of each stream that was saved.
    pub last: BTreeMap<u32, u64>,
    /// What is lost, by file.
    pub files: Vec<LostFile>,
    /// What is lost, by stream.
    pub lsns: Vec<LostLsns>,
}

/// Gives the commits of a chain before its first bad frame, and says what is lost.
///
/// # Errors
/// `Refused` if `each` fails; `NewerVersion` or `Io`.
pub fn salvage_chain<S: Storage>(
    world: &World<S>,
    meta: &Meta,
    chain: &Chain,
    each: &mut CommitReceiver<'_>,
) -> Result<SalvagedChain, LogError> {
    let key = ChainKey::of(meta, chain);
    let search = FileSearch::list(&*world.storage, &key)?;
    let end = end_line(meta, chain);
    let mut oldest = None;
    for number in search.right() {
        let file = search.open(number)?;
        scan_headers(&file, BLOCK_BYTES, &mut |seen| {
            oldest = oldest.max(Some(seen.oldest).filter(|&oldest| oldest <= number));
        })?;
    }
    let lowest = search.numbers.first().copied().unwrap_or(1);
    let oldest = oldest.unwrap_or(lowest);
    let read = read_forward(&search, meta, oldest, end, &mut |name, header, body| {
        give(Some(meta), name, header, body, each)
    })?;
    let whole = end.is_some_and(|end| (end.at, Some(end.sum)) == (read.at, read.sum));
    let lost = if whole { Lost::default() } else { Lost::find(&search, oldest, &read)? };
    let wrong = match read.wrong {
        None if end.is_some() && !whole => Some("the chain should go on".into()),
        None if lost.damage => Some("the frame isn't valid".into()),
        wrong => wrong,
    };
    let (file, position) = (search.name(read.at.file), read.at.position);
    let known = |(stream, last): (u32, u64)| {
        let first = read.so_far.last.get(&stream).copied().unwrap_or(0) + 1;
        (first <= last).then_some(LostLsns { stream, first, last })
    };
    let lsns = lost.last.into_iter().filter_map(known).collect();
    Ok(SalvagedChain {
        oldest,
        end: read.at,
        sum: read.sum,
        bad: wrong.map(|what| BadFrame { file, position, what }),
        lsns,
        last: read.so_far.last,
        files: lost.files,
    })
}

/// What lies behind the cut.
#[derive(Debug, Default)]
struct Lost {
    /// Something there, or missing there, was on disk once.
    damage: bool,
    files: Vec<LostFile>,
    last: BTreeMap<u32, u64>,
}

impl Lost {
    fn find<S: Storage>(
        search: &FileSearch<'_, S>,
        oldest: u64,
        read: &ReadForward,
    ) -> Result<Lost, LogError> {
        let cut = read.at;
        let mut lost = Lost { damage: read.wrong.is_some(), ..Lost::default() };
        lost.need(search, cut.file);
        for &number in search.numbers.iter().filter(|&&number| number >= oldest) {
            let file = search.name(number);
            if search.wrong.contains_key(&number) {
                lost.damage = true;
                lost.files.push(LostFile { file, position: 0 });
            } else if number >= cut.file {
                let position = if number == cut.file { cut.position } else { BLOCK_BYTES };
                if lost.behind(search, number, position, cut)? {
                    lost.files.push(LostFile { file, position });
                }
            }
        }
        Ok(lost)
    }

    /// Names a file that has no name.
    fn need<S: Storage>(&mut self, search: &FileSearch<'_, S>, number: u64) {
        if number > 0 && !search.numbers.contains(&number) {
            self.files.push(LostFile { file: search.name(number), position: 0 });
        }
    }

    /// Looks for frames in a file from a position on; whether there is a valid header.
    fn behind<S: Storage>(
        &mut self,
        search: &FileSearch<'_, S>,
        number: u64,
        from: u64,
        cut: LogPosition,
    ) -> Result<bool, LogError> {
        let file = search.open(number)?;
        let mut found = Vec::new();
        scan_headers(&file, from, &mut |seen| {
            found.push(seen.position);
            // No frame follows a BEGIN that isn't on disk.
            let begun = number > cut.file && seen.position > BLOCK_BYTES;
            self.damage |= begun || seen.watermark > cut;
        })?;
        let mut walk = FrameWalk::begin(file, None);
        for &position in &found {
            walk.go_to(position);
            match walk.advance() {
                Ok(Some(header)) => {
                    if header.kind == FrameKind::Begin && header.watermark.file > cut.file {
                        self.need(search, header.watermark.file);
                    }
                    for row in walk.parsed(&header).map(|body| body.rows).unwrap_or_default() {
                        let last = self.last.entry(row.stream).or_default();
                        *last = row.last.max(*last);
                    }
                }
                Ok(None) | Err(LogError::Body { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(!found.is_empty())
    }
}
