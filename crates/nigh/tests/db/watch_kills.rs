//! A process that writes and watches is killed: a watch of the next one goes on where it was.
//!
//! ```text
//! child: threads write │ watch ── event, place ──> pipe │ SIGKILL │ the next child goes on from the last place
//! parent: each line ── the number behind the last one of its partition ── a map
//! ```
//!
//! The test's own program is the child, as in `kills`.

use crate::killed::Said;
use crate::{shared, small};
use nigh::{Db, Options, WatchEvent, WatchPlace, WriteBatch, WriteOptions};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Says how many children are killed.
const KILLS: &str = "NIGH_EMBEDDED_KILLS";
/// Names the child's folder.
const FOLDER: &str = "NIGH_WATCHED_FOLDER";
/// There if the child's memory is shared.
const SHARED: &str = "NIGH_WATCHED_SHARED";
/// Where the child's watch begins.
const PLACE: &str = "NIGH_WATCHED_PLACE";
const PARTITIONS: usize = 3;
/// Threads of the child that write.
const THREADS: u64 = 2;
/// Writes after which a child that wasn't killed ends.
const WRITES_MOST: u64 = 1_000_000;
/// Between writes, so that the pipe keeps up.
const PAUSE: Duration = Duration::from_micros(20);
/// Writes of a thread after which it waits until all is told. Else, on a busy machine, the log is
/// compacted beyond the place that was told last, and each child leaves the next one more to tell.
const BURST: u64 = 200;
/// The longest wait for an event before a look whether all is told.
const IDLE: Duration = Duration::from_millis(1);
/// How long what expires is there.
const BRIEF: Duration = Duration::from_millis(2);

fn options(is_shared: bool) -> Options {
    (if is_shared { shared() } else { small() }).watch_bytes(64 << 20)
}

/// The child: it writes, and prints each event with the place behind it.
#[test]
fn child_writes_and_watches_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let place: WatchPlace = std::env::var(PLACE).expect("one").parse().expect("a place");
    let options = options(std::env::var_os(SHARED).is_some());
    let db = Db::open(Path::new(&folder), &options).expect("open");
    std::thread::scope(|scope| {
        let writers = (0..THREADS).map(|thread| {
            // Of no length: a writer is told that all is told only while it waits for that.
            let (idle, all_told) = sync_channel(0);
            let db = &db;
            scope.spawn(move || {
                for n in 0..WRITES_MOST {
                    write(db, thread, n);
                    if n % BURST == 0 && all_told.recv().is_err() {
                        break;
                    }
                }
            });
            idle
        });
        tell(&db, &place, &writers.collect::<Vec<_>>());
    });
}

#[expect(clippy::print_stdout, reason = "the parent reads it")]
fn tell(db: &Db, place: &WatchPlace, writers: &[SyncSender<()>]) {
    let watch = db.watch_from(b"", place).expect("the log has it");
    loop {
        let Some(event) = watch.next_within(IDLE).expect("it is open") else {
            // Silence alone may mean that the log's threads have no CPU.
            let now = db.watch(b"").expect("another watch").place().expect("a place");
            if watch.place().expect("a place") == now {
                writers.iter().for_each(|idle| _ = idle.try_send(()));
            }
            continue;
        };
        let place = watch.place().expect("a place");
        let (partition, change) = (event.partition(), event.change());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        match event {
            WatchEvent::Put { key, value, .. } => {
                let (key, value) = (text(&key), text(&value));
                println!("event {partition} {change} {place} {key} {}", short(&value));
            }
            WatchEvent::Removed { key, .. } => {
                println!("event {partition} {change} {place} {} -", text(&key));
            }
            other => println!("event {partition} {change} {place} {other:?}"),
        }
    }
}

/// What is told of a value: its beginning, and its length.
fn short(value: &str) -> String {
    format!("{}+{}", &value[..value.len().min(20)], value.len())
}

fn write(db: &Db, thread: u64, n: u64) {
    let (key, value) = (format!("{thread}/{}", n % 30), format!("{thread}/{n}"));
    match n % 9 {
        0 => _ = db.delete(key.as_bytes()).expect("delete"),
        1 => {
            let mut batch = WriteBatch::new();
            for key in 0..4 {
                batch.put(format!("{{{thread}}}/{key}").as_bytes(), value.as_bytes());
            }
            db.write(&batch).expect("write");
        }
        2 => {
            let brief = WriteOptions::new().expires_in(BRIEF);
            db.put_with(format!("{key}/brief").as_bytes(), value.as_bytes(), &brief).expect("put");
        }
        3 if n.is_multiple_of(5) => {
            db.put(key.as_bytes(), value.repeat(2000).as_bytes()).expect("put");
        }
        _ => db.put(key.as_bytes(), value.as_bytes()).expect("put"),
    }
    std::thread::sleep(PAUSE);
}

