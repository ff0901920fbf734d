//! Each call, alone.

use crate::{all, open, small};
use nigh::{Db, DbError, TimeToLive, WriteBatch, WriteOptions};
use std::time::{Duration, SystemTime};

fn database() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().expect("a folder");
    let db = open(&dir.path().join("data"));
    (dir, db)
}

#[test]
fn a_value_stays_as_it_was_read() {
    // Somebody keeps a value while its key is written, and deleted, a thousand times.
    let (_dir, db) = database();
    db.put(b"key", b"first").expect("put");
    let kept = db.get(b"key").expect("get").expect("it is there");
    for n in 0..1000 {
        db.put(b"key", format!("later {n}").as_bytes()).expect("put");
    }
    assert!(db.delete(b"key").expect("delete"));
    assert!(!db.delete(b"key").expect("delete"));
    assert!(db.get(b"key").expect("get").is_none());
    assert_eq!(kept, b"first");
    assert_eq!(kept.len(), 5);
}

#[test]
fn get_into_adds_to_what_is_there() {
    let (_dir, db) = database();
    db.put(b"key", b"value").expect("put");
    let mut into = b"the ".to_vec();
    assert!(db.get_into(b"key", &mut into).expect("get"));
    assert!(!db.get_into(b"other", &mut into).expect("get"));
    assert_eq!(into, b"the value");
}

#[test]
fn empty_and_long_keys_and_values_are_taken_and_longer_ones_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let db = Db::open(dir.path().join("data"), &small().journal_bytes(32 << 20)).expect("open");
    let (key, value) = (vec![b'k'; 65_535], vec![7; 5 << 20]);
    db.put(b"", b"").expect("put");
    db.put(&key, &value).expect("put");
    assert_eq!(db.get(b"").expect("get").as_deref(), Some(&b""[..]));
    assert_eq!(db.get(&key).expect("get").as_deref(), Some(&value[..]));
    let error = db.put(&vec![b'k'; 65_536], b"").expect_err("too long");
    assert!(matches!(error, DbError::KeyTooLong { len: 65_536 }), "{error}");
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").put(&vec![b'k'; 65_536], b"");
    assert!(matches!(db.write(&batch), Err(DbError::KeyTooLong { .. })));
    assert!(db.get(b"a").expect("get").is_none(), "a batch is all or nothing");
}

#[test]
fn a_batch_larger_than_a_fourth_of_the_journal_is_refused_as_a_whole() {
    let (_dir, db) = database();
    let mut batch = WriteBatch::new();
    for n in 0..300 {
        batch.put(format!("key {n}").as_bytes(), &[1; 1000]);
    }
    let error = db.write(&batch).expect_err("the journal has 1 MiB");
    assert!(matches!(error, DbError::BatchTooLarge { most, .. } if most == 1 << 18), "{error}");
    assert_eq!(db.stats().expect("stats").keys, 0);
}

