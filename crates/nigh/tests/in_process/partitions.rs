//! Functions of a database with several partitions: as with one, but that a call writes in one
//! partition unless it is flagged.

use crate::options;
use nigh::{Db, DbError, Frame, FunctionError, WatchEvent, WriteOptions};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Partitions of these tests.
const PARTITIONS: usize = 3;
/// Longest time for what must end.
const SOON: Duration = Duration::from_secs(60);
/// Names the killed child's folder.
const FOLDER: &str = "NIGH_CALLS_FOLDER";
/// Children that are killed.
const KILLS: u64 = 12;
/// Calls after which a child that wasn't killed ends.
const CALLS_MOST: u64 = 1_000_000;

const BANK: &str = "#!js name=bank
export function pay(db, [n], [from, to]) {
  if (db.incr(from, -Number(n)) < -1000) throw new Error('SOLDOUT');
  return db.incr(to, Number(n));
}
pay.flags = ['allow-cross-slot-keys'];
export function add(db, [n], [key]) { return db.incr(key, Number(n)); }
export function take(db, args, [key]) { return db.delete(key); }
export function of(db, args, keys) { return keys.map((key) => Number(db.text(key) ?? 0)); }
of.flags = ['no-writes'];
export function copy(db, [from], [to]) { db.set(to, db.text(from) ?? '0'); }
export function sneak(db, [other], [key]) { db.set(key, '1'); db.set(other, '1'); }
export function names(db) {
  const all = [];
  for (let cursor = 0, keys; ;) {
    ({ cursor, keys } = db.scan('', cursor));
    all.push(...keys);
    if (cursor === 0) return all.sort();
  }
}
names.flags = ['no-writes'];
export function number(db, [n], keys) { for (const key of keys) db.set(key, n); }
number.flags = ['allow-cross-slot-keys'];
export function numberSafely(db, [n], keys) { for (const key of keys) db.set(key, n); }
numberSafely.flags = ['allow-cross-slot-keys', 'durable'];
export function fill(db, [n], [small, large]) {
  db.set(small, n);
  db.set(large, 'v'.repeat(Number(n)));
}
fill.flags = ['allow-cross-slot-keys'];
";

fn open(path: &Path, partitions: usize) -> Db {
    let options = options().journal_bytes(4 << 20).partitions(partitions);
    Db::open(path, &options).expect("it can be opened")
}

fn text(value: &str) -> Frame {
    Frame::Bulk(value.as_bytes().to_vec())
}

fn cause(outcome: Result<Frame, FunctionError>) -> String {
    outcome.expect_err("it fails").to_string()
}

