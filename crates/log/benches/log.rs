//! Appending to a log and replaying it, over real files in a folder for temporary files.
//!
//! Replays read from the page cache, so they show the reader's own cost: checksums, parsing, and a
//! copy. Appends go round in files that are recycled, as in a server whose records all die young.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nigh_log::{
    Chain, ChangeKind, LogRecovery, LogSettings, LogWriter, Meta, NewChange, NewCommit,
};
use nigh_log::{RealChance, RealClock, RealFolder, Secret, TenantLine, World};

const CHAIN: Chain = Chain { generation: 1, shard: 0, shards: 1 };
/// A partition of the tenant 1.
const STREAM: u32 = 1 << 8;
/// Bytes of payloads that are replayed.
const REPLAY_BYTES: usize = 128 << 20;
/// Bytes of payloads that are appended before a write.
const WRITE_BYTES: usize = 1 << 20;
const PAYLOADS: [(&str, usize); 2] = [("64 KiB", 64 << 10), ("100 bytes", 100)];

/// A log with one stream.
struct Bench {
    world: World<RealFolder>,
    meta: Meta,
    writer: LogWriter<RealFolder>,
    payload: Vec<u8>,
    next: u64,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(payload_bytes: usize) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = RealFolder::open(&folder.path().join("log"), true).expect("opens");
        let world = World {
            storage: Arc::new(storage),
            clock: Arc::new(RealClock::new()),
            chance: Arc::new(RealChance),
        };
        let mut meta = Meta::new([1; 16], Secret([2; 16]));
        (meta.next_generation, meta.next_tenant) = (2, 2);
        meta.tenants.insert(1, TenantLine { name: "bench".into(), partitions: 1, seed: 0 });
        meta.chains.push(CHAIN);
        let (settings, lasts) = (LogSettings::default(), [(STREAM, 0)]);
        let writer = LogWriter::begin_chain(&world, &meta, CHAIN, &lasts, settings, 0);
        let mut writer = writer.expect("begins");
        writer.named();
        let payload = (0..payload_bytes).map(|at| at.to_le_bytes()[0]).collect();
        Bench { world, meta, writer, payload, next: 1, _folder: folder }
    }

    /// Adds commits of one change each, and writes them.
    fn append(&mut self, commits: usize) {
        for _ in 0..commits {
            let changes = [NewChange { kind: ChangeKind::Put, payload: &[&self.payload] }];
            let (stream, first_lsn) = (STREAM, self.next);
            let (again, needs, clock_ms) = (false, &[][..], 0);
            let commit = NewCommit { stream, first_lsn, again, changes: &changes, needs, clock_ms };
            self.writer.add(&commit, &|_| 0).expect("adds");
            self.next += 1;
        }
        self.writer.write(false).expect("writes");
    }

    /// Gives all files back but the one that is being written.
    fn recycle(&mut self) {
        while let Some(victim) = self.writer.victim().expect("is sound") {
            let file = victim.file();
            self.writer.judged(file);
            self.writer.release(file);
            self.writer.sync().expect("syncs");
        }
        while !self.writer.prepare().expect("prepares") {}
    }
}

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append");
    group.measurement_time(Duration::from_secs(5)).sample_size(20);
    for (name, bytes) in PAYLOADS {
        let mut bench = Bench::new(bytes);
        let commits = WRITE_BYTES / bytes;
        group.throughput(Throughput::Bytes((commits * bytes) as u64));
        group.bench_function(format!("write {name}"), |b| {
            b.iter(|| {
                bench.append(commits);
                bench.recycle();
            });
        });
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("write and sync {name}"), |b| {
            b.iter(|| {
                bench.append(1);
                bench.writer.sync().expect("syncs");
                bench.recycle();
            });
        });
    }
}

fn replay(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("replay");
    group.measurement_time(Duration::from_secs(5)).sample_size(20);
    for (name, bytes) in PAYLOADS {
        let mut bench = Bench::new(bytes);
        let commits = REPLAY_BYTES / bytes;
        let at_once = WRITE_BYTES / bytes;
        for _ in 0..commits / at_once {
            bench.append(at_once);
        }
        bench.writer.close().expect("closes");
        let found = LogRecovery::find(&bench.world, &bench.meta, &CHAIN).expect("is sound");
        group.throughput(Throughput::Bytes(REPLAY_BYTES as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut changes = 0;
                let each = &mut |commit: &nigh_log::ReplayedCommit<'_>| {
                    changes += black_box(commit.changes).len();
                    Ok(())
                };
                found.replay(each, &mut |_| ()).expect("replays");
                assert_eq!(changes, commits / at_once * at_once);
            });
        });
    }
}

criterion_group!(benches, append, replay);
criterion_main!(benches);
