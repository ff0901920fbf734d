//! What an arena's writer tells its journal, and what can be made of that: the same arena again.

use super::telling::{KeptChange, STREAM, Telling, replay, replayed, state};
use super::{Arena, spec};
use crate::format::head::Head;
use crate::format::layout::record as r;
use crate::{Effect, ReplayError, WriteError, verify};
use proptest::prelude::*;
use std::os::unix::fs::FileExt;

const MIB: u64 = 1 << 20;
/// A value in a run, of which a journal of 1 MiB holds one.
const LONG: usize = 200_000;

/// The header of the record in a payload.
fn head(change: &KeptChange) -> Head {
    let at = if change.effect == Effect::Based { 16 } else { 0 };
    Head::from_bytes(change.payload[at..at + 32].try_into().expect("a header"))
}

#[test]
fn each_way_to_change_a_key_is_told() {
    tell_each_way(Telling::new(16 * MIB));
    tell_each_way(Telling::holding(16 * MIB));
}

fn tell_each_way(mut t: Telling) {
    let long = vec![b'l'; LONG];
    t.a.put(b"a", b"value", 7).unwrap();
    t.a.put(b"long", &long, 0).unwrap();
    let (hash, pin) = (t.a.writer.hash(b"long"), t.a.me.pin());
    t.a.writer.set_expiry(&pin, hash, b"long", 99).unwrap();
    let record = t.a.reader.get(&pin, hash, b"long").unwrap().reference();
    let other = t.a.writer.hash(b"longer");
    t.a.writer.extend(&pin, record, (other, b"longer"), &[b"more", b"!"], 0).unwrap();
    let ha = t.a.writer.hash(b"a");
    assert!(t.a.writer.expire(&pin, ha, b"a"));
    t.a.writer.delete_together(&pin, &[(hash, b"long"), (other, b"longer")]);
    t.a.writer.clear();
    let told = t.read();
    let effects: Vec<Vec<_>> =
        told.iter().map(|it| it.iter().map(|it| (it.lsn, it.effect)).collect()).collect();
    use Effect::{Based, Clear, Gone, Put};
    let wanted: [&[_]; 7] = [
        &[(1, Put)],
        &[(2, Put)],
        &[(3, Based)],
        &[(4, Based)],
        &[(5, Gone)],
        &[(6, Gone), (7, Gone)],
        &[(8, Clear)],
    ];
    assert_eq!(effects, wanted);
    let [a, long_put, touched, longer] = [0, 1, 2, 3].map(|i| &told[i][0]);
    assert_eq!((head(a).expiry_ms, head(a).flags, head(a).prev), (7, 0, 0));
    assert_eq!(a.change().key(), Ok(Some(&b"a"[..])));
    assert_eq!(a.payload.len(), 48, "32, the key in 8, the value");
    // The whole value is behind the record, though the entry may only name it.
    assert_eq!(head(long_put).flags, r::FLAG_RUN);
    assert!(long_put.payload.len() == 64 + long.len() && long_put.payload.ends_with(&long));
    // LSN 2 and 200,000 bytes of its own key: nothing is new.
    assert_eq!(touched.payload[..8], 2u64.to_le_bytes());
    assert_eq!(touched.payload[8..16], (LONG as u64).to_le_bytes());
    assert_eq!((touched.payload.len(), head(touched).expiry_ms), (16 + 64, 99));
    // LSN 3 of another key, of 4 bytes.
    assert_eq!(longer.payload[..8], 3u64.to_le_bytes());
    assert_eq!(longer.payload[8..16], (LONG as u64 | 4 << 32 | 1 << 48).to_le_bytes());
    assert!(longer.payload.ends_with(b"longmore!"), "the source's key, and what is new");
    assert_eq!(head(longer).flags, r::FLAG_RUN | r::FLAG_BASED);
    assert_eq!(head(&told[4][0]).flags, r::FLAG_TOMBSTONE);
    // All of this, but for the last, makes the same again.
    t.a.put(b"b", b"v", 0).unwrap();
    let (_dir, b) = replayed(&[told, t.read()].concat(), 16 * MIB);
    assert_eq!(state(&b), state(&t.a));
    assert_eq!(b.writer.stats().lsn, 9);
}

