//! Runs with room, of which a part lies behind the file's end. A story a test.

use super::{Arena, directory, spec};
use crate::format::layout::generation_offset;
use crate::format::words::SharedWords;
use crate::{ForeignReader, verify};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::Relaxed;

const MIB: u64 = 1 << 20;

pub(super) fn append(a: &mut Arena, key: &[u8], part: &[u8]) -> Result<(), crate::WriteError> {
    let pin = a.me.pin();
    let hash = a.writer.hash(key);
    let from = a.reader.get(&pin, hash, key).expect("a key").reference();
    a.writer.extend(&pin, from, (hash, key), &[part], 0)
}

/// Slots of which the file has no byte, and slots in all.
fn slots_behind(a: &Arena) -> std::ops::Range<u32> {
    let g = a.writer.space.geometry();
    g.slot_of(a.writer.region.end())..g.slots
}

/// Fills the arena with short records.
fn fill(a: &mut Arena) {
    let keys = (0..u32::MAX).map(u32::to_le_bytes);
    let stored = keys.map(|key| a.put_soon(&key, &[7; 8000])).take_while(Result::is_ok);
    assert!(stored.count() > 300);
}

#[test]
fn room_behind_the_files_end_keeps_its_generations() {
    // The room of the last run lay behind the file's end. The run was retired, and the writer ended
    // before it was reused. The next writer ended that for the slots of the file only: the room's
    // were odd for ever, and when the file had reached them a staged record met an assertion, and
    // the file was refused as damaged.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    let keys = [b"a", b"b", b"c"];
    for key in keys {
        a.put(key, &vec![1; 60_000], 0).unwrap();
        append(&mut a, key, &[2; 10_000]).unwrap();
    }
    keys.iter().for_each(|key| assert!(a.delete(*key)));
    assert!(a.writer.space.retired() >= 3, "they wait for readers");
    let is_odd = |a: &Arena, slot| a.writer.space.generation(slot) & 1 == 1;
    assert!(slots_behind(&a).all(|slot| !is_odd(&a, slot)));
    let (mut a, _) = a.again();
    assert!((0..a.writer.space.geometry().slots).all(|slot| !is_odd(&a, slot)));
    fill(&mut a);
    let report = verify(&a.spec.path).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    a.again();
}

#[test]
fn a_slot_that_comes_to_the_file_has_an_even_generation() {
    // What an earlier server did to a file: see above.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 4 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    a.settle();
    let slot = slots_behind(&a).start;
    a.writer.words.store32(generation_offset(slot), 1, Relaxed);
    let (mut a, _) = a.again();
    fill(&mut a);
    assert!(slots_behind(&a).start > slot);
    assert_eq!(a.writer.space.generation(slot) & 1, 0);
    a.again();
}

#[test]
fn room_behind_the_file_takes_no_memory_of_the_generation_table() {
    // The room of a run may have its generations in a page of which no slot is in the file yet.
    // Retiring the run, or copying its value in another process, touched that page: on a full tmpfs
    // both ended by SIGBUS.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 2048 * MIB));
    a.put(b"k", b"v", 0).unwrap();
    a.settle();
    // The run's slot is the last of the first page of generations.
    a.writer.space.occupy_below(1023);
    a.put(b"run", &vec![1; 400_000], 0).unwrap();
    append(&mut a, b"run", &[2; 200_000]).unwrap();
    a.settle();
    assert_eq!(slots_behind(&a).start, 1024);
    let blocks = || std::fs::metadata(&a.spec.path).unwrap().blocks();
    let before = blocks();
    let foreign = ForeignReader::open(&a.spec.path).unwrap();
    let mut value = Vec::new();
    assert!(foreign.get(b"run", &mut value).unwrap().is_some());
    assert_eq!((value.len(), blocks()), (600_000, before), "read");
    let hash = a.writer.hash(b"run");
    a.writer.delete(&a.me.pin(), hash, b"run");
    assert_eq!(std::fs::metadata(&a.spec.path).unwrap().blocks(), before, "retired");
}

#[test]
fn values_of_long_keys_take_no_room_of_others() {
    // A value whose key is too long for both in a segment lies in a run, and couldn't lie
    // elsewhere. But its slot counted as room, and a quarter of the slots with such values left
    // none for values that grow.
    let dir = directory();
    let mut a = Arena::create(&spec(dir.path().join("a"), 16 * MIB));
    let slots = a.writer.space.geometry().slots;
    for round in 0..2 {
        for n in 0..slots / 4 {
            let mut key = vec![b'k'; 60_000];
            key[..4].copy_from_slice(&n.to_le_bytes());
            a.put_soon(&key, &[1; 10_000]).unwrap();
        }
        assert!(a.writer.stats().runs >= slots / 4);
        assert!(a.writer.space.has_room(70_000, false), "round {round}");
        // A writer that adopts counts the same.
        a = a.again().0;
        assert!(a.writer.space.has_room(70_000, false), "round {round}, adopted");
    }
    a.writer.clear();
    a.settle();
    assert_eq!(a.writer.space.spare_slots(), 0);
}
