//! Starts: a chain goes on in a new file.

use super::watched::{Event, Named, file};
use super::{LogWriter, MEDIUM, SMALL, STREAMS, UNIX_MS, WriterDesk, prepare, put};
use crate::error::LogError;
use crate::format::frame::FrameKind;
use crate::format::layout::BLOCK_BYTES;
use crate::position::LogPosition;
use crate::storage::simulated::SimChance;

fn new(number: u64) -> Named {
    Named { number, new: true }
}

/// A start writes nothing but head and BEGIN of a new file, without its zeros, even behind an empty
/// one, and syncs what it found before.
#[test]
fn a_start_begins_a_new_file() {
    let desk = WriterDesk::new(1);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    writer.write(false).unwrap();
    drop(writer);
    let (end, sum) = (desk.last_frame(1).end(), desk.last_frame(1).header_sum);
    for number in 2..=4 {
        desk.watched.take();
        let writer = desk.reopened(MEDIUM);
        assert_eq!(writer.newest_file(), number);
        assert_eq!((writer.written(STREAMS[0]), writer.durable(STREAMS[0])), (1, 1));
        assert!(writer.is_synced());
        let done = desk.watched.take();
        let old = done.iter().position(|event| *event == Event::Sync(file(1))).unwrap();
        let makes = |event: &&Event| matches!(event, Event::Write { to, .. } if to.new);
        let head = Event::Write { to: new(number), from: 0, end: BLOCK_BYTES };
        assert_eq!(done.iter().filter(makes).collect::<Vec<_>>(), [&head]);
        let write = |event: &Event| matches!(event, Event::Write { to, .. } if !to.new);
        let writes: Vec<&Event> = done.iter().filter(|event| write(event)).collect();
        let (from, end) = (BLOCK_BYTES, 2 * BLOCK_BYTES);
        assert_eq!(writes, [&Event::Write { to: file(number), from, end }]);
        assert!(done.iter().position(write).unwrap() > old, "what was found isn't synced first");
        assert_eq!(done.last(), Some(&Event::Sync(file(number))));
    }
    let begin = desk.frames(2)[0];
    assert_eq!((begin.watermark, begin.before_sum, begin.kind), (end, sum, FrameKind::Begin));
    assert_eq!(desk.replayed().len(), 1);
}

/// LSNs, tables and clock go on behind a start.
#[test]
fn a_chain_goes_on() {
    let desk = WriterDesk::new(2);
    let mut writer = desk.writer(SMALL);
    put(&mut writer, STREAMS[0], 1, &[1; 3000]);
    put(&mut writer, STREAMS[0], 2, &[1; 3000]);
    writer.sync().unwrap();
    drop(writer);
    let late = UNIX_MS + 10_000;
    let found = desk.recovery();
    let begun = LogWriter::begin(&desk.world, &desk.meta, found, SMALL, late);
    let mut writer = begun.unwrap();
    assert_eq!(desk.frames(3)[0].clock_ms, late);
    assert_eq!(writer.file_of(STREAMS[0], 2), 2);
    put(&mut writer, STREAMS[0], 3, b"v");
    writer.close().unwrap();
    drop(writer);
    let writer = desk.reopened(SMALL);
    assert_eq!(desk.frames(4)[0].clock_ms, late, "the clock word doesn't fall");
    assert_eq!(writer.durable(STREAMS[0]), 3);
    assert_eq!(desk.replayed().len(), 3);
    assert_eq!(writer.counted_bytes(), 4 * SMALL.file_bytes);
}

/// Streams of dropped tenants aren't listed any more.
#[test]
fn a_dropped_tenant_is_not_listed() {
    let mut desk = WriterDesk::new(3);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    writer.close().unwrap();
    drop(writer);
    desk.meta.tenants.remove(&1);
    desk.meta.dropped.insert(1);
    let writer = desk.reopened(MEDIUM);
    assert_eq!(writer.streams().count(), 0);
    assert_eq!(desk.frames(2)[0].rows, 0);
}

/// A start that finds no room says so, and leaves the chain as it is.
#[test]
fn a_start_without_room_is_refused() {
    let desk = WriterDesk::new(4);
    let mut writer = desk.writer(MEDIUM);
    put(&mut writer, STREAMS[0], 1, b"v");
    writer.close().unwrap();
    drop(writer);
    desk.watched.disk.set_capacity(desk.watched.disk.used_bytes());
    let found = desk.recovery();
    let refused = LogWriter::begin(&desk.world, &desk.meta, found, MEDIUM, UNIX_MS);
    assert!(matches!(refused, Err(LogError::Full { .. })));
    desk.watched.disk.set_capacity(u64::MAX);
    let writer = desk.reopened(MEDIUM);
    assert_eq!((writer.newest_file(), writer.durable(STREAMS[0])), (2, 1));
}

/// The file that was prepared when the process ended is taken first.
#[test]
fn a_prepared_file_is_found_again() {
    let desk = WriterDesk::new(5);
    let mut writer = desk.writer(MEDIUM);
    prepare(&mut writer);
    drop(writer);
    assert_eq!(desk.numbers(), [1, 2]);
    let writer = desk.reopened(MEDIUM);
    assert_eq!((writer.newest_file(), desk.numbers()), (3, vec![1, 3]));
}

/// Power cuts, starts, and work in between: what was durable is there, and all LSNs go on.
#[test]
fn power_cuts_and_starts_lose_nothing_durable() {
    for seed in 0..60 {
        let chance = SimChance::new(seed);
        let mut desk = WriterDesk::new(seed);
        let mut writer = desk.writer(SMALL);
        let mut lsn = 0;
        for round in 0..6 {
            for _ in 0..=(seed + round) % 5 {
                lsn += 1;
                put(&mut writer, STREAMS[0], lsn, &[1; 1500]);
                match (seed + lsn) % 4 {
                    0 => writer.sync().unwrap(),
                    1 => writer.write(false).unwrap(),
                    2 => drop(super::compaction::compact(&mut writer)),
                    _ => drop(writer.prepare().unwrap()),
                }
            }
            let durable = writer.durable(STREAMS[0]);
            drop(writer);
            desk = WriterDesk::on(desk.watched.disk.power_cut(&chance), seed);
            writer = desk.reopened(SMALL);
            let found = writer.durable(STREAMS[0]);
            assert!((durable..=lsn).contains(&found), "seed {seed}: {durable} <= {found} <= {lsn}");
            lsn = found;
        }
        let oldest = LogPosition { file: writer.oldest(), position: 0 };
        assert!(oldest.file >= 1);
        desk.replayed();
    }
}
