//! What an arena promises, one story a test.

use super::{Arena, directory, spec};
use crate::format::layout::is_over;
use crate::space::Need;
use crate::{ArenaError, Domain, UpkeepBudget, WriteError, Writer, verify};

const MIB: u64 = 1 << 20;

#[test]
fn what_was_put_is_found_until_it_is_deleted() {
    // A key lives: absent, set, overwritten, expiring, deleted.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    assert_eq!(a.get(b"k"), None);
    a.put(b"k", b"one", 0).unwrap();
    a.put(b"k", b"two", 0).unwrap();
    assert_eq!(a.get(b"k").unwrap(), b"two");
    let hash = a.writer.hash(b"k");
    assert!(a.writer.set_expiry(&a.me.pin(), hash, b"k", 77).unwrap());
    assert!(!a.writer.set_expiry(&a.me.pin(), 1, b"absent", 77).unwrap());
    let pin = a.me.pin();
    let record = a.reader.get(&pin, hash, b"k").unwrap();
    assert_eq!((record.value(), record.expiry_ms(), record.key()), (&b"two"[..], 77, &b"k"[..]));
    assert_eq!((a.writer.keys(), a.writer.expires()), (1, 1));
    assert!(a.delete(b"k") && !a.delete(b"k"));
    assert_eq!((a.get(b"k"), a.writer.keys(), a.writer.expires()), (None, 0, 0));
}

#[test]
fn an_arena_of_a_few_keys_is_small() {
    // Thousands of tenants: a default-sized arena with ten keys takes well under 1 MiB.
    let dir = directory();
    let path = dir.path().join("a");
    let mut a = Arena::create(&spec(path.clone(), 12 << 30));
    for i in 0..10u32 {
        a.put(&i.to_le_bytes(), b"value", 0).unwrap();
    }
    a.settle();
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    assert!(blocks < 256 << 10, "{blocks} bytes");
    assert!(a.writer.stats().backed_bytes >= blocks - (64 << 10));
}

#[test]
fn a_record_stays_while_its_pin_does_and_memory_comes_back_after() {
    // A reader holds a value while the writer overwrites everything many times over.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 32 * MIB));
    a.put(b"held", &[7; 1000], 0).unwrap();
    let hash = a.writer.hash(b"held");
    {
        let pin = a.me.pin();
        let held = a.reader.get(&pin, hash, b"held").unwrap();
        let mut refused = false;
        for i in 0..200_000u32 {
            let key = (i % 10).to_le_bytes();
            let key_hash = a.writer.hash(&key);
            refused |= a.writer.put(&pin, key_hash, &key, &[&[i as u8; 500]], 0).is_err();
            a.writer.put(&pin, hash, b"held", &[&[8; 1000]], 0).ok();
        }
        assert!(refused, "without a quiescent state nothing is reused, so the arena fills");
        assert_eq!(held.value(), &[7; 1000]);
    }
    a.me.quiescent();
    for i in 0..200_000u32 {
        a.put(&(i % 10).to_le_bytes(), &[i as u8; 500], 0).unwrap();
        a.me.quiescent();
    }
    assert!(a.writer.stats().retired < 200);
}

#[test]
fn a_full_arena_refuses_and_loses_nothing() {
    // Fill to OOM; everything stays readable; deletes, expiries and clear still work.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let mut n = 0u32;
    loop {
        match a.put_soon(&n.to_le_bytes(), &[n as u8; 100]) {
            Ok(()) => n += 1,
            Err(error) => break assert_eq!(error, WriteError::Oom),
        }
        if n.is_multiple_of(100) {
            a.turn();
        }
    }
    let usable = u64::from(n) * 144 * 100 / (4 * MIB);
    assert!(usable >= 75, "only {usable} % of a small arena");
    for i in 0..n {
        assert_eq!(a.get(&i.to_le_bytes()).unwrap(), [i as u8; 100]);
    }
    for i in 0..100u32 {
        let hash = a.writer.hash(&i.to_le_bytes());
        let there = a.soon(|a| a.writer.set_expiry(&a.me.pin(), hash, &i.to_le_bytes(), 99));
        assert!(there.unwrap());
        assert!(a.delete(&(i + 100).to_le_bytes()));
    }
    assert_eq!(a.writer.keys(), u64::from(n) - 100);
    a.writer.clear();
    assert_eq!((a.writer.keys(), a.get(&[0; 4])), (0, None));
    a.settle();
    for i in 0..n / 2 {
        a.put_soon(&i.to_le_bytes(), &[1; 100]).unwrap();
    }
}

