//! The disk of the log runs full, and has room again later.
//!
//! A child in a mount namespace of its own has a small tmpfs for the log, and a file beside it that
//! takes the room.

use crate::small;
use nigh::{Db, DbError, WriteOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Names the child's mount.
const FOLDER: &str = "NIGH_FULL_FOLDER";
/// The child: mounts, then runs the test again.
const MOUNT: &str = "mount -t tmpfs -o size=24m none \"$NIGH_FULL_FOLDER\" && exec \"$0\" \"$@\"";
const VALUE_BYTES: usize = 10_000;

#[test]
fn a_full_disk_refuses_writes_and_nothing_told_is_lost() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = std::env::current_exe().expect("this program");
    let way = match rustix::process::geteuid().is_root() {
        true => &["--mount"][..],
        false => &["--user", "--map-root-user", "--mount"][..],
    };
    let mut command = Command::new("unshare");
    command.args(way).args(["sh", "-c", MOUNT]).arg(own);
    command.args(["--exact", "full_disk::child_on_a_small_disk", "--nocapture"]);
    let output = command.env(FOLDER, dir.path()).output().expect("unshare of util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.starts_with("unshare:") || said.starts_with("mount:") {
        return; // nobody may mount here
    }
    assert!(output.status.success() && said.contains("the disk was full"), "{said}");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_on_a_small_disk() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 14 << 20]).expect("there is room");
    fill_and_go_on(&folder.join("data"), &ballast);
    eprintln!("the disk was full");
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
