//! The order of writes and syncs; commits that wait for other logs.

use super::rules::OrderJudge;
use super::watched::{Event, file};
use super::{MEDIUM, SMALL, STREAMS, WriterDesk, nothing, prepare, put, try_put};
use crate::format::change::ChangeKind;
use crate::format::frame::FrameKind;
use crate::format::layout::BLOCK_BYTES;
use crate::storage::simulated::{SimChance, below};
use crate::writer::new_commit::{Added, NewChange, NewCommit};
use crate::writer::sync_job::SyncJob;
use std::cell::Cell;

/// A file is synced before the next BEGIN is written, BEGIN before anything behind it; synced
/// blocks aren't touched again; names are on disk before their files are begun.
#[test]
fn writes_and_syncs_come_in_their_order() {
    for seed in 0..40 {
        let (desk, chance) = (WriterDesk::new(seed), SimChance::new(seed + 77));
        let mut judge = OrderJudge::default();
        let (settings, most) = if seed % 2 == 0 { (SMALL, 3000) } else { (MEDIUM, 9000) };
        let mut writer = desk.writer(settings);
        let (mut released, mut beside) = (0, None);
        for lsn in 1..120 {
            let length = usize::try_from(below(&chance, most)).unwrap();
            let added = try_put(&mut writer, STREAMS[0], lsn, &vec![1; length]).unwrap();
            let choice = below(&chance, 10);
            if added == Added::Syncs || beside.is_some() && matches!(choice, 2 | 5 | 7) {
                let job: SyncJob<_> = beside.take().expect("a sync that was begun");
                judge.take(&desk.watched.take());
                writer.end_sync(job.run()).unwrap();
            }
            if added == Added::Syncs {
                put(&mut writer, STREAMS[0], lsn, &vec![1; length]);
            }
            match choice {
                0 => writer.write(false).unwrap(),
                1 => writer.write(true).unwrap(),
                2 => writer.sync().unwrap(),
                3 => writer.idle_frame().unwrap(),
                4 => drop(writer.prepare().unwrap()),
                5 => drop(writer.end_frame().unwrap()),
                6 => released += u64::from(super::compaction::compact(&mut writer)),
                8 | 9 if beside.is_none() => {
                    beside = writer.begin_sync().unwrap();
                    judge.take(&desk.watched.take());
                    beside.iter().for_each(|_| judge.sync_begins());
                }
                _ => {}
            }
            judge.take(&desk.watched.take());
        }
        judge.take(&desk.watched.take());
        beside.into_iter().for_each(|job| writer.end_sync(job.run()).unwrap());
        writer.close().unwrap();
        judge.take(&desk.watched.take());
        assert!(
            seed % 2 == 0 || judge.beside > 0,
            "seed {seed}: nothing was written beside a sync"
        );
        assert!(judge.begun.len() > 5 && judge.syncs > 10, "seed {seed}: too little was done");
        assert!(released > 0, "seed {seed}: nothing was compacted");
    }
}

/// The next file begins when a commit doesn't fit: the old one is synced, then BEGIN.
#[test]
fn a_full_file_is_synced_before_the_next_one_begins() {
    let desk = WriterDesk::new(1);
    let mut writer = desk.writer(SMALL);
    prepare(&mut writer);
    put(&mut writer, STREAMS[0], 1, &[1; 3000]);
    put(&mut writer, STREAMS[1], 1, &[1; 100]);
    assert_eq!((writer.newest_file(), writer.durable(STREAMS[0])), (1, 0));
    desk.watched.take();
    put(&mut writer, STREAMS[0], 2, &[2; 3000]);
    let write = |number, block| Event::Write {
        to: file(number),
        from: block * BLOCK_BYTES,
        end: (block + 1) * BLOCK_BYTES,
    };
    let wanted = [write(1, 2), Event::Sync(file(1)), write(2, 1), Event::Sync(file(2))];
    assert_eq!(desk.watched.take(), wanted);
    assert_eq!((writer.newest_file(), writer.durable(STREAMS[0])), (2, 1));
    assert_eq!(writer.written(STREAMS[0]), 1, "the commit that didn't fit is in memory");
    let (old, begin) = (desk.last_frame(1), desk.frames(2)[0]);
    assert_eq!((begin.watermark, begin.before_sum), (old.end(), old.header_sum));
    assert_eq!((begin.kind, begin.clock_ms, begin.oldest), (FrameKind::Begin, super::UNIX_MS, 1));
    writer.sync().unwrap();
    let found = desk.recovery();
    assert_eq!(found.files[1].lasts, [(0x100, 1), (0x101, 1), (0x102, 0), (0x103, 0)]);
}

