//! Frames as they lie in files.

use super::watched::{Event, file};
use super::{
    CHAIN, LARGE, MEDIUM, SMALL, STREAMS, UNIX_MS, WriterDesk, nothing, prepare, put, put_again,
};
use crate::format::change::ChangeKind;
use crate::format::frame::FrameKind;
use crate::format::layout::{BLOCK_BYTES, FRAME_BYTES, SECTOR_BYTES};
use crate::position::LogPosition;
use crate::storage::simulated::{SimChance, below};
use crate::writer::log_writer::LogWriter;
use crate::writer::new_commit::{Added, NewChange, NewCommit};
use crate::writer::settings::LogSettings;

/// Whatever is added comes back, change for change, in order.
#[test]
fn what_is_added_comes_back() {
    let desk = WriterDesk::new(1);
    let mut writer = desk.writer(MEDIUM);
    let pieces: [&[u8]; 3] = [b"one ", b"", b"value"];
    let changes = [
        NewChange { kind: ChangeKind::Clear, payload: &[] },
        NewChange { kind: ChangeKind::Put, payload: &pieces },
        NewChange { kind: ChangeKind::Based, payload: &[b"12345678"] },
        NewChange { kind: ChangeKind::Gone, payload: &[b"x"] },
    ];
    let commit = NewCommit {
        stream: STREAMS[2],
        first_lsn: 1,
        again: false,
        changes: &changes,
        needs: &[],
        clock_ms: 77,
    };
    assert_eq!(writer.add(&commit, &nothing).unwrap(), Added::Taken);
    put(&mut writer, STREAMS[0], 1, b"first of its stream");
    put_again(&mut writer, STREAMS[2], 2, b"one value");
    writer.sync().unwrap();
    let mut kinds = Vec::new();
    let mut commits = Vec::new();
    let mut each = |commit: &crate::reader::commits::ReplayedCommit<'_>| {
        kinds.extend(commit.changes.iter().map(|change| change.header.kind));
        commits.push((commit.changes.len(), commit.clock_ms));
        Ok(())
    };
    desk.recovery().replay(&mut each, &mut |_| {}).unwrap();
    let (put, based) = (ChangeKind::Put, ChangeKind::Based);
    assert_eq!(kinds, [ChangeKind::Clear, put, based, ChangeKind::Gone, put, put]);
    assert_eq!(commits.iter().map(|c| c.0).collect::<Vec<_>>(), [4, 1, 1]);
    let values: Vec<Vec<u8>> = desk.replayed().into_iter().map(|kept| kept.3).collect();
    let wanted: [&[u8]; 6] =
        [b"", b"one value", b"12345678", b"x", b"first of its stream", b"one value"];
    assert_eq!(values, wanted);
}

/// A frame says the latest clock word of its streams, the machine's time, and who has which LSNs.
#[test]
fn a_frame_says_what_it_has() {
    let desk = WriterDesk::new(2);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[3], 1, b"a");
    put(&mut writer, STREAMS[1], 1, b"b");
    put(&mut writer, STREAMS[3], 2, b"c");
    put_again(&mut writer, STREAMS[1], 1, b"b");
    desk.clock.advance_us(9000);
    writer.write(false).unwrap();
    put_again(&mut writer, STREAMS[1], 1, b"b");
    writer.write(false).unwrap();
    let frames = desk.frames(1);
    let [begin, first, again] = frames[..] else { panic!("{frames:?}") };
    assert_eq!((begin.kind, begin.rows, begin.clock_ms), (FrameKind::Begin, 4, UNIX_MS));
    assert_eq!((begin.watermark, begin.before_sum), (LogPosition::default(), 0));
    assert_eq!((first.rows, first.changes, first.clock_ms), (2, 4, 5));
    assert_eq!(first.unix_ms, UNIX_MS + 9);
    assert_eq!((again.rows, again.changes, again.clock_ms), (0, 1, 0));
    assert_eq!((first.before_sum, again.before_sum), (begin.header_sum, first.header_sum));
}

/// Between syncs a frame takes 512 bytes; the one before a sync ends on a block.
#[test]
fn frames_take_sectors_and_synced_groups_blocks() {
    let desk = WriterDesk::new(3);
    let mut writer = desk.writer(MEDIUM);
    for lsn in 1..=3 {
        put(&mut writer, STREAMS[0], lsn, b"v");
        writer.write(false).unwrap();
    }
    put(&mut writer, STREAMS[0], 4, b"v");
    writer.sync().unwrap();
    let lengths: Vec<u64> = desk.frames(1).iter().map(|frame| frame.length).collect();
    let rest = BLOCK_BYTES - 3 * SECTOR_BYTES;
    assert_eq!(lengths, [BLOCK_BYTES, SECTOR_BYTES, SECTOR_BYTES, SECTOR_BYTES, rest]);
}