#[test]
fn a_closed_segment_is_backed_whole() {
    // The first segment is backed step by step. What is left of it when it closes is backed then:
    // it will be reused as a whole, and its first touch must not be the one that takes memory.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 256 * MIB));
    let before = a.writer.stats().backed_bytes;
    a.put(b"a", &[1; 400_000], 0).unwrap();
    assert_ne!((a.writer.stats().backed_bytes - before) % MIB, 0, "the head is backed in part");
    a.put(b"b", &[1; 400_000], 0).unwrap();
    a.put(b"c", &[1; 400_000], 0).unwrap();
    a.settle();
    assert_eq!((a.writer.stats().backed_bytes - before) % MIB, 0, "slots of 1 MiB, all whole");
}

#[test]
fn large_values_lie_in_runs_and_give_their_memory_back() {
    // Values of half a slot and more, overwritten, expiring, moved, deleted.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let value =
        |n: usize, seed: u8| (0..n).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect::<Vec<_>>();
    for (i, n) in [100_000, 131_072, 262_144, 1_000_000, 5_000_000].into_iter().enumerate() {
        a.put(&[i as u8], &value(n, 3), 0).unwrap();
        a.put(&[i as u8], &value(n, 4), 0).unwrap();
        assert_eq!(a.get(&[i as u8]).unwrap(), value(n, 4));
    }
    let hash = a.writer.hash(&[4]);
    let runs = a.writer.stats().runs;
    assert!(a.writer.set_expiry(&a.me.pin(), hash, &[4], 12).unwrap());
    assert_eq!(a.writer.stats().runs, runs, "the run moved along");
    assert_eq!(a.get(&[4]).unwrap(), value(5_000_000, 4));
    let (mut b, adoption) = {
        a.settle();
        a.again()
    };
    assert_eq!((adoption.keys, b.writer.stats().runs), (5, runs));
    assert_eq!(b.get(&[4]).unwrap(), value(5_000_000, 4));
    for i in 0..5u8 {
        assert!(b.delete(&[i]));
    }
    b.settle();
    let stats = b.writer.stats();
    assert_eq!(stats.runs, 0);
    assert!(stats.backed_bytes < 4 * MIB, "{stats:?}");
}

#[test]
fn the_longest_key_fits_and_a_longer_one_is_refused() {
    // Keys at the border, with small and with large values, in the smallest slots.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let key = vec![b'k'; 65_535];
    for value in [vec![], vec![1; 100], vec![2; 65_536], vec![3; 200_000]] {
        a.put(&key, &value, 0).unwrap();
        assert_eq!(a.get(&key).unwrap(), value);
        a.me.quiescent();
    }
    let longer = vec![b'k'; 65_536];
    assert_eq!(a.put(&longer, b"", 0), Err(WriteError::KeyTooLong { len: 65_536 }));
    assert_eq!(a.put(b"", b"empty key", 0), Ok(()));
    assert_eq!(a.get(b"").unwrap(), b"empty key");
}

#[test]
fn many_keys_survive_growth_and_adoption() {
    // The index grows from its first table through several, then another process takes over.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 256 * MIB));
    let n = 200_000u32;
    for i in 0..n {
        let key = format!("key:{i}");
        a.soon(|a| a.put(key.as_bytes(), &i.to_le_bytes(), u64::from(i % 3))).unwrap();
        if i % 64 == 0 {
            a.turn();
        }
    }
    let expires = a.writer.expires();
    let stats = a.writer.stats();
    assert!(stats.index_lines * 8 <= 1 << 19, "{stats:?}");
    let (a, adoption) = a.again();
    assert_eq!((adoption.keys, adoption.expires), (u64::from(n), expires));
    for i in 0..n {
        assert_eq!(a.get(format!("key:{i}").as_bytes()).unwrap(), i.to_le_bytes());
    }
    let report = verify(&a.spec.path).unwrap();
    assert_eq!((report.findings.len(), report.keys), (0, u64::from(n)));
    assert_eq!(report.live_bytes, a.writer.stats().used_bytes);
}

