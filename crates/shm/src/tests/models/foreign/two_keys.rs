//! Two keys at one moment, or one behind the other.

use super::*;

/// Both keys are overwritten at once, and the first record of `a` is used again.
fn commit_and_reuse(mut owner: Owner) {
    let store = |owner: &mut Owner| {
        owner.put(A, NEW);
        owner.put(B, NEW + 1);
    };
    owner.change_and_reuse((3, INTENT), store, another_a);
}

/// A reader of both keys at one moment has both of before or both of behind.
fn committed(order: [&'static [u8]; 2], wrong: Wrong) {
    tell((2, both_replaced), wrong, commit_and_reuse, move |reader| {
        let Some((lsn, mut found)) = together(reader, order) else { return };
        if order == [B, A] {
            found.reverse();
        }
        let wanted = match lsn {
            1 => [1, 2],
            3 => [3, 4],
            lsn => panic!("the moment {lsn} is within a commit"),
        };
        assert_eq!(found, wanted.map(Some), "at {lsn}");
    });
}

#[test]
fn model_two_foreign_reads_are_of_one_moment() {
    committed([A, B], RIGHT);
    committed([B, A], RIGHT);
}

#[test]
#[should_panic(expected = "at 1")]
fn model_two_foreign_reads_find_bytes_that_are_reused_before_they_are_counted() {
    committed([A, B], (Mistake::CountLate, Lapse::none));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_two_foreign_reads_find_bytes_that_are_reused_without_a_fence() {
    committed([A, B], (Mistake::NoFence, Lapse::none));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_two_foreign_reads_find_bytes_that_are_reused_before_the_commit_ends() {
    committed([A, B], (Mistake::ReusedEarly, Lapse::none));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_two_foreign_reads_that_look_at_reuses_once_are_deceived() {
    committed([A, B], (Mistake::None, || Lapse::forgets(header::REUSES)));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_two_foreign_reads_that_look_at_reuses_behind_their_moment_are_deceived() {
    committed([A, B], (Mistake::None, Lapse::reuses_late));
}

#[test]
#[should_panic(expected = "at 1")]
fn model_two_foreign_reads_without_fences_are_deceived() {
    committed([A, B], (Mistake::None, Lapse::no_fences));
}

/// Two single reads beside a commit of both keys: the second isn't older than the first.
fn one_by_one(order: [&'static [u8]; 2], wrong: Wrong) {
    let write = |mut owner: Owner| {
        moment::begin(&owner.words, 3, INTENT);
        owner.put(A, NEW);
        owner.put(B, NEW + 1);
        moment::end(&owner.words, 3, INTENT);
    };
    tell((3, both_replaced), wrong, write, move |reader| {
        let [first, second] = order.map(|key| get(reader, key));
        let is_new = |found: Option<u64>| found.expect("a key that never goes") > 2;
        if let (Some(first), Some(second)) = (first, second) {
            assert!(is_new(second) || !is_new(first), "new, then old");
        }
    });
}

#[test]
fn model_single_foreign_reads_beside_a_commit_never_go_back() {
    one_by_one([A, B], RIGHT);
    one_by_one([B, A], RIGHT);
}

#[test]
#[should_panic(expected = "new, then old")]
fn model_single_foreign_reads_that_see_no_intent_go_back() {
    one_by_one([A, B], (Mistake::None, || Lapse::blind(header::INTENT)));
}

/// `a` goes, and its record is used again.
fn removed(wrong: Wrong) {
    let write = |mut owner: Owner| {
        owner.change_and_reuse((2, 0), |owner| owner.remove(A, 2), another_a);
    };
    tell((2, removable), wrong, write, |reader| {
        if let Some(found) = get(reader, A) {
            assert!([None, Some(1)].contains(&found), "a value of nobody's: {found:?}");
        }
        if let Some((lsn, found)) = together(reader, [A, B]) {
            let there = (lsn == 1).then_some(1);
            assert_eq!(found, [there, Some(2)], "at {lsn}");
        }
    });
}

#[test]
fn model_a_key_that_goes_is_missed_by_its_own_moments_only() {
    removed(RIGHT);
}

#[test]
#[should_panic(expected = "at 1")]
fn model_a_foreign_read_that_sees_no_stamp_misses_a_key_too_early() {
    removed((Mistake::None, || Lapse::blind(stamp_offset(hash(A)))));
}
