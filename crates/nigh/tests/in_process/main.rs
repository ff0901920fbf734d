//! Functions of a database in this process, with the feature `functions`.

mod broken_log;
mod durable;
mod partitions;

use nigh::{Db, DbError, Frame, FunctionError, Options};
use std::path::Path;
use std::time::Duration;

const BANK: &str = "#!js name=bank
export function pay(db, [n], [from, to]) {
  const left = db.incr(from, -Number(n));
  if (left < 0) throw new Error('SOLDOUT only ' + (left + Number(n)));
  return [left, db.incr(to, Number(n))];
}
export function of(db, args, [key]) { return db.get(key)?.text() ?? null; }
of.flags = ['no-writes'];
export function sneak(db, args, [key]) { db.set(key, 'x'); }
sneak.flags = ['no-writes'];
export function pledge(db, [n], [key]) { return db.incr(key, Number(n)); }
pledge.flags = ['durable'];
export function spin() { for (;;); }
export function fill(db, [n], [key]) { db.set(key, 'v'.repeat(Number(n))); }
export function names(db) { return db.scan('').keys.sort(); }
";

/// A small database. Its functions have so long that a slow machine stops none that ends.
fn options() -> Options {
    let small = Options::new().capacity_bytes(64 << 20).log_file_bytes(1 << 20);
    small.journal_bytes(1 << 20).function_time_limit(Duration::from_secs(5))
}

fn open(path: &Path) -> Db {
    Db::open(path, &options()).expect("it can be opened")
}

fn value(db: &Db, key: &str) -> Option<String> {
    let value = db.get(key.as_bytes()).expect("a read")?;
    Some(String::from_utf8(value.to_vec()).expect("UTF-8"))
}

fn cause(outcome: Result<Frame, FunctionError>) -> String {
    outcome.expect_err("it fails").to_string()
}

/// A function reads and writes beside `put` and `get`; one that throws, or is stopped, has written
/// nothing, and the database goes on.
#[test]
fn functions_run_beside_the_library() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = options().function_time_limit(Duration::from_millis(500));
    let db = Db::open(dir.path().join("data"), &options).expect("it can be opened");
    assert_eq!(db.load(BANK).expect("it is one"), "bank");
    db.put(b"ada", b"15").expect("there is room");
    let pay = || db.call("pay", &[b"ada", b"alan"], &[b"10"]);
    assert_eq!(pay().expect("it pays"), Frame::Array(vec![Frame::Integer(5), Frame::Integer(10)]));
    assert!(cause(pay()).contains("SOLDOUT only 5"));
    assert_eq!(value(&db, "ada").as_deref(), Some("5"), "the incr never happened");
    assert_eq!(db.call("of", &[b"alan"], &[]).expect("it reads"), Frame::Bulk(b"10".to_vec()));
    assert_eq!(db.call("of", &[b"none"], &[]).expect("it reads"), Frame::Null);
    assert!(cause(db.call("sneak", &[b"ada"], &[])).contains("no-writes"));
    assert!(cause(db.call("nobody", &[], &[])).contains("not found"));
    let stopped = cause(db.call("spin", &[], &[]));
    assert!(stopped.contains("500 ms") && stopped.contains("function-time-limit-ms"), "{stopped}");
    assert_eq!(pay().err().map(|error| error.to_string().contains("SOLDOUT")), Some(true));
    assert_eq!(db.incr(b"ada", 20).expect("a write"), 25);
    assert!(pay().is_ok());
    assert_eq!(value(&db, "alan").as_deref(), Some("20"));
    let Frame::Array(names) = db.call("names", &[], &[]).expect("it scans") else { panic!() };
    assert_eq!(names, [&b"ada"[..], b"alan"].map(|name| Frame::Bulk(name.to_vec())));
}