#[test]
fn an_index_that_must_finish_its_growth_does_so_in_steps() {
    // A key that finds no place in the table to which the index moves needs the move to end. It
    // isn't made to wait for all of it: each try moves so many lines, and the turns between go on
    // with it. (Once, one write moved them all.)
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 256 * MIB));
    let mut n = 0u32;
    while !(a.writer.index.growing() && a.writer.stats().index_lines >= 1 << 16) {
        a.put_soon(&n.to_le_bytes(), b"v").unwrap();
        n += 1;
    }
    let old = a.writer.index.old().expect("it grows").lines;
    let mut tries = 1;
    while a.writer.finish_growth().is_err() {
        tries += 1;
    }
    let most = u64::from(crate::write::grow::FINISH_LINES);
    assert!(tries >= old / most, "{tries} tries for {old} lines");
    assert!((0..n).all(|i| a.get(&i.to_le_bytes()).is_some()));
}

#[test]
fn several_keys_appear_together() {
    // Staged writes are nobody's until they are committed, and gone when they are abandoned.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    a.put(b"a", b"old", 0).unwrap();
    a.put(b"b", &vec![9; 500_000], 0).unwrap();
    let h = |a: &Arena, k: &[u8]| a.writer.hash(k);
    let (ha, hb, hc) = (h(&a, b"a"), h(&a, b"b"), h(&a, b"c"));
    let set = a.writer.stage(ha, b"a", &[b"n", b"ew"], 5).unwrap();
    let from = a.reader.get(&a.me.pin(), hb, b"b").unwrap().reference();
    let moved = a.writer.stage_moved_run(&a.me.pin(), from, hc, b"c", 0).unwrap();
    let gone = a.writer.stage_delete(hb, b"b").unwrap();
    assert_eq!(a.get(b"a").unwrap(), b"old");
    assert_eq!(a.reader.record(&a.me.pin(), set).unwrap().value(), b"new");
    a.writer.commit(&a.me.pin(), false, &[set, gone, moved]).unwrap();
    assert_eq!((a.get(b"a").unwrap(), a.get(b"b")), (b"new".to_vec(), None));
    assert_eq!(a.get(b"c").unwrap(), vec![9; 500_000]);
    assert_eq!((a.writer.keys(), a.writer.expires(), a.writer.stats().runs), (2, 1, 1));
    let staged = a.writer.stage(ha, b"a", &[&vec![1; 300_000]], 0).unwrap();
    assert_eq!(a.writer.stats().runs, 2);
    a.writer.abandon(&[staged]);
    a.settle();
    assert_eq!((a.get(b"a").unwrap(), a.writer.stats().runs), (b"new".to_vec(), 1));
    let only = a.writer.stage(hb, b"b", &[b"only"], 0).unwrap();
    a.writer.commit(&a.me.pin(), true, &[only]).unwrap();
    a.settle();
    let stats = a.writer.stats();
    assert_eq!((a.get(b"a"), a.get(b"c"), a.get(b"b").unwrap()), (None, None, b"only".to_vec()));
    assert_eq!((stats.keys, stats.expires, stats.runs), (1, 0, 0));
    let (a, adoption) = a.again();
    assert_eq!(
        (adoption.keys, adoption.redone_intent, a.get(b"b").unwrap()),
        (1, false, b"only".to_vec())
    );
}

#[test]
fn a_large_commit_finds_places_in_a_small_table() {
    // MSET of many new keys into the first table: it grows before the intent is stored.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    for round in 0..3u32 {
        let keys: Vec<String> = (0..20_000).map(|i| format!("{round}:{i}")).collect();
        let staged: Vec<_> = keys
            .iter()
            .map(|k| a.writer.stage(a.writer.hash(k.as_bytes()), k.as_bytes(), &[b"v"], 0).unwrap())
            .collect();
        a.writer.commit(&a.me.pin(), round == 2, &staged).unwrap();
        assert!(keys.iter().all(|k| a.get(k.as_bytes()).is_some()));
        a.turn();
    }
    assert_eq!(a.writer.keys(), 20_000);
}