/// What the parent knows.
struct Told {
    place: String,
    last: [u64; PARTITIONS],
    map: BTreeMap<String, String>,
    lines: u64,
}

impl Told {
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, partition, change, place, key, value] = words[..] else { panic!("{line}") };
        let (partition, change): (usize, u64) =
            (partition.parse().expect("a number"), change.parse().expect("a number"));
        let last = &mut self.last[partition];
        assert_eq!(change, *last + 1, "none is missing, and none comes twice: {line}");
        *last = change;
        match value {
            "-" => assert!(self.map.remove(key).is_some(), "it was there: {line}"),
            value => _ = self.map.insert(key.to_owned(), value.to_owned()),
        }
        place.clone_into(&mut self.place);
        self.lines += 1;
    }

    /// Takes what a child tells until it is killed.
    fn kill_one(&mut self, folder: &Path, is_shared: bool, after: Duration) {
        let own = std::env::current_exe().expect("this program");
        let (mut command, said) = (Command::new(own), Said::new());
        if is_shared {
            command.env(SHARED, "1");
        }
        let mut child = command
            .args(["--exact", "watch_kills::child_writes_and_watches_until_it_is_killed"])
            .arg("--nocapture")
            .env(FOLDER, folder)
            .env(PLACE, &self.place)
            .stdout(Stdio::piped())
            .stderr(said.stdio())
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let (mut child, mut killer) = (Some(child), None);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            // The harness may have begun the line; a line that the kill has cut tells nothing.
            if let Some(begin) = line.find("event ").filter(|_| line.ends_with('\n')) {
                self.take(line[begin..].trim_end());
                if let Some(mut child) = child.take() {
                    killer = Some(std::thread::spawn(move || {
                        std::thread::sleep(after);
                        child.kill().expect("it is ours"); // SIGKILL
                        child.wait().expect("it is ours")
                    }));
                }
            }
            line.clear();
        }
        let Some(killer) = killer else { panic!("it tells nothing: {}", said.text()) };
        said.assert_killed(killer.join().expect("it ends"));
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "figures of a long run")]
fn a_watch_goes_on_where_the_killed_one_was() {
    let kills = std::env::var(KILLS).map_or(12, |text| text.parse::<u64>().expect("a number"));
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("data");
    let db = Db::open(&folder, &options(false).partitions(PARTITIONS)).expect("it can be made");
    let place = db.snapshot().expect("a snapshot").place().to_string();
    db.close().expect("close");
    let mut told = Told { place, last: [0; PARTITIONS], map: BTreeMap::new(), lines: 0 };
    let mut random = 1_u64;
    for round in 0..kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let after = Duration::from_millis(5 + (random >> 33) % 150);
        told.kill_one(&folder, round % 3 == 0, after);
    }
    // What the last ones have left is told here.
    let db = Db::open(&folder, &options(false)).expect("open");
    let place = told.place.parse().expect("a place");
    let watch = db.watch_from(b"", &place).expect("the log has it");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let event = watch.next_within(Duration::from_millis(200)).expect("it is open");
        let Some(event) = event else {
            // A key whose time is over isn't found, but its removal is told only when it was swept.
            if !told.map.keys().any(|key| key.ends_with("/brief")) {
                break;
            }
            assert!(Instant::now() < deadline, "what is over goes: {:?}", told.map);
            continue;
        };
        assert_eq!(event.change(), told.last[event.partition()] + 1, "{event:?}");
        told.last[event.partition()] = event.change();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        match event {
            WatchEvent::Put { key, value, .. } => {
                told.map.insert(text(key), short(&text(value)));
            }
            WatchEvent::Removed { key, .. } => {
                _ = told.map.remove(&text(key)).expect("it was there")
            }
            other => panic!("{other:?}"),
        }
    }
    let found: BTreeMap<String, String> = crate::all(&db)
        .into_iter()
        .map(|(key, value)| {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
            (text(key), short(&text(value)))
        })
        .collect();
    assert_eq!(told.map, found);
    assert!(told.lines > 10 * kills, "{} lines of {kills} children", told.lines);
    println!("{} lines of {kills} children", told.lines);
}
