//! What `nigh check` says, and what can be saved of a damaged chain.

use super::*;
use crate::format::meta::ChainEnd;
use crate::reader::salvage::{
    LostLsns, SalvagedChain, check_chain, salvage_chain, salvaged_commits,
};
use crate::storage::Storage;

/// Three files: LSNs 1 to 3, 4 and 5, 6; an empty frame says that all is on disk.
fn three_files(log: &HandLog) -> [HandFile; 3] {
    let first = three_frames(log);
    let mut second = log.next(&first, 2);
    second.put(4);
    second.put(5);
    let mut third = log.next(&second, 3);
    third.put(6);
    third.synced();
    third.changes(&[]);
    [first, second, third]
}

fn salvage(log: &HandLog) -> (SalvagedChain, Vec<Seen>) {
    let mut seen = Vec::new();
    let world = log.world();
    let saved = salvage_chain(&world, &log.meta, &CHAIN, &mut |_| Ok(())).expect("reads");
    let each = &mut |commit: &crate::ReplayedCommit<'_>| keep(&mut seen, commit);
    salvaged_commits(&world, &log.meta, &CHAIN, &saved, each).expect("reads");
    (saved, seen)
}

fn lost_file(number: u64, position: u64) -> (String, u64) {
    (name(number), position)
}

fn places(saved: &SalvagedChain) -> Vec<(String, u64)> {
    saved.files.iter().map(|lost| (lost.file.clone(), lost.position)).collect()
}

#[test]
fn a_check_counts_what_is_there() {
    let log = HandLog::new();
    let [first, second, mut third] = three_files(&log);
    third.changes(&[fresh(A, 7).more(), fresh(A, 8), again(A, 1)]);
    third.put(9);
    third.spoil(4, 200);
    log.store_all([&first, &second, &third]);
    log.store(&HandFile::new(&log.meta, 9, FILE_BYTES));
    let mut read = 0;
    let report = check_chain(&log.world(), &log.meta, &CHAIN, &mut |bytes| read = bytes);
    let report = report.expect("is sound");
    assert_eq!((report.files, report.spare, report.frames), (3, 1, 11));
    assert_eq!((report.commits, report.changes, report.again), (7, 9, 1));
    assert_eq!((report.bytes, report.last.get(&A)), (read, Some(&8)));
    assert_eq!(report.payload_bytes, 9 * payload(A, 1).len() as u64);
    assert_eq!(report.torn.map(|torn| torn.at), Some(at(3, third.frames[4])));
}

#[test]
fn a_check_names_the_damage() {
    let log = HandLog::new();
    let mut files = three_files(&log);
    files[0].spoil(2, 200);
    log.store_all(&files);
    let report = check_chain(&log.world(), &log.meta, &CHAIN, &mut |_| ());
    assert!(matches!(report, Err(LogError::Corrupt { .. })));
}

#[test]
fn a_sound_chain_is_saved_whole() {
    let log = HandLog::new();
    let files = three_files(&log);
    log.store_all(&files);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.bad, saved.files, saved.lsns), (None, vec![], vec![]));
    assert_eq!((saved.end, saved.sum), (files[2].end(), Some(files[2].before)));
    assert_eq!(seen, seen_of(1..=6));
}

#[test]
fn a_torn_tail_is_no_damage() {
    let log = HandLog::new();
    let mut files = three_files(&log);
    files[2].put(7);
    files[2].spoil(3, 200);
    log.store_all(&files);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.bad, seen), (None, seen_of(1..=6)));
}