#[test]
fn too_many_keys_with_one_hash_are_refused_and_lose_nothing() {
    // Colliding keys fill their sixteen lines; the next is refused, the others stay, also over
    // growth, which finds room for all of them and ends. (With the second seed it began for a key
    // of theirs, and some stayed in the old table for ever.)
    for seed in [1, 11] {
        let dir = directory();
        let arena = crate::ArenaSpec { seed: Some(seed), ..spec(dir.path().join("a"), 64 * MIB) };
        let mut a = Arena::create(&arena);
        for i in 0..2000u32 {
            a.put(&i.to_le_bytes(), b"x", 0).unwrap();
        }
        let put = |a: &mut Arena, i: u32| {
            let key = format!("same {i}");
            a.writer.put(&a.me.pin(), 42, key.as_bytes(), &[b"v"], 0)
        };
        let mut n = 0;
        let refused = loop {
            match put(&mut a, n) {
                Ok(()) => n += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, WriteError::TooManyKeysWithOneHash);
        assert!((50..=128).contains(&n), "{n} keys with one hash");
        let mut same: Vec<u32> = (0..n).collect();
        assert_eq!(put(&mut a, 0), Ok(()), "overwriting needs no place");
        // A key with that very home line is refused too; all others find their place.
        let mut there: Vec<u32> = (0..2000).collect();
        for i in 2000..20_000u32 {
            match a.put_soon(&i.to_le_bytes(), b"x") {
                Ok(()) => there.push(i),
                Err(error) => assert_eq!(error, WriteError::TooManyKeysWithOneHash),
            }
            // A larger table may have some places more, of those that other keys had.
            same.extend(put(&mut a, i).is_ok().then_some(i));
        }
        assert!(there.len() > 19_800 && same.len() <= 128, "{} {}", there.len(), same.len());
        let turns = (0..5000).take_while(|_| {
            a.turn();
            a.writer.stats().growing
        });
        assert!(turns.count() < 5000, "growth ends");
        for i in same {
            let (key, pin) = (format!("same {i}"), a.me.pin());
            assert!(a.reader.get(&pin, 42, key.as_bytes()).is_some(), "{i}");
            assert!(a.writer.delete(&pin, 42, key.as_bytes()), "{i}");
        }
        for i in there {
            let (key, pin) = (i.to_le_bytes(), a.me.pin());
            assert!(a.reader.get(&pin, a.reader.hash(&key), &key).is_some(), "{i}");
            a.put(&key, b"y", 0).unwrap();
        }
        a.turn();
        assert!(!a.writer.stats().growing, "writes have found places for what was stuck");
    }
}

#[test]
fn expired_keys_are_swept() {
    // Active expiry deletes what is due, and nothing else.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    for i in 0..1000u32 {
        a.put(&i.to_le_bytes(), b"v", u64::from(i % 4) * 1000).unwrap();
    }
    let mut deleted = 0;
    for _ in 0..200 {
        deleted += a.writer.expire_step(&a.me.pin(), 2001, 16).0;
    }
    assert_eq!((deleted, a.writer.keys(), a.writer.expires()), (500, 500, 250));
    assert_eq!(a.writer.stats().mean_left_ms, 999, "all others expire at 3000");
    let pin = a.me.pin();
    let mut n = 0u64;
    let mut rng = || {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        n >> 20
    };
    let random = a.reader.random(&pin, &mut rng).unwrap();
    assert!(random.expiry_ms() == 0 || random.expiry_ms() == 3000);
    // A round that ended before all was cleared says nothing of a key that came later.
    a.writer.clear();
    a.put(b"later", b"v", 1_000_000).unwrap();
    assert_eq!((a.writer.expires(), a.writer.stats().mean_left_ms), (1, 0));
}

#[test]
fn one_arena_has_one_writer_in_a_process() {
    // Adopting what is still in use is refused, as is creating what exists and adopting another's.
    let dir = directory();
    let a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let error = Writer::adopt(&a.spec, &a.domain).err().unwrap();
    assert!(matches!(error, ArenaError::InUse { .. }), "{error}");
    let error = Writer::create(&a.spec, &a.domain).err().unwrap();
    assert!(matches!(error, ArenaError::Io { .. }), "{error}");
    let (spec, domain) = (a.spec.clone(), Domain::new(1));
    drop(a);
    let other = crate::ArenaSpec { tenant: "other".into(), ..spec.clone() };
    let error = Writer::adopt(&other, &domain).err().unwrap();
    assert!(
        error.to_string().contains("belongs to tenant test 0/1, expected other 0/1"),
        "{error}"
    );
    let (_, adoption) = Writer::adopt(&spec, &domain).unwrap();
    assert_eq!((adoption.keys, adoption.incarnation), (0, 4));
    assert!(std::fs::read_dir(dir.path()).unwrap().count() == 1, "no temporary file is left");
}