/// What was written without a sync in mind gets an empty frame behind it, up to the block's end.
#[test]
fn an_empty_frame_fills_the_block_before_a_sync() {
    let desk = WriterDesk::new(4);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    writer.write(false).unwrap();
    writer.sync().unwrap();
    let last = desk.last_frame(1);
    assert_eq!((last.changes, last.rows, last.length), (0, 0, BLOCK_BYTES - SECTOR_BYTES));
    assert_eq!(last.end().position, 3 * BLOCK_BYTES);
    put(&mut writer, STREAMS[0], 2, b"v");
    writer.write(true).unwrap();
    writer.sync().unwrap();
    assert_eq!(desk.last_frame(1).changes, 1, "nothing has to be filled");
}

/// A frame's watermark is what was synced before it, no more; the idle frame tells the last one.
#[test]
fn watermarks_are_what_was_synced() {
    let desk = WriterDesk::new(5);
    let mut writer = desk.writer(MEDIUM);
    let begun = LogPosition { file: 1, position: 2 * BLOCK_BYTES };
    put(&mut writer, STREAMS[0], 1, b"v");
    writer.write(true).unwrap();
    put(&mut writer, STREAMS[0], 2, b"v");
    writer.write(true).unwrap();
    assert_eq!(desk.last_frame(1).watermark, begun, "nothing behind BEGIN was synced");
    assert_eq!((writer.written(STREAMS[0]), writer.durable(STREAMS[0])), (2, 0));
    assert!(!writer.is_synced());
    writer.sync().unwrap();
    assert_eq!((writer.written(STREAMS[0]), writer.durable(STREAMS[0])), (2, 2));
    assert!(writer.is_synced());
    for _ in 0..3 {
        writer.idle_frame().unwrap();
    }
    let frames = desk.frames(1);
    assert_eq!(frames.len(), 4, "the watermark is told once");
    assert_eq!(frames[3].watermark, frames[2].end());
    assert_eq!((frames[3].length, frames[3].changes), (SECTOR_BYTES, 0));
    put(&mut writer, STREAMS[0], 3, b"v");
    writer.sync().unwrap();
    put(&mut writer, STREAMS[0], 4, b"v");
    writer.idle_frame().unwrap();
    assert_eq!(desk.frames(1).len(), 5, "something waits, so it isn't idle");
    writer.sync().unwrap();
    writer.idle_frame().unwrap();
    assert_eq!(desk.last_frame(1).watermark.position, writer_end(&desk));
}

fn writer_end(desk: &WriterDesk) -> u64 {
    desk.last_frame(1).at.position
}

/// A clean end leaves a watermark on disk that is behind the last change.
#[test]
fn a_clean_end_has_its_watermark_on_disk() {
    let desk = WriterDesk::new(6);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    writer.close().unwrap();
    let frames = desk.frames(1);
    let [_, change, empty] = frames[..2 + 1] else { panic!("{frames:?}") };
    assert_eq!((change.changes, empty.changes), (1, 0));
    assert_eq!(empty.watermark, change.end());
    let last = *frames.last().unwrap();
    assert!(last.end().position.is_multiple_of(BLOCK_BYTES));
    let events = desk.watched.take();
    assert_eq!(events.last(), Some(&Event::Sync(file(1))));
}

/// A frame is closed and written when its body has 1 MiB, and not before.
#[test]
fn a_frame_is_closed_at_1_mib() {
    let desk = WriterDesk::new(7);
    let mut writer = desk.writer(LARGE);
    let value = vec![5; 100_000];
    for lsn in 1..=10 {
        put(&mut writer, STREAMS[0], lsn, &value);
    }
    assert_eq!(desk.frames(1).len(), 1, "less than 1 MiB is in memory");
    put(&mut writer, STREAMS[1], 1, &value);
    let frames = desk.frames(1);
    assert_eq!((frames.len(), frames[1].changes), (2, 10));
    assert!(frames[1].body_bytes <= FRAME_BYTES as u64);
    writer.sync().unwrap();
    assert_eq!(desk.replayed().len(), 11);
}

