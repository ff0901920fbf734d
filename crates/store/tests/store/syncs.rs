//! When a log's thread syncs though nobody waits for it.

use std::sync::Arc;

use nigh_log::Clock;
use nigh_store::{LogStatus, Passed, SyncMode};

use crate::machine::Machine;

/// Of a log's file, by the machine.
const FILE_BYTES: u64 = 32 << 10;

fn started(seed: u64, mode: SyncMode) -> (Machine, Arc<LogStatus>) {
    let mut machine = Machine::new(seed, 1);
    machine.mode = mode;
    machine.start().expect("the first start");
    machine.settle();
    let status = Arc::clone(&machine.running().logs[0].status);
    (machine, status)
}

/// A server at rest is asked for a round of compaction. With `appendfsync no` the first file waited
/// for a sync that never came, and the round was under way for good.
#[test]
fn a_round_ends_at_rest_in_each_mode() {
    for mode in SyncMode::ALL {
        let (mut machine, status) = started(1, mode);
        let value = "v".repeat(2000);
        for _ in 0..100 {
            machine.run(&format!("SET hot {value}"));
        }
        machine.settle_untold();
        status.want_round();
        for _ in 0..30 {
            machine.settle();
            machine.clock.advance_us(1_000_000);
        }
        assert!(!status.is_in_round(), "{mode:?}");
        let bytes = status.figures().bytes;
        assert!(bytes <= 2 * FILE_BYTES, "{mode:?}: {bytes} bytes of files");
        assert_eq!(machine.run("GET hot"), format!("$2000 {value}"));
    }
}

/// One key is written for a minute. With `appendfsync no` no file went, and the log grew with each
/// write.
#[test]
fn a_log_stays_short_under_writes_in_each_mode() {
    for mode in SyncMode::ALL {
        let (mut machine, status) = started(2, mode);
        let value = "v".repeat(3000);
        let mut longest = 0;
        for _ in 0..600 {
            machine.run(&format!("SET hot {value}"));
            machine.settle();
            machine.clock.advance_us(100_000);
            longest = longest.max(status.figures().bytes);
        }
        assert!(longest <= 8 * FILE_BYTES, "{mode:?}: {longest} bytes of files");
    }
}

/// A shard that is never idle, with much to write in each turn. Compaction looked at 256 changes in
/// a turn, however many it had written: the log grew as long as the load lasted.
#[test]
fn a_log_stays_short_under_a_load_that_never_rests() {
    let (mut machine, status) = started(5, SyncMode::EverySecond);
    let mut longest = 0;
    for turn in 0..800 {
        for n in 0..120 {
            let command = format!("SET hot{} {turn}", n % 4);
            // A full journal ends the turn.
            let is_done = (0..10).any(|_| machine.try_run(&command).is_some() || !machine.step());
            assert!(is_done, "the journal stays full");
        }
        machine.step();
        machine.clock.advance_us(100_000);
        let live = machine.running().keyspace.live_bytes();
        status.tell_live(live);
        longest = longest.max(status.figures().bytes);
    }
    assert!(longest <= 40 * FILE_BYTES, "{longest} bytes of files");
}

/// `everysec`: a sync gets due behind the look at the clock that a pass makes, before the thread
/// rests. It slept for up to a second more, and all that came before could be lost.
#[test]
fn the_thread_doesnt_rest_when_a_sync_is_due() {
    let (mut machine, _) = started(3, SyncMode::EverySecond);
    machine.run("SET a 1");
    machine.step();
    let log = &mut machine.running().logs[0];
    // As many as it takes for the thread to sleep for long.
    for _ in 0..100 {
        assert_eq!(log.thread.pass(), Passed::Rests);
        assert!(log.thread.begin_rest().is_some());
    }
    assert_eq!(log.thread.pass(), Passed::Rests);
    machine.clock.advance_us(950_000);
    let log = &mut machine.running().logs[0];
    assert_eq!(log.thread.begin_rest(), None, "a sync is due");
    log.thread.pass();
    assert!(log.thread.begin_rest().is_some(), "it was synced");
    let (begun, durable) = machine.lsns();
    assert_eq!(begun, durable, "at {} us", machine.clock.rising_us());
}