#[test]
fn an_arena_can_be_adopted_at_once_however_late_its_memory_thread_is() {
    // The thread is held up before a job, and behind it while it still has the mapping in its
    // hands. The dropped writer waits for both, so the next one never finds the arena in use.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    for round in 0..5u32 {
        a.domain.provisioner().slow.set(20_000);
        let mut i = 0u32;
        while !a.writer.space.busy() {
            a.put(&[&round.to_le_bytes()[..], &i.to_le_bytes()].concat(), &[1; 4000], 0).unwrap();
            a.turn();
            i += 1;
        }
        if round % 2 == 1 {
            // Its last job is done, as far as the writer is told.
            a.settle();
        }
        a = a.again().0;
    }
}

#[test]
fn no_story_depends_on_how_soon_the_memory_thread_runs() {
    // Those that look at memory most are told again by a child whose thread is held up at each job.
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["tests::model::", "tests::churn::", "a_full_arena_refuses"]);
    child.env(crate::failpoints::SLOW_JOBS_VARIABLE, "1000");
    let output = child.output().expect("the test binary");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn clearing_forgets_everything_and_gives_memory_back() {
    // FLUSHALL in the middle of growth, with runs and staged records about.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 64 * MIB));
    let mut i = 0u32;
    while !a.writer.stats().growing || i < 5000 {
        a.put(&i.to_le_bytes(), &[1; 300], 1).unwrap();
        i += 1;
    }
    a.put(b"large", &vec![1; 2_000_000], 0).unwrap();
    let hash = a.writer.hash(b"staged");
    let staged = a.writer.stage(hash, b"staged", &[&vec![6; 400_000]], 0).unwrap();
    a.writer.clear();
    assert_eq!((a.writer.keys(), a.writer.expires(), a.writer.stats().growing), (0, 0, false));
    a.settle();
    a.writer.commit(&a.me.pin(), false, &[staged]).unwrap();
    assert_eq!(a.get(b"staged").unwrap(), vec![6; 400_000]);
    let stats = a.writer.stats();
    assert!(stats.backed_bytes < 6 * MIB && stats.runs == 1, "{stats:?}");
}

#[test]
fn a_time_is_over_a_millisecond_after_the_expiry() {
    // The sweep and the cleaner each meet a key at exactly its expiry, and a millisecond later.
    // Readers and scripts say the same of it.
    const EXPIRY: u64 = 5000;
    assert!(!is_over(EXPIRY, EXPIRY) && is_over(EXPIRY, EXPIRY + 1));
    assert!(!is_over(0, u64::MAX) && !is_over(0, 0) && !is_over(u64::MAX, u64::MAX));
    let dir = directory();
    for now_ms in [EXPIRY, EXPIRY + 1] {
        let left = u64::from(now_ms == EXPIRY);
        let mut a = Arena::create(&spec(dir.path().join(format!("sweep{now_ms}")), 8 * MIB));
        a.put(b"k", b"v", EXPIRY).unwrap();
        a.writer.expire_step(&a.me.pin(), now_ms, 64);
        assert_eq!((a.writer.keys(), a.writer.expires()), (left, left), "swept at {now_ms}");
        // The cleaner moves or deletes the one live record of a segment that is dead but for it.
        let mut a = Arena::create(&spec(dir.path().join(format!("clean{now_ms}")), 8 * MIB));
        a.put(b"k", b"v", EXPIRY).unwrap();
        for _ in 0..40 {
            a.put(b"other", &[0; 30_000], 0).unwrap();
        }
        let budget = UpkeepBudget { now_ms, ..UpkeepBudget::default() };
        let done = |a: &Arena| {
            let stats = a.writer.stats().cleaner;
            stats.relocated_records + stats.expired_keys > 0
        };
        for turn in 0.. {
            a.me.quiescent();
            a.writer.maintain(budget);
            a.writer.clean(1 << 20, Need::Pressure);
            if done(&a) {
                break;
            }
            assert!(turn < 1000, "never cleaned: {:?}", a.writer.stats());
        }
        assert_eq!(a.get(b"k").is_some(), now_ms == EXPIRY, "cleaned at {now_ms}");
    }
}