/// Libraries stay with the database, also if its process leaves it in memory; what isn't one is
/// refused, with the place, and changes nothing.
#[test]
fn libraries_stay_with_the_database() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data");
    let db = open(&path);
    assert!(db.libraries().expect("a list").is_empty());
    db.load(BANK).expect("it is one");
    let broken = db.load("#!js name=bank\nexport function pay( {").expect_err("it is none");
    assert!(broken.to_string().contains("line 2"), "{broken}");
    let taken = db.load("#!js name=other\nexport function pay() {}").expect_err("it is taken");
    assert!(taken.to_string().contains("pay already exists"), "{taken}");
    db.load("#!js name=other\nexport function one() { return 1; }").expect("it is one");
    db.close().expect("it closes");
    let db = open(&path);
    let libraries = db.libraries().expect("a list");
    let names: Vec<&str> = libraries.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["bank", "other"]);
    assert!(libraries.iter().all(|it| it.broken.is_none() && !it.functions.is_empty()));
    assert_eq!(db.call("one", &[], &[]).expect("it runs"), Frame::Integer(1));
    assert!(db.unload("other").expect("a removal") && !db.unload("other").expect("a removal"));
    assert!(cause(db.call("one", &[], &[])).contains("not found"));
    drop(db);
    assert_eq!(open(&path).libraries().expect("a list").len(), 1);
}

/// A call with the flag `durable` is on disk when it returns; one whose writes find no room has
/// written nothing, and says what the database says.
#[test]
fn calls_are_as_durable_as_they_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    db.load(BANK).expect("it is one");
    for n in 1..=3 {
        assert_eq!(db.call("pledge", &[b"all"], &[b"1"]).expect("it runs"), Frame::Integer(n));
        let stats = db.stats().expect("counts");
        assert_eq!(stats.durable_change, stats.last_change);
    }
    let mut refused = None;
    for n in 0..800 {
        let key = format!("large{n}");
        let filled = db.call("fill", &[key.as_bytes()], &[b"200000"]);
        if let Err(error) = filled {
            refused = Some(error);
            assert_eq!(value(&db, &key), None);
            break;
        }
    }
    assert!(matches!(refused, Some(FunctionError::Db(DbError::Full))), "{refused:?}");
}

/// Threads call at the same time as others write: each call is as if it were alone.
#[test]
fn calls_and_writes_of_many_threads_add_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    db.load("#!js name=t\nexport function add(db, [n], [key]) { return db.incr(key, Number(n)); }")
        .expect("it is one");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    db.call("add", &[b"sum"], &[b"2"]).expect("it runs");
                    db.incr(b"sum", 1).expect("a write");
                }
            });
        }
    });
    assert_eq!(value(&db, "sum").as_deref(), Some("900"));
}

/// A call that V8 can't stop in time costs its thread, and neither the process nor the database:
/// others write, and other functions run. It has written nothing.
#[test]
fn a_call_that_v8_cannot_stop_costs_its_thread() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = options().function_time_limit(Duration::from_millis(50));
    let db = Db::open(dir.path().join("data"), &options).expect("it can be opened");
    // Spreading bytes is one step of V8, in which it looks at nothing: some seconds for so many.
    let source = "#!js name=t\nconst long = new Uint8Array(2 << 20);\n\
                  export function stuck(db) {\n  db.set('stuck', '1');\n  \
                  return Object.keys({ ...long }).length;\n}\n\
                  export function quick(db, args, [key]) { return db.incr(key, 1); }\n";
    db.load(source).expect("it is one");
    let stopped = cause(db.call("stuck", &[], &[]));
    assert!(stopped.contains("function-time-limit-ms"), "{stopped}");
    assert!(cause(db.call("stuck", &[], &[])).contains("still being stopped"));
    db.put(b"a", b"1").expect("a write");
    assert_eq!(db.call("quick", &[b"a"], &[]).expect("it runs"), Frame::Integer(2));
    assert_eq!(value(&db, "stuck"), None);
    db.close().expect("it closes");
}
