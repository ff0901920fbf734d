//! Measures writes of many threads: `put` of 16-byte keys and 100-byte values, eventual and strong.
//!
//! ```text
//! cargo run --release -p nigh --example many_writers -- [FOLDER] [SECONDS] [THREADS]...
//! ```
//!
//! Strong writes wait for the disk on which the folder lies.

#![expect(clippy::print_stdout, reason = "an example that prints its figures")]

use nigh::{Db, Durability, Options};
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Keys that are written.
const KEYS: u64 = 200_000;

/// A random number's next one (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key-...-........";
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Thousands of writes per second, and syncs.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rates(db: &Db, threads: u64, time: Duration) -> (f64, f64) {
    let (ends, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let ready = Barrier::new(usize::try_from(threads).expect("few") + 1);
    let syncs = || db.stats().expect("stats").syncs;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (ends, done, ready) = (&ends, &done, &ready);
            scope.spawn(move || {
                let (mut random, mut count) = (thread << 40 | 77, 0);
                ready.wait();
                while !ends.load(Ordering::Relaxed) {
                    db.put(&key(next(&mut random) % KEYS), &[b'v'; 100]).expect("put");
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
        ready.wait();
        std::thread::sleep(time / 8); // until all are at work
        let (begin, before) = (Instant::now(), syncs());
        let told = db.stats().expect("stats").last_change;
        std::thread::sleep(time);
        let (took, after) = (begin.elapsed().as_secs_f64(), syncs());
        let wrote = db.stats().expect("stats").last_change - told;
        ends.store(true, Ordering::Relaxed);
        (wrote as f64 / took / 1e3, (after - before) as f64 / took)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds: f64 = args.next().map_or(Ok(1.0), |text| text.parse())?;
    let threads = args.map(|text| text.parse()).collect::<Result<Vec<u64>, _>>()?;
    let threads = if threads.is_empty() { vec![1, 2, 4, 8, 16, 32, 64] } else { threads };
    for durability in [Durability::Eventual, Durability::Strong] {
        let path = folder.join(format!("nigh-writers-{}", std::process::id()));
        let options = Options::new().capacity_bytes(512 << 20).durability(durability);
        let db = Db::open(&path, &options)?;
        (0..KEYS).try_for_each(|n| {
            db.put_with(&key(n), &[b'v'; 100], &nigh::WriteOptions::eventual())
        })?;
        for &threads in &threads {
            let (writes, syncs) = rates(&db, threads, Duration::from_secs_f64(seconds));
            println!("{durability:?} {threads:3} threads {writes:8.1} k/s {syncs:8.0} syncs/s");
        }
        db.close()?;
        std::fs::remove_dir_all(path)?;
    }
    Ok(())
}
