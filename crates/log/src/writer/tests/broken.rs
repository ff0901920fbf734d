//! Failed writes and syncs: the first one breaks the log for good.

use super::watched::Event;
use super::watched::WatchedDisk;
use super::{LogWriter, SMALL, STREAMS, WriterDesk, prepare, put, try_put};
use crate::error::LogError;
use crate::storage::simulated::{SimChance, SimFault};

/// What a writer does in these tests; stops at the first error.
fn work(writer: &mut LogWriter<WatchedDisk>, durable: &mut u64) -> Result<(), LogError> {
    for lsn in 1..=6 {
        try_put(writer, STREAMS[0], lsn, &[1; 2000])?;
        match lsn % 3 {
            0 => writer.write(false)?,
            1 => writer.sync()?,
            _ => writer.idle_frame()?,
        }
        *durable = writer.durable(STREAMS[0]);
    }
    try_put(writer, STREAMS[1], 1, &[1; 1_200_000])?;
    *durable = writer.durable(STREAMS[0]);
    writer.close()
}

/// Every call of the work fails once. If that breaks the log, nothing is written any more, each
/// call names the first cause, and what was durable is there, whatever the disk kept.
#[test]
fn a_broken_writer_stays_broken() {
    let (mut broke, mut harmless) = (0, 0);
    for call in 1.. {
        let desk = WriterDesk::new(call);
        let mut writer = desk.writer(SMALL);
        desk.watched.disk.fail(desk.watched.disk.calls() + call, SimFault::Io);
        let mut durable = 0;
        let first = match work(&mut writer, &mut durable) {
            Ok(()) if desk.watched.disk.failed_call().is_none() => break,
            // What was left over couldn't be removed, but that is all.
            Ok(()) => continue,
            Err(error) => error,
        };
        assert!(matches!(first, LogError::Io { .. }), "{first}");
        let Some(cause) = writer.broken().map(ToString::to_string) else {
            harmless += 1;
            continue;
        };
        broke += 1;
        assert_eq!(cause, first.to_string());
        desk.watched.take();
        stays_broken(&mut writer, &cause);
        assert_eq!(desk.watched.take(), [], "something was done in a broken log");
        let chance = SimChance::new(call);
        for _ in 0..4 {
            let after = WriterDesk::on(desk.watched.disk.power_cut(&chance), call);
            let lsns = after.replayed().into_iter().filter(|kept| kept.0 == STREAMS[0]);
            let found: Vec<u64> = lsns.map(|kept| kept.1).collect();
            assert!(found.len() as u64 >= durable, "call {call}: {durable} was durable: {found:?}");
        }
    }
    assert!(broke > 20 && harmless > 20, "{broke} of the log's calls, {harmless} of preparing");
}

fn stays_broken(writer: &mut LogWriter<WatchedDisk>, cause: &str) {
    let lsn = writer.written(STREAMS[0]) + 1;
    let results = [
        try_put(writer, STREAMS[0], lsn, b"v").map(drop),
        writer.write(false),
        writer.sync(),
        writer.idle_frame(),
        writer.close(),
        writer.end_frame().map(drop),
        writer.prepare().map(drop),
        writer.victim().map(drop),
    ];
    for result in results {
        match result {
            Err(LogError::Broken { cause: told }) => assert_eq!(told, cause),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(writer.broken(), Some(cause));
}

/// A failed sync makes nothing durable.
#[test]
fn a_failed_sync_makes_nothing_durable() {
    let desk = WriterDesk::new(1);
    let mut writer = desk.writer(SMALL);
    put(&mut writer, STREAMS[0], 1, b"v");
    writer.write(true).unwrap();
    desk.watched.disk.fail(desk.watched.disk.calls() + 1, SimFault::Io);
    assert!(matches!(writer.sync(), Err(LogError::Io { .. })));
    assert_eq!((writer.written(STREAMS[0]), writer.durable(STREAMS[0])), (1, 0));
    assert!(!writer.is_synced());
}

/// A failed write isn't told as written.
#[test]
fn a_failed_write_is_not_told() {
    for long in [10, 3_000_000] {
        let desk = WriterDesk::new(2);
        let mut writer = desk.writer(super::LARGE);
        desk.watched.disk.fail(desk.watched.disk.calls() + 1, SimFault::Io);
        let added = try_put(&mut writer, STREAMS[0], 1, &vec![1; long]).map(drop);
        assert!(added.and_then(|()| writer.write(false)).is_err());
        assert_eq!((writer.written(STREAMS[0]), writer.durable(STREAMS[0])), (0, 0));
    }
}

/// A short write goes on with the rest, wherever it comes.
#[test]
fn short_writes_go_on() {
    for call in 1..60 {
        let desk = WriterDesk::new(call);
        let mut writer = desk.writer(SMALL);
        desk.watched.disk.fail(desk.watched.disk.calls() + call, SimFault::Short);
        work(&mut writer, &mut 0).unwrap();
        assert_eq!(desk.replayed().len(), 7, "call {call}");
    }
}

/// A file that was prepared isn't begun in a broken log.
#[test]
fn no_file_is_begun_in_a_broken_log() {
    let desk = WriterDesk::new(3);
    let mut writer = desk.writer(SMALL);
    prepare(&mut writer);
    put(&mut writer, STREAMS[0], 1, &[1; 3900]);
    desk.watched.disk.fail(desk.watched.disk.calls() + 1, SimFault::Io);
    assert!(writer.sync().is_err());
    desk.watched.take();
    assert!(try_put(&mut writer, STREAMS[0], 2, &[1; 3900]).is_err());
    let begun = |event: &Event| matches!(event, Event::Write { .. });
    assert!(!desk.watched.take().iter().any(begun));
    assert_eq!(writer.newest_file(), 1);
}
