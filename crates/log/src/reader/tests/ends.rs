//! Where a chain ends: torn tails, damage, dropped tenants, a backup's `end` lines.

use super::*;
use crate::format::meta::ChainEnd;
use crate::reader::ends::{NewestFile, TornTail};
use crate::storage::simulated::SimFault;
use crate::storage::{Storage, StoredFile, write_all_at};

#[test]
fn a_sound_chain_ends_behind_its_last_frame() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.clock_ms = 77;
    file.changes(&[fresh(B, 1).more(), fresh(B, 2)]);
    file.clock_ms = 0;
    file.changes(&[]);
    log.store(&file);
    let found = log.find().expect("is sound");
    let newest = NewestFile { number: 1, end: file.at, sum: file.before };
    assert_eq!((found.newest, found.oldest, found.highest), (newest, 1, 1));
    assert_eq!(found.last, BTreeMap::from([(A, 3), (B, 2)]));
    assert_eq!((found.clock_ms, found.torn), (77, None));
    assert_eq!((found.files.len(), found.files[0].end, found.spare.len()), (1, file.at, 0));
    found.sync_all().expect("syncs");
}

#[test]
fn a_chain_that_only_began_has_no_changes() {
    let log = HandLog::new();
    let mut file = HandFile::new(&log.meta, 1, FILE_BYTES);
    file.lasts.insert(A, 40);
    file.begin(LogPosition::default());
    log.store(&file);
    let found = log.find().expect("is sound");
    assert_eq!((found.newest.end, found.last.get(&A)), (FIRST, Some(&40)));
    assert_eq!(found.files[0].lasts, [(A, 40)]);
}

#[test]
fn a_torn_tail_above_the_watermark_is_cut_and_reported() {
    // The second frame was on its way to the disk when power went; the third was whole.
    let log = HandLog::new();
    let mut file = log.first();
    file.synced();
    three(&mut file);
    file.spoil(2, 200);
    log.store(&file);
    let found = log.find().expect("only the tail is torn");
    let bytes = file.at - file.frames[2];
    let torn = TornTail { at: at(1, file.frames[2]), bytes };
    assert_eq!((found.torn, found.last.get(&A)), (Some(torn), Some(&1)));
    assert_eq!(found.newest.end, file.frames[2]);
    assert_eq!(log.replay().expect("replays"), seen_of([1]));
}

fn three(file: &mut HandFile) {
    (1..=3).for_each(|lsn| file.put(lsn));
}

#[test]
fn a_lost_header_is_a_torn_tail_without_a_length() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.spoil(3, 20);
    log.store(&file);
    let found = log.find().expect("only the tail is torn");
    assert_eq!((found.torn, found.last.get(&A)), (None, Some(&2)));
}

#[test]
fn a_frame_behind_another_than_the_one_before_is_torn_off() {
    // Its sums are right, but the frame that it was written behind is another.
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.forge(3, f::BEFORE_SUM, &[1; 4]);
    log.store(&file);
    let found = log.find().expect("only the tail is torn");
    assert_eq!((found.newest.end, found.last.get(&A)), (file.frames[3], Some(&2)));
    assert!(found.torn.is_some());
}

