//! Measures crossings between Rust and V8: an entry into V8 without request and replies; and the
//! prelude's read in place against a read by native callback. Times are CPU time of the thread.
//!
//! `cargo bench -p nigh-js --features bench-callback --bench callback`
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use functions::World;
use functions::cpu_time::CpuTime;
use nigh_js::Call;

#[path = "functions/world.rs"]
mod functions;

const SOURCE: &str = r#"#!js name=bench
const keys = Array.from({ length: 1000 }, (_, i) => "key:" + String(i).padStart(12, "0"));
export const nop = () => {};
const check = (sum) => { if (sum !== 49950000) throw new Error(String(sum)); return sum; };
export function numbers_in_place(db) {
  let sum = 0;
  for (let k = 0; k < 100; k++) for (let i = 0; i < 1000; i++) sum += db.get(i).u32(0);
  return check(sum);
}
export function numbers_by_callback_bare(db) {
  let sum = 0;
  for (let k = 0; k < 100; k++) for (let i = 0; i < 1000; i++) sum += benchU32(i);
  return check(sum);
}
export function texts_in_place(db) {
  let sum = 0;
  for (let k = 0; k < 100; k++) for (let i = 0; i < 1000; i++) sum += db.get(keys[i]).u32(0);
  return check(sum);
}
export function texts_by_callback(db) {
  let sum = 0;
  for (let k = 0; k < 100; k++) for (let i = 0; i < 1000; i++) {
    const value = benchGet(keys[i]);
    sum += value[0] | value[1] << 8;
  }
  return check(sum);
}
"#;

/// Entries of one measured step: they make the step's own overhead small.
const ENTRIES: u64 = 1_000;

fn entry(c: &mut Criterion<CpuTime>) {
    let mut world = World::small(SOURCE);
    let mut group = c.benchmark_group("enter-and-leave");
    for size in [1usize, 8, 64] {
        let calls = vec![Call { function: b"nop", ..Call::default() }; size];
        group.throughput(Throughput::Elements(ENTRIES * size as u64));
        group.bench_function(format!("nop/batch-{size}"), |b| {
            b.iter(|| world.enter(&calls, ENTRIES));
            world.runtime.idle();
        });
    }
    group.finish();
}

fn reads(c: &mut Criterion<CpuTime>) {
    let mut world = World::small(SOURCE);
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(100_000));
    for function in
        ["numbers_in_place", "numbers_by_callback_bare", "texts_in_place", "texts_by_callback"]
    {
        group.bench_function(function, |b| {
            b.iter(|| black_box(world.reply(function, &[])));
            world.runtime.idle();
        });
    }
    group.finish();
}

criterion_group!(
    name = benches;
    config = Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(std::time::Duration::from_millis(1000))
        .measurement_time(std::time::Duration::from_millis(2000))
        .sample_size(20);
    targets = entry, reads
);
criterion_main!(benches);
