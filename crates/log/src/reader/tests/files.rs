//! Chains of several files: which of them count.

use super::*;
use crate::reader::chain_file::ChainFile;

/// Three files: LSNs 1 to 3, 4 and 5, 6.
fn three_files(log: &HandLog) -> [HandFile; 3] {
    let first = three_frames(log);
    let mut second = log.next(&first, 2);
    second.put(4);
    second.put(5);
    let mut third = log.next(&second, 3);
    third.put(6);
    [first, second, third]
}

#[test]
fn files_are_found_by_what_each_begin_says() {
    let log = HandLog::new();
    let files = three_files(&log);
    log.store_all(&files);
    let found = log.find().expect("is sound");
    let of = |file: &HandFile, lasts: &[(u32, u64)]| ChainFile {
        number: file.head.number,
        salt: file.head.salt,
        file_bytes: FILE_BYTES,
        end: file.at,
        end_sum: file.before,
        lasts: lasts.to_vec(),
    };
    let [first, second, third] = &files;
    let expected = [of(first, &[]), of(second, &[(A, 3)]), of(third, &[(A, 5)])];
    assert_eq!(found.files, expected);
    assert_eq!(log.replay().expect("replays"), seen_of(1..=6));
}

#[test]
fn a_missing_file_is_named() {
    let log = HandLog::new();
    let [first, _, third] = three_files(&log);
    log.store_all([&first, &third]);
    assert!(matches!(log.find_error(), LogError::Missing { file } if file == name(2)));
}

#[test]
fn files_below_the_oldest_may_be_missing_or_anything() {
    // The third file's last frame says that the first two don't count. One of them is gone, the
    // other one was taken to be prepared again when power went: its head is another's.
    let log = HandLog::new();
    let [mut first, _, mut third] = three_files(&log);
    third.oldest = 3;
    third.put(7);
    first.bytes[12] ^= 1;
    log.store_all([&first, &third]);
    let found = log.find().expect("is sound");
    assert_eq!((found.oldest, found.files.len()), (3, 1));
    assert_eq!(found.spare, [FileName::of(&CHAIN, 1)]);
    assert_eq!(log.replay().expect("replays"), seen_of(6..=7));
}

#[test]
fn a_wrong_head_that_counts_is_refused() {
    // Below the newest, and above: nobody knows whether that was begun.
    let log = HandLog::new();
    for wrong in 0..3 {
        let mut files = three_files(&log);
        files[wrong].bytes[12] ^= 1;
        log.store_all(&files);
        let named = name(wrong as u64 + 1);
        assert!(matches!(log.find_error(), LogError::Head { file, .. } if file == named));
    }
    let log = HandLog::new();
    let mut only = three_frames(&log);
    only.bytes[12] ^= 1;
    log.store(&only);
    assert!(matches!(log.find_error(), LogError::Head { .. }));
}

#[test]
fn a_newer_version_is_refused_wherever_it_stands() {
    let log = HandLog::new();
    let [mut first, second, mut third] = three_files(&log);
    third.oldest = 3;
    third.put(7);
    first.bytes[8] = 2;
    log.store_all([&first, &second, &third]);
    assert!(matches!(log.find_error(), LogError::NewerVersion { found: 2, .. }));
}

#[test]
fn a_file_that_is_shorter_than_its_head_says_has_a_wrong_head() {
    let log = HandLog::new();
    for bytes in [0, 100, 4096, 8192] {
        let mut file = three_frames(&log);
        file.bytes.truncate(bytes);
        log.store(&file);
        assert!(matches!(log.find_error(), LogError::Head { .. }));
    }
}

#[test]
fn a_chain_without_a_begun_file_is_corrupt() {
    let log = HandLog::new();
    assert!(matches!(log.find_error(), LogError::Corrupt { file, .. } if file == name(1)));
    log.store(&HandFile::new(&log.meta, 2, FILE_BYTES));
    assert!(matches!(log.find_error(), LogError::Corrupt { file, .. } if file == name(2)));
}

#[test]
fn a_prepared_file_isnt_begun() {
    let log = HandLog::new();
    log.store(&three_frames(&log));
    log.store(&HandFile::new(&log.meta, 2, FILE_BYTES));
    let found = log.find().expect("is sound");
    assert_eq!((found.newest.number, found.highest), (1, 2));
    assert_eq!(found.spare, [FileName::of(&CHAIN, 2)]);
}

#[test]
fn a_begin_that_was_being_written_isnt_begun() {
    let log = HandLog::new();
    let first = three_frames(&log);
    log.store(&first);
    let mut second = log.next(&first, 2);
    second.spoil(0, 130);
    log.store(&second);
    let found = log.find().expect("is sound");
    assert_eq!((found.newest.number, found.spare.len(), found.torn), (1, 1, None));
}

