//! What `nigh check` says of a chain, and what can be saved of a damaged one.
//!
//! 1. Both only read. A salvage goes into a copy, and is never a start.
//! 2. A salvaged chain is cut at its first bad frame: what is kept is a state that once was, and
//!    what is lost is named.
//!
//! Any thread, while nobody writes.

use crate::error::LogError;
use crate::format::change::ChangeKind;
use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::frame_body::FrameBody;
use crate::format::layout::BLOCK_BYTES;
use crate::format::meta::{ChainEnd, Meta};
use crate::position::{Chain, LogPosition};
use crate::reader::commits::{CommitReceiver, FrameReceiver, give};
use crate::reader::ends::{LogRecovery, TornTail, end_line};
use crate::reader::forward::{ReadForward, Stop, read_forward};
use crate::reader::frames::FrameWalk;
use crate::reader::headers::scan_headers;
use crate::reader::log_file::ChainKey;
use crate::reader::search::FileSearch;
use crate::storage::{Storage, World};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Changes by kind: PUT, BASED, GONE, CLEAR.
    pub kinds: [u64; 4],
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
            let [put, based, gone, clear] = &mut self.kinds;
            *match change.header.kind {
                ChangeKind::Put => put,
                ChangeKind::Based => based,
                ChangeKind::Gone => gone,
                ChangeKind::Clear => clear,
            } += 1;
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
    /// Bytes up to the end of the last frame that is recognised there; 0: none is.
    pub bytes: u64,
}

/// Records of a stream that stood in files that are gone, and again only behind the cut: they are
/// lost, though later changes of the stream are saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostAgain {
    /// The stream.
    pub stream: u32,
    /// Their LSNs, rising.
    pub lsns: Vec<u64>,
}

/// What can be saved of a chain, and what is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedChain {
    /// The oldest file that counts.
    pub oldest: u64,
    /// Where the chain is cut.
    pub end: LogPosition,
    /// The header sum of the last frame before; `None`: nothing can be saved.
    pub sum: Option<u32>,
    /// The first bad frame; `None`: the chain is whole, or ends with a torn tail.
    pub bad: Option<BadFrame>,
    /// The last LSN of each stream before the oldest file.
    pub first: BTreeMap<u32, u64>,
    /// The last LSN of each stream that is saved.
    pub last: BTreeMap<u32, u64>,
    /// The latest clock word of what is saved, ms.
    pub clock_ms: u64,
    /// What is lost, by file.
    pub files: Vec<LostFile>,
    /// What is lost, by stream.
    pub lsns: Vec<LostLsns>,
    /// Older records that are lost, by stream.
    pub again: Vec<LostAgain>,
    /// Files are gone that the last saved frame counts. If records of theirs were appended again in
    /// frames that can't be read, those are lost too, and can't be named.
    pub unnamed: bool,
}