/// A key of each partition, in the partitions' order: the same in each open.
fn one_of_each(db: &Db) -> Vec<String> {
    let counts = |db: &Db| db.stats().expect("stats").partitions;
    let mut found: Vec<Option<String>> = vec![None; counts(db).len()];
    for n in 0..1000 {
        let key = format!("of each {n}");
        let before = counts(db);
        db.put(key.as_bytes(), b"0").expect("put");
        let grew =
            counts(db).iter().zip(&before).position(|(now, it)| now.last_change > it.last_change);
        found[grew.expect("one has it")].get_or_insert(key);
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.into_iter().map(|key| key.expect("keys are spread")).collect()
}

/// Two keys of each partition, in the partitions' order: the same in each open.
fn numbered(db: &Db) -> Vec<String> {
    let keys = one_of_each(db).into_iter();
    keys.flat_map(|key| [1, 2].map(|n| format!("{{{key}}} {n}"))).collect()
}

/// Numbers by chance, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// A call by chance: its function, keys and arguments, and what a map says it returns.
fn a_call(
    chance: &mut Chance,
    map: &mut BTreeMap<String, i64>,
) -> (String, [Vec<String>; 2], Frame) {
    let key = |chance: &mut Chance| format!("account {}", chance.below(40));
    let (from, to) = (key(chance), key(chance));
    let n = i64::try_from(chance.below(100)).expect("small");
    let add = |map: &mut BTreeMap<String, i64>, key: &str, n: i64| {
        let value = map.entry(key.to_owned()).or_default();
        *value += n;
        Frame::Integer(*value)
    };
    let of = |map: &BTreeMap<String, i64>, key: &str| map.get(key).copied().unwrap_or_default();
    match chance.below(6) {
        0 if of(map, &from) - n < -1000 => ("of".into(), [vec![], vec![]], Frame::Array(vec![])),
        0 => {
            add(map, &from, -n);
            let told = add(map, &to, n);
            ("pay".into(), [vec![from, to], vec![n.to_string()]], told)
        }
        1 => {
            let told = add(map, &to, n);
            ("add".into(), [vec![to], vec![n.to_string()]], told)
        }
        2 => {
            let told = Frame::Boolean(map.remove(&to).is_some());
            ("take".into(), [vec![to], vec![]], told)
        }
        3 => {
            map.insert(to.clone(), of(map, &from));
            ("copy".into(), [vec![to], vec![from]], Frame::Null)
        }
        4 => {
            let told = [&from, &to].map(|key| Frame::Integer(of(map, key)));
            ("of".into(), [vec![from, to], vec![]], Frame::Array(told.to_vec()))
        }
        _ => {
            let told = map.keys().map(|key| text(key)).collect();
            ("names".into(), [vec![], vec![]], Frame::Array(told))
        }
    }
}

fn call(db: &Db, name: &str, keys: &[String], args: &[String]) -> Result<Frame, FunctionError> {
    let [keys, args] = [keys, args].map(|it| it.iter().map(String::as_bytes).collect::<Vec<_>>());
    db.call(name, &keys, &args)
}

/// The same calls on a database with one partition and on one with several, beside a map: they
/// return and leave the same, also for the next open, which has the library.
#[test]
fn calls_do_over_several_partitions_what_they_do_in_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let paths = ["one", "several"].map(|name| dir.path().join(name));
    let counts = [1, PARTITIONS];
    let mut map = BTreeMap::new();
    let mut chance = Chance(7);
    for round in 0..2 {
        let dbs = [open(&paths[0], counts[0]), open(&paths[1], counts[1])];
        for db in dbs.iter().filter(|_| round == 0) {
            assert_eq!(db.load(BANK).expect("it is one"), "bank");
        }
        for step in 0..300 {
            let (name, [keys, args], wanted) = a_call(&mut chance, &mut map);
            for db in &dbs {
                let told = call(db, &name, &keys, &args).expect("it runs");
                assert_eq!(told, wanted, "{round} {step} {name} {keys:?} {args:?}");
            }
        }
        for db in dbs {
            let snapshot = db.snapshot().expect("snapshot").map(|pair| pair.expect("a pair"));
            let decoded = snapshot.map(|(key, value)| {
                let text = |bytes| String::from_utf8(bytes).expect("text");
                (text(key), text(value).parse().expect("a number"))
            });
            assert_eq!(decoded.collect::<BTreeMap<String, i64>>(), map);
            db.close().expect("close");
        }
    }
}

/// A call without the flag writes in its first key's partition alone; it has written nothing if it
/// tries more. One that throws has written in none.
#[test]
fn a_call_writes_where_its_first_key_lies() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"), PARTITIONS);
    db.load(BANK).expect("it is one");
    let keys = one_of_each(&db);
    for (a, b) in [(0, 1), (2, 0), (1, 2)] {
        let refused = cause(call(&db, "sneak", &keys[a..=a], &keys[b..=b]));
        assert!(refused.starts_with("CROSSSLOT db.set: the key"), "{refused}");
        assert_eq!(db.get(keys[a].as_bytes()).expect("get").as_deref(), Some(&b"0"[..]));
    }
    let near = "{t}1 {t}2".split(' ').map(str::to_owned).collect::<Vec<_>>();
    call(&db, "sneak", &near[..1], &near[1..]).expect("they lie together");
    let broke = cause(call(&db, "pay", &keys[..2], &["2000".to_owned()]));
    assert!(broke.starts_with("SOLDOUT"), "{broke}");
    let told = call(&db, "of", &keys, &[]).expect("it reads");
    assert_eq!(told, Frame::Array(vec![Frame::Integer(0); PARTITIONS]));
}

