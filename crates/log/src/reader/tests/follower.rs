//! Reading along: what isn't on disk yet, the next file, files that are gone.

use super::*;
use crate::reader::follower::{FollowPosition, Followed, LogFollower};

fn whole(log: &HandLog) -> LogFollower<SimDisk> {
    LogFollower::whole(&log.world(), &log.meta, &CHAIN).expect("opens")
}

/// Advances until there is nothing more; what was given, and why it ended.
fn drain(follower: &mut LogFollower<SimDisk>) -> (Vec<Seen>, Followed) {
    let mut seen = Vec::new();
    loop {
        let each = &mut |commit: &crate::ReplayedCommit<'_>| keep(&mut seen, commit);
        match follower.advance(each).expect("reads") {
            Followed::Frame => {}
            ended => return (seen, ended),
        }
    }
}

#[test]
fn only_what_a_watermark_covers_is_given() {
    let log = HandLog::new();
    let mut file = log.first();
    log.store(&file);
    let mut follower = whole(&log);
    assert_eq!(drain(&mut follower), (vec![], Followed::NotYet));
    file.synced();
    file.put(1);
    log.store(&file);
    assert_eq!(drain(&mut follower), (vec![], Followed::NotYet));
    file.synced();
    file.put(2);
    file.put(3);
    log.store(&file);
    assert_eq!(drain(&mut follower), (seen_of([1]), Followed::NotYet));
    file.synced();
    file.changes(&[]);
    log.store(&file);
    assert_eq!(drain(&mut follower), (seen_of(2..=3), Followed::NotYet));
}

#[test]
fn an_end_that_is_told_counts_alone() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    let third = file.frames[3];
    file.synced();
    file.changes(&[]);
    log.store(&file);
    let mut follower = whole(&log);
    follower.set_end(at(1, FIRST));
    assert_eq!(drain(&mut follower), (vec![], Followed::NotYet));
    follower.set_end(at(1, third));
    assert_eq!(drain(&mut follower), (seen_of(1..=2), Followed::NotYet));
    follower.set_end(file.end());
    assert_eq!(drain(&mut follower), (seen_of([3]), Followed::NotYet));
}

#[test]
fn a_frame_that_is_being_written_is_not_yet() {
    let log = HandLog::new();
    let mut file = log.first();
    file.put(1);
    let end = file.end();
    let whole_file = file.clone();
    file.spoil(1, 200);
    log.store(&file);
    let mut follower = whole(&log);
    follower.set_end(end);
    assert_eq!(drain(&mut follower), (vec![], Followed::NotYet));
    log.store(&whole_file);
    assert_eq!(drain(&mut follower), (seen_of([1]), Followed::NotYet));
}

#[test]
fn it_goes_to_the_next_file_when_that_has_begun() {
    // A BEGIN says that its predecessor is on disk; a frame behind it that it is, too.
    let log = HandLog::new();
    let first = three_frames(&log);
    log.store(&first);
    let mut follower = whole(&log);
    assert_eq!(drain(&mut follower), (vec![], Followed::NotYet));
    log.store(&HandFile::new(&log.meta, 2, FILE_BYTES));
    let mut third = log.next(&first, 3);
    log.store(&third);
    assert_eq!(drain(&mut follower), (seen_of(1..=3), Followed::NotYet));
    assert_eq!(follower.position().expect("stands").at, first.end());
    third.synced();
    third.put(4);
    third.synced();
    third.put(5);
    log.store(&third);
    assert_eq!(drain(&mut follower), (seen_of([4]), Followed::NotYet));
    let position = follower.position().expect("stands");
    assert_eq!((position.at, position.salt), (at(3, third.frames[2]), third.head.salt));
}

#[test]
fn a_told_end_in_the_next_file_leads_there() {
    let log = HandLog::new();
    let first = three_frames(&log);
    let mut second = log.next(&first, 2);
    second.put(4);
    log.store_all([&first, &second]);
    let mut follower = whole(&log);
    follower.set_end(second.end());
    assert_eq!(drain(&mut follower), (seen_of(1..=4), Followed::NotYet));
}

