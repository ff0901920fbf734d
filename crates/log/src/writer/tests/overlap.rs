//! Syncs that run beside the writing: what they cover, and what waits for their end.

use super::compaction::filled_with_room;
use super::watched::{Event, file};
use super::{MEDIUM, SMALL, STREAMS, WriterDesk, put, try_put};
use crate::error::LogError;
use crate::format::layout::BLOCK_BYTES;
use crate::storage::simulated::{SimChance, SimFault};
use crate::writer::new_commit::Added;

/// Nothing is durable when a sync begins or has run, but when its end is told; and then only what
/// was written before its begin, though the disk has more.
#[test]
fn a_sync_covers_what_was_written_before_its_begin() {
    for run_late in [false, true] {
        let desk = WriterDesk::new(1);
        let mut writer = desk.writer(MEDIUM);
        put(&mut writer, STREAMS[0], 1, b"covered");
        put(&mut writer, STREAMS[1], 1, b"covered");
        let job = writer.begin_sync().unwrap().unwrap();
        let covered = desk.last_frame(1).end();
        assert_eq!(covered.position % BLOCK_BYTES, 0, "what it covers ends on a block");
        assert_eq!((writer.written(STREAMS[0]), writer.durable(STREAMS[0])), (1, 0));
        let (mut early, mut late) = if run_late { (None, Some(job)) } else { (Some(job), None) };
        let ended = early.take().map(|job| job.run());
        put(&mut writer, STREAMS[0], 2, b"behind");
        put(&mut writer, STREAMS[2], 1, b"behind");
        writer.write(false).unwrap();
        assert_eq!(desk.last_frame(1).watermark.position, 2 * BLOCK_BYTES, "that of BEGIN");
        assert_eq!((writer.durable(STREAMS[0]), writer.is_syncing()), (0, true));
        let ended = ended.or_else(|| late.take().map(|job| job.run())).unwrap();
        writer.end_sync(ended).unwrap();
        assert!(!writer.is_syncing() && !writer.is_synced());
        let durable = STREAMS.map(|stream| writer.durable(stream));
        assert_eq!(durable, [1, 1, 0, 0]);
        put(&mut writer, STREAMS[0], 3, b"later");
        writer.write(false).unwrap();
        assert_eq!(desk.last_frame(1).watermark, covered);
        writer.sync().unwrap();
        assert_eq!(STREAMS.map(|stream| writer.durable(stream)), [3, 1, 1, 0]);
    }
}

/// What is written while a sync runs may be lost by a power cut, or kept; what the sync covers is
/// there once it has run, whether its end was told or not.
#[test]
fn a_power_cut_amid_a_sync_keeps_what_it_covers() {
    let chance = SimChance::new(5);
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..60 {
        let desk = WriterDesk::new(seed);
        let mut writer = desk.writer(MEDIUM);
        put(&mut writer, STREAMS[0], 1, b"covered");
        let job = writer.begin_sync().unwrap().unwrap();
        let ended = job.run();
        put(&mut writer, STREAMS[0], 2, b"behind");
        writer.write(false).unwrap();
        let after = WriterDesk::on(desk.watched.disk.power_cut(&chance), seed);
        match after.replayed().len() {
            1 => lost += 1,
            2 => kept += 1,
            found => panic!("{found} changes"),
        }
        writer.end_sync(ended).unwrap();
    }
    assert!(kept > 5 && lost > 5, "{kept} kept, {lost} lost");
}

/// The next file isn't begun while a sync runs: a commit that belongs there waits for its end, and
/// then the rest of the old file is synced first.
#[test]
fn a_file_ends_behind_the_sync_under_way() {
    let desk = WriterDesk::new(2);
    let mut writer = desk.writer(MEDIUM);
    super::prepare(&mut writer);
    put(&mut writer, STREAMS[0], 1, b"covered");
    let job = writer.begin_sync().unwrap().unwrap();
    put(&mut writer, STREAMS[0], 2, &[2; 40_000]);
    desk.watched.take();
    let long = [3; 30_000];
    assert_eq!(try_put(&mut writer, STREAMS[0], 3, &long).unwrap(), Added::Syncs);
    assert_eq!(try_put(&mut writer, STREAMS[0], 3, &[3; 1_200_000]).unwrap(), Added::Syncs);
    assert!(desk.watched.take().iter().all(|event| matches!(event, Event::Write { .. })));
    assert_eq!((writer.newest_file(), writer.durable(STREAMS[0])), (1, 0));
    writer.end_sync(job.run()).unwrap();
    assert_eq!(writer.durable(STREAMS[0]), 1);
    desk.watched.take();
    put(&mut writer, STREAMS[0], 3, &long);
    let events = desk.watched.take();
    assert!(events.contains(&Event::Sync(file(1))), "the rest of the old file: {events:?}");
    assert_eq!((writer.newest_file(), writer.durable(STREAMS[0])), (2, 2));
}

