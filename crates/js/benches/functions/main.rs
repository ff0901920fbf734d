//! Measures entries into V8, of one call and of batches, and reads inside of a function against the
//! same reads in Rust. All over an arena that nigh-shm wrote. Times are CPU time of the thread,
//! since the machine is shared.
#![allow(missing_docs, reason = "criterion's macros make undocumented items")]

use std::hint::black_box;
use std::io::Read;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use nigh_js::Call;
use world::World;
use world::cpu_time::CpuTime;

mod world;

const SOURCE: &str = r#"#!js name=bench
export const nop = () => {};
export const one = (db, [key]) => db.get(key) === undefined ? 0 : 1;
export function numbers(db, [n]) {
  let sum = 0;
  for (let k = 0; k < 100; k++) for (let i = 0; i < 1000; i++) sum += db.get(i).u32(0);
  return sum;
}
const keys = Array.from({ length: 1000 }, (_, i) => "key:" + String(i).padStart(12, "0"));
export function strings() { return keys.length; }
export function texts(db) {
  let sum = 0;
  for (let k = 0; k < 100; k++) for (let i = 0; i < 1000; i++) sum += db.get(keys[i]).u32(0);
  return sum;
}
export function countFriends(db, [id, depth]) {
  const walk = (key, d) => {
    const friends = db.get(key);
    if (friends === undefined) return 0;
    const count = friends.byteLength >> 2;
    let sum = count;
    if (d > 1) for (let i = 0; i < count; i++) sum += walk(friends.u32(i), d - 1);
    return sum;
  };
  return walk(Number(id), Number(depth));
}
countFriends.flags = ["no-writes"];
"#;

fn entry(c: &mut Criterion<CpuTime>) {
    let mut world = World::small(SOURCE);
    let mut group = c.benchmark_group("entry");
    let nop = Call { function: b"nop", ..Call::default() };
    let args: [&[u8]; 1] = [b"107"];
    let one = Call { function: b"one", args: &args, ..Call::default() };
    for (name, call) in [("nop", nop), ("one-read", one)] {
        for size in [1usize, 8, 64] {
            let calls = vec![call; size];
            group.throughput(Throughput::Elements(size as u64));
            group.bench_function(format!("{name}/batch-{size}"), |b| {
                b.iter(|| black_box(world.run(&calls)));
                world.runtime.idle();
            });
        }
    }
    group.finish();
}

const SHOP: &str = include_str!("../../../../examples/functions/shop.js");
const SMALL: &str = "#!js name=small\nexport const f = (db, [key]) => db.text(key);";

fn tenants(c: &mut Criterion<CpuTime>) {
    let mut world = World::small(SOURCE);
    let library = world.runtime.load(world.tenant, SMALL.as_bytes()).unwrap();
    let mut group = c.benchmark_group("tenant");
    group.bench_function("load-a-library", |b| {
        b.iter(|| world.runtime.load(world.tenant, SMALL.as_bytes()).unwrap());
    });
    world.reply("nop", &[]); // the tenant has a context from here on
    group.bench_function("install-in-a-context", |b| {
        b.iter(|| world.runtime.install(world.tenant, &library, SMALL.as_bytes()).unwrap());
    });
    let library_of_many = world.runtime.load(world.tenant, SHOP.as_bytes()).unwrap();
    group.bench_function("install-shop-in-a-context", |b| {
        b.iter(|| world.runtime.install(world.tenant, &library_of_many, SHOP.as_bytes()).unwrap());
    });
    let world = std::cell::RefCell::new(world);
    let first_call = || {
        let world = &mut *world.borrow_mut();
        world.tenant = world.another(&library, SMALL, 1);
        world.reply("f", &[b"107"])
    };
    group.bench_function("first-call", |b| b.iter(first_call));
    group.bench_function("first-call-after-idle", |b| {
        let idle = || world.borrow_mut().runtime.idle();
        b.iter_batched(idle, |()| first_call(), BatchSize::PerIteration);
    });
    group.finish();
}

