//! Random histories against a `BTreeMap`.

use super::{Arena, directory, spec};
use crate::{RecordRef, WriteError};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Step {
    Put { key: u16, len: usize, expiry: u64 },
    Delete(u16),
    Expire { key: u16, expiry: u64 },
    Commit { clear: bool, writes: Vec<(u16, Option<usize>)>, abandon: bool },
    Rename { from: u16, to: u16 },
    Sweep(u64),
    Clear,
    Turn,
    Adopt,
}

fn value_len() -> impl Strategy<Value = usize> {
    prop_oneof![20 => 0usize..300, 2 => 300usize..70_000, 1 => 60_000usize..700_000]
}

fn step(keys: u16) -> impl Strategy<Value = Step> {
    let key = move || 0..keys;
    let expiry = || prop_oneof![Just(0u64), 1u64..100];
    let writes = prop::collection::vec((key(), prop::option::of(value_len())), 0..12);
    prop_oneof![
        40 => (key(), value_len(), expiry()).prop_map(|(key, len, expiry)| Step::Put { key, len, expiry }),
        15 => key().prop_map(Step::Delete),
        5 => (key(), expiry()).prop_map(|(key, expiry)| Step::Expire { key, expiry }),
        8 => (prop::bool::weighted(0.05), writes, prop::bool::weighted(0.2))
            .prop_map(|(clear, writes, abandon)| Step::Commit { clear, writes, abandon }),
        3 => (key(), key()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => (1u64..100).prop_map(Step::Sweep),
        1 => Just(Step::Clear),
        20 => Just(Step::Turn),
        1 => Just(Step::Adopt),
    ]
}

fn key_of(key: u16) -> Vec<u8> {
    // Keys of several lengths, so that padding is seen.
    format!("{key}{}", "x".repeat(usize::from(key % 23))).into_bytes()
}

/// A value that tells which step wrote it.
fn value_of(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n.wrapping_mul(131) + i / 7) as u8).collect()
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn stage(
    a: &mut Arena,
    n: usize,
    writes: &[(u16, Option<usize>)],
) -> Result<Vec<RecordRef>, WriteError> {
    let mut staged = Vec::new();
    for (i, &(key, len)) in writes.iter().enumerate() {
        let key = key_of(key);
        let hash = a.writer.hash(&key);
        let one = match len {
            Some(len) => a.writer.stage(hash, &key, &[&value_of(n + i, len)], 0),
            None => a.writer.stage_delete(hash, &key),
        };
        match one {
            Ok(one) => staged.push(one),
            Err(error) => {
                a.writer.abandon(&staged);
                return Err(error);
            }
        }
    }
    Ok(staged)
}

fn apply(mut a: Arena, n: usize, step: &Step, model: &mut Model) -> Arena {
    match step {
        Step::Put { key, len, expiry } => {
            let (key, value) = (key_of(*key), value_of(n, *len));
            if a.put(&key, &value, *expiry).is_ok() {
                model.insert(key, (value, *expiry));
            }
        }
        Step::Delete(key) => {
            let key = key_of(*key);
            assert_eq!(a.delete(&key), model.remove(&key).is_some());
        }
        Step::Expire { key, expiry } => {
            let key = key_of(*key);
            let hash = a.writer.hash(&key);
            if let Ok(there) = a.writer.set_expiry(&a.me.pin(), hash, &key, *expiry) {
                assert_eq!(there, model.contains_key(&key));
                model.entry(key).and_modify(|v| v.1 = *expiry);
            }
        }
        Step::Commit { clear, writes, abandon } => {
            let Ok(staged) = stage(&mut a, n, writes) else { return a };
            if *abandon || a.writer.commit(&a.me.pin(), *clear, &staged).is_err() {
                a.writer.abandon(&staged);
                return a;
            }
            if *clear {
                model.clear();
            }
            for (i, &(key, len)) in writes.iter().enumerate() {
                match len {
                    Some(len) => drop(model.insert(key_of(key), (value_of(n + i, len), 0))),
                    None => drop(model.remove(&key_of(key))),
                }
            }
        }
        Step::Rename { from, to } if from != to => {
            let (from, to) = (key_of(*from), key_of(*to));
            let Some((value, _)) = model.get(&from).cloned() else { return a };
            let (hf, ht) = (a.writer.hash(&from), a.writer.hash(&to));
            let record = a.reader.get(&a.me.pin(), hf, &from).expect("in the model").reference();
            let Ok(moved) = a.writer.stage_moved_run(&a.me.pin(), record, ht, &to, 7) else {
                return a;
            };
            let Ok(gone) = a.writer.stage_delete(hf, &from) else {
                a.writer.abandon(&[moved]);
                return a;
            };
            if a.writer.commit(&a.me.pin(), false, &[gone, moved]).is_err() {
                a.writer.abandon(&[moved, gone]);
                return a;
            }
            model.remove(&from);
            model.insert(to, (value, 7));
        }
        Step::Rename { .. } => {}
        Step::Sweep(now) => {
            while a.writer.index.growing() {
                a.turn();
            }
            let lines = u32::try_from(a.writer.stats().index_lines).unwrap();
            a.writer.expire_step(&a.me.pin(), *now, lines);
            model.retain(|_, (_, expiry)| *expiry == 0 || *expiry >= *now);
        }
        Step::Clear => {
            a.writer.clear();
            model.clear();
        }
        Step::Turn => drop(a.turn()),
        Step::Adopt => {
            let (b, adoption) = a.again();
            assert_eq!(adoption.keys, model.len() as u64);
            return b;
        }
    }
    a
}

fn check(a: &Arena, model: &Model) {
    let pin = a.me.pin();
    assert_eq!(a.writer.keys(), model.len() as u64);
    assert_eq!(a.writer.expires(), model.values().filter(|v| v.1 != 0).count() as u64);
    for (key, (value, expiry)) in model {
        let record = a.reader.get(&pin, a.reader.hash(key), key).expect("a key of the model");
        assert_eq!((record.value(), record.expiry_ms()), (&value[..], *expiry));
    }
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = a.reader.scan(&pin, cursor, 16, &mut |r| {
            seen.insert(r.key().to_vec(), ());
        });
        if cursor == 0 {
            break;
        }
    }
    assert!(seen.keys().eq(model.keys()));
    let report = crate::verify(&a.spec.path).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn run(capacity: u64, steps: &[Step]) {
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), capacity));
    let mut model = Model::new();
    for (n, step) in steps.iter().enumerate() {
        a = apply(a, n, step, &mut model);
        if n % 16 == 0 {
            check(&a, &model);
        }
    }
    check(&a, &model);
    let (mut a, _) = a.again();
    check(&a, &model);
    // Nothing leaked: an emptied arena is as small as a new one, but for the head and what is
    // ready.
    a.writer.clear();
    a.settle();
    let stats = a.writer.stats();
    assert!(stats.runs == 0 && stats.segments <= 1, "{stats:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn an_arena_behaves_like_a_map(steps in prop::collection::vec(step(2000), 1..600)) {
        // Any history of writes, commits, expiries, clears and adoptions, with room.
        run(64 << 20, &steps);
    }

    #[test]
    fn a_crowded_arena_behaves_like_a_map_that_refuses(steps in prop::collection::vec(step(200), 1..400)) {
        // The same in the smallest arena: many writes are refused, and change nothing.
        run(2 << 20, &steps);
    }
}