/// A sync that fails breaks the log, though frames were written meanwhile: nothing that it covers
/// is durable, and none is tried again. So does one that ends well in a log that broke before.
#[test]
fn a_failed_sync_beside_breaks_the_log() {
    let desk = WriterDesk::new(3);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    let job = writer.begin_sync().unwrap().unwrap();
    put(&mut writer, STREAMS[0], 2, b"v");
    writer.write(false).unwrap();
    desk.watched.disk.fail(desk.watched.disk.calls() + 1, SimFault::Io);
    assert!(matches!(writer.end_sync(job.run()), Err(LogError::Io { .. })));
    assert!(writer.broken().is_some_and(|cause| cause.contains("sync")));
    assert_eq!(writer.durable(STREAMS[0]), 0);
    desk.watched.take();
    assert!(matches!(writer.begin_sync().map(drop), Err(LogError::Broken { .. })));
    assert!(matches!(writer.sync(), Err(LogError::Broken { .. })));
    assert_eq!(desk.watched.take(), []);

    let desk = WriterDesk::new(4);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    let job = writer.begin_sync().unwrap().unwrap();
    put(&mut writer, STREAMS[0], 2, b"v");
    desk.watched.disk.fail(desk.watched.disk.calls() + 1, SimFault::Io);
    assert!(writer.write(false).is_err());
    assert!(matches!(writer.end_sync(job.run()), Err(LogError::Broken { .. })));
    assert_eq!(writer.durable(STREAMS[0]), 0);
}

/// Compaction: a file that is released while a sync runs goes at its end if all is durable then,
/// and else by the next one. `oldest` of a frame that was written meanwhile doesn't count then.
#[test]
fn files_go_by_syncs_that_began_behind() {
    let desk = WriterDesk::new(5);
    let mut writer = filled_with_room(&desk, 2);
    put(&mut writer, STREAMS[0], 3, b"v");
    let first = writer.begin_sync().unwrap().unwrap();
    assert!(super::compaction::compact(&mut writer), "file 1 is released");
    writer.idle_frame().unwrap();
    assert_eq!(desk.last_frame(3).oldest, 1, "what it needs isn't synced");
    writer.end_sync(first.run()).unwrap();
    put(&mut writer, STREAMS[0], 4, b"v");
    writer.sync().unwrap();
    assert_eq!((writer.oldest(), desk.last_frame(3).oldest), (2, 2));

    put(&mut writer, STREAMS[0], 5, b"v");
    assert!(super::compaction::compact(&mut writer), "file 2 is released");
    let job = writer.begin_sync().unwrap().unwrap();
    put(&mut writer, STREAMS[0], 6, b"v");
    writer.write(false).unwrap();
    assert_eq!(desk.last_frame(3).oldest, 2, "what it needs isn't synced");
    writer.end_sync(job.run()).unwrap();
    put(&mut writer, STREAMS[0], 7, b"v");
    let job = writer.begin_sync().unwrap().unwrap();
    assert_eq!((desk.last_frame(3).oldest, writer.oldest()), (3, 2));
    writer.end_sync(job.run()).unwrap();
    assert_eq!(writer.oldest(), 3);
}

/// `oldest` counts by the sync that covers its frame, not by one that began before it.
#[test]
fn the_oldest_file_counts_by_the_sync_that_covers_its_frame() {
    let desk = WriterDesk::new(6);
    let mut writer = filled_with_room(&desk, 2);
    assert!(super::compaction::compact(&mut writer), "all is durable: file 1 leaves at once");
    put(&mut writer, STREAMS[0], 3, b"v");
    writer.write(false).unwrap();
    assert_eq!((desk.last_frame(3).oldest, writer.oldest()), (2, 1));
    let desk = WriterDesk::new(7);
    let mut writer = filled_with_room(&desk, 2);
    put(&mut writer, STREAMS[0], 3, b"v");
    assert!(super::compaction::compact(&mut writer), "file 1 is released");
    let job = writer.begin_sync().unwrap().unwrap();
    writer.end_sync(job.run()).unwrap();
    // It has left; no frame says so yet.
    put(&mut writer, STREAMS[0], 4, b"v");
    let job = writer.begin_sync().unwrap().unwrap();
    assert_eq!((desk.last_frame(3).oldest, writer.oldest()), (2, 1), "written, not synced");
    writer.end_sync(job.run()).unwrap();
    assert_eq!(writer.oldest(), 2);
}

/// A second sync isn't begun, in whatever way, before the end of the first was told.
#[test]
#[should_panic(expected = "one sync at a time")]
fn two_syncs_at_a_time_are_refused() {
    let desk = WriterDesk::new(8);
    let mut writer = desk.writer(SMALL);
    put(&mut writer, STREAMS[0], 1, b"v");
    let _job = writer.begin_sync().unwrap().unwrap();
    let _ = writer.begin_sync();
}

/// The end that is told is that of the sync under way.
#[test]
#[should_panic(expected = "the sync that ends is the one under way")]
fn an_end_counts_once() {
    let (desk, other) = (WriterDesk::new(9), WriterDesk::new(10));
    let (mut writer, mut stranger) = (desk.writer(MEDIUM), other.writer(MEDIUM));
    put(&mut writer, STREAMS[0], 1, b"v");
    put(&mut stranger, STREAMS[0], 1, &[1; 9000]);
    let _job = writer.begin_sync().unwrap().unwrap();
    let job = stranger.begin_sync().unwrap().unwrap();
    let _ = writer.end_sync(job.run());
}