fn reads(c: &mut Criterion<CpuTime>) {
    let mut world = World::small(SOURCE);
    let mut group = c.benchmark_group("read-in-cache");
    group.throughput(Throughput::Elements(100_000));
    for function in ["numbers", "texts"] {
        let call = Call { function: function.as_bytes(), args: &[b"0"], ..Call::default() };
        group.bench_function(format!("function/{function}"), |b| {
            b.iter(|| black_box(world.run(&[call])));
            world.runtime.idle();
        });
    }
    let only = world.tenant;
    let library = world.runtime.load(only, SOURCE.as_bytes()).unwrap();
    world.tenant = world.another(&library, SOURCE, 4);
    for function in ["numbers", "texts"] {
        let call = Call { function: function.as_bytes(), args: &[b"0"], ..Call::default() };
        group.bench_function(format!("function-of-4-partitions/{function}"), |b| {
            b.iter(|| black_box(world.run(&[call])));
            world.runtime.idle();
        });
    }
    world.tenant = only;
    let keys: Vec<String> = (0..1000).map(|n| format!("key:{n:012}")).collect();
    group.bench_function("rust/texts", |b| {
        b.iter(|| {
            let pin = world.participant.pin();
            let mut sum = 0u64;
            for _ in 0..100 {
                for key in &keys {
                    let key = black_box(key.as_bytes());
                    let record = world.reader.get(&pin, world.reader.hash(key), key).unwrap();
                    let value: [u8; 4] = record.value()[..4].try_into().unwrap();
                    sum += u64::from(u32::from_le_bytes(value));
                }
            }
            sum
        });
    });
    group.bench_function("rust/numbers", |b| {
        b.iter(|| {
            let pin = world.participant.pin();
            let mut sum = 0u64;
            for _ in 0..100 {
                for n in 0..1000u32 {
                    let mut digits = [0u8; 10];
                    let key = decimal(black_box(n), &mut digits);
                    let record = world.reader.get(&pin, world.reader.hash(key), key).unwrap();
                    let value: [u8; 4] = record.value()[..4].try_into().unwrap();
                    sum += u64::from(u32::from_le_bytes(value));
                }
            }
            sum
        });
    });
    group.finish();
}

fn decimal(mut n: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(n % 10).unwrap_or(0);
        n /= 10;
        if n == 0 {
            return &digits[at..];
        }
    }
}

fn graph() -> World {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/facebook_combined.txt.gz");
    let mut text = String::new();
    let file = std::fs::File::open(file).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut lists: std::collections::BTreeMap<u32, Vec<u8>> = std::collections::BTreeMap::new();
    for line in text.lines() {
        let (a, b) = line.split_once(' ').unwrap();
        let b: u32 = b.parse().unwrap();
        lists.entry(a.parse().unwrap()).or_default().extend_from_slice(&b.to_le_bytes());
    }
    World::new(SOURCE, |put| {
        for (node, friends) in &lists {
            put(node.to_string().as_bytes(), friends);
        }
    })
}

fn count_friends(world: &World, key: u32, depth: u32) -> u64 {
    let mut digits = [0u8; 10];
    let key = decimal(key, &mut digits);
    let pin = world.participant.pin();
    let Some(record) = world.reader.get(&pin, world.reader.hash(key), key) else { return 0 };
    let friends = record.value().chunks_exact(4);
    let mut sum = friends.len() as u64;
    if depth > 1 {
        for friend in friends {
            let friend = u32::from_le_bytes(friend.try_into().unwrap());
            sum += count_friends(world, friend, depth - 1);
        }
    }
    sum
}

fn traversals(c: &mut Criterion<CpuTime>) {
    let mut world = graph();
    let starts = include_str!("../../../../examples/data/graph_starts.txt");
    let starts: Vec<String> = starts.lines().map(|line| line.trim().to_owned()).collect();
    for start in &starts {
        let count = count_friends(&world, start.parse().unwrap(), 3);
        let reply = world.reply("countFriends", &[start.as_bytes(), b"3"]);
        assert_eq!(reply, format!(":{count}\r\n").into_bytes(), "start {start}");
    }
    let mut group = c.benchmark_group("countFriends-depth-3");
    group.throughput(Throughput::Elements(starts.len() as u64));
    let args: Vec<[&[u8]; 2]> =
        starts.iter().map(|start| [start.as_bytes(), b"3".as_slice()]).collect();
    let calls: Vec<Call<'_>> = args
        .iter()
        .map(|args| Call { function: b"countFriends", args, ..Call::default() })
        .collect();
    group.bench_function("function", |b| {
        b.iter(|| black_box(world.run(&calls)));
        world.runtime.idle();
    });
    let numbers: Vec<u32> = starts.iter().map(|start| start.parse().unwrap()).collect();
    group.bench_function("rust", |b| {
        b.iter(|| numbers.iter().map(|&start| count_friends(&world, start, 3)).sum::<u64>());
    });
    group.finish();
}

criterion_group!(
    name = benches;
    config = Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(std::time::Duration::from_millis(1000))
        .measurement_time(std::time::Duration::from_millis(2000))
        .sample_size(20);
    targets = entry, tenants, reads, traversals
);
criterion_main!(benches);
