//! Which files count, and in which order they go.

use super::watched::{Event, WatchedDisk, file};
use super::{LogWriter, MEDIUM, SMALL, STREAMS, WriterDesk, prepare, put, put_again};

/// Looks at all changes of the oldest file. Its number; `None` if it is the newest too.
fn judge(writer: &mut LogWriter<WatchedDisk>) -> Option<u64> {
    let mut victim = writer.victim().unwrap()?;
    while victim.advance(1000).unwrap().is_some() {}
    writer.judged(victim.file());
    Some(victim.file())
}

/// Compacts the oldest file as if nothing in it were alive.
pub(super) fn compact(writer: &mut LogWriter<WatchedDisk>) -> bool {
    let victim = judge(writer);
    victim.into_iter().for_each(|victim| writer.release(victim));
    victim.is_some()
}

/// Small files 1 to `count`, each with one change of 3,000 bytes of stream 0; the last is open.
fn filled(desk: &WriterDesk, count: u64) -> LogWriter<WatchedDisk> {
    let mut writer = desk.writer(SMALL);
    for lsn in 1..=count {
        put(&mut writer, STREAMS[0], lsn, &[1; 3000]);
    }
    writer.sync().unwrap();
    assert_eq!(writer.newest_file(), count);
    writer
}

/// The same, and behind them a file with room for more.
pub(super) fn filled_with_room(desk: &WriterDesk, count: u64) -> LogWriter<WatchedDisk> {
    drop(filled(desk, count));
    let writer = desk.reopened(MEDIUM);
    assert_eq!(writer.newest_file(), count + 1);
    writer
}

/// A payload that has a file of 16 blocks to itself.
pub(super) static ALIKE: [u8; 50_000] = [1; 50_000];

/// Files 1 to `count` with one change each, and then one with nothing, all of 16 blocks.
pub(super) fn filled_alike(desk: &WriterDesk, count: u64) -> LogWriter<WatchedDisk> {
    let mut writer = desk.writer(MEDIUM);
    for lsn in 1..=count {
        put(&mut writer, STREAMS[0], lsn, &ALIKE);
    }
    writer.sync().unwrap();
    drop(writer);
    let writer = desk.reopened(MEDIUM);
    assert_eq!(writer.newest_file(), count + 1);
    writer
}

/// Compacts all but the newest file as if nothing in them were alive.
pub(super) fn compact_all(writer: &mut LogWriter<WatchedDisk>) {
    while compact(writer) {
        while !writer.is_synced() {
            writer.sync().unwrap();
        }
    }
    assert_eq!(writer.oldest(), writer.newest_file());
}

/// The victim is the oldest file, read up to its end; the one being written is none.
#[test]
fn the_victim_is_the_oldest_file() {
    let desk = WriterDesk::new(1);
    let mut writer = filled(&desk, 2);
    let mut victim = writer.victim().unwrap().unwrap();
    assert_eq!(victim.file(), 1);
    let step = victim.advance(10).unwrap().unwrap();
    assert_eq!(step.changes.len(), 1);
    assert!(victim.advance(10).unwrap().is_none());
    assert!(writer.victim().unwrap().is_none(), "one is under way");
    writer.judged(1);
    writer.release(1);
    while !writer.is_synced() {
        writer.sync().unwrap();
    }
    assert!(writer.victim().unwrap().is_none(), "only the file being written is left");
}