#[test]
fn a_damaged_chain_is_cut_at_its_first_bad_frame() {
    let log = HandLog::new();
    let mut files = three_files(&log);
    files[1].spoil(1, 200);
    log.store_all(&files);
    let (saved, seen) = salvage(&log);
    let bad = saved.bad.clone().expect("is named");
    assert_eq!((bad.file, bad.position), (name(2), FIRST));
    assert_eq!((saved.end, seen), (at(2, FIRST), seen_of(1..=3)));
    assert_eq!(saved.lsns, [LostLsns { stream: A, first: 4, last: 6 }]);
    assert_eq!(places(&saved), [lost_file(2, FIRST), lost_file(3, BLOCK_BYTES)]);
    let bytes = [files[1].end().position - FIRST, files[2].end().position - BLOCK_BYTES];
    assert_eq!(saved.files.iter().map(|lost| lost.bytes).collect::<Vec<_>>(), bytes);
}

/// A record that was bad before it was written has a frame whose sums are right.
#[test]
fn a_commit_that_its_reader_refuses_is_where_the_chain_is_cut() {
    let log = HandLog::new();
    let files = three_files(&log);
    log.store_all(&files);
    let check = &mut |commit: &crate::ReplayedCommit<'_>| {
        let is_bad = commit.changes.iter().any(|change| change.header.lsn == 5);
        if is_bad { Err("its record is bad".to_owned()) } else { Ok(()) }
    };
    let saved = salvage_chain(&log.world(), &log.meta, &CHAIN, check).expect("reads");
    let bad = saved.bad.clone().expect("is named");
    assert_eq!((bad.file, bad.position), (name(2), files[1].frames[2]));
    assert!(bad.what.contains("its record is bad"), "{}", bad.what);
    assert_eq!((saved.end, saved.last.get(&A)), (at(2, files[1].frames[2]), Some(&4)));
    assert_eq!(saved.lsns, [LostLsns { stream: A, first: 5, last: 6 }]);
}

#[test]
fn a_missing_file_is_where_the_chain_is_cut() {
    let log = HandLog::new();
    let [first, _, third] = three_files(&log);
    log.store_all([&first, &third]);
    let (saved, seen) = salvage(&log);
    assert!(saved.bad.is_some());
    assert_eq!((saved.end, seen), (first.end(), seen_of(1..=3)));
    assert_eq!(saved.lsns, [LostLsns { stream: A, first: 4, last: 6 }]);
    assert_eq!(places(&saved), [lost_file(2, 0), lost_file(3, BLOCK_BYTES)]);
}

#[test]
fn a_wrong_head_is_where_the_chain_is_cut() {
    let log = HandLog::new();
    let mut files = three_files(&log);
    files[1].bytes[12] ^= 1;
    log.store_all(&files);
    let (saved, seen) = salvage(&log);
    assert!(saved.bad.is_some());
    assert_eq!(seen, seen_of(1..=3));
    assert_eq!(places(&saved), [lost_file(2, 0), lost_file(3, BLOCK_BYTES)]);
}

#[test]
fn the_highest_oldest_of_any_header_counts() {
    // The frame that says so lies behind the bad one: still the first file may be anything.
    let log = HandLog::new();
    let [mut first, second, mut third] = three_files(&log);
    third.oldest = 2;
    third.put(7);
    third.spoil(1, 200);
    first.spoil(1, 200);
    log.store_all([&first, &second, &third]);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.oldest, saved.end, seen), (2, at(3, FIRST), seen_of(4..=5)));
    assert_eq!(saved.lsns, [LostLsns { stream: A, first: 6, last: 7 }]);
}

#[test]
fn nothing_is_saved_if_the_oldest_file_is_missing() {
    let log = HandLog::new();
    let [_, second, third] = three_files(&log);
    log.store_all([&second, &third]);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.sum, seen), (None, vec![]));
    assert_eq!(saved.bad.clone().expect("is named").file, name(1));
    assert_eq!(places(&saved).first(), Some(&lost_file(1, 0)));
    assert_eq!(saved.lsns, [LostLsns { stream: A, first: 1, last: 6 }]);
}

