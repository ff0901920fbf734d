//! A process that may take little memory meets values that don't fit. The allocator ended it
//! (SIGABRT); it is told, and what it was told can be read when there is memory again.
//!
//! The test's own program is the process: it is started again with one test, under a limit
//! (RLIMIT_AS, as `ulimit -v` sets it).

use crate::shared;
use nigh::{Db, DbError, ReaderError, WatchEvent, WriteBatch};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Names the folder of the child.
const FOLDER: &str = "NIGH_LITTLE_MEMORY_FOLDER";
/// Of a value, and of all that the child may take beside what it has.
const LONG_BYTES: usize = 24 << 20;
const MORE_BYTES: u64 = 8 << 20;
/// Longest wait for a change to be told.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_value_that_doesnt_fit_into_memory_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new(own);
    // Else the allocator has 64 MiB of addresses in reserve for each thread, and keeps what is
    // freed.
    command.env("MALLOC_ARENA_MAX", "1").env("MALLOC_MMAP_THRESHOLD_", "1048576");
    // And what a failure prints would take more memory than there is.
    command.env("RUST_BACKTRACE", "0").env(FOLDER, dir.path());
    command.args(["--exact", "short_of_memory::child_with_little_memory", "--nocapture"]);
    let output = command.output().expect("a child");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all was told"), "{}: {said}", output.status);
}

/// Lets this process take so many bytes more than it has, or any number again.
fn limit(more_bytes: Option<u64>) {
    let has_pages = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("this process");
        statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("a number")
    };
    let current = more_bytes.map(|bytes| has_pages() * 4096 + bytes);
    setrlimit(Resource::As, Rlimit { current, maximum: None }).expect("it is ours");
}

fn is_told<T>(what: &str, result: Result<T, DbError>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} finds memory"));
    assert!(matches!(error, DbError::NoMemory { .. }), "{what}: {error}");
    assert!(error.to_string().contains("bytes: free some, or raise"), "{what}: {error}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_with_little_memory() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let path = Path::new(&folder).join("data");
    let options = shared().capacity_bytes(256 << 20);
    let db = Db::open(&path, &options).expect("it can be opened");
    let long = vec![7; LONG_BYTES];
    db.put(b"long", &long).expect("put");
    db.put(b"short", b"hello").expect("put");
    // The log has its memory for a frame of these before there is little.
    db.flush().expect("there is memory");
    reads_are_told(&db);
    writes_are_told(&db, &long);
    readers_are_told(&path);
    assert_eq!(db.get(b"short").expect("get").as_deref(), Some(&b"hello"[..]));
    eprintln!("all was told");
}

fn reads_are_told(db: &Db) {
    let mut into = b"before".to_vec();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut snapshot = db.snapshot_of(b"long").expect("snapshot");
    let mut other = db.snapshot_of(b"long").expect("snapshot");
    limit(Some(MORE_BYTES));
    let whole = db.get(b"long").expect("it is lent").map(|value| value.len());
    assert_eq!(whole, Some(LONG_BYTES));
    is_told("get_into", db.get_into(b"long", &mut into));
    is_told("a snapshot", snapshot.next_into(&mut key, &mut value));
    assert!(key.is_empty() && value.is_empty() && into == b"before");
    is_told("a snapshot once more", snapshot.next_into(&mut key, &mut value));
    is_told("an iterator", other.next().expect("an error is an item"));
    assert!(other.next().is_none(), "an error is the last one");
    db.scan(b"", 0, 100, |_, _| ()).expect("it lends");
    limit(None);
    assert!(snapshot.next_into(&mut key, &mut value).expect("there is memory again"));
    assert_eq!((&key[..], value.len()), (&b"long"[..], LONG_BYTES));
    assert!(!snapshot.next_into(&mut key, &mut value).expect("it is the end"));
    assert!(db.get_into(b"long", &mut into).expect("there is memory again"));
}

fn writes_are_told(db: &Db, long: &[u8]) {
    let watch = db.watch(b"").expect("watch");
    let before = db.stats().expect("stats").last_change;
    limit(Some(MORE_BYTES));
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").put(b"b", long).put(b"c", b"1");
    is_told("a batch", db.write(&batch));
    is_told("a batch once more", db.write(&batch));
    batch.clear();
    db.write(batch.put(b"a", b"1")).expect("that fits");
    db.put(b"other", long).expect("it is copied into the database's memory");
    db.put(b"c", b"1").expect("that fits");
    let event = || watch.next_within(SOON).expect("it is open").expect("it comes");
    assert!(matches!(event(), WatchEvent::Put { key, .. } if key == b"a"));
    // There was no memory for the copy, and the log's thread went on.
    let number = before + 2;
    assert_eq!(event(), WatchEvent::Lost { partition: 0, first: number, last: number });
    assert!(matches!(event(), WatchEvent::Put { key, .. } if key == b"c"));
    limit(None);
    let mut whole = WriteBatch::new();
    db.write(whole.put(b"b", long).delete(b"other")).expect("there is memory again");
    assert_eq!(db.get(b"b").expect("get").map(|it| it.len()), Some(LONG_BYTES));
    drop(watch);
    // Then the log's thread has no copy any more, whose end would give memory.
    db.flush().expect("flush");
}

fn readers_are_told(path: &Path) {
    let reader = Db::open_reader(path).expect("it is shared");
    let mut into = b"before".to_vec();
    // The first time there is none for the reader's copy, then none for the caller's.
    for more_bytes in [MORE_BYTES, MORE_BYTES + LONG_BYTES as u64] {
        limit(Some(more_bytes));
        for told in [
            reader.get_into(b"long", &mut into).map(drop),
            reader.multi_get(&[b"short", b"long"]).map(drop),
        ] {
            let error = told.expect_err("there is no memory");
            assert!(matches!(error, ReaderError::NoMemory { bytes: LONG_BYTES, .. }), "{error}");
            assert_eq!(into, b"before");
        }
        limit(None);
    }
}