/// (1) what was added is synced, (2) a frame says the new oldest, (3) it is synced, and (4) only
/// then is the file taken for anything.
#[test]
fn a_file_goes_in_steps() {
    let desk = WriterDesk::new(2);
    let mut writer = filled_with_room(&desk, 2);
    assert_eq!(judge(&mut writer), Some(1));
    put_again(&mut writer, STREAMS[0], 1, b"alive");
    writer.release(1);
    writer.write(false).unwrap();
    assert_eq!(desk.last_frame(3).oldest, 1, "what was appended again isn't synced");
    writer.sync().unwrap();
    assert_eq!(desk.last_frame(3).oldest, 1);
    assert_eq!((writer.oldest(), writer.is_synced()), (1, false));
    writer.idle_frame().unwrap();
    assert_eq!(desk.last_frame(3).oldest, 2, "the next frame says it");
    assert_eq!((writer.oldest(), writer.is_synced()), (1, false), "but it isn't synced");
    desk.watched.take();
    prepare(&mut writer);
    assert_eq!(of_file(&desk, 1), [], "it may still be needed");
    writer.sync().unwrap();
    assert_eq!((writer.oldest(), writer.is_synced()), (2, true));
    assert_eq!(of_file(&desk, 1), []);
    prepare(&mut writer);
    assert_eq!(of_file(&desk, 1), [Event::Remove(file(1))], "it is of another size");
}

/// A file without a live record was released while a sync ran, and nobody wrote any more. It never
/// went: that sync had begun before, and all was durable behind it, so no other one was due. A
/// round that was asked for had no end, and a full disk stayed full.
#[test]
fn a_file_that_is_released_while_a_sync_runs_goes_without_another_write() {
    let desk = WriterDesk::new(13);
    let mut writer = filled_with_room(&desk, 2);
    assert_eq!(judge(&mut writer), Some(1));
    put(&mut writer, STREAMS[0], 3, b"newer");
    let job = writer.begin_sync().unwrap().expect("a change is to be synced");
    writer.release(1);
    assert!(writer.is_releasing());
    writer.end_sync(job.run()).unwrap();
    assert!(!writer.is_synced(), "the disk is to have what the next frame says");
    writer.sync().unwrap();
    assert_eq!((writer.oldest(), writer.is_synced(), writer.is_releasing()), (2, true, false));
    assert_eq!(writer.victim().unwrap().unwrap().file(), 2);
}

/// One that was released while a sync ran which lacks what the file needs waits for the next.
#[test]
fn a_file_stays_until_a_sync_has_what_it_needs() {
    let desk = WriterDesk::new(14);
    let mut writer = filled_with_room(&desk, 2);
    assert_eq!(judge(&mut writer), Some(1));
    put(&mut writer, STREAMS[0], 3, b"newer");
    let job = writer.begin_sync().unwrap().expect("a change is to be synced");
    put_again(&mut writer, STREAMS[0], 1, b"alive");
    writer.release(1);
    writer.end_sync(job.run()).unwrap();
    writer.idle_frame().unwrap();
    assert_eq!(writer.next_victim(), 1, "its record isn't durable in another file");
    writer.sync().unwrap();
    assert_eq!(writer.next_victim(), 2);
}

/// What was done to a finished file.
fn of_file(desk: &WriterDesk, number: u64) -> Vec<Event> {
    let about = |event: &Event| match event {
        Event::Rename(name, _) | Event::Remove(name) => *name == file(number),
        _ => false,
    };
    desk.watched.take().into_iter().filter(about).collect()
}

/// A power cut at any moment finds the victim's records, or what stands for them.
#[test]
fn a_release_that_is_not_synced_loses_nothing() {
    use crate::storage::simulated::SimChance;
    for seed in 0..200 {
        let desk = WriterDesk::new(seed);
        let mut writer = filled(&desk, 3);
        let chance = SimChance::new(seed);
        assert_eq!(judge(&mut writer), Some(1));
        put_again(&mut writer, STREAMS[0], 1, b"alive");
        writer.release(1);
        for call in 0..seed % 8 {
            match call % 3 {
                0 => writer.write(false).unwrap(),
                1 => writer.sync().unwrap(),
                _ => drop(writer.prepare().unwrap()),
            }
        }
        let after = WriterDesk::on(desk.watched.disk.power_cut(&chance), seed);
        let kept = after.replayed();
        for lsn in 1..=3 {
            assert!(kept.iter().any(|change| change.1 == lsn), "seed {seed}: LSN {lsn} is lost");
        }
    }
}