/// A call with the flag `durable` has all partitions on disk when it returns.
#[test]
fn a_durable_call_is_on_disk_in_each_partition() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"), PARTITIONS);
    db.load(BANK).expect("it is one");
    let keys = one_of_each(&db);
    for n in 0..5_u32 {
        call(&db, "numberSafely", &keys, &[n.to_string()]).expect("it runs");
        let stats = db.stats().expect("stats");
        assert!(stats.partitions.iter().all(|it| it.durable_change == it.last_change), "{stats:?}");
    }
}

/// What is refused in a later partition, when an earlier one has its part, is told as that.
#[test]
fn a_call_that_is_done_in_part_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"), 2);
    db.load(BANK).expect("it is one");
    let keys = one_of_each(&db);
    let tag = keys[1].clone();
    let mut more = (0..1000).map(|n| format!("{{{tag}}} {n}"));
    let full = more.find_map(|key| db.put(key.as_bytes(), &[7; 200_000]).err());
    assert!(matches!(full, Some(DbError::Full)), "{full:?}");
    let error = call(&db, "fill", &keys, &["200000".to_owned()]).expect_err("it is full");
    assert!(matches!(error, FunctionError::Partly { cause: DbError::Full }), "{error}");
    assert!(error.to_string().contains("done in some partitions"), "{error}");
    let get = |key: &String| db.get(key.as_bytes()).expect("get").map(|it| it.len());
    assert_eq!((get(&keys[0]), get(&keys[1])), (Some("200000".len()), Some(1)));
    // The full one alone: nothing was done, and the error is the database's.
    let error = call(&db, "fill", &[tag.clone(), tag], &["200000".to_owned()]);
    assert!(matches!(error, Err(FunctionError::Db(DbError::Full))), "{error:?}");
}

/// Threads call over two partitions, in both orders, while others write, read at one moment and
/// take snapshots. All of them end, no call sees half of another, and no reader half of a
/// partition's part.
#[test]
fn calls_of_many_threads_over_partitions_are_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"), 2);
    db.load(BANK).expect("it is one");
    let (keys, all) = (one_of_each(&db), numbered(&db));
    let (a, b) = all.split_at(2);
    let backwards: Vec<String> = all.iter().rev().cloned().collect();
    call(&db, "number", &all, &["0".to_owned()]).expect("it runs");
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (caller, keys) in [&all, &backwards].into_iter().enumerate() {
            let (db, all) = (&db, &all);
            scope.spawn(move || {
                for n in 0..150 {
                    let number = [(2 * n + caller).to_string()];
                    call(db, "number", keys, &number).expect("it runs");
                    let Frame::Array(seen) = call(db, "of", all, &[]).expect("it reads") else {
                        panic!("it returns a list");
                    };
                    assert!(seen.iter().all(|it| *it == seen[0]), "{seen:?}");
                }
            });
        }
        for other in &keys {
            let db = &db;
            scope.spawn(move || {
                for n in 0..2000_u32 {
                    db.put(other.as_bytes(), n.to_string().as_bytes()).expect("put");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..300 {
                for pair in [a, b] {
                    let pair = [pair[0].as_bytes(), pair[1].as_bytes()];
                    let seen = db.multi_get(&pair).expect("get");
                    assert_eq!(seen[0].as_deref(), seen[1].as_deref());
                }
                let seen = db.snapshot().expect("snapshot").map(|pair| pair.expect("a pair"));
                let numbers = seen.filter(|(key, _)| key.starts_with(b"{"));
                let numbers: Vec<Vec<u8>> = numbers.map(|(_, value)| value).collect();
                assert_eq!(numbers.len(), 4);
                assert!(numbers.iter().all(|it| *it == numbers[0]), "{numbers:?}");
            }
        });
    });
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

