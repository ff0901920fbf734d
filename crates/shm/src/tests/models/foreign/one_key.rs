//! One key, whose memory is used again.

use super::*;

/// A single read of `a`, which never goes, finds one of these values.
fn has_one_of(reader: &ForeignReader<LoomWords>, values: [u64; 2]) {
    if let Some(found) = get(reader, A) {
        assert!(values.map(Some).contains(&found), "a value of nobody's: {found:?}");
    }
}

/// `a` is overwritten, and its first record's bytes are another's: a single read has one of both
/// versions.
fn overwritten(wrong: Wrong) {
    let write = |mut owner: Owner| {
        owner.change_and_reuse((2, 0), |owner| owner.put(A, NEW), another_a);
    };
    tell((3, reused), wrong, write, |reader| {
        has_one_of(reader, [1, 3]);
    });
}

#[test]
fn model_a_foreign_read_has_a_version_whole() {
    overwritten(RIGHT);
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_finds_bytes_that_are_reused_before_their_generation() {
    overwritten((Mistake::GenerationLate, Lapse::none));
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_finds_bytes_that_are_reused_without_a_fence() {
    overwritten((Mistake::NoFence, Lapse::none));
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_that_looks_at_the_generation_once_is_deceived() {
    overwritten((Mistake::None, || Lapse::forgets(generation_offset(FIRST_SLOT))));
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_that_looks_at_the_entry_once_is_deceived() {
    overwritten((Mistake::None, || Lapse::forgets(place(SMALL, A, 0))));
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_without_fences_is_deceived() {
    overwritten((Mistake::None, Lapse::no_fences));
}

/// The same of a value that is read in parts.
fn in_parts(wrong: Wrong) {
    let write = |mut owner: Owner| {
        owner.change_and_reuse((2, 0), |owner| owner.put(A, NEW), another_a);
    };
    tell((3, reused), wrong, write, |reader| {
        let mut value = [0; 8];
        let (low, high) = value.split_at_mut(4);
        let Ok(found) = reader.in_place(A) else { return };
        let found = found.expect("a key that never goes");
        if found.read(0, low).is_ok() && found.read(4, high).is_ok() {
            let is_whole = [1u64, 3].map(u64::to_le_bytes).contains(&value);
            assert!(is_whole, "a value of nobody's: {value:?}");
        }
    });
}

#[test]
fn model_a_foreign_value_is_read_in_parts_or_not() {
    in_parts(RIGHT);
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_value_in_parts_without_a_look_at_its_generation_is_nobodys() {
    in_parts((Mistake::None, || Lapse::forgets(generation_offset(FIRST_SLOT))));
}

/// `a` is overwritten; the run of its first value is used again, though its record's slot isn't.
fn run_reused(wrong: Wrong) {
    let write = |mut owner: Owner| {
        moment::begin(&owner.words, 2, 0);
        owner.put(A, NEW);
        moment::end(&owner.words, 2, 0);
        owner.reuse(RUN_SLOT, |words| {
            words.store64(u64::from(RUN_SLOT) << SHIFT, REUSED, Ordering::Relaxed);
        });
    };
    tell((3, in_run), wrong, write, |reader| {
        has_one_of(reader, [1, 3]);
    });
}

#[test]
fn model_a_foreign_read_has_the_bytes_of_a_run_whole() {
    run_reused(RIGHT);
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_that_looks_at_a_runs_generation_once_is_deceived() {
    run_reused((Mistake::None, || Lapse::forgets(generation_offset(RUN_SLOT))));
}

/// The index moves to another table, and the one that it leaves is used again, for entries that
/// name the key's tag and a record of nobody's.
fn index_moved(wrong: Wrong) {
    let write = |mut owner: Owner| {
        owner.index.begin_growth(&owner.words, LARGE);
        assert_eq!(owner.index.migrate(&owner.words, 8).emptied, Some(SMALL));
        owner.reuse(SMALL.slot, |words| {
            let wrong = entry(hash(A), reference(WRONG));
            words.store64(place(SMALL, A, 0), wrong, Ordering::Relaxed);
        });
    };
    tell((3, movable), wrong, write, |reader| {
        has_one_of(reader, [1, 1]);
    });
}

#[test]
fn model_a_foreign_read_finds_a_key_while_the_index_moves() {
    index_moved(RIGHT);
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_that_looks_at_the_index_once_is_deceived() {
    index_moved((Mistake::None, || Lapse::forgets(header::INDEX_STATE)));
}

#[test]
#[should_panic(expected = "a value of nobody's")]
fn model_a_foreign_read_without_fences_finds_a_table_that_is_reused() {
    index_moved((Mistake::None, Lapse::no_fences));
}

/// The file is over, and its memory goes back: a reader finds what was there, or that.
fn ended(wrong: Wrong) {
    let write = |owner: Owner| {
        owner.words.store64(header::INCARNATION, INCARNATION_OVER, Ordering::Release);
        // The call that gives the memory back.
        owner.words.fence(Ordering::Release);
        owner.words.store64(place(SMALL, A, 0), 0, Ordering::Relaxed);
        owner.words.store64(place(SMALL, B, 1), 0, Ordering::Relaxed);
    };
    tell((3, ending), wrong, write, |reader| {
        if let Some(found) = get(reader, A) {
            assert_eq!(found, Some(1), "a key went with its file");
        }
        if let Some((_, found)) = together(reader, [A, B]) {
            assert_eq!(found, [Some(1), Some(2)], "a key went with its file");
        }
    });
}

#[test]
fn model_a_foreign_read_of_a_file_that_is_over_says_so() {
    ended(RIGHT);
}

#[test]
#[should_panic(expected = "a key went with its file")]
fn model_a_foreign_read_that_looks_at_the_incarnation_once_misses_keys() {
    ended((Mistake::None, || Lapse::forgets(header::INCARNATION)));
}