/// Finds what can be saved of a chain: all before its first bad frame. `check` gets the commits,
/// and a frame with a commit that it refuses is bad too.
///
/// # Errors
/// `NewerVersion` or `Io`.
pub fn salvage_chain<S: Storage>(
    world: &World<S>,
    meta: &Meta,
    chain: &Chain,
    check: &mut CommitReceiver<'_>,
) -> Result<SalvagedChain, LogError> {
    let key = ChainKey::of(meta, chain);
    let search = FileSearch::list_cut(&*world.storage, &key)?;
    let end = end_line(meta, chain);
    let source = Salvage { search: &search, meta, end };
    let (oldest, read, unnamed) = source.find_oldest()?;
    let (read, first, clock_ms) = source.check(oldest, read, check)?;
    let whole = end.is_some_and(|end| (end.at, Some(end.sum)) == (read.at, read.sum));
    let mut lost = if whole { Lost::default() } else { Lost::find(&search, oldest, &read)? };
    let wrong = match read.wrong {
        None if end.is_some() && !whole => Some("the chain should go on".into()),
        None if lost.damage && search.is_cut(read.at.file) => {
            Some("the file ends before its head says".into())
        }
        None if lost.damage => Some("the frame isn't valid".into()),
        wrong => wrong,
    };
    let last_of = |stream| read.so_far.last.get(&stream).copied().unwrap_or(0);
    lost.again
        .retain(|&(stream, lsn)| unnamed && lsn <= last_of(stream) && !meta.is_dropped(stream));
    if !lost.again.is_empty() {
        let stop = Stop { at: read.at, what: None };
        source.read(oldest, Some(&stop), &mut |_, _, body| {
            for change in &body.changes {
                lost.again.remove(&(change.header.stream, change.header.lsn));
            }
            Ok(())
        })?;
    }
    let (file, position) = (search.name(read.at.file), read.at.position);
    let known = |(stream, last): (u32, u64)| {
        let first = last_of(stream) + 1;
        (first <= last).then_some(LostLsns { stream, first, last })
    };
    Ok(SalvagedChain {
        oldest,
        end: read.at,
        sum: read.sum,
        bad: wrong.map(|what| BadFrame { file, position, what }),
        first,
        lsns: lost.last.into_iter().filter_map(known).collect(),
        last: read.so_far.last,
        clock_ms,
        files: lost.files,
        again: by_stream(lost.again),
        unnamed,
    })
}

/// A chain that may be damaged, to be read forwards.
struct Salvage<'a, S: Storage> {
    search: &'a FileSearch<'a, S>,
    meta: &'a Meta,
    end: Option<&'a ChainEnd>,
}

impl<S: Storage> Salvage<'_, S> {
    fn read(
        &self,
        oldest: u64,
        stop: Option<&Stop>,
        each: &mut FrameReceiver<'_>,
    ) -> Result<ReadForward, LogError> {
        read_forward(self.search, self.meta, oldest, (self.end, stop), each)
    }

    /// The oldest file that counts, what can be read from there, and whether files are gone that
    /// the last frame counts.
    fn find_oldest(&self) -> Result<(u64, ReadForward, bool), LogError> {
        let oldest = highest_oldest(self.search)?;
        let read = self.read(oldest, None, &mut |_, _, _| Ok(()))?;
        let counted = read.so_far.oldest;
        let unnamed = read.sum.is_none() || counted < oldest;
        // What the last frame counts may still be there: then it is a state that once was.
        if read.sum.is_some() && unnamed {
            let earlier = self.read(counted, None, &mut |_, _, _| Ok(()))?;
            if earlier.at == read.at {
                return Ok((counted, earlier, false));
            }
        }
        Ok((oldest, read, unnamed))
    }

    /// Gives the commits of what was `read`, which ends before a frame with one that is refused.
    /// Tells the last LSN of each stream before the oldest file too, and the latest clock word, ms.
    fn check(
        &self,
        oldest: u64,
        read: ReadForward,
        check: &mut CommitReceiver<'_>,
    ) -> Result<(ReadForward, BTreeMap<u32, u64>, u64), LogError> {
        let (mut first, mut clock_ms, mut stop) = (BTreeMap::new(), 0, None);
        let checked = self.read(oldest, None, &mut |name, header, body| {
            clock_ms = header.clock_ms.max(clock_ms);
            if header.kind == FrameKind::Begin && header.at.file == oldest {
                let rows = body.rows.iter().filter(|row| !self.meta.is_dropped(row.stream));
                first = rows.map(|row| (row.stream, row.last)).collect();
            }
            stop = Some(header.at);
            give(Some(self.meta), name, header, body, check)
        });
        let read = match checked {
            Ok(_) => read,
            Err(LogError::Refused { what, .. }) => {
                let stop = Stop { at: stop.expect("a frame was refused"), what: Some(what) };
                self.read(oldest, Some(&stop), &mut |_, _, _| Ok(()))?
            }
            Err(error) => return Err(error),
        };
        Ok((read, first, clock_ms))
    }
}

