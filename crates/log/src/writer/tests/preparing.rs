//! Files ahead of need.

use super::compaction::{compact, compact_all, filled_alike, filled_with_room};
use super::watched::{Event, Named, file};
use super::{LogWriter, MEDIUM, SMALL, STREAMS, WriterDesk, prepare, put, try_put};
use crate::error::LogError;
use crate::format::layout::BLOCK_BYTES;
use crate::format::names::FileName;
use crate::position::Chain;
use crate::reader::ends::LogRecovery;
use crate::reader::log_file::ChainKey;
use crate::storage::real::RealFolder;
use crate::storage::simulated::{SimChance, SimFault};
use crate::storage::{Storage, World};
use crate::writer::new_commit::Added;
use crate::writer::prepare::{Ahead, FilePreparer};
use crate::writer::settings::LogSettings;
use std::sync::Arc;

/// One file, for a writer that keeps no room.
const AHEAD: Ahead = Ahead { file_bytes: SMALL.file_bytes, overhead: 0, room: 0 };

fn new(number: u64) -> Named {
    Named { number, new: true }
}

fn name(number: u64) -> String {
    FileName::of(&super::CHAIN, number).to_string()
}

/// A new file: zeros, 1 MiB at a time and each synced; then its head, synced; then its name.
#[test]
fn a_new_file_is_made_in_bounded_steps() {
    let desk = WriterDesk::new(1);
    let mut writer = desk.writer(LogSettings { file_bytes: (5 << 20) / 2 });
    desk.watched.take();
    let mut steps = Vec::new();
    while !writer.prepare().unwrap() {
        steps.push(desk.watched.take());
    }
    let zeros = |from, end| vec![Event::Write { to: new(2), from, end }, Event::Sync(new(2))];
    let mib = 1 << 20;
    let wanted = [
        vec![Event::Create(new(2))],
        zeros(0, mib),
        zeros(mib, 2 * mib),
        zeros(2 * mib, 5 * mib / 2),
        zeros(0, BLOCK_BYTES),
        vec![Event::Rename(new(2), file(2)), Event::SyncFolder],
    ];
    assert_eq!(steps, wanted);
    assert_eq!(writer.bytes(), 2 * (5 << 20) / 2);
    assert_eq!(writer.counted_bytes(), (5 << 20) / 2);
    assert!(writer.prepare().unwrap(), "one is enough");
    assert_eq!(desk.watched.take(), []);
    put(&mut writer, STREAMS[0], 1, &vec![0; 900_000]);
    assert_eq!(writer.newest_file(), 1, "it is begun only when it is needed");
}

/// Where syncs are seldom, a new file is there at once, and reads as zeros all the same.
#[test]
fn zeros_are_written_only_where_they_pay() {
    let desk = WriterDesk::new(1);
    let mut writer = desk.writer(LogSettings { file_bytes: 5 << 20 });
    writer.write_zeros(false);
    desk.watched.take();
    while !writer.prepare().unwrap() {}
    let wanted = [
        Event::Create(new(2)),
        Event::Write { to: new(2), from: 0, end: BLOCK_BYTES },
        Event::Sync(new(2)),
        Event::Rename(new(2), file(2)),
        Event::SyncFolder,
    ];
    assert_eq!(desk.watched.take(), wanted);
    assert_eq!(writer.bytes(), 2 * (5 << 20), "its space is set aside");
}

/// A file that no longer counts is taken instead, with another salt in its head; its old frames
/// mean nothing then.
#[test]
fn a_file_that_does_not_count_is_prepared_again() {
    let desk = WriterDesk::new(2);
    let mut writer = desk.writer(SMALL);
    (1..=2).for_each(|lsn| put(&mut writer, STREAMS[0], lsn, &[1; 3000]));
    let salt = |number| desk.head(number).salt;
    let old = salt(1);
    assert!(compact(&mut writer));
    writer.sync().unwrap();
    writer.sync().unwrap();
    assert_eq!(writer.oldest(), 2);
    desk.watched.take();
    while !writer.prepare().unwrap() {}
    let wanted = [
        Event::Rename(file(1), new(3)),
        Event::SyncFolder,
        Event::Write { to: new(3), from: 0, end: BLOCK_BYTES },
        Event::Sync(new(3)),
        Event::Rename(new(3), file(3)),
        Event::SyncFolder,
    ];
    assert_eq!(desk.watched.take(), wanted);
    assert_ne!(salt(3), old);
    assert_eq!(desk.frames(3), [], "what lies there is of another life");
    assert_eq!(desk.numbers(), [2, 3]);
    put(&mut writer, STREAMS[0], 3, &[1; 3000]);
    writer.sync().unwrap();
    assert_eq!(desk.replayed().iter().map(|kept| kept.1).collect::<Vec<_>>(), [2, 3]);
}