#[test]
fn a_bad_begin_with_frames_behind_it_is_corrupt() {
    // No frame follows a BEGIN that isn't on disk: so it was, and acknowledged changes lie behind.
    let log = HandLog::new();
    for offset in [5, 130, 4095] {
        let mut files = three_files(&log);
        files[2].spoil(0, offset);
        log.store_all(&files);
        match log.find_error() {
            LogError::Corrupt { file, position, watermark, last } => {
                assert_eq!((file, position), (name(3), BLOCK_BYTES));
                assert_eq!((watermark, last), (at(3, FIRST), vec![(A, 5)]));
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn void_numbers_are_passed_over() {
    // File 2 was prepared when the server was killed; the next one began file 3 behind file 1.
    let log = HandLog::new();
    let first = three_frames(&log);
    let mut third = log.next(&first, 3);
    third.put(4);
    log.store_all([&first, &HandFile::new(&log.meta, 2, FILE_BYTES), &third]);
    let found = log.find().expect("is sound");
    assert_eq!(found.spare, [FileName::of(&CHAIN, 2)]);
    assert_eq!(log.replay().expect("replays"), seen_of(1..=4));
}

#[test]
fn frames_of_a_recycled_files_earlier_life_never_count() {
    // The second file lay in the place of the first, whose later frames still stand in it, exactly
    // where its next frame would begin.
    let log = HandLog::new();
    let [first, second, _] = three_files(&log);
    let mut old = first.clone();
    old.synced();
    (4..=20).for_each(|lsn| old.put(lsn));
    let mut recycled = second.clone();
    let end = usize::try_from(second.at).expect("fits");
    recycled.bytes[end..].copy_from_slice(&old.bytes[end..]);
    log.store_all([&first, &recycled]);
    let found = log.find().expect("is sound");
    assert_eq!((found.newest.end, found.torn), (second.at, None));
    assert_eq!(log.replay().expect("replays"), seen_of(1..=5));
}

#[test]
fn a_frame_of_another_place_never_counts() {
    // A copy of the first frame stands behind the last one, as a value might have it.
    let log = HandLog::new();
    let mut file = three_frames(&log);
    let (from, to) = (file.frames[1], file.at);
    let [from, to] = [from, to].map(|at| usize::try_from(at).expect("fits"));
    file.bytes.copy_within(from..from + 512, to);
    log.store(&file);
    let found = log.find().expect("is sound");
    assert_eq!((found.newest.end, found.torn), (file.at, None));
}

#[test]
fn a_bad_begin_in_the_midst_is_corrupt_and_says_what_is_before() {
    let log = HandLog::new();
    let mut files = three_files(&log);
    files[1].spoil(0, 130);
    log.store_all(&files);
    match log.find_error() {
        LogError::Corrupt { file, position, watermark, last } => {
            assert_eq!((file, position), (name(2), BLOCK_BYTES));
            assert_eq!((watermark, last), (files[1].end(), vec![(A, 3)]));
        }
        error => panic!("{error}"),
    }
}

#[test]
fn an_end_that_is_behind_the_predecessors_end_is_corrupt() {
    let log = HandLog::new();
    for position in [FILE_BYTES + 4096, BLOCK_BYTES] {
        let first = three_frames(&log);
        let mut second = HandFile::new(&log.meta, 2, FILE_BYTES);
        second.lasts.clone_from(&first.lasts);
        second.before = first.before;
        second.begin(at(1, position));
        log.store_all([&first, &second]);
        assert!(matches!(log.find_error(), LogError::Corrupt { file, .. } if file == name(1)));
    }
}

#[test]
fn a_first_begin_names_no_frame_before_it() {
    let log = HandLog::new();
    let mut file = HandFile::new(&log.meta, 1, FILE_BYTES);
    file.before = 5;
    file.begin(LogPosition::default());
    log.store(&file);
    assert!(matches!(log.find_error(), LogError::Body { .. }));
}

#[test]
fn files_of_other_chains_dont_matter() {
    let log = HandLog::new();
    log.store(&three_frames(&log));
    for name in ["g1-s00-0000000009.log", "g2-s01-0000000009.log", "g2-s00-0000000002.log.new"] {
        log.disk.set_contents(name, vec![1; 5000]);
    }
    assert_eq!(log.find().expect("is sound").highest, 1);
}

#[test]
fn numbers_are_compared_as_numbers() {
    // The names of files with more than ten digits don't sort as texts.
    let log = HandLog::new();
    let mut first = HandFile::new(&log.meta, 9_999_999_999, FILE_BYTES);
    first.oldest = first.head.number;
    first.begin(LogPosition::default());
    first.put(1);
    let mut second = log.next(&first, 10_000_000_000);
    second.put(2);
    log.store_all([&first, &second]);
    assert_eq!(log.find().expect("is sound").newest.number, 10_000_000_000);
    assert_eq!(log.replay().expect("replays"), seen_of(1..=2));
}
