//! Measures the library: writes and reads per second with one and two threads, 16-byte keys and
//! 100-byte values.
//!
//! ```text
//! cargo run --release -p nigh --example embedded_bench -- [KEYS] [SECONDS] [FOLDER] [PARTITIONS]
//! ```
//!
//! `put` gives each of a million keys a value once, in random order; the other rows choose keys at
//! random for some seconds. `snapshot` reads all keys as of one moment. `strong` writes wait for
//! the disk on which the folder lies. `open` is after a process with all keys was killed, up to the
//! first value.

#![expect(clippy::print_stdout, reason = "an example that prints its figures")]

use nigh::{Db, DbError, Durability, Options};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Keys of one `multi_get`.
const TOGETHER: usize = 16;
/// Operations between two looks at the clock.
const OPERATIONS_PER_LOOK: u64 = 256;

/// A random number's next one (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Key number `n`: 16 bytes.
fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    let mut left = n;
    for digit in key.iter_mut().rev().take(12) {
        *digit = b'0' + u8::try_from(left % 10).expect("a digit");
        left /= 10;
    }
    key
}

/// Runs `work` on each thread until the time is over; prints operations per second. `each` is how
/// many operations a call is.
fn timed(row: &str, threads: u64, seconds: u64, each: u64, work: impl Fn(&mut u64) + Sync) {
    let (ends, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (ends, done, work) = (&ends, &done, &work);
            scope.spawn(move || {
                let (mut random, mut count) = (thread << 40 | 77, 0);
                while count % OPERATIONS_PER_LOOK != 0 || !ends.load(Ordering::Relaxed) {
                    work(&mut random);
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
        std::thread::sleep(Duration::from_secs(seconds));
        ends.store(true, Ordering::Relaxed);
    });
    print_row(row, threads, done.into_inner() * each, begin.elapsed());
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn print_row(row: &str, threads: u64, operations: u64, took: Duration) {
    let rate = operations as f64 / took.as_secs_f64();
    println!("{row:24} {threads} thread(s) {rate:12.0} ops/s");
}

/// How long writers wait for a snapshot, and how quickly it is read.
fn print_snapshot(db: &Db, keys: u64) -> Result<(), DbError> {
    let begin = Instant::now();
    let mut snapshot = db.snapshot()?;
    let taken = begin.elapsed();
    let (mut key, mut value, mut read) = (Vec::new(), Vec::new(), 0);
    while snapshot.next_into(&mut key, &mut value)? {
        read += 1;
    }
    assert_eq!(read, keys, "nobody writes");
    print_row("snapshot, read", 1, read, begin.elapsed() - taken);
    println!("snapshot taken in {taken:?}");
    Ok(())
}

/// Names the folder of a child that ends as if it was killed.
const KILLED: &str = "NIGH_BENCH_KILLED";

/// How long an open takes after a kill, with memory that is shared or private.
fn print_opening(keys: u64, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    for is_shared in [true, false] {
        let mut child = Command::new(std::env::current_exe()?);
        child.arg(keys.to_string()).env(KILLED, path);
        if is_shared {
            child.env("SHARED", "1");
        }
        child.stderr(Stdio::null()).status()?;
        let options = Options::new().capacity_bytes(2 << 30).shared(is_shared);
        let begin = Instant::now();
        let db = Db::open(path, &options)?;
        assert!(db.get(&key(keys / 2))?.is_some());
        let kind = if is_shared { "shared" } else { "private" };
        println!("open after a kill, {kind}: {:?}", begin.elapsed());
        assert_eq!(db.stats()?.keys, keys);
        db.close()?;
        std::fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// Writes all keys, and ends in the midst.
fn be_killed(path: &Path, keys: u64) -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::new().capacity_bytes(2 << 30);
    let db = Db::open(path, &options.shared(std::env::var_os("SHARED").is_some()))?;
    (0..keys).try_for_each(|n| db.put(&key(n), &[b'v'; VALUE_BYTES]))?;
    std::process::abort();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let keys: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    if let Some(path) = std::env::var_os(KILLED) {
        return be_killed(Path::new(&path), keys);
    }
    let seconds: u64 = args.next().map_or(Ok(2), |text| text.parse())?;
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let partitions: usize = args.next().map_or(Ok(1), |text| text.parse())?;
    let path = folder.join(format!("nigh-bench-{}", std::process::id()));
    let value = [b'v'; VALUE_BYTES];
    println!("{keys} keys of 16 bytes, values of {VALUE_BYTES} bytes, {partitions} partition(s)");
    print_opening(keys, &path)?;
    for threads in [1, 2] {
        let options = Options::new().capacity_bytes(2 << 30).partitions(partitions).shared(true);
        let db = Db::open(&path, &options)?;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (db, value) = (&db, &value);
                scope.spawn(move || {
                    // A step that has no factor with the number of keys meets each once.
                    let mut n = 0;
                    for at in 0..keys {
                        n = (n + 7_368_787) % keys;
                        if at % threads == thread {
                            db.put(&key(n), value).expect("put");
                        }
                    }
                });
            }
        });
        print_row("put, each key once", threads, keys, begin.elapsed());
        timed("put, overwrite", threads, seconds, 1, |random| {
            db.put(&key(next(random) % keys), &value).expect("put");
        });
        timed("get", threads, seconds, 1, |random| {
            let found = db.get(&key(next(random) % keys)).expect("get");
            assert_eq!(found.expect("each key is there").len(), VALUE_BYTES);
        });
        timed("get_into", threads, seconds, 1, |random| {
            let mut into = Vec::with_capacity(VALUE_BYTES);
            assert!(db.get_into(&key(next(random) % keys), &mut into).expect("get"));
        });
        timed("multi_get, 16 keys", threads, seconds, TOGETHER as u64, |random| {
            let all: [[u8; 16]; TOGETHER] = std::array::from_fn(|_| key(next(random) % keys));
            let all = all.each_ref().map(|key| &key[..]);
            assert!(db.multi_get(&all).expect("get").iter().all(Option::is_some));
        });
        print_snapshot(&db, keys)?;
        // As another process reads: by a mapping of its own, copied out.
        let reader = Db::open_reader(&path)?;
        timed("reader: get", threads, seconds, 1, |random| {
            let found = reader.get(&key(next(random) % keys)).expect("get");
            assert_eq!(found.expect("each key is there").len(), VALUE_BYTES);
        });
        timed("reader: get_into", threads, seconds, 1, |random| {
            let mut into = Vec::with_capacity(VALUE_BYTES);
            assert!(reader.get_into(&key(next(random) % keys), &mut into).expect("get"));
        });
        timed("reader: multi_get, 16", threads, seconds, TOGETHER as u64, |random| {
            let all: [[u8; 16]; TOGETHER] = std::array::from_fn(|_| key(next(random) % keys));
            let all = all.each_ref().map(|key| &key[..]);
            assert!(reader.multi_get(&all).expect("get").iter().all(Option::is_some));
        });
        let stats = db.stats()?;
        println!("memory {} MB, log {} MB", stats.memory_bytes >> 20, stats.log_bytes >> 20);
        let begin = Instant::now();
        db.close()?;
        println!("close {:?}", begin.elapsed());
        let begin = Instant::now();
        let strong = options.durability(Durability::Strong);
        let db = Db::open(&path, &strong)?;
        println!("open from the log {:?}, {} keys", begin.elapsed(), db.stats()?.keys);
        let writers: &[u64] = if threads == 1 { &[1] } else { &[2, 64] };
        for writers in writers {
            timed("put, strong", *writers, seconds, 1, |random| {
                db.put(&key(next(random) % keys), &value).expect("put");
            });
        }
        db.close()?;
        std::fs::remove_dir_all(&path)?;
    }
    Ok(())
}