/// Without room for the next file, changes are taken while the last file has room; then they are
/// refused, and nothing of them is taken; with room again all goes on.
#[test]
fn a_full_disk_refuses_and_heals() {
    let desk = WriterDesk::new(3);
    let mut writer = desk.writer(SMALL);
    put(&mut writer, STREAMS[0], 1, &[1; 2000]);
    desk.watched.disk.set_capacity(desk.watched.disk.used_bytes() + 100);
    assert!(matches!(writer.prepare(), Err(LogError::Full { .. })));
    assert!(matches!(writer.prepare(), Err(LogError::Full { .. })));
    let refused = try_put(&mut writer, STREAMS[0], 2, &[2; 3000]);
    assert!(matches!(refused, Err(LogError::Full { .. })));
    assert_eq!(writer.broken(), None);
    assert!(writer.room() > 0, "a removal still fits");
    put(&mut writer, STREAMS[0], 2, b"gone");
    writer.sync().unwrap();
    assert_eq!((writer.durable(STREAMS[0]), writer.newest_file()), (2, 1));
    assert_eq!(desk.watched.disk.names().unwrap(), [name(1)], "nothing half made is left");
    desk.watched.disk.set_capacity(u64::MAX);
    put(&mut writer, STREAMS[0], 3, &[2; 3000]);
    writer.close().unwrap();
    assert_eq!(desk.replayed().iter().map(|kept| kept.1).collect::<Vec<_>>(), [1, 2, 3]);
}

/// Any call of preparing may fail: the log isn't broken, nothing half made stays, and the next try
/// works.
#[test]
fn preparing_fails_without_harm() {
    let desk = WriterDesk::new(0);
    let mut writer = desk.writer(SMALL);
    let before = desk.watched.disk.calls();
    prepare(&mut writer);
    let calls = desk.watched.disk.calls() - before;
    for fault in [SimFault::NoSpace, SimFault::Io, SimFault::Short] {
        for after in 1..=calls {
            let desk = WriterDesk::new(after);
            let mut writer = desk.writer(SMALL);
            desk.watched.disk.fail(desk.watched.disk.calls() + after, fault);
            let mut failures = 0;
            while !done(&mut writer, fault, &mut failures) {}
            let hit = desk.watched.disk.failed_call();
            assert_eq!(failures, u32::from(fault != SimFault::Short), "{hit:?}");
            assert_eq!(writer.broken(), None);
            put(&mut writer, STREAMS[0], 1, &[1; 3900]);
            put(&mut writer, STREAMS[0], 2, &[1; 3900]);
            writer.sync().unwrap();
            assert!(desk.watched.disk.names().unwrap().iter().all(|name| !name.ends_with(".new")));
            assert_eq!(desk.replayed().len(), 2);
        }
    }
}

/// One step; `true` at the end.
fn done(
    writer: &mut LogWriter<super::watched::WatchedDisk>,
    fault: SimFault,
    failures: &mut u32,
) -> bool {
    match writer.prepare() {
        Ok(done) => return done,
        Err(LogError::Full { .. }) => assert_eq!(fault, SimFault::NoSpace),
        Err(LogError::Io { .. }) => assert_eq!(fault, SimFault::Io),
        Err(error) => panic!("{error}"),
    }
    *failures += 1;
    assert!(*failures < 3, "the fault comes once");
    false
}