#[test]
fn dependencies_and_the_clock_are_of_one_commit() {
    let mut t = Telling::new(4 * MIB);
    t.a.writer.note_time(1234);
    t.a.writer.set_needs(&[(5, 6), (7, 8)]);
    t.a.put(b"a", b"1", 0).unwrap();
    t.a.put(b"a", b"2", 0).unwrap();
    let entry = t.reader.advance().unwrap().unwrap();
    assert_eq!((entry.clock_ms(), entry.stream()), (1234, STREAM));
    assert_eq!(entry.needs().collect::<Vec<_>>(), [(5, 6), (7, 8)]);
    assert_eq!(t.reader.advance().unwrap().unwrap().needs().count(), 0);
}

#[test]
fn a_run_stays_until_the_entries_that_name_it_have_left() {
    // The log's thread is slow: it has read none of three values when they are overwritten and
    // deleted.
    let mut t = Telling::new(16 * MIB);
    let values: Vec<Vec<u8>> = (0..3u8).map(|n| vec![n; 200_000]).collect();
    t.a.put(b"k", &values[0], 0).unwrap();
    t.a.put(b"k", &values[1], 0).unwrap();
    t.a.put(b"l", &values[2], 0).unwrap();
    assert!(t.a.delete(b"l"));
    for _ in 0..20 {
        let upkeep = t.a.turn();
        assert!(upkeep.waiting, "memory waits for the log's thread");
    }
    // What else is written takes other memory.
    t.a.put(b"m", &[9; 200_000], 0).unwrap();
    let stats = t.a.writer.stats();
    assert_eq!((stats.runs, stats.retired), (4, 0), "none of them is reused");
    let told = t.read();
    let told: Vec<&[u8]> = told.iter().map(|it| &*it[0].payload).collect();
    assert!((0..3).all(|n| told[n].ends_with(&values[n])));
    assert_eq!(t.a.writer.stats().runs, 4, "read isn't written");
    t.leave();
    t.a.settle();
    let stats = t.a.writer.stats();
    assert_eq!((stats.runs, stats.keys), (2, 2));
    assert_eq!(t.a.get(b"k"), Some(values[1].clone()));
}

#[test]
fn a_run_that_is_named_again_waits_for_the_later_entry() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"k", &[1; 200_000], 0).unwrap();
    let hash = t.a.writer.hash(b"k");
    t.read();
    let early = t.reader.position();
    t.a.writer.set_expiry(&t.a.me.pin(), hash, b"k", 5).unwrap();
    assert!(t.a.delete(b"k"));
    t.reader.written(early);
    assert!(t.ring.leave());
    (0..20).for_each(|_| _ = t.a.turn());
    assert_eq!(t.a.writer.stats().runs, 1, "the second entry names it too");
    t.read();
    t.leave();
    t.a.settle();
    assert_eq!(t.a.writer.stats().runs, 0);
}

#[test]
fn another_sum_of_a_value_is_told_to_the_logs_thread() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"k", &[1; 200_000], 0).unwrap();
    let hash = t.a.writer.hash(b"k");
    let at = t.a.reader.get(&t.a.me.pin(), hash, b"k").unwrap().value_ref().offset();
    let file = std::fs::OpenOptions::new().write(true).open(&t.a.spec.path).unwrap();
    file.write_all_at(&[9], at + 77).unwrap();
    let entry = t.reader.advance().unwrap().unwrap();
    let error = entry.changes().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("another sum") && error.contains("change 1"), "{error}");
}