/// Gives the commits that can be saved.
///
/// # Errors
/// `Refused` if `each` fails; `NewerVersion` or `Io`.
pub fn salvaged_commits<S: Storage>(
    world: &World<S>,
    meta: &Meta,
    chain: &Chain,
    saved: &SalvagedChain,
    each: &mut CommitReceiver<'_>,
) -> Result<(), LogError> {
    let key = ChainKey::of(meta, chain);
    let search = FileSearch::list_cut(&*world.storage, &key)?;
    let stop = Stop { at: saved.end, what: None };
    let ends = (end_line(meta, chain), Some(&stop));
    read_forward(&search, meta, saved.oldest, ends, &mut |name, header, body| {
        give(Some(meta), name, header, body, each)
    })
    .map(drop)
}

/// The highest `oldest` of any valid header.
fn highest_oldest<S: Storage>(search: &FileSearch<'_, S>) -> Result<u64, LogError> {
    let mut oldest = None;
    for number in search.right() {
        let file = search.open(number)?;
        scan_headers(&file, BLOCK_BYTES, &mut |seen| {
            oldest = oldest.max(Some(seen.oldest).filter(|&oldest| oldest <= number));
        })?;
    }
    Ok(oldest.unwrap_or_else(|| search.numbers.first().copied().unwrap_or(1)))
}

fn by_stream(again: BTreeSet<(u32, u64)>) -> Vec<LostAgain> {
    let mut lost: Vec<LostAgain> = Vec::new();
    for (stream, lsn) in again {
        match lost.last_mut().filter(|last| last.stream == stream) {
            Some(last) => last.lsns.push(lsn),
            None => lost.push(LostAgain { stream, lsns: vec![lsn] }),
        }
    }
    lost
}

/// What lies behind the cut.
#[derive(Debug, Default)]
struct Lost {
    /// Something there, or missing there, was on disk once.
    damage: bool,
    files: Vec<LostFile>,
    last: BTreeMap<u32, u64>,
    /// Records that are appended again there: stream and LSN.
    again: BTreeSet<(u32, u64)>,
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
                lost.files.push(LostFile { file, position: 0, bytes: 0 });
            } else if number >= cut.file {
                let position = if number == cut.file { cut.position } else { BLOCK_BYTES };
                // Where a file was cut off, frames may have been.
                lost.damage |= search.is_cut(number);
                let bytes = lost.behind(search, number, position, cut)?;
                if bytes > 0 || search.is_cut(number) {
                    lost.files.push(LostFile { file, position, bytes });
                }
            }
        }
        Ok(lost)
    }

    /// Names a file that has no name.
    fn need<S: Storage>(&mut self, search: &FileSearch<'_, S>, number: u64) {
        if number > 0 && !search.numbers.contains(&number) {
            let file = search.name(number);
            self.files.push(LostFile { file, position: 0, bytes: 0 });
        }
    }

    /// Looks for frames in a file from a position on. Returns the bytes up to the end of the last.
    fn behind<S: Storage>(
        &mut self,
        search: &FileSearch<'_, S>,
        number: u64,
        from: u64,
        cut: LogPosition,
    ) -> Result<u64, LogError> {
        let file = search.open(number)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        scan_headers(&file, from, &mut |seen| {
            found.push(seen.position);
            bytes = bytes.max(seen.position + seen.length - from);
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
                    if let Ok(body) = walk.parsed(&header) {
                        self.note(&body);
                    }
                }
                Ok(None) | Err(LogError::Body { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    fn note(&mut self, body: &FrameBody<'_>) {
        for row in &body.rows {
            let last = self.last.entry(row.stream).or_default();
            *last = row.last.max(*last);
        }
        let again = body.changes.iter().map(|change| &change.header).filter(|it| it.again);
        self.again.extend(again.map(|it| (it.stream, it.lsn)));
    }
}