/// Commits share a frame, also if each stream has a row there already.
#[test]
fn all_streams_share_a_frame() {
    let desk = WriterDesk::new(17);
    let mut writer = desk.writer(MEDIUM);
    for lsn in 1..=9 {
        STREAMS.iter().for_each(|&stream| put(&mut writer, stream, lsn, b"v"));
        put_again(&mut writer, STREAMS[0], lsn, b"v");
    }
    writer.sync().unwrap();
    let counts: Vec<u32> = desk.frames(1).iter().map(|frame| frame.changes).collect();
    assert_eq!(counts, [0, 45]);
}

/// The longest commit that shares frames, and the next longer one, which doesn't.
#[test]
fn commits_about_1_mib_long_are_whole() {
    let desk = WriterDesk::new(8);
    let mut writer = desk.writer(LARGE);
    let mut wanted = Vec::new();
    let lengths = (FRAME_BYTES - 64..FRAME_BYTES + 16).step_by(7);
    for (length, lsn) in lengths.zip(1..) {
        let value: Vec<u8> = (0..length).map(|i| i.to_le_bytes()[0] ^ lsn as u8).collect();
        put(&mut writer, STREAMS[1], lsn, &value);
        wanted.push((STREAMS[1], lsn, false, value));
    }
    writer.sync().unwrap();
    assert!(desk.replayed() == wanted, "a payload came back otherwise");
}

/// Before its first block is written, a long frame isn't there; its pieces lie on blocks.
#[test]
fn a_long_commit_is_written_first_block_last() {
    let desk = WriterDesk::new(9);
    let mut writer = desk.writer(LARGE);
    put(&mut writer, STREAMS[0], 1, b"in the open frame before");
    desk.watched.take();
    let long = vec![3; 2_500_000];
    put(&mut writer, STREAMS[0], 2, &long);
    put_again(&mut writer, STREAMS[0], 2, &long[..1_100_000]);
    let mut writes = Vec::new();
    for event in desk.watched.take() {
        if let Event::Write { to, from, end } = event {
            assert_eq!(to, file(1));
            writes.push((from, end));
        }
    }
    let begin = 3 * BLOCK_BYTES;
    assert_eq!(writes[0], (2 * BLOCK_BYTES, begin), "the open frame is written before");
    let last = writes.iter().position(|&write| write == (begin, begin + BLOCK_BYTES));
    let first = writes.iter().position(|&(from, _)| from == begin + BLOCK_BYTES);
    assert_eq!(first, Some(1));
    assert!(writes.iter().all(|&(from, _)| from.is_multiple_of(BLOCK_BYTES)), "{writes:?}");
    let parts = &writes[1..last.unwrap()];
    assert!(parts.len() > 1 && parts.windows(2).all(|pair| pair[0].1 == pair[1].0), "{writes:?}");
    assert_eq!(writer.written(STREAMS[0]), 2);
    writer.sync().unwrap();
    let lengths: Vec<usize> = desk.replayed().iter().map(|kept| kept.3.len()).collect();
    assert_eq!(lengths, [24, 2_500_000, 1_100_000]);
    let frames = desk.frames(1);
    assert_eq!((frames[2].rows, frames[2].changes, frames[2].clock_ms), (1, 1, 5));
    assert_eq!((frames[3].rows, frames[3].changes, frames[3].clock_ms), (0, 1, 0));
    assert_eq!(writer.durable(STREAMS[0]), 2);
}

/// A commit that fits into no file of the usual size gets a file of its own size, and a prepared
/// file that is too small doesn't come into the chain.
#[test]
fn a_commit_longer_than_a_file_gets_a_larger_one() {
    let desk = WriterDesk::new(10);
    let mut writer = desk.writer(SMALL);
    prepare(&mut writer);
    let long = vec![8; 3_000_001];
    put(&mut writer, STREAMS[0], 1, b"before");
    put(&mut writer, STREAMS[0], 2, &long);
    put(&mut writer, STREAMS[0], 3, b"behind");
    writer.sync().unwrap();
    let found = desk.recovery();
    let numbers: Vec<u64> = found.files.iter().map(|file| file.number).collect();
    assert_eq!(numbers.len(), 3, "before, the long one, behind: {numbers:?}");
    assert!(numbers[1] > 2, "number 2 was prepared with the usual size");
    assert!(found.files[1].file_bytes > 3_000_000);
    assert_eq!(found.files[2].file_bytes, SMALL.file_bytes);
    let lengths: Vec<usize> = desk.replayed().iter().map(|kept| kept.3.len()).collect();
    assert_eq!(lengths, [6, 3_000_001, 6]);
}