#[test]
fn what_the_writer_removes_by_itself_waits_for_room() {
    // A full journal: keys that are over stay, and are removed when there is room again.
    let mut t = Telling::new(16 * MIB);
    for n in 0..2000u32 {
        t.a.put(&n.to_le_bytes(), b"v", 10).unwrap();
    }
    t.read();
    t.leave();
    let full = (0..100_000).find_map(|_| t.a.put(b"filler", &[1; 500], 0).err());
    assert_eq!(full, Some(WriteError::JournalFull));
    // Deletions go on for a while.
    let removal = t.a.writer.check_removal([4].into_iter());
    assert_eq!(removal, Ok(()));
    let mut removed = 1000u32;
    while t.a.writer.check_removal([4].into_iter()).is_ok() {
        assert!(t.a.delete(&removed.to_le_bytes()));
        removed += 1;
    }
    assert!(removed > 1200, "{removed}");
    let keys = t.a.writer.keys();
    let hash = t.a.writer.hash(&0u32.to_le_bytes());
    assert!(!t.a.writer.expire(&t.a.me.pin(), hash, &0u32.to_le_bytes()));
    assert_eq!(t.a.writer.expire_step(&t.a.me.pin(), 11, 10_000).0, 0);
    assert_eq!(t.a.writer.keys(), keys);
    t.read();
    t.leave();
    assert!(t.a.writer.expire(&t.a.me.pin(), hash, &0u32.to_le_bytes()));
    let mut steps = 0;
    while t.a.writer.keys() > 1 {
        t.a.writer.expire_step(&t.a.me.pin(), 11, 10_000);
        t.read();
        t.leave();
        steps += 1;
        assert!(steps < 1000);
    }
}

#[test]
fn a_removal_counts_what_a_refused_commit_has_left_behind() {
    let mut t = Telling::new(16 * MIB);
    for n in 0..2000u32 {
        t.a.put(&n.to_le_bytes(), b"v", 10).unwrap();
    }
    t.read();
    t.leave();
    while t.a.put(b"filler", &[1; 500], 0).is_ok() {}
    let mut removed = 1000u32;
    while t.a.writer.check_removal([4; 6].into_iter()).is_ok() {
        assert!(t.a.delete(&removed.to_le_bytes()));
        removed += 1;
    }
    // What the refused commit depends on goes with the next one.
    t.a.writer.set_needs(&[(STREAM + 1, 7); 64]);
    assert_eq!(t.a.put(b"a", b"v", 0), Err(WriteError::JournalFull));
    let hash = t.a.writer.hash(&0u32.to_le_bytes());
    assert!(!t.a.writer.expire(&t.a.me.pin(), hash, &0u32.to_le_bytes()));
}

#[test]
fn removals_go_on_beside_a_value_as_long_as_the_ring() {
    // The log's thread has a long value to write. The value once took the reserve of removals too:
    // each of them was refused, though the ring was almost empty.
    let mut t = Telling::new(16 * MIB);
    for n in 0..1000u32 {
        t.a.put(&n.to_le_bytes(), b"v", 0).unwrap();
    }
    t.read();
    t.leave();
    t.a.put(b"long", &vec![1; MIB as usize], 0).unwrap();
    for _ in 0..2 {
        assert_eq!(t.a.writer.check_removal([4].into_iter()), Ok(()));
        assert_eq!(t.a.writer.check_clear(), Ok(()));
        assert_eq!(t.a.put(b"a", b"v", 0), Err(WriteError::JournalFull));
        assert!(!t.ring.leave(), "the next turn has no more room");
    }
    let mut removed = 0u32;
    while t.a.writer.check_removal([4].into_iter()).is_ok() {
        assert!(t.a.delete(&removed.to_le_bytes()));
        removed += 1;
    }
    assert_eq!(removed, (64 << 10) / 128 - 1, "as many as the reserve takes");
    t.read();
    t.leave();
    t.a.put(b"a", b"v", 0).unwrap();
}

