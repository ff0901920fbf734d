//! The cost of a command in the store alone: no sockets, no RESP.
//!
//! A million keys with values of 64 bytes are picked at random, so most records aren't cached. The
//! pipelines of 16 and 64 take the same two prefetch passes as the server.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nigh_shm::{Domain, Reader, Record};
use nigh_store::{Op, ReplySink, Store, StoreOptions, Turn};

const KEYS: u64 = 1_000_000;
const NOW_MS: u64 = 1_700_000_000_000;

/// Looks at the first byte of each value, as sending it would.
#[derive(Default)]
struct Glance(u64);

impl ReplySink for Glance {
    fn ok(&mut self) {
        self.0 += 1;
    }
    fn simple(&mut self, _: &str) {}
    fn error(&mut self, text: &str) {
        panic!("{text}");
    }
    fn int(&mut self, value: i64) {
        self.0 ^= value.unsigned_abs();
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.0 += u64::from(bytes[0]);
    }
    fn value(&mut self, _: &Reader, record: Record<'_>) {
        self.bulk(record.value());
    }
    fn null(&mut self) {
        panic!("every key is there");
    }
    fn null_array(&mut self) {}
    fn array(&mut self, _: usize) {}
    fn map(&mut self, _: usize) {}
    fn set(&mut self, _: usize) {}
    fn double(&mut self, _: f64) {}
}

struct Keys(u64);

impl Keys {
    fn next(&mut self) -> Vec<u8> {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        key((self.0 >> 33) % KEYS)
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

fn apply(criterion: &mut Criterion) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let domain = Domain::new(1);
    let mut participant = domain.join();
    let options = StoreOptions::new(dir.path().join("arenas"), 1 << 30);
    let (mut store, _) = Store::open(&options, &domain).expect("opens");
    let value = [b'v'; 64];
    let mut out = Glance::default();
    let mut round = |store: &mut Store, out: &mut Glance, commands: &[(Op, Vec<&[u8]>)]| {
        let pin = participant.pin();
        let turn = Turn { now_ms: NOW_MS, pin: &pin, random: 1 };
        if let [(op, args)] = commands {
            store.apply(*op, args, &turn, out);
        } else {
            let mut hashes = [0; 64];
            for (hash, (_, args)) in hashes.iter_mut().zip(commands) {
                *hash = store.hash(args[1]);
            }
            Store::prefetch(hashes[..commands.len()].iter().map(|hash| (&*store, *hash)));
            for (hash, (op, args)) in hashes.iter().zip(commands) {
                store.apply_hashed(*op, args, *hash, &turn, out);
            }
        }
        store.maintain(&turn);
        participant.quiescent();
    };
    for n in 0..KEYS {
        round(&mut store, &mut out, &[(Op::Set, vec![b"SET", &key(n), &value])]);
    }
    let mut keys = Keys(1);
    for (name, op) in [("get", Op::Get), ("set", Op::Set)] {
        for pipeline in [1, 16, 64] {
            let mut group = criterion.benchmark_group(format!("{name}/pipeline {pipeline}"));
            group.throughput(Throughput::Elements(pipeline));
            group.bench_function("1M keys, 64 B", |bencher| {
                bencher.iter_batched_ref(
                    || (0..pipeline).map(|_| keys.next()).collect::<Vec<_>>(),
                    |keys| {
                        let commands: Vec<(Op, Vec<&[u8]>)> = keys
                            .iter()
                            .map(|key| match op {
                                Op::Get => (op, vec![&b"GET"[..], key]),
                                _ => (op, vec![&b"SET"[..], key, &value[..]]),
                            })
                            .collect();
                        round(&mut store, &mut out, &commands);
                    },
                    criterion::BatchSize::SmallInput,
                );
            });
            group.finish();
        }
    }
    black_box(out.0);
    store.close().expect("it is the owner").remove();
}

criterion_group!(benches, apply);
criterion_main!(benches);
