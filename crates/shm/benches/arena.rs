//! `find` and `put` of one thread: in cache (1,000 keys), and over 1 M keys with and without
//! prefetching. 16-byte keys, 100-byte values, hash included.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use nigh_shm::{ArenaSpec, Domain, Participant, Reader, UpkeepBudget, Writer};
use std::hint::black_box;

/// Keys that fit the second-level cache with their records.
const FEW: u64 = 1_000;
/// Keys that don't fit any cache.
const MANY: u64 = 1_000_000;
/// Keys of a prefetched batch, as of a pipeline.
const BATCH: usize = 64;

struct Arena {
    _dir: tempfile::TempDir,
    writer: Writer,
    reader: Reader,
    me: Participant,
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut n = i;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(n % 10).unwrap_or(0);
        n /= 10;
    }
    key
}

fn arena(keys: u64) -> Arena {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs directory");
    let spec = ArenaSpec {
        path: dir.path().join("a"),
        tenant: "bench".into(),
        partition: 0,
        partitions: 1,
        seed: None,
        capacity_bytes: 8 << 30,
    };
    let domain = Domain::new(1);
    let mut writer = Writer::create(&spec, &domain).expect("an arena");
    let mut me = domain.join();
    for i in 0..keys {
        let key = key(i);
        let hash = writer.hash(&key);
        writer.put(&me.pin(), hash, &key, &[&[7; 100]], 0).expect("room");
        if i % 64 == 0 {
            me.quiescent();
            writer.maintain(UpkeepBudget::default());
        }
    }
    Arena { reader: writer.reader(), _dir: dir, writer, me }
}

/// A cheap sequence of numbers below `n`.
fn numbers(n: u64) -> impl FnMut() -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((u128::from(state) * u128::from(n)) >> 64) as u64
    }
}

fn find(c: &mut Criterion) {
    for (name, keys) in [("find/1k", FEW), ("find/1M", MANY)] {
        let a = arena(keys);
        let mut next = numbers(keys);
        let pin = a.me.pin();
        c.bench_function(name, |b| {
            b.iter_batched(
                || key(next()),
                |key| {
                    a.reader
                        .get(&pin, a.reader.hash(&key), &key)
                        .map(|r| black_box(r.value()).len())
                },
                BatchSize::SmallInput,
            );
        });
        c.bench_function(&format!("{name}, batch of 64 prefetched, per batch"), |b| {
            b.iter_batched_ref(
                || std::array::from_fn::<_, BATCH, _>(|_| key(next())),
                |keys| {
                    let hashes = keys.map(|key| a.reader.hash(&key));
                    Reader::prefetch(hashes.iter().map(|hash| (&a.reader, *hash)));
                    let found = keys.iter().zip(hashes);
                    found
                        .filter(|(key, hash)| {
                            a.reader.get(&pin, *hash, &key[..]).is_some_and(|r| r.value()[99] == 7)
                        })
                        .count()
                },
                BatchSize::SmallInput,
            );
        });
    }
}

fn put(c: &mut Criterion) {
    for (name, keys) in [("put over/1k", FEW), ("put over/1M", MANY)] {
        let mut a = arena(keys);
        let mut next = numbers(keys);
        let mut n = 0u32;
        let mut refused = 0u64;
        c.bench_function(name, |b| {
            b.iter_batched(
                || key(next()),
                |key| {
                    let hash = a.writer.hash(&key);
                    refused +=
                        u64::from(a.writer.put(&a.me.pin(), hash, &key, &[&[8; 100]], 0).is_err());
                    n += 1;
                    if n.is_multiple_of(64) {
                        a.me.quiescent();
                        a.writer.maintain(UpkeepBudget::default());
                    }
                },
                BatchSize::SmallInput,
            );
        });
        assert!(refused == 0, "{refused} writes were refused: the figure above is wrong");
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_millis(1500));
    targets = find, put
}
criterion_main!(benches);