/// A frame with changes says the new oldest too: no frame of its own is needed.
#[test]
fn changes_tell_the_oldest_file() {
    let desk = WriterDesk::new(3);
    let mut writer = filled_with_room(&desk, 2);
    put(&mut writer, STREAMS[1], 1, b"v");
    assert!(compact(&mut writer));
    writer.sync().unwrap();
    put(&mut writer, STREAMS[1], 2, b"v");
    desk.watched.take();
    writer.sync().unwrap();
    assert_eq!((writer.oldest(), writer.is_synced()), (2, true));
    let last = desk.last_frame(3);
    assert_eq!((last.oldest, last.changes), (2, 1));
    assert_eq!(desk.watched.take().len(), 2, "one write, one sync");
}

/// With nothing to be synced before it, a victim goes at once.
#[test]
fn a_victim_that_needs_nothing_goes_at_once() {
    let desk = WriterDesk::new(12);
    let mut writer = filled_with_room(&desk, 2);
    assert!(compact(&mut writer));
    assert!(!writer.is_synced());
    writer.sync().unwrap();
    assert_eq!((writer.oldest(), writer.is_synced()), (2, true));
    let last = desk.last_frame(3);
    assert_eq!((last.oldest, last.changes), (2, 0));
}

/// A BEGIN tells it as well.
#[test]
fn a_begin_tells_the_oldest_file() {
    let desk = WriterDesk::new(4);
    let mut writer = filled(&desk, 3);
    assert!(compact(&mut writer));
    put(&mut writer, STREAMS[0], 4, &[1; 3000]);
    assert_eq!(desk.frames(4)[0].oldest, 2, "the sync of file 3 was enough");
    assert_eq!(writer.oldest(), 2);
}

/// If the file is full to its end, only a BEGIN can say what the oldest is.
#[test]
fn a_file_without_room_for_a_frame_is_followed_by_another() {
    let desk = WriterDesk::new(5);
    let mut writer = filled(&desk, 4);
    assert!(compact(&mut writer));
    writer.sync().unwrap();
    writer.idle_frame().unwrap();
    writer.sync().unwrap();
    assert_eq!((writer.oldest(), writer.newest_file()), (2, 4));
    assert!(compact(&mut writer));
    desk.watched.disk.set_capacity(0);
    writer.sync().unwrap();
    writer.sync().unwrap();
    assert!(writer.is_synced(), "nothing can be told without another file");
    desk.watched.disk.set_capacity(u64::MAX);
    prepare(&mut writer);
    assert!(!writer.is_synced());
    writer.sync().unwrap();
    assert_eq!((writer.oldest(), writer.newest_file()), (3, 5));
    assert!(writer.is_synced());
}

/// Files that a follower holds stay as they are; when it lets go of them they are taken.
#[test]
fn held_files_stay() {
    let desk = WriterDesk::new(6);
    let mut writer = filled_alike(&desk, 3);
    writer.hold(Some(2));
    compact_all(&mut writer);
    assert_eq!((writer.oldest(), desk.numbers()), (4, vec![1, 2, 3, 4]));
    let mut lsn = 3;
    let mut next = |writer: &mut LogWriter<WatchedDisk>| {
        lsn += 1;
        put(writer, STREAMS[0], lsn, &ALIKE);
        prepare(writer);
        desk.numbers()
    };
    prepare(&mut writer);
    assert_eq!(desk.numbers(), [2, 3, 4, 5], "file 1 became file 5");
    assert_eq!(next(&mut writer), [2, 3, 4, 5, 6]);
    assert_eq!(writer.bytes() - writer.counted_bytes(), 3 * MEDIUM.file_bytes);
    writer.hold(Some(3));
    assert_eq!(next(&mut writer), [3, 4, 5, 6, 7], "file 2 became file 7");
    writer.hold(None);
    assert_eq!(next(&mut writer), [4, 5, 6, 7, 8], "file 3 became file 8");
}

