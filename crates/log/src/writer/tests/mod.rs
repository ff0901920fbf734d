//! Tests of the writer over the simulated disk.

mod broken;
mod compaction;
mod composing;
mod going_on;
mod order;
mod overlap;
mod preparing;
mod rules;
mod watched;

use crate::format::change::ChangeKind;
use crate::format::frame::{FrameHeader, FrameKind};
use crate::format::frame_body::FrameBody;
use crate::format::head::Head;
use crate::format::layout::{BLOCK_BYTES, frame as f};
use crate::format::meta::{Meta, TenantLine};
use crate::format::names::FileName;
use crate::format::sum::{Secret, SumKey};
use crate::position::{Chain, LogPosition};
use crate::reader::ends::LogRecovery;
use crate::storage::simulated::{SimChance, SimClock, SimDisk};
use crate::storage::{Chance, Storage, World};
use crate::writer::log_writer::LogWriter;
use crate::writer::new_commit::{Added, NewChange, NewCommit};
use crate::writer::settings::LogSettings;
use std::sync::Arc;
use watched::WatchedDisk;

/// Streams of the tests: partitions 0 to 3 of tenant 1.
const STREAMS: [u32; 4] = [0x100, 0x101, 0x102, 0x103];
/// The machine's clock.
const UNIX_MS: u64 = 1_700_000_000_000;
const CHAIN: Chain = Chain { generation: 1, shard: 0, shards: 1 };
/// The smallest file: a head, a BEGIN, a block for changes and one for the watermark.
const SMALL: LogSettings = LogSettings { file_bytes: 4 * BLOCK_BYTES };
/// Room for a few frames.
const MEDIUM: LogSettings = LogSettings { file_bytes: 16 * BLOCK_BYTES };
/// Room for a frame of 1 MiB.
const LARGE: LogSettings = LogSettings { file_bytes: 4 << 20 };

/// A change as the tests keep it: stream, LSN, again, payload.
type Kept = (u32, u64, bool, Vec<u8>);

/// A disk, a clock, a chain.
struct WriterDesk {
    watched: WatchedDisk,
    clock: Arc<SimClock>,
    world: World<WatchedDisk>,
    meta: Meta,
}

impl WriterDesk {
    fn new(seed: u64) -> WriterDesk {
        WriterDesk::on(SimDisk::new(seed), seed)
    }

    fn on(disk: SimDisk, seed: u64) -> WriterDesk {
        let (watched, clock) = (WatchedDisk::new(disk), Arc::new(SimClock::new(UNIX_MS)));
        let mut meta = Meta::new([7; 16], Secret([9; 16]));
        (meta.next_generation, meta.next_tenant) = (2, 3);
        let line = TenantLine { name: "t".into(), partitions: 4, seed: 1 };
        meta.tenants.insert(1, line);
        meta.chains.push(CHAIN);
        let world = World {
            storage: Arc::new(watched.clone()),
            clock: Arc::clone(&clock) as Arc<_>,
            chance: Arc::new(SimChance::new(!seed)) as Arc<dyn Chance>,
        };
        WriterDesk { watched, clock, world, meta }
    }

    /// A new chain, named, with nothing in it.
    fn writer(&self, settings: LogSettings) -> LogWriter<WatchedDisk> {
        let lasts = STREAMS.map(|stream| (stream, 0));
        let begun =
            LogWriter::begin_chain(&self.world, &self.meta, CHAIN, &lasts, settings, UNIX_MS);
        let mut writer = begun.unwrap();
        writer.named();
        writer
    }

    /// Goes on with what is there.
    fn reopened(&self, settings: LogSettings) -> LogWriter<WatchedDisk> {
        let found = self.recovery();
        LogWriter::begin(&self.world, &self.meta, found, settings, UNIX_MS).unwrap()
    }

    fn recovery(&self) -> LogRecovery<WatchedDisk> {
        LogRecovery::find(&self.world, &self.meta, &CHAIN).unwrap()
    }