/// A name that was given may be on disk though giving it failed: the number isn't given again.
#[test]
fn a_number_is_given_once() {
    let desk = WriterDesk::new(4);
    let mut writer = desk.writer(SMALL);
    let before = desk.watched.disk.calls();
    prepare(&mut writer);
    let last = desk.watched.disk.calls() - before;
    let desk = WriterDesk::new(4);
    let mut writer = desk.writer(SMALL);
    desk.watched.disk.fail(before + last, SimFault::Io);
    while writer.prepare().is_ok() {}
    assert_eq!(desk.watched.disk.failed_call().as_deref(), Some("sync_folder ."));
    prepare(&mut writer);
    assert_eq!(desk.numbers(), [1, 3]);
}

/// A full disk gives up spare files of another size before it refuses.
#[test]
fn spare_files_make_room() {
    let desk = WriterDesk::new(5);
    let mut writer = filled_with_room(&desk, 1);
    put(&mut writer, STREAMS[0], 2, &[1; 300_000]);
    writer.sync().unwrap();
    drop(writer);
    let mut writer = desk.reopened(MEDIUM);
    compact_all(&mut writer);
    let used = desk.watched.disk.used_bytes();
    assert!(used > 300_000, "the long file is spare");
    desk.watched.disk.set_capacity(used);
    put(&mut writer, STREAMS[0], 3, &[1; 200_000]);
    writer.sync().unwrap();
    assert!(desk.watched.disk.used_bytes() <= used);
    assert_eq!(desk.replayed().len(), 1);
    assert!(matches!(
        try_put(&mut writer, STREAMS[0], 4, &[1; 300_000]),
        Err(LogError::Full { .. })
    ));
}

/// Of files that don't count a few are kept to be prepared; the others are removed, one a step.
#[test]
fn too_many_spare_files_are_removed() {
    let desk = WriterDesk::new(6);
    let mut writer = filled_alike(&desk, 7);
    compact_all(&mut writer);
    assert_eq!(desk.numbers(), [1, 2, 3, 4, 5, 6, 7, 8]);
    prepare(&mut writer);
    let left = desk.numbers();
    assert_eq!((left.len(), left.last()), (4, Some(&9)), "{left:?}");
    assert_eq!(writer.bytes(), 4 * MEDIUM.file_bytes);
    assert_eq!(desk.watched.disk.used_bytes(), writer.bytes());
}

/// At a start, files are only taken whose head has their number; damaged ones are removed.
#[test]
fn spare_files_with_wrong_heads_are_removed() {
    let desk = WriterDesk::new(7);
    let mut writer = filled_with_room(&desk, 3);
    compact_all(&mut writer);
    drop(writer);
    let disk = &desk.watched.disk;
    for number in [1, 3] {
        let mut bytes = disk.contents(&name(number)).unwrap();
        bytes[50] ^= 1;
        disk.set_contents(&name(number), bytes);
    }
    desk.watched.take();
    let mut writer = desk.reopened(SMALL);
    assert_eq!(writer.newest_file(), 5);
    prepare(&mut writer);
    assert_eq!(desk.numbers(), [4, 5, 6]);
    let done = desk.watched.take();
    assert!(done.contains(&Event::Rename(file(2), new(5))), "{done:?}");
    assert!(done.contains(&Event::Remove(file(1))) && done.contains(&Event::Remove(file(3))));
}

/// A file with a second name is somebody's copy: it isn't taken.
#[test]
fn a_file_with_two_names_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let desk = WriterDesk::new(10);
    let storage = Arc::new(RealFolder::open(folder.path(), true).unwrap());
    let World { clock, chance, .. } = desk.world.clone();
    let world = World { storage, clock, chance };
    let key = ChainKey::of(&desk.meta, &super::CHAIN);
    let mut preparer = FilePreparer::new(&world, key, 0, &[]);
    while !preparer.step(AHEAD).unwrap() {}
    let (first, copy) = (folder.path().join(name(1)), folder.path().join("copy"));
    std::fs::hard_link(&first, &copy).unwrap();
    let bytes = std::fs::read(&copy).unwrap();
    let mut preparer = FilePreparer::new(&world, key, 1, &[key.name(1)]);
    while !preparer.step(AHEAD).unwrap() {}
    assert!(!first.exists() && folder.path().join(name(2)).exists());
    assert!(std::fs::read(&copy).unwrap() == bytes, "the copy was changed");
}