/// A process is killed amid calls over partitions: each partition has all of a call or nothing, a
/// later one nothing that an earlier one hasn't, and what returned is there.
#[test]
fn a_kill_amid_calls_leaves_no_partition_half() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let own = std::env::current_exe().expect("this program");
    let mut told = 0;
    for kill in 0..KILLS {
        let mut command = Command::new(&own);
        command.args(["--exact", "partitions::child_that_calls", "--nocapture"]);
        let mut child = command.env(FOLDER, &path).stderr(Stdio::piped()).spawn().expect("a child");
        let mut said = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut next = || said.next().map(|line| line.expect("text"));
        // It has begun; it is killed some calls later.
        let calls = 1 + 37 * kill % 200;
        for _ in 0..calls {
            let Some(line) = next() else { panic!("the child ended: {:?}", child.wait()) };
            let mut rest = || std::iter::from_fn(&mut next).collect::<Vec<_>>().join("\n");
            told = line.parse().unwrap_or_else(|_| panic!("{line}{}", rest()));
        }
        child.kill().expect("it runs");
        while let Some(line) = next() {
            assert!(!line.contains("panicked"), "{line}");
            // The last line may be cut off.
            told = line.parse().unwrap_or(told).max(told);
        }
        let status = child.wait().expect("it has ended");
        assert_eq!(status.signal(), Some(9), "it ended before it was killed: {status}");
        let db = open(&path, 2);
        let number = |key: &[u8]| -> u64 {
            let value = db.get(key).expect("get").expect("it is there");
            std::str::from_utf8(&value).expect("text").parse().expect("a number")
        };
        let numbers: Vec<u64> = numbered(&db).iter().map(|key| number(key.as_bytes())).collect();
        let [a, a_too, b, b_too] = numbers[..] else { panic!("{numbers:?}") };
        assert!(a == a_too && b == b_too && a >= b, "{told}: {numbers:?}");
        assert!(b >= told && a <= told + 1, "{told}: {numbers:?}");
        db.close().expect("close");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_that_calls() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let db = open(Path::new(&folder), 2);
    db.load(BANK).expect("it is one");
    let all = numbered(&db);
    let last = db.get(all[0].as_bytes()).expect("get").map_or(0, |value| {
        std::str::from_utf8(&value).expect("text").parse::<u64>().expect("a number")
    });
    for n in last + 1..last + CALLS_MOST {
        call(&db, "number", &all, &[n.to_string()]).expect("it runs");
        eprintln!("{n}");
        if n % 64 == 0 {
            db.put_with(b"other", b"1", &WriteOptions::strong()).expect("put");
        }
    }
}

#[test]
fn a_watch_tells_a_call_over_partitions_as_a_batch_of_each() {
    // Calls give two keys of each partition a number, while a thread writes others there. Nothing
    // comes between the two; what the call wrote elsewhere may come earlier or later. A watch in
    // the midst of it is ended, and another goes on.
    const CALLS: u32 = 100;
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"), PARTITIONS);
    db.load(BANK).expect("it is loaded");
    let keys = numbered(&db);
    let mut watch = db.watch(b"{").expect("a watch");
    let ends = std::sync::atomic::AtomicBool::new(false);
    let mut told: BTreeMap<(usize, u32), Vec<String>> = BTreeMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let others: Vec<String> = keys.iter().map(|key| format!("{key} other")).collect();
            for other in others.iter().cycle() {
                if ends.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                db.put(other.as_bytes(), b"other").expect("put");
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        scope.spawn(|| {
            for n in 1..=CALLS {
                call(&db, "number", &keys, &[n.to_string()]).expect("it is called");
            }
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut before: Option<(usize, u32)> = None;
        for taken in 0.. {
            if told.len() == PARTITIONS * CALLS as usize && before.is_none() {
                break;
            }
            let event = watch.next_within(SOON).expect("it is open").expect("it is told");
            let WatchEvent::Put { partition, key, value, .. } = event else { panic!("{event:?}") };
            let key = String::from_utf8(key).expect("text");
            match String::from_utf8(value).expect("text").parse::<u32>() {
                Ok(n) => {
                    let of_call = told.entry((partition, n)).or_default();
                    of_call.push(key);
                    let is_second = before.take().inspect(|it| assert_eq!(*it, (partition, n)));
                    assert_eq!(of_call.len(), if is_second.is_some() { 2 } else { 1 });
                    before = is_second.is_none().then_some((partition, n));
                }
                Err(_) => assert_eq!(before, None, "{key} comes between"),
            }
            // In the midst of a part there, another watch may tell other partitions first.
            if taken % 40 == 0 && before.is_none() {
                let place = watch.place().expect("a place");
                watch = db.watch_from(b"{", &place).expect("the log has it");
            }
        }
    });
    for ((partition, _), of_call) in &told {
        let mut of_call = of_call.clone();
        of_call.sort();
        assert_eq!(of_call, keys[2 * partition..2 * partition + 2]);
    }
}