#[test]
fn a_frame_that_breaks_the_format_is_bad_too() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.put(9);
    file.put(10);
    log.store(&file);
    let (saved, seen) = salvage(&log);
    let bad = saved.bad.expect("is named");
    assert_eq!((bad.position, seen), (file.frames[4], seen_of(1..=3)));
    assert!(bad.what.contains("expected 4"), "{}", bad.what);
}

#[test]
fn a_backup_is_saved_up_to_its_end() {
    // A file above its end doesn't count, though it goes on there.
    let mut log = HandLog::new();
    let files = three_files(&log);
    log.store_all(&files);
    let end = ChainEnd { shard: 0, at: files[1].end(), sum: files[1].before };
    (log.meta.ends, log.meta.mark) = (vec![end], Some([1; 16]));
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.bad, saved.end, seen), (None, end.at, seen_of(1..=5)));
    log.meta.ends = vec![ChainEnd { sum: end.sum ^ 1, ..end }];
    log.disk.remove(&name(3)).expect("works");
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.bad.map(|bad| bad.file), seen), (Some(name(2)), seen_of(1..=5)));
}

#[test]
fn a_file_that_goes_on_with_another_frame_is_cut_off() {
    let log = HandLog::new();
    let [first, second, third] = three_files(&log);
    let mut first = first.before_frame(3);
    first.clock_ms = 5;
    first.put(3);
    log.store_all([&first, &second, &third]);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.end, seen), (first.end(), seen_of(1..=3)));
    assert_eq!(saved.bad.expect("is named").file, name(1));
    assert_eq!(saved.lsns, [LostLsns { stream: A, first: 4, last: 6 }]);
}

#[test]
fn a_file_that_no_begin_names_is_passed_over() {
    let log = HandLog::new();
    let mut first = three_frames(&log);
    let second = log.next(&first, 2);
    first.put(4);
    let mut third = log.next(&first, 3);
    third.put(5);
    log.store_all([&first, &second, &third]);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.bad, saved.end, seen), (None, third.end(), seen_of(1..=5)));
}

#[test]
fn frames_behind_a_bad_begin_are_damage_and_a_bad_begin_alone_is_none() {
    let log = HandLog::new();
    let first = three_frames(&log);
    let mut second = log.next(&first, 2);
    second.spoil(0, 200);
    log.store_all([&first, &second]);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.bad, seen), (None, seen_of(1..=3)));
    second.mark = first.end();
    second.put(4);
    log.store(&second);
    assert!(salvage(&log).0.bad.is_some());
}

#[test]
fn an_impossible_oldest_file_doesnt_count() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.forge(3, f::OLDEST, &[9]);
    log.store(&file);
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.oldest, seen), (1, seen_of(1..=2)));
    assert_eq!(saved.bad.expect("is named").position, file.frames[3]);
}

#[test]
fn a_file_that_was_cut_off_is_saved_up_to_there() {
    let log = HandLog::new();
    let files = three_files(&log);
    for (cut, saved_lsns) in [(files[2].end().position, 6), (FIRST + 100, 5), (BLOCK_BYTES, 5)] {
        log.store_all(&files);
        let bytes = usize::try_from(cut).expect("small");
        log.disk.set_contents(&name(3), files[2].bytes[..bytes].to_vec());
        let (saved, seen) = salvage(&log);
        assert_eq!(seen, seen_of(1..=saved_lsns), "cut off at {cut}");
        let bad = saved.bad.expect("frames may have been behind");
        let begun = cut > BLOCK_BYTES;
        assert_eq!(bad.file, name(if begun { 3 } else { 2 }));
        assert!(saved.files.iter().any(|lost| lost.file == name(3)), "{:?}", saved.files);
    }
    // One in the middle lost nothing, if all its frames are there.
    log.store_all(&files);
    let bytes = usize::try_from(files[1].end().position).expect("small");
    log.disk.set_contents(&name(2), files[1].bytes[..bytes].to_vec());
    let (saved, seen) = salvage(&log);
    assert_eq!((saved.bad, seen), (None, seen_of(1..=6)));
}