/// The stream table has room for streams that came while a frame was open.
#[test]
fn streams_may_come_while_a_frame_is_open() {
    let desk = WriterDesk::new(11);
    let mut writer = desk.writer(MEDIUM);
    STREAMS.iter().for_each(|&stream| put(&mut writer, stream, 1, b"old"));
    for partition in 0..20 {
        writer.add_stream(0x180 + partition);
        put(&mut writer, 0x180 + partition, 1, b"new");
    }
    writer.sync().unwrap();
    assert_eq!(desk.replayed().len(), 24);
    assert_eq!(writer.streams().filter(|&(_, _, durable)| durable == 1).count(), 24);
}

/// A log without tenants gets its first one.
#[test]
fn the_first_stream_may_come_late() {
    let mut desk = WriterDesk::new(16);
    desk.meta.tenants.insert(0, desk.meta.tenants[&1].clone());
    desk.meta.tenants.get_mut(&0).unwrap().name = "_system".into();
    let begun = LogWriter::begin_chain(&desk.world, &desk.meta, CHAIN, &[], MEDIUM, 1);
    let mut writer = begun.unwrap();
    writer.add_stream(3);
    put(&mut writer, 3, 1, b"v");
    writer.sync().unwrap();
    assert_eq!(desk.replayed(), [(3, 1, false, b"v".to_vec())]);
}

#[test]
#[should_panic(expected = "have a gap")]
fn a_gap_is_our_own_mistake() {
    let mut writer = WriterDesk::new(12).writer(SMALL);
    put(&mut writer, STREAMS[0], 1, b"v");
    put(&mut writer, STREAMS[0], 3, b"v");
}

#[test]
#[should_panic(expected = "comes again")]
fn what_comes_again_was_there_before() {
    let mut writer = WriterDesk::new(13).writer(SMALL);
    put_again(&mut writer, STREAMS[0], 1, b"v");
}

#[test]
#[should_panic(expected = "isn't of this log")]
fn an_unknown_stream_is_our_own_mistake() {
    let mut writer = WriterDesk::new(14).writer(SMALL);
    put(&mut writer, 0x999, 1, b"v");
}

/// Commits of any shape come back, however they fall into frames and files.
#[test]
fn any_commits_come_back() {
    for seed in 0..60 {
        any_commits(seed);
    }
}

fn any_commits(seed: u64) {
    let (desk, chance) = (WriterDesk::new(seed), SimChance::new(seed + 1000));
    let settings = LogSettings { file_bytes: (4 + below(&chance, 40)) * BLOCK_BYTES };
    let mut writer = desk.writer(settings);
    let (mut next, mut wanted) = ([1; 4], Vec::new());
    for _ in 0..60 {
        let which = usize::try_from(below(&chance, 4)).unwrap();
        let bytes = || usize::try_from(below(&chance, 3000)).unwrap();
        let values: Vec<Vec<u8>> =
            (0..=below(&chance, 3)).map(|_| vec![bytes().to_le_bytes()[0]; bytes()]).collect();
        let payloads: Vec<[&[u8]; 1]> = values.iter().map(|value| [value.as_slice()]).collect();
        let changes: Vec<NewChange<'_>> = payloads
            .iter()
            .map(|payload| NewChange { kind: ChangeKind::Put, payload: payload.as_slice() })
            .collect();
        let (stream, first_lsn) = (STREAMS[which], next[which]);
        let commit = NewCommit {
            stream,
            first_lsn,
            again: false,
            changes: &changes,
            needs: &[],
            clock_ms: 1,
        };
        assert_eq!(writer.add(&commit, &nothing).unwrap(), Added::Taken);
        for (value, lsn) in values.iter().zip(first_lsn..) {
            wanted.push((stream, lsn, false, value.clone()));
        }
        next[which] += values.len() as u64;
        match below(&chance, 6) {
            0 => writer.sync().unwrap(),
            1 => writer.write(false).unwrap(),
            2 => writer.idle_frame().unwrap(),
            _ => {}
        }
    }
    writer.close().unwrap();
    assert!(desk.replayed() == wanted, "seed {seed}");
    assert!(desk.recovery().torn.is_none(), "seed {seed}");
    let durable: Vec<u64> = writer.streams().map(|(_, _, durable)| durable + 1).collect();
    assert_eq!(durable, next, "seed {seed}");
}
