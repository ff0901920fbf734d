//! Small logs that are built by hand, with the encoders of `format`, on the simulated disk.

mod along;
mod damage;
mod ends;
mod files;
mod follower;
mod replay;
mod salvage;
mod victim;

use crate::error::LogError;
use crate::format::change::{ChangeHeader, ChangeKind};
use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::frame_body::StreamRow;
use crate::format::head::Head;
use crate::format::layout::{BLOCK_BYTES, SECTOR_BYTES, change as c, frame as f};
use crate::format::meta::{Meta, TenantLine};
use crate::format::meta_text;
use crate::format::names::{FileName, META};
use crate::format::sum::{Secret, SumKey};
use crate::position::{Chain, LogPosition};
use crate::reader::ends::LogRecovery;
use crate::storage::World;
use crate::storage::simulated::{SimChance, SimClock, SimDisk};
use std::collections::BTreeMap;
use std::sync::Arc;

const CHAIN: Chain = Chain { generation: 2, shard: 0, shards: 1 };
/// Partitions of the tenants 1 and 2.
const A: u32 = 1 << 8;
const B: u32 = (1 << 8) | 1;
const OTHER: u32 = 2 << 8;
const FILE_BYTES: u64 = 64 << 10;
/// Where the frames behind a short BEGIN begin.
const FIRST: u64 = 2 * BLOCK_BYTES;

fn at(file: u64, position: u64) -> LogPosition {
    LogPosition { file, position }
}

/// A folder with a meta.
struct HandLog {
    disk: SimDisk,
    meta: Meta,
}

impl HandLog {
    fn new() -> HandLog {
        let mut meta = Meta::new([7; 16], Secret([9; 16]));
        (meta.next_generation, meta.next_tenant) = (3, 3);
        for (number, name) in [(1, "one"), (2, "two")] {
            let line = TenantLine { name: name.into(), partitions: 2, seed: 5 };
            meta.tenants.insert(number, line);
        }
        meta.chains.push(CHAIN);
        let log = HandLog { disk: SimDisk::new(1), meta };
        log.save_meta();
        log
    }

    fn save_meta(&self) {
        self.disk.set_contents(META, meta_text::encode(&self.meta).into_bytes());
    }

    fn world(&self) -> World<SimDisk> {
        World {
            storage: Arc::new(self.disk.clone()),
            clock: Arc::new(SimClock::new(1)),
            chance: Arc::new(SimChance::new(1)),
        }
    }

    /// Stores a file under its name.
    fn store(&self, file: &HandFile) {
        self.disk.set_contents(&name(file.head.number), file.bytes.clone());
    }

    fn store_all<'f>(&self, files: impl IntoIterator<Item = &'f HandFile>) {
        files.into_iter().for_each(|file| self.store(file));
    }

    /// The first file, with its BEGIN.
    fn first(&self) -> HandFile {
        let mut file = HandFile::new(&self.meta, 1, FILE_BYTES);
        file.begin(LogPosition::default());
        file
    }

    /// A file that goes on behind another, with its BEGIN.
    fn next(&self, before: &HandFile, number: u64) -> HandFile {
        let mut file = HandFile::new(&self.meta, number, FILE_BYTES);
        (file.before, file.oldest) = (before.before, before.oldest);
        file.lasts.clone_from(&before.lasts);
        file.begin(before.end());
        file
    }

    fn find(&self) -> Result<LogRecovery<SimDisk>, LogError> {
        LogRecovery::find(&self.world(), &self.meta, &CHAIN)
    }

    fn find_error(&self) -> LogError {
        self.find().err().expect("the chain is refused")
    }

    /// All commits that a start would replay: stream, LSN and payload of each change.
    fn replay(&self) -> Result<Vec<Seen>, LogError> {
        let mut seen = Vec::new();
        self.find()?.replay(&mut |commit| keep(&mut seen, commit), &mut |_| ())?;
        Ok(seen)
    }
}

/// What a receiver was given of a change.
type Seen = (u32, u64, Vec<u8>);

fn keep(seen: &mut Vec<Seen>, commit: &crate::ReplayedCommit<'_>) -> Result<(), String> {
    let each = |change: &crate::FramedChange<'_>| {
        (change.header.stream, change.header.lsn, change.payload.to_vec())
    };
    seen.extend(commit.changes.iter().map(each));
    Ok(())
}

/// The changes of these LSNs of stream A, with the payloads of [`fresh`].
fn seen_of(lsns: impl IntoIterator<Item = u64>) -> Vec<Seen> {
    lsns.into_iter().map(|lsn| (A, lsn, payload(A, lsn))).collect()
}

fn name(number: u64) -> String {
    FileName::of(&CHAIN, number).to_string()
}

fn payload(stream: u32, lsn: u64) -> Vec<u8> {
    format!("change {lsn} of {stream}").into_bytes()
}

/// A change with its payload.
#[derive(Clone)]
struct HandChange(ChangeHeader, Vec<u8>);

impl HandChange {
    /// The next change is of the same commit.
    fn more(mut self) -> HandChange {
        self.0.more = true;
        self
    }

    fn with(mut self, payload: Vec<u8>) -> HandChange {
        self.0.payload_bytes = payload.len().try_into().expect("short");
        self.1 = payload;
        self
    }
}

fn fresh(stream: u32, lsn: u64) -> HandChange {
    let kind = ChangeKind::Put;
    let header = ChangeHeader { payload_bytes: 0, stream, lsn, kind, more: false, again: false };
    HandChange(header, Vec::new()).with(payload(stream, lsn))
}

fn again(stream: u32, lsn: u64) -> HandChange {
    let mut change = fresh(stream, lsn);
    change.0.again = true;
    change
}

