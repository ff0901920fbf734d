//! Libraries are on disk when a strong `load` or `unload`, or a flush behind it, has returned.

use crate::{BANK, options};
use nigh::{Db, Durability};
use nigh_log::simulated::HeldSyncs;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

const ONE: &str = "#!js name=one\nexport function one() { return 1; }";
/// So long nothing may return that waits for the disk.
const WAITS: Duration = Duration::from_millis(700);

/// Does something that must not return before the disk has answered.
fn waits_for_the_disk(path: &Path, what: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let hold = HeldSyncs::of(path);
        let (told, returned) = sync_channel(1);
        scope.spawn(move || {
            what();
            let _ = told.send(());
        });
        let early = returned.recv_timeout(WAITS);
        drop(hold);
        assert_eq!(early, Err(RecvTimeoutError::Timeout), "it didn't wait for the disk");
        returned.recv().expect("it returns when the disk answers");
    });
}

/// The wait was for the data's changes, of which there were none: a power cut took the library.
#[test]
fn a_library_of_a_strong_database_is_on_disk_when_load_and_unload_return() {
    for partitions in [1, 2] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        let options = options().durability(Durability::Strong).partitions(partitions);
        let db = Db::open(&path, &options).expect("it can be opened");
        db.load(BANK).expect("it is one");
        waits_for_the_disk(&path, || drop(db.load(ONE).expect("it is one")));
        waits_for_the_disk(&path, || assert!(db.unload("one").expect("a removal")));
        assert_eq!(db.libraries().expect("a list").len(), 1);
    }
}

/// The same for a flush behind the `load` of a database whose writes don't wait for the disk.
#[test]
fn a_flush_waits_for_libraries() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = Db::open(&path, &options()).expect("it can be opened");
    db.load(BANK).expect("it is one");
    db.flush().expect("the disk answers");
    waits_for_the_disk(&path, || {
        db.load(ONE).expect("it is one");
        db.flush().expect("the disk answers");
    });
    waits_for_the_disk(&path, || {
        assert!(db.unload("one").expect("a removal"));
        db.flush().expect("the disk answers");
    });
}