    /// All changes that a start finds.
    fn replayed(&self) -> Vec<Kept> {
        let mut kept = Vec::new();
        let replayed = self.recovery().replay(
            &mut |commit| {
                for change in commit.changes {
                    let h = change.header;
                    kept.push((h.stream, h.lsn, h.again, change.payload.to_vec()));
                }
                Ok(())
            },
            &mut |_| {},
        );
        replayed.unwrap();
        kept
    }

    /// What a file's head says.
    fn head(&self, number: u64) -> Head {
        let name = FileName::of(&CHAIN, number);
        let bytes = self.watched.disk.contents(&name.to_string()).expect("a file");
        let (meta, length) = (&self.meta, bytes.len() as u64);
        Head::parse(&bytes[..4096], &meta.secret, &meta.id, &CHAIN, &name, length).unwrap()
    }

    /// The frames of a file, as far as they are valid.
    fn frames(&self, number: u64) -> Vec<FrameHeader> {
        let head = self.head(number);
        let name = FileName::of(&CHAIN, number).to_string();
        let bytes = self.watched.disk.contents(&name).unwrap();
        let key = SumKey { secret: self.meta.secret, salt: head.salt };
        let (mut frames, mut rest) = (Vec::<FrameHeader>::new(), &bytes[4096..]);
        while let Some(first) = rest.first_chunk() {
            let at = LogPosition { file: number, position: head.file_bytes - rest.len() as u64 };
            let Some(header) = FrameHeader::parse(first, &key, at, head.file_bytes) else { break };
            let header = header.unwrap();
            let (frame, behind) = rest.split_at(usize::try_from(header.length).unwrap());
            let before = frames.last().map_or(header.before_sum, |before| before.header_sum);
            let sum = SumKey::more(key.body(at.position), &frame[f::BYTES..]);
            if (sum, before) != (header.body_sum, header.before_sum) {
                break;
            }
            assert_eq!(header.kind == FrameKind::Begin, frames.is_empty());
            let body = &frame[f::BYTES..][..usize::try_from(header.body_bytes).unwrap()];
            FrameBody::parse(&header, body).unwrap();
            frames.push(header);
            rest = behind;
        }
        frames
    }

    /// The last frame of a file.
    fn last_frame(&self, number: u64) -> FrameHeader {
        *self.frames(number).last().unwrap()
    }

    /// Numbers of files that have a name, without those that are being made.
    fn numbers(&self) -> Vec<u64> {
        let names = self.watched.disk.names().unwrap();
        let parsed = names.iter().filter_map(|name| FileName::parse(name));
        let mut numbers: Vec<u64> = parsed.map(|name| name.number).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Nothing of other logs is durable.
fn nothing(_: u32) -> u64 {
    0
}

/// One PUT, fresh.
fn put(writer: &mut LogWriter<WatchedDisk>, stream: u32, lsn: u64, payload: &[u8]) {
    let added = try_put(writer, stream, lsn, payload);
    assert_eq!(added.unwrap(), Added::Taken);
}

fn try_put(
    writer: &mut LogWriter<WatchedDisk>,
    stream: u32,
    first_lsn: u64,
    payload: &[u8],
) -> Result<Added, crate::error::LogError> {
    let changes = [NewChange { kind: ChangeKind::Put, payload: &[payload] }];
    let commit =
        NewCommit { stream, first_lsn, again: false, changes: &changes, needs: &[], clock_ms: 5 };
    writer.add(&commit, &nothing)
}

/// A record that compaction appends.
fn put_again(writer: &mut LogWriter<WatchedDisk>, stream: u32, first_lsn: u64, payload: &[u8]) {
    let changes = [NewChange { kind: ChangeKind::Put, payload: &[payload] }];
    let commit =
        NewCommit { stream, first_lsn, again: true, changes: &changes, needs: &[], clock_ms: 0 };
    assert_eq!(writer.add(&commit, &nothing).unwrap(), Added::Taken);
}

/// Steps until a prepared file is there.
fn prepare(writer: &mut LogWriter<WatchedDisk>) {
    for _ in 0..1000 {
        if writer.prepare().unwrap() {
            return;
        }
    }
    panic!("no end of preparing");
}