/// `file_of` is the file at which an LSN was fresh, or the lowest that its record may be in since.
#[test]
fn file_of_says_where_a_change_may_lie() {
    let desk = WriterDesk::new(7);
    let mut writer = filled(&desk, 4);
    let files =
        |writer: &LogWriter<WatchedDisk>| [1, 2, 3, 4, 5].map(|lsn| writer.file_of(0x100, lsn));
    assert_eq!(files(&writer), [1, 2, 3, 4, 4], "the next one isn't written yet");
    assert_eq!(writer.file_of(0x101, 1), 4, "a stream without changes");
    let mut victim = writer.victim().unwrap().unwrap();
    while victim.advance(1000).unwrap().is_some() {}
    assert_eq!(files(&writer), [1, 2, 3, 4, 4], "not wholly judged yet");
    writer.judged(1);
    assert_eq!(files(&writer), [2, 2, 3, 4, 4], "what is alive is appended again behind it");
    writer.release(1);
    while !writer.is_synced() {
        writer.sync().unwrap();
    }
    assert_eq!(files(&writer), [2, 2, 3, 4, 4]);
    writer.victim().unwrap().unwrap();
    writer.judged(2);
    assert_eq!(files(&writer), [3, 3, 3, 4, 4]);
}

/// In a chain that meta doesn't name, changes of before it may be anywhere, and no file goes.
#[test]
fn an_unnamed_chain_stands_on_nothing_of_its_own() {
    let desk = WriterDesk::new(8);
    let lasts = [(STREAMS[0], 7), (STREAMS[1], 0)];
    let begun = LogWriter::begin_chain(&desk.world, &desk.meta, super::CHAIN, &lasts, SMALL, 1);
    let mut writer = begun.unwrap();
    put_again(&mut writer, STREAMS[0], 3, &[1; 3000]);
    put(&mut writer, STREAMS[0], 8, &[1; 3000]);
    assert_eq!([7, 8].map(|lsn| writer.file_of(STREAMS[0], lsn)), [0, 2]);
    assert_eq!(writer.file_of(STREAMS[1], 1), 2);
    assert!(writer.victim().unwrap().is_none());
    writer.named();
    assert_eq!([7, 8].map(|lsn| writer.file_of(STREAMS[0], lsn)), [1, 2]);
    assert_eq!(writer.victim().unwrap().unwrap().file(), 1);
}

/// A victim that is damaged is told, and stays.
#[test]
fn a_damaged_victim_stays() {
    let desk = WriterDesk::new(9);
    let mut writer = filled(&desk, 2);
    let name = crate::format::names::FileName::of(&super::CHAIN, 1).to_string();
    let mut bytes = desk.watched.disk.contents(&name).unwrap();
    bytes[9000] ^= 1;
    desk.watched.disk.set_contents(&name, bytes);
    let mut victim = writer.victim().unwrap().unwrap();
    assert!(victim.advance(1000).is_err());
    bytes = desk.watched.disk.contents(&name).unwrap();
    bytes[100] ^= 1;
    desk.watched.disk.set_contents(&name, bytes);
    drop(victim);
    assert_eq!(writer.oldest(), 1);
    assert!(writer.victim().unwrap().is_none(), "it is under way for ever");
    assert_eq!(writer.broken(), None);
}

#[test]
#[should_panic(expected = "wasn't judged")]
fn a_victim_is_judged_before_it_goes() {
    let desk = WriterDesk::new(10);
    let mut writer = filled(&desk, 2);
    writer.victim().unwrap().unwrap();
    writer.release(1);
}

#[test]
#[should_panic(expected = "isn't being compacted")]
fn only_the_victim_goes() {
    let desk = WriterDesk::new(11);
    let mut writer = desk.writer(MEDIUM);
    writer.judged(1);
}