#[test]
fn a_clearing_asks_for_room_for_all_of_its_entry() {
    // The check once counted no change. Such an entry is smaller by 32 bytes if a refused commit
    // has left a dependency behind. So where 64 bytes are left up to the ring's end, and 64 behind
    // that, it found room, and the entry none.
    let mut t = Telling::new(16 * MIB);
    t.a.writer.clear();
    t.read();
    t.leave();
    assert_eq!(t.ring.left(), 64);
    for n in 0..1000u32 {
        t.a.put(&n.to_le_bytes(), b"v", 0).unwrap();
    }
    while t.a.put(b"filler", &[1; 536], 0).is_ok() {}
    let mut removed = 0u32;
    while t.ring.used_bytes() < MIB - 128 {
        assert!(t.a.delete(&removed.to_le_bytes()));
        removed += 1;
    }
    assert_eq!(t.ring.tail(), MIB - 64);
    t.a.writer.set_needs(&[(STREAM + 1, 7)]);
    assert_eq!(t.a.writer.check_clear(), Err(WriteError::JournalFull));
    assert_eq!(t.a.writer.commit(&t.a.me.pin(), true, &[]), Err(WriteError::JournalFull));
    t.read();
    t.leave();
    assert_eq!(t.a.writer.commit(&t.a.me.pin(), true, &[]), Ok(()));
    assert_eq!(t.a.writer.keys(), 0);
}

#[test]
fn writers_of_one_shard_share_a_ring() {
    let mut t = Telling::new(4 * MIB);
    let mut other = Arena::create(&spec(t.dir.path().join("other"), 4 * MIB));
    other.writer.set_journal(&t.ring, STREAM + 1);
    for n in 0..4u8 {
        t.a.put(&[n], b"v", 0).unwrap();
        other.put(&[n], b"v", 0).unwrap();
    }
    let mut streams = Vec::new();
    while let Some(entry) = t.reader.advance().unwrap() {
        streams.push((entry.stream(), entry.first_lsn()));
    }
    let wanted = (1..5).flat_map(|lsn| [(STREAM, lsn), (STREAM + 1, lsn)]);
    assert_eq!(streams, wanted.collect::<Vec<_>>());
}

#[test]
fn an_older_version_that_a_log_has_again_is_skipped() {
    let mut t = Telling::new(4 * MIB);
    t.a.put(b"k", b"old", 0).unwrap();
    t.a.put(b"l", b"other", 0).unwrap();
    t.a.put(b"k", b"new", 0).unwrap();
    let told = t.read();
    // A compaction appends `l` again behind all, with its number. (And an older `k`, as it never
    // would.)
    let again = [told.clone(), vec![told[1].clone(), told[0].clone()]].concat();
    let (_dir, b) = replayed(&again, 4 * MIB);
    assert_eq!((state(&b), b.writer.stats().lsn), (state(&t.a), 3));
}

#[test]
fn what_stands_on_nothing_is_removed_and_told_and_the_rest_of_its_commit_is_done() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"long", &[1; 200_000], 0).unwrap();
    let (hash, pin) = (t.a.writer.hash(b"long"), t.a.me.pin());
    let record = t.a.reader.get(&pin, hash, b"long").unwrap().reference();
    let (to, new) = (t.a.writer.hash(b"to"), t.a.writer.hash(b"new"));
    let staged = [
        t.a.writer.stage_delete(hash, b"long").unwrap(),
        t.a.writer.stage_moved_run(&pin, record, to, b"to", 0).unwrap(),
        t.a.writer.stage(new, b"new", &[b"v"], 0).unwrap(),
    ];
    t.a.writer.commit(&pin, false, &staged).unwrap();
    let told = t.read();
    let (dir, mut b) = replayed(&[], 16 * MIB);
    b.put(b"to", b"an older one", 0).unwrap();
    let changes: Vec<_> = told[1].iter().map(KeptChange::change).collect();
    assert_eq!(replay(&mut b, &changes), Ok(vec![1]));
    assert_eq!((b.get(b"to"), b.get(b"new").as_deref()), (None, Some(&b"v"[..])));
    // Alone, too.
    drop((dir, b));
    let (dir, mut b) = replayed(&[], 16 * MIB);
    b.put(b"to", b"an older one", 0).unwrap();
    assert_eq!(replay(&mut b, &[changes[1]]), Ok(vec![0]));
    assert_eq!(b.get(b"to"), None);
    drop((dir, b));
    // With its base it is what it was.
    let (_dir, b) = replayed(&told, 16 * MIB);
    assert_eq!(state(&b), state(&t.a));
}

