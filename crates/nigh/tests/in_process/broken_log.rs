//! The log of a partition breaks under a call that waits for the disk.
//!
//! A child limits the length of its own files, as in `db/broken_log.rs`. A sync that is held keeps
//! the log from being written until the call waits.

use crate::options;
use nigh::{Db, DbError, Durability, Frame, FunctionError, WriteOptions};
use nigh_log::simulated::HeldSyncs;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Names the child's folder.
const FOLDER: &str = "NIGH_BROKEN_CALLS_FOLDER";
/// The child: a write behind the limit is an error, not a signal that kills.
const IGNORE: &str = "trap '' XFSZ && exec \"$0\" \"$@\"";
/// What the child says at its end.
const DONE: &str = "all calls were told";
/// Within this, a call has begun to wait for the disk.
const BEGIN: Duration = Duration::from_millis(500);

const LIBRARY: &str = "#!js name=bank
export function pay(db, [n], [key]) { if (db.incr(key, Number(n)) > 9) throw new Error('SOLDOUT'); }
export function fill(db, [n], [small, large]) {
  db.set(small, n);
  db.set(large, 'v'.repeat(Number(n)));
}
fill.flags = ['allow-cross-slot-keys'];
";

/// The folder of databases that a child leaves unclosed. What they left in memory goes with it.
struct LeftFolder(TempDir);

impl Drop for LeftFolder {
    fn drop(&mut self) {
        let root = self.0.path().canonicalize().expect("it is there");
        for entry in Path::new("/dev/shm").read_dir().expect("a tmpfs").flatten() {
            let memory = entry.path();
            // Another test may remove its own meanwhile.
            let database = std::fs::read(memory.join("database")).unwrap_or_default();
            if Path::new(OsStr::from_bytes(&database)).starts_with(&root) {
                std::fs::remove_dir_all(&memory).expect("it is ours");
            }
        }
    }
}

/// A call that threw was told that its change is made, and so was one that was done in part.
#[test]
fn calls_under_which_a_log_breaks_are_told_what_they_did() {
    let dir = LeftFolder(tempfile::tempdir().expect("a folder"));
    let own = std::env::current_exe().expect("this program");
    let mut command = Command::new("sh");
    command.args(["-c", IGNORE]).arg(own);
    command.args(["--exact", "broken_log::child_whose_disk_gives_errors", "--nocapture"]);
    let output = command.env(FOLDER, dir.0.path()).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(DONE), "{said}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_whose_disk_gives_errors() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    // Nothing is made, and what it threw stands on what isn't on disk.
    let threw = when_the_log_breaks(&folder.join("threw"), |db, [near, _]| {
        db.call("pay", &[near], &[b"10"])
    });
    assert!(matches!(threw, Err(FunctionError::Db(DbError::LogBroken { .. }))), "{threw:?}");
    let paid =
        when_the_log_breaks(&folder.join("paid"), |db, [near, _]| db.call("pay", &[near], &[b"9"]));
    assert!(matches!(paid, Err(FunctionError::Db(DbError::NotDurable { .. }))), "{paid:?}");
    let partly = when_the_log_breaks(&folder.join("partly"), |db, [near, far]| {
        db.call("fill", &[near, far], &[b"200000"])
    });
    let is_partly = matches!(partly, Err(FunctionError::Partly { cause: DbError::Full }));
    assert!(is_partly, "{partly:?}");
    eprintln!("{DONE}");
}

/// A key of each of two partitions, in their order: a call's writes are done in that one.
fn one_of_each(db: &Db) -> [Vec<u8>; 2] {
    let mut found = [None, None];
    for n in 0..100 {
        let name = format!("{n}").into_bytes();
        let keys_of_first = || db.stats().expect("stats").partitions[0].keys;
        let before = keys_of_first();
        db.put(&name, b"0").expect("put");
        found[usize::from(keys_of_first() == before)].get_or_insert(name);
    }
    found.map(|key| key.expect("of a hundred, each partition has some"))
}

/// What a call is told in the first key's partition, while the log of the other one's breaks, which
/// is full.
fn when_the_log_breaks(
    path: &Path,
    call: impl FnOnce(&Db, [&[u8]; 2]) -> Result<Frame, FunctionError> + Send,
) -> Result<Frame, FunctionError> {
    let limit = |bytes| {
        setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum: None }).expect("it is ours");
    };
    let options = options().durability(Durability::Strong).journal_bytes(4 << 20).partitions(2);
    let db = Db::open(path, &options).expect("it can be opened");
    db.load(LIBRARY).expect("it is one");
    let [near, far] = one_of_each(&db);
    let (strong, eventual) = (WriteOptions::strong(), WriteOptions::eventual());
    let tagged = |n: u32| [b"{", &far[..], b"}", &n.to_le_bytes()].concat();
    let full = (0..1000).find_map(|n| db.put_with(&tagged(n), &[7; 200_000], &eventual).err());
    assert!(matches!(full, Some(DbError::Full)), "{full:?}");
    (1000..1002).for_each(|n| db.put(&tagged(n), b"short").expect("there is room for it"));
    let hold = HeldSyncs::of(path);
    std::thread::scope(|scope| {
        // It has its log until its sync returns, so nothing that comes later is written there.
        scope.spawn(|| drop(db.delete_with(&tagged(1000), &strong)));
        hold.wait_for_one();
        limit(Some(8 << 10));
        assert!(db.delete_with(&tagged(1001), &eventual).expect("delete"));
        let called = scope.spawn(|| call(&db, [&near, &far]));
        std::thread::sleep(BEGIN);
        drop(hold);
        let told = called.join().expect("it ends");
        limit(None);
        told
    })
}
