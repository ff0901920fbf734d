//! The library as a program uses it: real folders, real threads, real kills.

mod broken_log;
mod calls;
mod dependencies;
mod forks;
mod full_disk;
mod greeting;
mod held_syncs;
mod killed;
mod kills;
mod leftovers;
mod memory_dirs;
mod model;
mod model_crashes;
mod mounts;
mod opening;
mod partitions;
mod private;
mod readers;
mod refused;
mod short_of_memory;
mod short_runs;
mod snapshots;
mod threads;
mod watch_history;
mod watch_kills;
mod watch_places;
mod watches;

use nigh::{Db, Options, Watch};
use std::path::Path;
use std::time::Duration;

/// Small enough that several databases fit any machine.
fn small() -> Options {
    Options::new().capacity_bytes(64 << 20).journal_bytes(1 << 20).log_file_bytes(1 << 20)
}

/// The same for a database that others read.
fn shared() -> Options {
    small().shared(true)
}

/// The same for one whose memory stays when it is closed.
fn kept() -> Options {
    shared().keep_memory(true)
}

/// Makes a database with so many partitions.
fn made_with(path: &Path, partitions: usize) -> Db {
    Db::open(path, &small().partitions(partitions)).expect("it can be made")
}

fn open(path: &Path) -> Db {
    Db::open(path, &small()).expect("it can be opened")
}

/// Whether a watch has told all. A call that finds nothing may have read a frame of the log, of
/// which nothing was meant: so it takes many.
fn has_no_more(watch: &Watch) -> bool {
    (0..100).all(|_| watch.next_within(Duration::ZERO).expect("it is open").is_none())
}

/// All keys and values that a walk meets, in order.
fn all(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut found, mut cursor) = (Vec::new(), 0);
    loop {
        let mut add = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        cursor = db.scan(b"", cursor, 100, &mut add).expect("a scan");
        if cursor == 0 {
            break;
        }
    }
    found.sort();
    found.dedup();
    found
}