#[test]
fn a_change_with_wrong_bytes_is_refused_and_named() {
    let mut t = Telling::new(16 * MIB);
    t.a.put(b"k", b"value", 0).unwrap();
    t.a.put(b"long", &[1; 200_000], 0).unwrap();
    let (hash, pin) = (t.a.writer.hash(b"long"), t.a.me.pin());
    let record = t.a.reader.get(&pin, hash, b"long").unwrap().reference();
    t.a.writer.extend(&pin, record, (hash, b"long"), &[b"more"], 0).unwrap();
    let told = t.read();
    let (_dir, mut b) = replayed(&told[..2], 16 * MIB);
    let before = state(&b);
    for (n, at) in [(0, 40), (1, 40), (1, 70_000), (2, 20), (2, 16 + 64 + 1)] {
        let mut bad = told[n][0].clone();
        bad.lsn += 100;
        let at_lsn = if n == 2 { 24 } else { 8 };
        bad.payload[at_lsn..at_lsn + 8].copy_from_slice(&bad.lsn.to_le_bytes());
        bad.payload[at] ^= 1;
        let refused = replay(&mut b, &[bad.change()]);
        let lsn = bad.lsn;
        assert!(matches!(refused, Err(ReplayError::Record { lsn: it, .. }) if it == lsn), "{at}");
        // In a commit of several none is done.
        let good = KeptChange { lsn: lsn - 1, ..told[0][0].clone() };
        assert!(replay(&mut b, &[good.change(), bad.change()]).is_err());
    }
    assert_eq!(state(&b), before);
}

#[derive(Debug, Clone)]
enum HistoryStep {
    Put(u8, usize, u64),
    Delete(u8),
    Touch(u8, u64),
    Extend(u8, u8, usize),
    Commit(bool, Vec<(u8, Option<usize>)>),
    Rename(u8, u8),
    Clear,
    Settle,
}

fn history() -> impl Strategy<Value = Vec<HistoryStep>> {
    let len = || prop_oneof![6 => 0..300usize, 2 => 66_000..200_000usize];
    let key = || 0..12u8;
    let change = (key(), prop_oneof![3 => len().prop_map(Some), 1 => Just(None)]);
    let step = prop_oneof![
        8 => (key(), len(), 0..3u64).prop_map(|(k, len, e)| HistoryStep::Put(k, len, e * 7)),
        3 => key().prop_map(HistoryStep::Delete),
        3 => (key(), 0..9u64).prop_map(|(k, e)| HistoryStep::Touch(k, e)),
        5 => (key(), key(), 0..5000usize).prop_map(|(a, b, n)| HistoryStep::Extend(a, b, n)),
        4 => (prop_oneof![9 => Just(false), 1 => Just(true)], proptest::collection::vec(change, 1..6))
            .prop_map(|(clears, list)| HistoryStep::Commit(clears, list)),
        4 => (key(), key()).prop_map(|(a, b)| HistoryStep::Rename(a, b)),
        1 => Just(HistoryStep::Clear),
        2 => Just(HistoryStep::Settle),
    ];
    proptest::collection::vec(step, 1..60)
}