#[test]
fn a_key_is_gone_when_its_time_is_over() {
    let (_dir, db) = database();
    let soon = WriteOptions::new().expires_in(Duration::from_millis(30));
    db.put_with(b"soon", b"1", &soon).expect("put");
    db.put_with(b"also", b"1", &soon).expect("put");
    let hour = WriteOptions::new().expires_in(Duration::from_secs(3600));
    db.put_with(b"later", b"5", &hour).expect("put");
    let past = WriteOptions::new().expires_at(SystemTime::UNIX_EPOCH);
    db.put_with(b"past", b"1", &past).expect("put");
    assert!(db.get(b"past").expect("get").is_none());
    assert!(db.get(b"soon").expect("get").is_some());
    assert_eq!(db.incr(b"later", 1).expect("incr"), 6);
    std::thread::sleep(Duration::from_millis(40));
    assert!(db.get(b"soon").expect("get").is_none());
    let values = db.multi_get(&[b"also", b"later"]).expect("get");
    assert!(values[0].is_none() && values[1].is_some());
    assert!(db.compare_and_set(b"also", None, Some(b"2")).expect("set"), "it isn't there");
    let is_down_to = |expires| {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while db.stats().expect("stats").expires != expires {
            assert!(std::time::Instant::now() < deadline, "nobody removes what is over");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    is_down_to(1); // a number keeps its expiry
    db.put(b"later", b"for ever").expect("put");
    is_down_to(0);
    assert_eq!(all(&db).len(), 2);
}

#[test]
fn expire_gives_a_key_another_expiry_and_leaves_its_value() {
    let (_dir, db) = database();
    let hour = WriteOptions::new().expires_in(Duration::from_secs(3600));
    let past = WriteOptions::new().expires_at(SystemTime::UNIX_EPOCH);
    let expires = || db.stats().expect("stats").expires;
    assert!(!db.expire(b"key", &hour).expect("expire"), "it isn't there");
    assert_eq!(db.ttl(b"key").expect("ttl"), None);
    db.put(b"key", b"value").expect("put");
    assert_eq!(db.ttl(b"key").expect("ttl"), Some(TimeToLive::Forever));
    assert!(db.expire(b"key", &hour).expect("expire"));
    assert_eq!(expires(), 1);
    let Some(TimeToLive::Left(left)) = db.ttl(b"key").expect("ttl") else { panic!("an hour") };
    assert!((3000..=3600).contains(&left.as_secs()), "{left:?}");
    assert!(db.expire(b"key", &WriteOptions::strong()).expect("expire"));
    assert_eq!(expires(), 0, "it stays for good again");
    assert_eq!(db.ttl(b"key").expect("ttl"), Some(TimeToLive::Forever));
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
    assert!(db.expire(b"key", &past).expect("expire"));
    assert!(db.get(b"key").expect("get").is_none());
    assert!(!db.expire(b"key", &hour).expect("expire"), "its time is over");
}

#[test]
fn numbers_are_added_and_what_is_none_is_refused() {
    let (_dir, db) = database();
    assert_eq!(db.incr(b"n", 5).expect("incr"), 5);
    assert_eq!(db.incr(b"n", -7).expect("incr"), -2);
    assert_eq!(db.incr_with(b"strong", 1, &WriteOptions::strong()).expect("incr"), 1);
    let stats = db.stats().expect("stats");
    assert_eq!(stats.durable_change, stats.last_change, "a strong sum is on disk");
    assert_eq!(db.get(b"n").expect("get").as_deref(), Some(&b"-2"[..]));
    assert!(matches!(db.incr(b"n", i64::MIN), Err(DbError::Overflow)));
    db.put(b"text", b"five").expect("put");
    assert!(matches!(db.incr(b"text", 1), Err(DbError::NotANumber)));
    assert_eq!(db.get(b"n").expect("get").as_deref(), Some(&b"-2"[..]));
}

#[test]
fn compare_and_set_writes_only_what_it_expects() {
    let (_dir, db) = database();
    let cas =
        |old: Option<&[u8]>, new: Option<&[u8]>| db.compare_and_set(b"key", old, new).expect("set");
    assert!(!cas(Some(b"1"), Some(b"2")), "it isn't there");
    assert!(cas(None, Some(b"1")));
    assert!(!cas(None, Some(b"2")), "it is there");
    assert!(!cas(Some(b"2"), None));
    assert!(cas(Some(b"1"), Some(b"2")));
    assert_eq!(db.get(b"key").expect("get").as_deref(), Some(&b"2"[..]));
    assert!(cas(Some(b"2"), None));
    assert!(cas(None, None), "nothing is there, and nothing is to be");
    assert!(db.get(b"key").expect("get").is_none());
}

#[test]
fn a_batch_does_its_writes_in_order() {
    let (_dir, db) = database();
    db.put(b"old", b"1").expect("put");
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1").delete(b"a").put(b"b", b"1").put(b"b", b"2").delete(b"old");
    batch.delete(b"c").put(b"c", b"3");
    assert!(db.write_with(&batch, &WriteOptions::strong()).expect("write"));
    let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    assert_eq!(all(&db), [pair(b"b", b"2"), pair(b"c", b"3")]);
    batch.clear();
    assert!(batch.is_empty());
    assert!(!db.write(&batch).expect("nothing is written"));
    let mut removes = WriteBatch::new();
    removes.delete(b"b").delete(b"c");
    assert!(db.write(&removes).expect("write"));
    assert!(all(&db).is_empty());
    let before = db.stats().expect("stats").last_change;
    assert!(!db.write(&removes).expect("they are gone"), "nothing has changed");
    assert_eq!(db.stats().expect("stats").last_change, before);
}

#[test]
fn a_scan_meets_each_key_with_the_prefix() {
    let (_dir, db) = database();
    for n in 0..5000 {
        db.put(format!("user:{n}").as_bytes(), format!("{n}").as_bytes()).expect("put");
        db.put(format!("order:{n}").as_bytes(), b"").expect("put");
    }
    let (mut users, mut steps, mut cursor) = (std::collections::BTreeSet::new(), 0, 0);
    loop {
        let mut most = 0;
        cursor = db
            .scan(b"user:", cursor, 10, |key, value| {
                assert_eq!(&key[5..], value);
                users.insert(key.to_vec());
                most += 1;
            })
            .expect("scan");
        steps += 1;
        assert!(most <= 10 + 1024, "a step is bounded");
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(users.len(), 5000);
    assert!(steps > 5000 / 100, "{steps} steps");
}

#[test]
fn a_scan_may_call_whatever_it_likes() {
    let (_dir, db) = database();
    for n in 0..100 {
        db.put(format!("{n}").as_bytes(), b"old").expect("put");
    }
    let mut cursor = 0;
    loop {
        cursor = db
            .scan(b"", cursor, 10, |key, _| {
                assert!(db.get(key).expect("get").is_some());
                db.put(key, b"new").expect("put");
            })
            .expect("scan");
        if cursor == 0 {
            break;
        }
    }
    assert!(all(&db).iter().all(|(_, value)| value == b"new"));
}

#[test]
fn what_is_full_says_so_and_takes_deletes() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().capacity_bytes(8 << 20);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let mut keys = 0;
    let error = loop {
        match db.put(format!("{keys}").as_bytes(), &[1; 10_000]) {
            Ok(()) => keys += 1,
            Err(error) => break error,
        }
        assert!(keys < 1000, "8 MiB hold no 10 MB");
    };
    assert!(matches!(error, DbError::Full), "{error}");
    assert!(keys > 500, "{keys}");
    for key in 0..keys {
        assert!(db.delete(format!("{key}").as_bytes()).expect("delete"));
    }
    // Not quite as much, since what is there lies otherwise.
    for key in 0..keys * 9 / 10 {
        db.put(format!("{key}").as_bytes(), &[2; 10_000]).expect("there is room again");
    }
}

#[test]
fn what_is_full_takes_an_expiry() {
    // By it a key goes by itself, so it may use the memory that is in reserve for deletions.
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().capacity_bytes(8 << 20);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let mut keys = 0;
    // Not even the shortest value finds room in the end.
    for bytes in [10_000, 0] {
        let value = vec![1; bytes];
        let error = loop {
            match db.put(format!("{keys}").as_bytes(), &value) {
                Ok(()) => keys += 1,
                Err(error) => break error,
            }
            assert!(keys < 100_000, "8 MiB hold no {keys} keys");
        };
        assert!(matches!(error, DbError::Full), "{error}");
    }
    let soon = WriteOptions::eventual().expires_in(Duration::from_secs(60));
    for key in [0, keys - 1] {
        let key = format!("{key}");
        assert!(db.expire(key.as_bytes(), &soon).expect("the reserve has room"));
        assert!(db.get(key.as_bytes()).expect("get").is_some());
    }
}

#[test]
fn values_that_are_kept_hold_memory_and_a_write_says_so() {
    // A thread keeps all that it read, while all of memory is written anew again and again.
    let dir = tempfile::tempdir().expect("a folder");
    let options = small().capacity_bytes(8 << 20);
    let db = Db::open(dir.path().join("data"), &options).expect("open");
    let put = |n: usize, round: u8| db.put(format!("{n}").as_bytes(), &[round; 10_000]);
    (0..100).for_each(|n| put(n, 0).expect("put"));
    let kept: Vec<_> = (0..100).map(|n| db.get(format!("{n}").as_bytes()).expect("get")).collect();
    let mut rounds = 1..20_u8;
    let held = rounds.find_map(|round| (0..100).find_map(|n| put(n, round).err()));
    assert!(matches!(held, Some(DbError::Held | DbError::Full)), "{held:?}");
    for value in kept.iter().flatten() {
        assert!(value.iter().all(|byte| *byte == 0));
    }
    drop(kept);
    for round in 20..40 {
        (0..100).for_each(|n| put(n, round).expect("put"));
    }
}

#[test]
fn flush_waits_for_the_disk() {
    let (_dir, db) = database();
    db.flush().expect("there is nothing");
    for n in 0..100 {
        db.put(format!("{n}").as_bytes(), b"value").expect("put");
    }
    db.flush().expect("flush");
    let stats = db.stats().expect("stats");
    assert_eq!((stats.keys, stats.last_change), (100, 100));
    assert_eq!(stats.durable_change, 100);
    let before = stats.syncs;
    db.put_with(b"key", b"value", &WriteOptions::strong()).expect("put");
    let stats = db.stats().expect("stats");
    assert!(stats.durable_change == 101 && stats.syncs > before && stats.log_bytes > 0);
}