#[test]
fn what_was_cut_off_is_never_given() {
    // The third frame was whole in the file, but a start cut the chain in front of it: a backup's
    // `end` line said so.
    let log = HandLog::new();
    let file = three_frames(&log);
    let mut cut = file.before_frame(3);
    cut.lasts.insert(A, 2);
    let mut second = log.next(&cut, 2);
    second.synced();
    second.put(3);
    second.synced();
    second.changes(&[]);
    log.store_all([&file, &second]);
    let mut follower = whole(&log);
    let (seen, ended) = drain(&mut follower);
    assert_eq!((seen, ended), (seen_of(1..=3), Followed::NotYet));
    assert_eq!(follower.position().expect("stands").at.file, 2);
}

#[test]
fn a_file_that_no_begin_names_is_passed_over() {
    // File 2 goes on with another end of file 1: it was left of a copy, and file 3 counts.
    let log = HandLog::new();
    let mut first = three_frames(&log);
    let mut second = log.next(&first, 2);
    second.put(4);
    second.synced();
    second.changes(&[]);
    first.put(4);
    let mut third = log.next(&first, 3);
    third.put(5);
    third.synced();
    third.changes(&[]);
    log.store_all([&first, &second, &third]);
    assert_eq!(drain(&mut whole(&log)), (seen_of(1..=5), Followed::NotYet));
}

#[test]
fn it_follows_through_many_files() {
    let log = HandLog::new();
    let mut files = vec![three_frames(&log)];
    for number in 2..30 {
        // Each other start has added nothing.
        let mut next = log.next(&files[number - 2], number as u64 * 3);
        if number % 2 == 1 {
            next.put(number as u64 / 2 + 3);
        }
        files.push(next);
    }
    files[28].synced();
    files[28].changes(&[]);
    log.store_all(&files);
    let mut follower = whole(&log);
    assert_eq!(drain(&mut follower), (seen_of(1..=17), Followed::NotYet));
    let mut last = log.next(&files[28], 100);
    last.put(18);
    last.synced();
    last.changes(&[]);
    log.store(&last);
    assert_eq!(drain(&mut follower), (seen_of([18]), Followed::NotYet));
}

#[test]
fn it_goes_on_from_a_position() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.synced();
    file.changes(&[]);
    log.store(&file);
    let from = FollowPosition { chain: CHAIN, at: at(1, file.frames[2]), salt: file.head.salt };
    let mut follower = LogFollower::from(&log.world(), &log.meta, &from).expect("opens");
    assert_eq!(drain(&mut follower), (seen_of(2..=3), Followed::NotYet));
    let wrong = FollowPosition { salt: 1, ..from };
    let mut follower = LogFollower::from(&log.world(), &log.meta, &wrong).expect("opens");
    assert_eq!(drain(&mut follower), (vec![], Followed::Gone { oldest: 1 }));
}

#[test]
fn a_recycled_file_is_gone() {
    // While it waits at the end of file 1, that is compacted away: it gets another number, or
    // another head is being written to it.
    let log = HandLog::new();
    let first = three_frames(&log);
    log.store(&first);
    let mut follower = whole(&log);
    follower.set_end(first.end());
    assert_eq!(drain(&mut follower).0.len(), 3);
    let mut third = log.next(&first, 3);
    third.oldest = 3;
    third.synced();
    third.put(4);
    log.store(&third);
    follower.set_end(third.end());
    let mut recycled = HandFile::new(&log.meta, 1, FILE_BYTES);
    recycled.head.salt = 5;
    let head = recycled.head.encode(&log.meta.secret);
    recycled.bytes[..head.len()].copy_from_slice(&head);
    log.store(&recycled);
    // The successor is still there, and names the end that it stands at.
    assert_eq!(drain(&mut follower), (seen_of([4]), Followed::NotYet));

    let mut late = LogFollower::from(
        &log.world(),
        &log.meta,
        &FollowPosition { chain: CHAIN, at: at(1, FIRST), salt: first.head.salt },
    );
    let late = late.as_mut().expect("opens");
    assert_eq!(drain(late), (vec![], Followed::Gone { oldest: 3 }));
}