/// A file that was never begun is nobody's: it is taken though a follower holds its number.
#[test]
fn a_file_that_was_never_begun_is_not_held() {
    let desk = WriterDesk::new(11);
    let mut writer = desk.writer(SMALL);
    writer.hold(Some(1));
    prepare(&mut writer);
    put(&mut writer, STREAMS[0], 1, &[1; 100_000]);
    desk.watched.take();
    prepare(&mut writer);
    let done = desk.watched.take();
    assert_eq!(done.first(), Some(&Event::Rename(file(2), new(4))), "{done:?}");
}

/// Power may be cut while a file that was never begun is prepared again: no name has a head that
/// isn't its own.
#[test]
fn a_never_begun_file_that_comes_back_has_its_head() {
    for seed in 0..200 {
        let desk = WriterDesk::new(seed);
        let mut writer = desk.writer(SMALL);
        prepare(&mut writer);
        put(&mut writer, STREAMS[0], 1, &[1; 100_000]);
        writer.sync().unwrap();
        for _ in 0..seed % 4 {
            writer.prepare().unwrap();
        }
        let after = WriterDesk::on(desk.watched.disk.power_cut(&SimChance::new(seed)), seed);
        assert_eq!(after.replayed().len(), 1, "seed {seed}");
    }
}

/// A commit that finds no prepared file has one made.
#[test]
fn a_file_is_made_on_the_spot_if_it_has_to_be() {
    let desk = WriterDesk::new(8);
    let mut writer = desk.writer(MEDIUM);
    for lsn in 1..=40 {
        let added = try_put(&mut writer, STREAMS[0], lsn, &[1; 3000]);
        assert_eq!(added.unwrap(), Added::Taken);
    }
    writer.sync().unwrap();
    assert!(writer.newest_file() > 2);
    assert_eq!(desk.replayed().len(), 40);
}

/// A file that is being made and turns out to be too small is given up.
#[test]
fn a_file_that_gets_too_small_is_given_up() {
    let desk = WriterDesk::new(9);
    let mut writer = desk.writer(SMALL);
    assert!(!writer.prepare().unwrap());
    put(&mut writer, STREAMS[0], 1, &[1; 100_000]);
    writer.sync().unwrap();
    assert_eq!((desk.numbers(), writer.newest_file()), (vec![1, 2], 2));
    assert_eq!(desk.watched.disk.used_bytes(), writer.bytes());
    assert_eq!(desk.replayed().len(), 1);
}

/// Bytes that may be waiting when the disk is found full.
const BACKLOG: u64 = 100_000;

/// With its room set aside, a writer takes on a full disk what was waiting, and then as much as it
/// says, and what compaction appends.
#[test]
fn what_was_waiting_has_room_on_a_full_disk() {
    for bytes in [100, 700, 5000] {
        let desk = WriterDesk::new(12);
        let mut writer = desk.writer(MEDIUM);
        assert!(writer.lacks_room() || writer.room() > 0);
        writer.keep_room(BACKLOG);
        assert!(writer.lacks_room());
        prepare(&mut writer);
        assert!(!writer.lacks_room());
        desk.watched.disk.set_capacity(desk.watched.disk.used_bytes());
        let (mut lsn, mut written) = (0, 0);
        while written < BACKLOG {
            lsn += 1;
            put(&mut writer, STREAMS[0], lsn, &vec![1; bytes]);
            written += bytes as u64;
        }
        assert!(matches!(writer.prepare(), Err(LogError::Full { .. })));
        assert!(writer.room_to_add() > 0, "removals are taken");
        while writer.room_to_add() > 0 {
            lsn += 1;
            put(&mut writer, STREAMS[0], lsn, b"gone");
            writer.sync().unwrap();
        }
        assert!(writer.room() > writer.room_to_compact());
        assert_eq!(writer.durable(STREAMS[0]), lsn);
        assert_eq!(desk.replayed().len() as u64, lsn);
        // With nothing alive, the oldest file goes, and its space is set aside.
        assert!(compact(&mut writer));
        writer.sync().unwrap();
        writer.sync().unwrap();
        assert_eq!(writer.oldest(), 2);
        let _ = writer.prepare();
        assert!(writer.room_to_add() > 0);
    }
}

