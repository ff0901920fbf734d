//! Reading all that counts.

use super::*;

/// Two files: LSNs 1 to 3, then 4.
fn two_files(log: &HandLog) -> [HandFile; 2] {
    let first = three_frames(log);
    let mut second = log.next(&first, 2);
    second.put(4);
    [first, second]
}

#[test]
fn commits_come_whole_and_in_order() {
    let log = HandLog::new();
    let mut file = log.first();
    file.clock_ms = 12;
    file.changes(&[fresh(A, 1).more(), fresh(A, 2), again(B, 7), fresh(A, 3)]);
    log.store(&file);
    let mut commits = Vec::new();
    let mut bytes = 0;
    let found = log.find().expect("is sound");
    let replayed = found.replay(
        &mut |commit| {
            let lsns: Vec<u64> = commit.changes.iter().map(|change| change.header.lsn).collect();
            commits.push((commit.at, commit.clock_ms, lsns));
            Ok(())
        },
        &mut |read| bytes = read,
    );
    replayed.expect("replays");
    let here = at(1, FIRST);
    assert_eq!(commits, [(here, 12, vec![1, 2]), (here, 12, vec![7]), (here, 12, vec![3])]);
    assert_eq!(bytes, file.at - BLOCK_BYTES);
}

#[test]
fn a_refused_commit_ends_the_replay() {
    let log = HandLog::new();
    let files = two_files(&log);
    log.store_all(&files);
    let mut met = Vec::new();
    let replayed = log.find().expect("is sound").replay(
        &mut |commit| {
            met.push(commit.changes[0].header.lsn);
            if met.len() == 2 { Err("its sum is wrong".into()) } else { Ok(()) }
        },
        &mut |_| (),
    );
    let Err(LogError::Refused { file, position, what }) = replayed else {
        panic!("{replayed:?}");
    };
    assert_eq!((file, position, met), (name(1), files[0].frames[2], vec![1, 2]));
    assert_eq!(what, "its sum is wrong");
}

#[test]
fn a_bad_frame_of_an_older_file_is_corrupt_when_it_is_read() {
    let log = HandLog::new();
    for (frame, offset) in [(1, 7), (2, 300), (3, 200)] {
        let [mut first, second] = two_files(&log);
        first.spoil(frame, offset);
        log.store_all([&first, &second]);
        let found = log.find().expect("heads and BEGINs are sound");
        assert_eq!(found.last.get(&A), Some(&4));
        match log.replay().expect_err("is refused") {
            LogError::Corrupt { file, position, watermark, last } => {
                assert_eq!((file, position), (name(1), first.frames[frame]));
                let lsn = frame as u64 - 1;
                assert_eq!(
                    (watermark, last),
                    (first.end(), Vec::from_iter((lsn > 0).then_some((A, lsn))))
                );
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn an_older_file_ends_with_the_frame_that_its_successor_names() {
    // A frame of the same length stands in the place of the last one.
    let log = HandLog::new();
    let [first, second] = two_files(&log);
    let mut first = first.before_frame(3);
    let last = first.at;
    first.clock_ms = 5;
    first.put(3);
    log.store_all([&first, &second]);
    assert!(matches!(log.replay(), Err(LogError::Corrupt { position, .. }) if position == last));
}

#[test]
fn a_begin_says_what_the_frames_before_gave() {
    let log = HandLog::new();
    for (stream, last, found) in [(A, Some(2), 3), (A, None, 1), (B, Some(1), 2)] {
        let first = three_frames(&log);
        let mut second = HandFile::new(&log.meta, 2, FILE_BYTES);
        second.before = first.before;
        second.lasts.clone_from(&first.lasts);
        second.lasts.remove(&stream);
        second.lasts.extend(last.map(|last| (stream, last)));
        second.begin(first.end());
        log.store_all([&first, &second]);
        match log.replay().expect_err("is refused") {
            LogError::Gap { file, stream: named, found: next, .. } => {
                assert_eq!((file, named, next), (name(2), stream, found));
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_dropped_tenants_stream_goes_from_a_begin() {
    let mut log = HandLog::new();
    let mut first = three_frames(&log);
    first.changes(&[fresh(OTHER, 1)]);
    let mut lasts = first.clone();
    lasts.lasts.remove(&OTHER);
    let mut second = log.next(&lasts, 2);
    second.put(4);
    log.store_all([&first, &second]);
    assert!(matches!(log.replay(), Err(LogError::Gap { stream: OTHER, .. })));
    log.meta.tenants.remove(&2);
    log.meta.dropped.insert(2);
    assert_eq!(log.replay().expect("replays"), seen_of(1..=4));
}

#[test]
fn frames_of_every_length_are_read() {
    // Shorter and longer than the buffer, at its end and beyond.
    let log = HandLog::new();
    let mut file = HandFile::new(&log.meta, 1, 16 << 20);
    file.begin(LogPosition::default());
    let lengths = [1, 4 << 20, 100, 1 << 20, (2 << 20) - 152, 16 << 10, 3 << 20, 7];
    let payload = |lsn: u64, bytes: usize| vec![u8::try_from(lsn).expect("few"); bytes];
    for (lsn, bytes) in (1..).zip(lengths) {
        file.changes(&[fresh(A, lsn).with(payload(lsn, bytes))]);
    }
    log.store(&file);
    let expected = (1..).zip(lengths).map(|(lsn, bytes)| (A, lsn, payload(lsn, bytes)));
    assert!(log.replay().expect("replays") == expected.collect::<Vec<_>>());
}

#[test]
fn a_frame_may_fill_its_file_to_the_end() {
    let log = HandLog::new();
    let mut file = HandFile::new(&log.meta, 1, 16 << 10);
    file.begin(LogPosition::default());
    let rest = usize::try_from(file.head.file_bytes - file.at).expect("fits");
    let payload = vec![5; rest - f::BYTES - f::ROW_BYTES - c::BYTES];
    file.changes(&[fresh(A, 1).with(payload)]);
    assert_eq!(file.at, file.head.file_bytes);
    log.store(&file);
    assert_eq!(log.replay().expect("replays").len(), 1);
}

#[test]
fn a_header_that_claims_more_than_its_file_isnt_valid() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    for length in [FILE_BYTES, u64::MAX - 511, 0, 100] {
        file.forge(3, f::LENGTH, &length.to_le_bytes());
        log.store(&file);
        let found = log.find().expect("the tail is torn");
        assert_eq!((found.newest.end, found.torn), (file.frames[3], None));
    }
}