#[test]
fn damage_below_a_later_watermark_is_corrupt() {
    // An empty frame behind the last sync says that all three frames were on disk.
    let log = HandLog::new();
    for (frame, offset) in [(2, 5), (2, 200), (3, 30), (3, 130)] {
        let mut file = three_frames(&log);
        file.synced();
        file.changes(&[]);
        file.spoil(frame, offset);
        log.store(&file);
        let bad = file.frames[frame];
        let lsn = frame as u64 - 1;
        match log.find_error() {
            LogError::Corrupt { file: named, position, watermark, last } => {
                assert_eq!((named, position), (name(1), bad));
                assert_eq!((watermark, last), (file.mark, vec![(A, lsn)]));
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn a_frame_whose_body_is_bad_still_tells_its_watermark() {
    // The frame with the watermark is itself the second bad one.
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.synced();
    file.put(4);
    file.spoil(3, 200);
    file.spoil(4, 200);
    log.store(&file);
    assert!(matches!(log.find_error(), LogError::Corrupt { position, .. }
        if position == file.frames[3]));
}

#[test]
fn a_bad_last_frame_is_torn_off_if_no_frame_says_that_it_was_on_disk() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.synced();
    file.changes(&[]);
    file.spoil(4, 5);
    log.store(&file);
    assert_eq!(log.replay().expect("is whole"), seen_of(1..=3));
}

#[test]
fn a_valid_frame_that_breaks_the_format_is_no_torn_tail() {
    // Each header or body has right sums; a writer that made it has a mistake.
    let cases: [(usize, &[u8], &str); 6] = [
        (f::KIND, &[3], "known kind"),
        (f::KIND, &[1], "BEGIN"),
        (f::REST, &[1], "unused"),
        (f::OLDEST, &[2], "oldest"),
        (f::MARK_FILE, &[9], "watermark"),
        (f::CHANGES, &[2], "changes"),
    ];
    for (offset, value, text) in cases {
        let log = HandLog::new();
        let mut file = three_frames(&log);
        file.forge(3, offset, value);
        log.store(&file);
        match log.find_error() {
            LogError::Body { file: named, position, what } => {
                assert_eq!((named, position), (name(1), file.frames[3]));
                assert!(what.contains(text), "{what}");
            }
            error => panic!("{error}"),
        }
    }
}

#[test]
fn bytes_behind_a_body_break_the_format() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    let start = usize::try_from(file.frames[3]).expect("fits");
    file.bytes[start + 511] = 1;
    let rest = &file.bytes[start + f::BYTES..start + 512];
    let sum = SumKey::more(file.key.body(file.frames[3]), rest);
    file.forge(3, f::BODY_SUM, &sum.to_le_bytes());
    log.store(&file);
    assert!(matches!(log.find_error(), LogError::Body { .. }));
}

#[test]
fn a_gap_in_a_streams_lsns_is_named() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.put(5);
    log.store(&file);
    assert!(matches!(log.find_error(),
        LogError::Gap { stream: A, expected: 4, found: 5, position, .. }
            if position == file.frames[4]));
}

#[test]
fn a_new_tenants_stream_begins_with_one() {
    let log = HandLog::new();
    let mut file = three_frames(&log);
    file.changes(&[fresh(OTHER, 2)]);
    log.store(&file);
    assert!(matches!(log.find_error(), LogError::Gap { expected: 1, found: 2, .. }));
}

#[test]
fn the_oldest_file_never_falls() {
    let log = HandLog::new();
    let mut file = HandFile::new(&log.meta, 4, FILE_BYTES);
    file.oldest = 3;
    file.begin(at(2, FIRST));
    file.oldest = 2;
    file.put(1);
    log.store(&file);
    assert!(matches!(log.find_error(), LogError::Body { .. }));
}

#[test]
fn a_stream_without_a_tenant_breaks_the_format() {
    let log = HandLog::new();
    for change in [fresh(9 << 8, 1), again(9 << 8, 1)] {
        let mut file = three_frames(&log);
        file.changes(&[change]);
        log.store(&file);
        assert!(matches!(log.find_error(), LogError::Body { what, .. } if what.contains("9")));
    }
}

#[test]
fn a_dropped_tenants_changes_are_passed_over() {
    // Its stream has a gap, which doesn't matter any more.
    let mut log = HandLog::new();
    let mut file = three_frames(&log);
    file.changes(&[fresh(OTHER, 5), fresh(A, 4), again(OTHER, 5)]);
    log.store(&file);
    log.meta.tenants.remove(&2);
    log.meta.dropped.insert(2);
    let found = log.find().expect("is sound");
    assert_eq!(found.last, BTreeMap::from([(A, 4)]));
    assert_eq!(log.replay().expect("replays"), seen_of(1..=4));
}

#[test]
fn a_backup_ends_where_its_meta_says() {
    // The file was copied while it was written: a frame stands behind the end.
    let mut log = HandLog::new();
    let mut file = three_frames(&log);
    let end = ChainEnd { shard: 0, at: file.end(), sum: file.before };
    (log.meta.ends, log.meta.mark) = (vec![end], Some([1; 16]));
    file.put(4);
    log.store(&file);
    let mut above = log.next(&file, 2);
    above.put(5);
    log.store(&above);
    let mut broken = HandFile::new(&log.meta, 3, FILE_BYTES);
    broken.bytes[12] ^= 1;
    log.store(&broken);
    let found = log.find().expect("is whole");
    assert_eq!((found.newest.end, found.newest.sum), (end.at.position, end.sum));
    assert_eq!((found.torn, found.highest, found.spare.len()), (None, 3, 2));
    assert_eq!(log.replay().expect("replays"), seen_of(1..=3));
}

#[test]
fn a_backup_that_ends_otherwise_is_corrupt() {
    let mut log = HandLog::new();
    let file = three_frames(&log);
    log.store(&file);
    let right = ChainEnd { shard: 0, at: file.end(), sum: file.before };
    let wrong = [
        (ChainEnd { sum: right.sum ^ 1, ..right }, file.frames[3]),
        (ChainEnd { at: at(1, file.at + 512), ..right }, file.at),
        (ChainEnd { at: at(1, file.at - 512), ..right }, file.frames[2]),
    ];
    for (end, bad) in wrong {
        log.meta.ends = vec![end];
        match log.find_error() {
            LogError::Corrupt { position, watermark, .. } => {
                assert_eq!((position, watermark), (bad, end.at));
            }
            error => panic!("{error}"),
        }
    }
    log.meta.ends = vec![ChainEnd { at: at(2, FIRST), ..right }];
    assert!(matches!(log.find_error(), LogError::Missing { file } if file == name(2)));
}

#[test]
fn an_end_line_is_of_a_chain_that_meta_names() {
    let mut log = HandLog::new();
    log.store(&three_frames(&log));
    log.meta.ends = vec![ChainEnd { shard: 0, at: at(9, 9), sum: 9 }];
    log.meta.chains.clear();
    assert_eq!(log.find().expect("is sound").last.get(&A), Some(&3));
}

#[test]
fn what_a_start_counts_survives_a_power_cut() {
    // The server before it was killed with a file whose name and bytes weren't synced.
    let log = HandLog::new();
    let file = three_frames(&log);
    let stored = log.disk.create(&name(1)).expect("works");
    stored.allocate(FILE_BYTES).expect("works");
    stored.sync_all().expect("works");
    write_all_at(&stored, 0, &file.bytes).expect("works");
    log.find().expect("is sound").sync_all().expect("syncs");
    for seed in 0..50 {
        let disk = log.disk.power_cut(&SimChance::new(seed));
        let after = HandLog { disk, meta: log.meta.clone() };
        assert_eq!(after.replay().expect("is sound"), seen_of(1..=3));
    }
}

#[test]
fn a_start_that_cant_sync_counts_nothing() {
    let log = HandLog::new();
    log.store(&three_frames(&log));
    let found = log.find().expect("is sound");
    for call in 1..=3 {
        log.disk.fail(log.disk.calls() + call, SimFault::Io);
        assert!(matches!(found.sync_all(), Err(LogError::Io { .. })));
    }
    log.disk.remove(&name(1)).expect("works");
    assert!(matches!(found.sync_all(), Err(LogError::Missing { .. })));
}

#[test]
fn a_failing_read_is_no_torn_tail() {
    let log = HandLog::new();
    log.store(&three_frames(&log));
    let calls = || log.disk.calls();
    let before = calls();
    log.find().expect("is sound");
    let of_find = calls() - before;
    assert!(of_find > 5);
    for call in 1..=of_find {
        log.disk.fail(calls() + call, SimFault::Io);
        let error = log.find_error();
        assert!(matches!(error, LogError::Io { .. }), "{error}");
    }
}

#[test]
fn a_short_read_is_gone_on_with() {
    let log = HandLog::new();
    log.store(&three_frames(&log));
    for call in 1..=20 {
        log.disk.fail(log.disk.calls() + call, SimFault::Short);
        assert_eq!(log.find().expect("is sound").last.get(&A), Some(&3));
    }
}
