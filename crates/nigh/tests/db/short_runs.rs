//! A program that opens a database for a moment, again and again.

use crate::{all, open};
use nigh::{WatchEvent, WatchPlace};
use std::path::Path;
use std::time::Duration;

const RUNS: usize = 40;
/// Twice the nearly empty files that an open leaves alone. It waits a moment for the others to go;
/// on a busy machine some of them stay until the next open.
const FILES_MOST: usize = 2 * 8;

fn log_files(path: &Path) -> usize {
    let names = path.read_dir().expect("the folder").map(|it| it.expect("a name").file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".log")).count()
}

/// Each run left a file of the log, nearly empty: 4 GiB of disk behind sixty runs. What a watch of
/// the run before has not told is there for the next one nevertheless.
#[test]
fn runs_of_a_moment_leave_few_files_and_the_last_changes() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let mut place: Option<WatchPlace> = None;
    for run in 0..RUNS {
        let db = open(&path);
        assert!(log_files(&path) <= FILES_MOST, "{} files in run {run}", log_files(&path));
        if let Some(place) = &place {
            let watch = db.watch_from(b"", place).expect("the place of the run before");
            let told = watch.next_within(Duration::from_secs(20)).expect("it is open");
            let Some(WatchEvent::Put { key, .. }) = told else { panic!("run {run}: {told:?}") };
            assert_eq!(key, format!("key {}", run - 1).as_bytes());
        }
        place = Some(db.watch(b"").expect("watch").place().expect("place"));
        db.put(format!("key {run}").as_bytes(), b"value").expect("put");
    }
    assert_eq!(all(&open(&path)).len(), RUNS);
}
