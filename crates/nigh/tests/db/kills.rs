//! A process that writes is killed: what it was told is there, and batches are whole.
//!
//! The test's own program is the child: it is started again with a test that does nothing unless it
//! is told a folder.

use crate::small;
use nigh::{Db, WriteBatch, WriteOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Says how many children are killed.
const KILLS: &str = "NIGH_EMBEDDED_KILLS";
/// Names the child's folder.
const FOLDER: &str = "NIGH_KILLED_FOLDER";
/// Threads of the child.
const THREADS: u64 = 2;
/// Keys of a batch.
const BATCH_KEYS: u64 = 20;
/// Writes after which a child that wasn't killed ends.
const WRITES_MOST: u64 = 10_000_000;

/// The child: each thread writes numbers, and tells each when its write has returned. Single keys
/// and batches in turn; each batch gives all its keys one number.
#[test]
#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let db = Db::open(Path::new(&folder), &small()).expect("open");
    let first = db.get(b"round").expect("get");
    let first: u64 = first.map_or(0, |value| text(&value).parse().expect("a number"));
    db.put(b"round", (first + 1).to_string().as_bytes()).expect("put");
    println!("begins");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                for n in 0..WRITES_MOST {
                    let number = format!("{first:06} {n:09}");
                    let value = number.as_bytes();
                    if n % 3 == 0 {
                        let mut batch = WriteBatch::new();
                        for key in 0..BATCH_KEYS {
                            batch.put(format!("batch {thread} {key}").as_bytes(), value);
                        }
                        db.write(&batch).expect("write");
                    } else {
                        let options = match n % 50 {
                            0 => WriteOptions::strong(),
                            _ => WriteOptions::new(),
                        };
                        let key = format!("single {thread} {}", n % 7);
                        db.put_with(key.as_bytes(), value, &options).expect("put");
                    }
                    db.put(format!("last {thread}").as_bytes(), value).expect("put");
                    println!("{thread} {number}");
                }
            });
        }
    });
}

fn text(value: &[u8]) -> String {
    String::from_utf8(value.to_vec()).expect("text")
}

/// Runs a child until it is killed; returns the last number that each thread told.
fn kill_one(folder: &Path, after: Duration) -> Vec<Option<String>> {
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own)
        .args(["--exact", "kills::child_writes_until_it_is_killed", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a child");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut last = vec![None; usize::try_from(THREADS).expect("few")];
    let mut lines = lines.map_while(Result::ok).skip_while(|line| !line.ends_with("begins"));
    lines.next().expect("it opens the database");
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().expect("it is ours"); // SIGKILL
        child.wait().expect("it is ours");
    });
    // A line that the kill has cut is shorter, and tells nothing.
    for line in lines.filter(|line| line.len() == "0 000000 000000000".len()) {
        let (thread, number) = line.split_once(' ').expect("thread and number");
        last[thread.parse::<usize>().expect("a number")] = Some(number.to_owned());
    }
    killer.join().expect("it ends");
    last
}

#[test]
fn what_was_told_is_there_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let (folder, mut told) = (dir.path().join("data"), 0_usize);
    let kills = std::env::var(KILLS).map_or(12, |text| text.parse::<u64>().expect("a number"));
    for round in 1..=kills {
        let last = kill_one(&folder, Duration::from_millis(20 + 37 * (round % 5)));
        told += last.iter().flatten().count();
        if round % 3 == 0 && round < kills {
            continue; // the next child goes on with what this one left
        }
        let db = Db::open(&folder, &small()).expect("open");
        let get = |key: String| Some(text(&db.get(key.as_bytes()).expect("get")?));
        assert_eq!(get("round".to_owned()), Some(round.to_string()));
        for (thread, last) in last.iter().enumerate() {
            let has = get(format!("last {thread}"));
            assert!(has >= *last, "round {round}: told {last:?}, and {has:?} is there");
            let batch = (0..BATCH_KEYS).map(|key| get(format!("batch {thread} {key}")));
            let batch: Vec<_> = batch.collect();
            assert!(batch.iter().all(|value| *value == batch[0]), "round {round}: {batch:?}");
            // What that write told of is there too, or what replaced it.
            let singles = (0..7).filter_map(|key| get(format!("single {thread} {key}")));
            let newest = singles.chain(batch[0].clone()).max();
            assert!(newest >= *last, "round {round}: told {last:?}, and {newest:?} is there");
        }
        db.close().expect("close");
    }
    assert!(told as u64 > kills, "most children wrote");
}