#[test]
fn a_file_that_is_recycled_while_it_is_read_is_gone() {
    let log = HandLog::new();
    let first = three_frames(&log);
    log.store(&first);
    let mut follower = whole(&log);
    follower.set_end(first.end());
    let mut recycled = HandFile::new(&log.meta, 1, FILE_BYTES);
    recycled.head.salt = 5;
    let head = recycled.head.encode(&log.meta.secret);
    recycled.bytes[..head.len()].copy_from_slice(&head);
    let mut damaged = recycled.clone();
    damaged.bytes[12] ^= 1;
    log.store(&damaged);
    assert_eq!(drain(&mut follower), (vec![], Followed::NotYet));
    log.store(&recycled);
    assert_eq!(drain(&mut follower), (vec![], Followed::Gone { oldest: 0 }));
    assert_eq!(follower.position(), None);
}

#[test]
fn a_chain_that_meta_names_no_more_is_gone() {
    let mut log = HandLog::new();
    log.store(&three_frames(&log));
    let mut follower = whole(&log);
    assert_eq!(drain(&mut follower).1, Followed::NotYet);
    (log.meta.chains[0].generation, log.meta.next_generation) = (3, 4);
    log.save_meta();
    assert_eq!(drain(&mut follower).1, Followed::Gone { oldest: 0 });
}

#[test]
fn a_gap_in_what_is_followed_is_named() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.put(5);
    log.store(&file);
    let mut follower = whole(&log);
    follower.set_end(file.end());
    let ended = loop {
        match follower.advance(&mut |_| Ok(())) {
            Ok(Followed::Frame) => {}
            ended => break ended,
        }
    };
    assert!(matches!(ended, Err(LogError::Gap { expected: 4, found: 5, .. })));
}

#[test]
fn a_told_end_that_is_no_frames_end_leads_nowhere() {
    // It lies in the next file's BEGIN: that isn't on disk.
    let log = HandLog::new();
    let first = three_frames(&log);
    let mut second = log.next(&first, 2);
    second.put(4);
    log.store_all([&first, &second]);
    let mut follower = whole(&log);
    follower.set_end(at(2, BLOCK_BYTES));
    assert_eq!(drain(&mut follower), (seen_of(1..=3), Followed::NotYet));
    assert_eq!(follower.position().expect("stands").at, first.end());
}

#[test]
fn a_successor_of_another_frame_is_none() {
    let log = HandLog::new();
    let first = three_frames(&log);
    let mut other = first.clone();
    other.before ^= 1;
    let mut second = log.next(&other, 2);
    second.put(4);
    log.store_all([&first, &second]);
    let mut follower = whole(&log);
    follower.set_end(second.end());
    assert_eq!(drain(&mut follower), (seen_of(1..=3), Followed::NotYet));
}

#[test]
fn a_follower_that_went_too_far_starts_again() {
    // It was told too much: the chain was cut before the third frame.
    let log = HandLog::new();
    let file = three_frames(&log);
    log.store(&file);
    let mut follower = whole(&log);
    follower.set_end(file.end());
    assert_eq!(drain(&mut follower).0, seen_of(1..=3));
    let mut cut = file.before_frame(3);
    cut.lasts.insert(A, 2);
    let mut second = log.next(&cut, 2);
    second.put(3);
    log.store(&second);
    follower.set_end(second.end());
    assert_eq!(drain(&mut follower), (vec![], Followed::Gone { oldest: 1 }));
}

#[test]
fn it_begins_with_the_file_that_has_a_change_or_says_what_is_left() {
    let log = HandLog::new();
    let mut files = vec![three_frames(&log)];
    for number in 2..6 {
        let mut next = log.next(&files[number - 2], number as u64);
        next.put(number as u64 + 2);
        files.push(next);
    }
    let end = files[4].end();
    log.store_all(&files);
    let from = |lsn| {
        let (world, on_disk) = (log.world(), (&CHAIN, end));
        LogFollower::from_change(&world, &log.meta, on_disk, (A, lsn)).expect("reads")
    };
    for (lsn, first) in [(1, 1), (3, 1), (4, 4), (6, 6), (7, 7), (9, 7)] {
        let mut follower = from(lsn).map_err(|left| panic!("{left} is left")).expect("it is there");
        assert_eq!(drain(&mut follower), (seen_of(first..=7), Followed::NotYet), "{lsn}");
    }
    // The files before the third were compacted away.
    let mut last = files[4].clone();
    last.oldest = 3;
    last.changes(&[]);
    log.store(&last);
    assert!(from(5).is_ok());
    assert_eq!(from(4).map(|_| "it is told"), Err(5));
}