/// A commit that is longer than a file gets one before those that are being made, however far the
/// next one is; none gets its number twice.
#[test]
fn a_long_file_comes_before_those_that_are_being_made() {
    for steps in 0..12 {
        let desk = WriterDesk::new(13);
        let mut writer = desk.writer(SMALL);
        writer.keep_room(BACKLOG);
        for _ in 0..steps {
            writer.prepare().unwrap();
        }
        put(&mut writer, STREAMS[0], 1, &[1; 300_000]);
        for lsn in 2..=40 {
            put(&mut writer, STREAMS[0], lsn, &[1; 3000]);
            writer.prepare().unwrap();
        }
        writer.sync().unwrap();
        assert_eq!(desk.replayed().len(), 40, "{steps} steps before");
    }
}

/// On a full disk, a long commit takes what was set aside.
#[test]
fn a_long_file_takes_what_was_set_aside() {
    let desk = WriterDesk::new(14);
    let mut writer = desk.writer(MEDIUM);
    writer.keep_room(BACKLOG);
    prepare(&mut writer);
    desk.watched.disk.set_capacity(desk.watched.disk.used_bytes());
    put(&mut writer, STREAMS[0], 1, &[1; 150_000]);
    writer.sync().unwrap();
    assert_eq!(desk.replayed().len(), 1);
}

/// What a process was making that was killed takes no room from the next one, which makes files of
/// another size.
#[test]
fn a_start_removes_what_was_being_made() {
    let desk = WriterDesk::new(15);
    let mut writer = desk.writer(MEDIUM);
    writer.keep_room(BACKLOG);
    prepare(&mut writer);
    put(&mut writer, STREAMS[0], 1, b"it");
    writer.sync().unwrap();
    drop(writer);
    let disk = &desk.watched.disk;
    let being_made = || disk.names().unwrap().iter().any(|name| name.ends_with(".new"));
    assert!(being_made());
    disk.set_capacity(disk.used_bytes());
    let mut writer = desk.reopened(SMALL);
    assert!(!being_made());
    put(&mut writer, STREAMS[0], 2, b"it");
    writer.sync().unwrap();
    assert_eq!(desk.replayed().len(), 2);
}

/// Two logs have set their room aside when the disk gets full. After a start each has its own. The
/// log that was first took what the other had given back, which could compact nothing from then on,
/// and soon had no room for a start's file.
#[test]
fn a_start_leaves_each_log_its_room() {
    let desk = WriterDesk::new(16);
    let chains = [super::CHAIN, Chain { shard: super::CHAIN.shard + 1, ..super::CHAIN }];
    let lasts = STREAMS.map(|stream| (stream, 0));
    let before = chains.map(|chain| {
        let begun =
            LogWriter::begin_chain(&desk.world, &desk.meta, chain, &lasts, MEDIUM, super::UNIX_MS);
        let mut writer = begun.unwrap();
        writer.keep_room(BACKLOG);
        prepare(&mut writer);
        writer.bytes()
    });
    desk.watched.disk.set_capacity(desk.watched.disk.used_bytes());
    let begun = chains.map(|chain| {
        let found = LogRecovery::find(&desk.world, &desk.meta, &chain).unwrap();
        LogWriter::begin(&desk.world, &desk.meta, found, MEDIUM, super::UNIX_MS).unwrap()
    });
    let after = begun.map(|mut writer| {
        writer.keep_room(BACKLOG);
        let full = std::iter::repeat_with(|| writer.prepare()).take(1000).find_map(Result::err);
        assert!(matches!(full, Some(LogError::Full { .. })), "{full:?}");
        writer.bytes()
    });
    assert_eq!(after, before);
}

/// A process kept more room than the next one does, which gives the rest back.
#[test]
fn what_was_set_aside_and_is_too_much_goes() {
    let desk = WriterDesk::new(17);
    let mut writer = desk.writer(MEDIUM);
    writer.keep_room(BACKLOG);
    prepare(&mut writer);
    let least = writer.bytes();
    writer.keep_room(4 * BACKLOG);
    prepare(&mut writer);
    assert!(writer.bytes() > least + 4 * MEDIUM.file_bytes);
    drop(writer);
    let mut writer = desk.reopened(MEDIUM);
    writer.keep_room(BACKLOG);
    prepare(&mut writer);
    assert!(!writer.lacks_room());
    // It has begun a file, and may keep a spare one.
    assert!(writer.bytes() <= least + 2 * MEDIUM.file_bytes);
}