/// A file keeps a block for frames without changes: its last change always gets a watermark.
#[test]
fn a_full_file_has_room_for_its_watermark() {
    let desk = WriterDesk::new(2);
    let mut writer = desk.writer(SMALL);
    put(&mut writer, STREAMS[0], 1, &[1; 3900]);
    writer.sync().unwrap();
    writer.idle_frame().unwrap();
    let last = desk.last_frame(1);
    assert_eq!(last.watermark.position, 3 * BLOCK_BYTES);
    assert_eq!(last.at.position, 3 * BLOCK_BYTES);
    put(&mut writer, STREAMS[0], 2, b"");
    assert_eq!(writer.newest_file(), 2, "changes don't take the last block");
}

/// What needs another log isn't written before that is durable there; what is in front of it is
/// written, and what is behind it waits too.
#[test]
fn a_commit_waits_for_what_it_needs() {
    let desk = WriterDesk::new(3);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"in front");
    let elsewhere = Cell::new(9);
    let durable = |stream| if stream == 0x500 { elsewhere.get() } else { panic!("{stream}") };
    let changes = [NewChange { kind: ChangeKind::Put, payload: &[b"v"] }];
    let needs = [(0x500, 9), (STREAMS[0], 1), (0x500, 10)];
    let commit = NewCommit {
        stream: STREAMS[0],
        first_lsn: 2,
        again: false,
        changes: &changes,
        needs: &needs,
        clock_ms: 0,
    };
    assert_eq!(writer.add(&commit, &durable).unwrap(), Added::Waits);
    assert_eq!(writer.written(STREAMS[0]), 1, "what is in front is written");
    writer.sync().unwrap();
    assert_eq!(writer.add(&commit, &durable).unwrap(), Added::Waits);
    assert_eq!(writer.durable(STREAMS[0]), 1);
    elsewhere.set(10);
    assert_eq!(writer.add(&commit, &durable).unwrap(), Added::Taken);
    writer.sync().unwrap();
    let counts: Vec<u32> = desk.frames(1).iter().map(|frame| frame.changes).collect();
    assert_eq!(counts, [0, 1, 1], "it begins a frame");
}

/// `end_frame` says where everything ends that was added, and that is on disk.
#[test]
fn a_frame_ends_for_a_backup() {
    let desk = WriterDesk::new(4);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    let end = writer.end_frame().unwrap();
    let last = desk.last_frame(1);
    assert_eq!((end.shard, end.at, end.sum), (0, last.end(), last.header_sum));
    assert_eq!(writer.durable(STREAMS[0]), 1);
    writer.idle_frame().unwrap();
    let end = writer.end_frame().unwrap();
    let last = desk.last_frame(1);
    assert_eq!((end.at, end.sum), (last.end(), last.header_sum));
    desk.watched.take();
    assert_eq!(writer.end_frame().unwrap(), end, "nothing came since");
    assert_eq!(desk.watched.take(), []);
}

/// A sync with nothing to do does nothing.
#[test]
fn nothing_is_synced_twice() {
    let desk = WriterDesk::new(5);
    let mut writer = desk.writer(MEDIUM);
    desk.watched.take();
    assert!(writer.is_synced());
    writer.sync().unwrap();
    writer.write(true).unwrap();
    assert_eq!(desk.watched.take(), []);
    put(&mut writer, STREAMS[0], 1, b"v");
    assert!(!writer.is_synced());
    writer.sync().unwrap();
    writer.idle_frame().unwrap();
    desk.watched.take();
    assert!(writer.is_synced(), "a watermark alone needs no sync");
    writer.sync().unwrap();
    assert_eq!(desk.watched.take(), []);
}

/// A tenant that comes is in the next BEGIN, one that was dropped isn't.
#[test]
fn begin_lists_the_streams_that_there_are() {
    let desk = WriterDesk::new(6);
    let mut writer = desk.writer(SMALL);
    put(&mut writer, STREAMS[1], 1, &[0; 3000]);
    writer.add_stream(0x200);
    writer.add_stream(0x200);
    writer.drop_stream(STREAMS[1]);
    put(&mut writer, STREAMS[0], 1, &[0; 3000]);
    writer.sync().unwrap();
    assert_eq!(writer.newest_file(), 2);
    let begin = desk.frames(2)[0];
    assert_eq!(begin.rows, 4);
    let streams: Vec<u32> = writer.streams().map(|(stream, ..)| stream).collect();
    assert_eq!(streams, [0x100, 0x102, 0x103, 0x200]);
    let late = try_put(&mut writer, 0x200, 1, b"v");
    assert_eq!(late.unwrap(), Added::Taken);
    assert_eq!(nothing(1), 0);
}
