//! The disk of the log runs full, and has room again later.
//!
//! A child in a mount namespace of its own has a small tmpfs for the log, and a file beside it that
//! takes the room.

use crate::small;
use nigh::{Db, DbError, OpenError, Options, WriteOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Names the child's mount.
const FOLDER: &str = "NIGH_FULL_FOLDER";
/// Says how large it is.
const SIZE: &str = "NIGH_FULL_SIZE";
/// The child: mounts, then runs the test again.
const MOUNT: &str =
    "mount -t tmpfs -o size=$NIGH_FULL_SIZE none \"$NIGH_FULL_FOLDER\" && exec \"$0\" \"$@\"";
/// What a child says at its end.
const DONE: &str = "all was done on a small disk";
const VALUE_BYTES: usize = 10_000;

#[test]
fn a_full_disk_refuses_writes_and_nothing_told_is_lost() {
    on_a_small_disk("24m", "full_disk::child_on_a_small_disk");
}

/// With 80 to 140 MiB the first program got no `put` done. With 340 it did, but the second one's
/// was refused, and the sixth couldn't open.
#[test]
fn programs_that_run_for_a_moment_write_on_a_small_disk_each_time() {
    on_a_small_disk("100m", "full_disk::child_that_runs_again_and_again");
}

/// Runs a test of this program with a small disk of its own.
fn on_a_small_disk(size: &str, test: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let way = match rustix::process::geteuid().is_root() {
        true => &["--mount"][..],
        false => &["--user", "--map-root-user", "--mount"][..],
    };
    let mut command = Command::new("unshare");
    command.args(way).args(["sh", "-c", MOUNT]).arg(own).args(["--exact", test, "--nocapture"]);
    let output = command.env(FOLDER, dir.path()).env(SIZE, size).output();
    let output = output.expect("unshare of util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.starts_with("unshare:") || said.starts_with("mount:") {
        return; // nobody may mount here
    }
    assert!(output.status.success() && said.contains(DONE), "{said}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_on_a_small_disk() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 14 << 20]).expect("there is room");
    fill_and_go_on(&folder.join("data"), &ballast);
    eprintln!("{DONE}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_that_runs_again_and_again() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let capacity = Options::new().capacity_bytes(64 << 20);
    run_for_moments(&folder.join("usual"), &capacity, 20);
    std::fs::remove_dir_all(folder.join("usual")).expect("it was closed");
    // Its files are as large as the disk allows at all.
    let large = capacity.clone().journal_bytes(8 << 20).log_file_bytes(15 << 20);
    run_for_moments(&folder.join("large"), &large, 20);
    std::fs::remove_dir_all(folder.join("large")).expect("it was closed");
    let path = folder.join("refused");
    let error = Db::open(&path, &capacity.clone().log_file_bytes(64 << 20)).err();
    let Some(OpenError::SmallDisk { free, needed, .. }) = error else { panic!("{error:?}") };
    assert!(free < 101 << 20 && needed >= 256 << 20, "{error:?}");
    run_for_moments(&path, &capacity, 1);
    eprintln!("{DONE}");
}

/// Opens, writes and closes as often.
fn run_for_moments(path: &Path, options: &Options, runs: usize) {
    for run in 0..runs {
        let db = Db::open(path, options).unwrap_or_else(|error| panic!("run {run}: {error}"));
        let put = db.put(format!("{run}").as_bytes(), b"value");
        put.unwrap_or_else(|error| panic!("run {run}: {error}"));
        assert_eq!(db.stats().expect("stats").keys, run as u64 + 1);
        db.close().expect("close");
    }
}

fn fill_and_go_on(path: &Path, ballast: &Path) {
    let db = Db::open(path, &small()).expect("open");
    let value = |n: usize| vec![u8::try_from(n % 251).expect("a byte"); VALUE_BYTES];
    let put = |n: usize| db.put(format!("{n}").as_bytes(), &value(n));
    let mut told = 0;
    let error = loop {
        match put(told) {
            Ok(()) => told += 1,
            Err(error) => break error,
        }
        assert!(told < 4000, "10 MiB hold no 40 MB");
    };
    assert!(matches!(error, DbError::LogFull { .. }), "{error}");
    assert!(told > 100, "{told}");
    for n in 0..told {
        assert_eq!(db.get(format!("{n}").as_bytes()).expect("get").as_deref(), Some(&*value(n)));
    }
    assert!(db.get(format!("{told}").as_bytes()).expect("get").is_none(), "it was refused");
    for n in 0..10 {
        assert!(db.delete(format!("{n}").as_bytes()).expect("a delete works"));
    }
    // The change is made: it gets to the disk if removals have won room, or the answer says that it
    // isn't there. It is never called refused.
    let begin = Instant::now();
    let strong = db.delete_with(b"10", &WriteOptions::strong());
    assert!(matches!(strong, Ok(true) | Err(DbError::NotDurable { .. })), "{strong:?}");
    assert!(begin.elapsed() < Duration::from_secs(30), "it needn't wait for long");
    std::fs::remove_file(ballast).expect("there is room again");
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = put(told) {
        assert!(matches!(error, DbError::LogFull { .. }), "{error}");
        assert!(Instant::now() < deadline, "it stays full");
        std::thread::sleep(Duration::from_millis(20));
    }
    db.flush().expect("flush");
    db.close().expect("close");
    let db = Db::open(path, &small()).expect("open");
    for n in 11..=told {
        assert_eq!(db.get(format!("{n}").as_bytes()).expect("get").as_deref(), Some(&*value(n)));
    }
    assert_eq!(db.stats().expect("stats").keys, told as u64 + 1 - 11);
}