impl HistoryStep {
    /// Does it; what finds no memory in this small arena isn't done.
    fn run(&self, a: &mut Arena) {
        let name = |k: &u8| format!("key{k}").into_bytes();
        let value = |k: &u8, len: usize| vec![*k ^ len as u8; len];
        match self {
            HistoryStep::Put(k, len, expiry) => {
                let _ = a.soon(|a| a.put(&name(k), &value(k, *len), *expiry));
            }
            HistoryStep::Delete(k) => _ = a.delete(&name(k)),
            HistoryStep::Touch(k, expiry) => {
                let (hash, key) = (a.writer.hash(&name(k)), name(k));
                let _ = a.soon(|a| a.writer.set_expiry(&a.me.pin(), hash, &key, *expiry));
            }
            HistoryStep::Extend(from, to, len) => {
                let (from, to) = (name(from), name(to));
                let more = vec![7; *len];
                let _ = a.soon(|a| {
                    let (pin, hash) = (a.me.pin(), a.writer.hash(&from));
                    let Some(record) = a.reader.get(&pin, hash, &from) else { return Ok(()) };
                    let (record, to_hash) = (record.reference(), a.writer.hash(&to));
                    a.writer.extend(&pin, record, (to_hash, &to), &[&more], 3)
                });
            }
            HistoryStep::Commit(clears, list) => {
                let mut staged = Vec::new();
                for (k, len) in list {
                    let (key, hash) = (name(k), a.writer.hash(&name(k)));
                    let one = match len {
                        Some(len) => a.writer.stage(hash, &key, &[&value(k, *len)], 0),
                        None => a.writer.stage_delete(hash, &key),
                    };
                    staged.extend(one);
                }
                if a.writer.commit(&a.me.pin(), *clears, &staged).is_err() {
                    a.writer.abandon(&staged);
                }
            }
            HistoryStep::Rename(from, to) if from != to => {
                let (from, to) = (name(from), name(to));
                let (pin, hash) = (a.me.pin(), a.writer.hash(&from));
                let Some(record) = a.reader.get(&pin, hash, &from) else { return };
                let (record, to_hash) = (record.reference(), a.writer.hash(&to));
                let moved = a.writer.stage_moved_run(&pin, record, to_hash, &to, 0);
                let mut staged = Vec::from_iter(a.writer.stage_delete(hash, &from));
                staged.extend(moved);
                if staged.len() < 2 || a.writer.commit(&pin, false, &staged).is_err() {
                    a.writer.abandon(&staged);
                }
            }
            HistoryStep::Rename(..) => {}
            HistoryStep::Clear => a.writer.clear(),
            HistoryStep::Settle => _ = a.turn(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever happened to an arena, its journal makes it again, with values, expiries and
    /// numbers; also where slots are larger, so that values lie elsewhere.
    #[test]
    fn a_history_makes_the_same_arena_again(steps in history(), holds in any::<bool>()) {
        let mut t = if holds { Telling::holding(6 * MIB) } else { Telling::new(6 * MIB) };
        let mut told = Vec::new();
        for step in &steps {
            step.run(&mut t.a);
            told.extend(t.read());
            t.leave();
        }
        let lsns: Vec<u64> = told.iter().flatten().map(|it: &KeptChange| it.lsn).collect();
        prop_assert_eq!(&lsns, &(1..=lsns.len() as u64).collect::<Vec<_>>(), "no gap");
        prop_assert_eq!(lsns.len() as u64, t.a.writer.stats().lsn);
        for capacity in [12 * MIB, 600 * MIB] {
            let (_dir, b) = replayed(&told, capacity);
            prop_assert!(state(&b) == state(&t.a));
            prop_assert_eq!(b.writer.stats().lsn, t.a.writer.stats().lsn);
            let path = b.spec.path.clone();
            drop(b);
            let report = verify(&path).unwrap();
            prop_assert!(report.findings.is_empty() && report.bad_records.is_empty(), "{report:?}");
        }
    }
}