/// A file that is written frame by frame.
#[derive(Clone)]
struct HandFile {
    head: Head,
    key: SumKey,
    bytes: Vec<u8>,
    /// Where the next frame begins.
    at: u64,
    /// Header sum of the frame before.
    before: u32,
    /// What the next frames say.
    oldest: u64,
    mark: LogPosition,
    clock_ms: u64,
    lasts: BTreeMap<u32, u64>,
    /// Where each frame begins.
    frames: Vec<u64>,
}

impl HandFile {
    /// A prepared file.
    fn new(meta: &Meta, number: u64, file_bytes: u64) -> HandFile {
        let salt = 1000 + number;
        let head = Head { log_id: meta.id, chain: CHAIN, number, file_bytes, salt };
        let mut bytes = head.encode(&meta.secret);
        bytes.resize(file_bytes.try_into().expect("fits"), 0);
        HandFile {
            head,
            key: SumKey { secret: meta.secret, salt },
            bytes,
            at: BLOCK_BYTES,
            before: 0,
            oldest: 1,
            mark: LogPosition::default(),
            clock_ms: 0,
            lasts: BTreeMap::new(),
            frames: Vec::new(),
        }
    }

    fn end(&self) -> LogPosition {
        at(self.head.number, self.at)
    }

    fn begin(&mut self, before: LogPosition) {
        let row = |(&stream, &last): (&u32, &u64)| StreamRow { stream, first: 0, last };
        let rows: Vec<StreamRow> = self.lasts.iter().map(row).collect();
        self.mark = before;
        self.frame(FrameKind::Begin, &rows, &[], BLOCK_BYTES);
        // No frame follows it before it is on disk.
        self.synced();
    }

    /// Writes a frame; its table is of its fresh changes.
    fn changes(&mut self, changes: &[HandChange]) {
        let mut rows: BTreeMap<u32, StreamRow> = BTreeMap::new();
        for HandChange(header, _) in changes.iter().filter(|change| !change.0.again) {
            let new = StreamRow { stream: header.stream, first: header.lsn, last: header.lsn };
            rows.entry(header.stream).or_insert(new).last = header.lsn;
            self.lasts.insert(header.stream, header.lsn);
        }
        let rows: Vec<StreamRow> = rows.into_values().collect();
        self.frame(FrameKind::Changes, &rows, changes, SECTOR_BYTES);
    }

    /// Writes a frame with one change of stream A.
    fn put(&mut self, lsn: u64) {
        self.changes(&[fresh(A, lsn)]);
    }

    /// All that was written is on disk, and the next frames say so.
    fn synced(&mut self) {
        self.mark = self.end();
    }

    fn frame(&mut self, kind: FrameKind, rows: &[StreamRow], changes: &[HandChange], ends: u64) {
        let mut body: Vec<u8> = rows.iter().flat_map(StreamRow::encode).collect();
        for HandChange(header, payload) in changes {
            body.extend(header.encode());
            body.extend(payload);
            body.resize(body.len().next_multiple_of(c::ALIGN), 0);
        }
        let length = (f::BYTES as u64 + body.len() as u64).next_multiple_of(ends);
        let mut header = FrameHeader {
            header_sum: 0,
            body_sum: 0,
            before_sum: self.before,
            at: self.end(),
            length,
            body_bytes: body.len() as u64,
            watermark: self.mark,
            oldest: self.oldest,
            unix_ms: 1,
            clock_ms: self.clock_ms,
            kind,
            rows: rows.len().try_into().expect("few"),
            changes: changes.len().try_into().expect("few"),
        };
        let mut frame = vec![0; usize::try_from(length).expect("fits")];
        frame[f::BYTES..f::BYTES + body.len()].copy_from_slice(&body);
        header.body_sum = SumKey::more(self.key.body(self.at), &frame[f::BYTES..]);
        self.seal(&header, frame);
    }

    /// Stores a frame with this header.
    fn seal(&mut self, header: &FrameHeader, mut frame: Vec<u8>) {
        let (bytes, sum) = header.encode(&self.key);
        frame[..f::BYTES].copy_from_slice(&bytes);
        let start = usize::try_from(self.at).expect("fits");
        self.bytes[start..start + frame.len()].copy_from_slice(&frame);
        self.frames.push(self.at);
        (self.at, self.before) = (self.at + header.length, sum);
    }

    /// The file as it was before some of its last frames, which still stand in it.
    fn before_frame(&self, frame: usize) -> HandFile {
        let mut cut = self.clone();
        let last = usize::try_from(self.frames[frame - 1]).expect("fits");
        let sum = &self.bytes[last + f::HEADER_SUM..last + f::HEADER_SUM + 4];
        cut.before = u32::from_le_bytes(sum.try_into().expect("four"));
        (cut.at, cut.frames) = (self.frames[frame], self.frames[..frame].to_vec());
        cut
    }

    /// Changes a byte at an offset of a frame.
    fn spoil(&mut self, frame: usize, offset: usize) {
        let start = usize::try_from(self.frames[frame]).expect("fits");
        self.bytes[start + offset] ^= 1;
    }

    /// Changes a header's word, and gives the header a right sum.
    fn forge(&mut self, frame: usize, offset: usize, value: &[u8]) {
        let start = usize::try_from(self.frames[frame]).expect("fits");
        let header = &mut self.bytes[start..start + f::BYTES];
        header[offset..offset + value.len()].copy_from_slice(value);
        let sum = self.key.header(&header[f::BODY_SUM..]);
        header[f::HEADER_SUM..f::HEADER_SUM + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A log of one file with three frames of one change; nothing says that the last two are on disk.
fn three_frames(log: &HandLog) -> HandFile {
    let mut file = log.first();
    for lsn in 1..=3 {
        file.put(lsn);
    }
    file
}
