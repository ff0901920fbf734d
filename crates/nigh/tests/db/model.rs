//! The same calls on a database and on a map, with closings and openings among them.

use crate::{all, made_with, open};
use nigh::{Db, WriteBatch};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Tags of the keys of a thread.
const TAGS: u8 = 4;

/// A call.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Put(u8, Vec<u8>),
    Delete(u8),
    Get(u8),
    Batch(Vec<(u8, Option<Vec<u8>>)>),
    Incr(u8, i8),
    Set(u8, bool, Option<Vec<u8>>),
    Flush,
    Reopen,
}

fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        3 => any::<i16>().prop_map(|n| n.to_string().into_bytes()),
        1 => (any::<u8>(), 30_000..60_000_usize).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

pub(crate) fn calls() -> impl Strategy<Value = Call> {
    let key = || 0..24_u8;
    let write = (key(), proptest::option::of(values()));
    prop_oneof![
        8 => (key(), values()).prop_map(|(key, value)| Call::Put(key, value)),
        3 => key().prop_map(Call::Delete),
        3 => key().prop_map(Call::Get),
        3 => proptest::collection::vec(write, 0..4).prop_map(Call::Batch),
        3 => (key(), any::<i8>()).prop_map(|(key, by)| Call::Incr(key, by)),
        3 => (key(), any::<bool>(), proptest::option::of(values()))
            .prop_map(|(key, right, new)| Call::Set(key, right, new)),
        1 => Just(Call::Flush),
        1 => Just(Call::Reopen),
    ]
}

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn number(value: Option<&Vec<u8>>) -> Option<i64> {
    value.map_or(Some(0), |value| std::str::from_utf8(value).ok()?.parse().ok())
}

fn set(map: &mut Map, key: &[u8], value: Option<&Vec<u8>>) {
    match value {
        Some(value) => drop(map.insert(key.to_vec(), value.clone())),
        None => drop(map.remove(key)),
    }
}

/// A thread's key. Those of one tag lie in one partition.
fn key_of(thread: u8, key: u8) -> Vec<u8> {
    vec![b'{', thread, key % TAGS, b'}', key]
}

/// One thread's call, on keys that only it has.
pub(crate) fn call(db: &Db, map: &mut Map, thread: u8, call: &Call) {
    let key = |key: u8| key_of(thread, key);
    match call {
        Call::Put(at, value) => db.put(&key(*at), value).expect("put"),
        Call::Delete(at) => {
            assert_eq!(db.delete(&key(*at)).expect("delete"), map.contains_key(&key(*at)));
        }
        Call::Get(at) => {
            let found = db.get(&key(*at)).expect("get");
            assert_eq!(found.as_deref(), map.get(&key(*at)).map(|value| &value[..]));
        }
        Call::Batch(writes) => {
            let mut batch = WriteBatch::new();
            for (at, value) in of_one_tag(writes) {
                match value {
                    Some(value) => batch.put(&key(*at), value),
                    None => batch.delete(&key(*at)),
                };
            }
            db.write(&batch).expect("write");
        }
        Call::Incr(at, by) => {
            let sum = number(map.get(&key(*at))).map(|number| number + i64::from(*by));
            assert_eq!(db.incr(&key(*at), (*by).into()).ok(), sum);
        }
        Call::Set(at, is_right, new) => {
            let (now, expected) = expected(map, &key(*at), *is_right);
            let done = db.compare_and_set(&key(*at), expected.as_deref(), new.as_deref());
            assert_eq!(done.expect("set"), expected == now);
        }
        Call::Flush => db.flush().expect("flush"),
        Call::Reopen => {}
    }
    apply(map, thread, call);
}

/// The writes of a batch that may be together.
fn of_one_tag(
    writes: &[(u8, Option<Vec<u8>>)],
) -> impl Iterator<Item = &(u8, Option<Vec<u8>>)> + use<'_> {
    let tag = writes.first().map(|(at, _)| at % TAGS);
    writes.iter().filter(move |(at, _)| Some(at % TAGS) == tag)
}

/// What a key has, and what it is expected to have.
fn expected(map: &Map, key: &[u8], is_right: bool) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let now = map.get(key).cloned();
    let expected = if is_right { now.clone() } else { Some(b"something else".to_vec()) };
    (now, expected)
}

/// The same call on the map.
pub(crate) fn apply(map: &mut Map, thread: u8, call: &Call) {
    let key = |key: u8| key_of(thread, key);
    match call {
        Call::Put(at, value) => set(map, &key(*at), Some(value)),
        Call::Delete(at) => set(map, &key(*at), None),
        Call::Batch(writes) => {
            of_one_tag(writes).for_each(|(at, value)| set(map, &key(*at), value.as_ref()));
        }
        Call::Incr(at, by) => {
            if let Some(number) = number(map.get(&key(*at))) {
                let sum = number + i64::from(*by);
                map.insert(key(*at), sum.to_string().into_bytes());
            }
        }
        Call::Set(at, is_right, new) => {
            let (now, expected) = expected(map, &key(*at), *is_right);
            if expected == now {
                set(map, &key(*at), new.as_ref());
            }
        }
        Call::Get(_) | Call::Flush | Call::Reopen => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_database_is_a_map(
        partitions in prop_oneof![Just(1), Just(3)],
        calls in proptest::collection::vec(calls(), 1..120),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        let (mut db, mut map) = (made_with(&path, partitions), Map::new());
        for it in &calls {
            if matches!(it, Call::Reopen) {
                db.close().expect("close");
                db = open(&path);
            }
            call(&db, &mut map, 0, it);
        }
        let keys: Vec<Vec<u8>> = (0..24).map(|key| key_of(0, key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for (key, value) in keys.iter().zip(db.multi_get(&keys).expect("get")) {
            prop_assert_eq!(value.as_deref(), map.get(*key).map(|value| &value[..]));
        }
        prop_assert_eq!(all(&db), map.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn several_threads_have_maps_of_their_own(
        partitions in prop_oneof![Just(1), Just(3)],
        lists in proptest::collection::vec(proptest::collection::vec(calls(), 1..150), 3),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        drop(made_with(&path, partitions));
        let mut maps = vec![Map::new(); lists.len()];
        // Twice, with an opening between.
        for _ in 0..2 {
            let db = open(&path);
            std::thread::scope(|scope| {
                for ((thread, calls), map) in (0..).zip(&lists).zip(&mut maps) {
                    let db = &db;
                    scope.spawn(move || calls.iter().for_each(|it| call(db, map, thread, it)));
                }
            });
            db.close().expect("close");
        }
        let map: Map = maps.into_iter().flatten().collect();
        prop_assert_eq!(all(&open(&path)), map.into_iter().collect::<Vec<_>>());
    }
}
