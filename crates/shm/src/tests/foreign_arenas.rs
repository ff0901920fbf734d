//! All partitions of a tenant, read from another process.

use super::{Arena, directory, spec};
use crate::format::layout::header;
use crate::format::words::SharedWords;
use crate::{ArenaError, ArenaSpec, ForeignArenas, ForeignReader, ForeignValues, partition_of};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

/// The arenas of a tenant, and its reader.
fn tenant(dir: &tempfile::TempDir, partitions: u32) -> (Vec<Arena>, ForeignArenas) {
    let create = |partition: u32| {
        let path = dir.path().join(format!("{partition} of {partitions}"));
        Arena::create(&ArenaSpec { partition, partitions, ..spec(path, 8 * MIB) })
    };
    let arenas: Vec<Arena> = (0..partitions).map(create).collect();
    let open = |a: &Arena| ForeignReader::open(&a.spec.path).unwrap();
    let foreign = ForeignArenas::new(arenas.iter().map(open).collect());
    (arenas, foreign)
}

/// Sets a key to itself. Returns its partition.
fn put(arenas: &mut [Arena], key: &str) -> usize {
    let hash_of = |key: &[u8]| arenas[0].writer.hash(key);
    let partition = partition_of(key.as_bytes(), hash_of(key.as_bytes()), arenas.len(), hash_of);
    arenas[partition].put(key.as_bytes(), key.as_bytes(), 0).unwrap();
    partition
}

#[test]
fn keys_of_several_partitions_are_read_together() {
    // Those of each partition by one read, which tells its moment. The values of before are gone.
    let dir = directory();
    for partitions in [1, 2, 3] {
        let (mut arenas, foreign) = tenant(&dir, partitions);
        assert_eq!(foreign.partitions(), arenas.len());
        let mut keys: Vec<String> = (0..20).map(|i| format!("key {i}")).collect();
        keys.extend((0..20).map(|i| format!("key {i} {{tag}}")));
        let mut taken = BTreeSet::new();
        for key in &keys {
            let partition = put(&mut arenas, key);
            assert_eq!(foreign.partition(key.as_bytes()), partition, "{key}");
            let found = foreign.arena(partition).get(key.as_bytes(), &mut Vec::new());
            assert_eq!(found.unwrap(), Some(0));
            taken.insert(partition);
        }
        assert_eq!(taken.len(), arenas.len(), "keys in all partitions");
        keys.insert(7, "none".into());
        let (mut values, mut moments) = (ForeignValues::new(), Vec::new());
        let mut read = |values: &mut ForeignValues, keys: &[&[u8]]| {
            moments.clear();
            let mut moment = |partition, lsn| moments.push((partition, lsn));
            foreign.multi_get_into(keys, values, &mut moment).unwrap();
            moments.clone()
        };
        let bytes: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        let wanted = taken.iter().map(|&it| (it, arenas[it].writer.stats().lsn));
        assert_eq!(read(&mut values, &bytes), Vec::from_iter(wanted));
        for (number, key) in bytes.iter().enumerate() {
            let is_there = *key != b"none";
            assert_eq!(values.get(number), is_there.then_some(*key));
            assert_eq!(values.version(number).is_some(), is_there);
        }
        // A partition that has none of the keys is not read.
        let partition = foreign.partition(b"none");
        let moment = (partition, arenas[partition].writer.stats().lsn);
        assert_eq!(read(&mut values, &[b"none"]), [moment]);
        assert_eq!((values.len(), values.get(0), values.get(1)), (1, None, None));
        assert_eq!((read(&mut values, &[]), values.is_empty()), (vec![], true));
    }
}

/// A step of a walk as the lines say: how many keys it passes on.
fn steps_by_lines(lines: &[u64], count: u64) -> Vec<u64> {
    let (mut steps, mut left) = (Vec::new(), lines);
    while !left.is_empty() {
        let (mut met, mut visited) = (0, 0);
        while visited < left.len() && (visited as u64) < 10 * count && met < count {
            met += left[visited];
            visited += 1;
        }
        steps.push(met);
        left = &left[visited..];
    }
    steps
}

#[test]
fn a_walk_over_partitions_ends_each_step_behind_what_it_is_to_meet() {
    // Keys of one prefix are many, those of another one are few, and of a third one there are none:
    // a step ends when it has met as many as are wanted, or behind ten lines for each of them.
    let dir = directory();
    for partitions in [1, 2, 3] {
        let (mut arenas, foreign) = tenant(&dir, partitions);
        (0..600).for_each(|i| _ = put(&mut arenas, &format!("many {i}")));
        (0..5).for_each(|i| _ = put(&mut arenas, &format!("few {i}")));
        for (prefix, keys) in [("many", 600), ("few", 5), ("none", 0)] {
            let prefix = prefix.as_bytes();
            let mut lines = Vec::new();
            for partition in 0..foreign.partitions() {
                let mut cursor = 0;
                loop {
                    let mut met = 0;
                    let arena = foreign.arena(partition);
                    cursor = arena.scan(cursor, prefix, &mut |_| met += 1).unwrap();
                    lines.push(met);
                    if cursor == 0 {
                        break;
                    }
                }
            }
            assert!(lines.len() > 40, "{} lines", lines.len());
            for count in [0, 1, 3, 100] {
                let (mut steps, mut cursor, mut all) = (Vec::new(), 0, BTreeSet::new());
                loop {
                    let mut met = 0;
                    let mut found = |record: &crate::ForeignRecord| {
                        assert_eq!(record.key, record.value);
                        all.insert(record.key.clone());
                        met += 1;
                        true
                    };
                    cursor = foreign.scan(prefix, cursor, count, &mut found).unwrap();
                    steps.push(met);
                    assert!(steps.len() <= lines.len(), "a walk never ends");
                    if cursor == 0 {
                        break;
                    }
                }
                assert_eq!(all.len(), keys);
                assert_eq!(steps, steps_by_lines(&lines, u64::from(count.max(1))), "{count}");
            }
            // Keys that aren't wanted end no step.
            let (mut steps, mut cursor) = (0, 0);
            while steps == 0 || cursor != 0 {
                cursor = foreign.scan(prefix, cursor, 2, &mut |_| false).unwrap();
                steps += 1;
            }
            assert_eq!(steps, lines.len().div_ceil(20));
        }
    }
}

#[test]
fn each_partition_has_its_name_and_its_writer() {
    let dir = directory();
    let (arenas, foreign) = tenant(&dir, 3);
    let its_writers = || [0, 1, 2].map(|partition| foreign.has_its_writer(partition));
    assert!(foreign.have_their_names() && foreign.check().is_ok());
    assert_eq!(its_writers(), [true; 3]);
    // One is being adopted, and then has another writer.
    let say =
        |incarnation| arenas[1].writer.words.store64(header::INCARNATION, incarnation, Relaxed);
    say(3);
    assert!(matches!(foreign.check(), Err(ArenaError::Adopting { .. })));
    say(4);
    assert!(foreign.check().is_ok());
    assert_eq!(its_writers(), [true, false, true]);
    std::fs::rename(&arenas[2].spec.path, dir.path().join("aside")).unwrap();
    assert!(!foreign.have_their_names());
}

#[test]
#[should_panic(expected = "a tenant has a partition")]
fn a_tenant_without_partitions_is_a_mistake() {
    let _ = ForeignArenas::new(Vec::new());
}
