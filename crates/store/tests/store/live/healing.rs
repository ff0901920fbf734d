//! A log that breaks while the store is served, and heals.

use super::*;
use crate::durable_starts::damage;
use nigh_log::list;

/// A log that breaks is healed by a base while the store is served, and tried again if that fails.
#[test]
fn a_broken_log_heals_while_serving() {
    let mut live = Live::new(5, 4, 2, SyncMode::Always);
    live.start(true).expect("a log");
    for i in 0..50 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.bytes(&[b"SET", b"long", "L".repeat(150_000).as_bytes()]);
    live.settle();
    for more_failures in 0..3u64 {
        // Else it is the next file that can't be made.
        live.settle();
        live.run("SET b 2");
        let next = live.machine.disk.calls() + 1;
        live.machine.disk.fail(next, SimFault::Io);
        let mut refused = 0;
        for i in 0..STEPS_MOST {
            let more = live.step_all();
            refused += u32::from(live.run("SET c 3").is_none());
            if u64::from(i) == 3 + more_failures {
                let next = live.machine.disk.calls() + more_failures;
                live.machine.disk.fail(next, SimFault::Io);
            }
            if !more && i > 10 {
                break;
            }
        }
        live.machine.clock.advance_us(11_000_000);
        live.settle();
        assert!(refused > 0);
        let news = live.news();
        assert!(matches!(news.first(), Some(LogNews::BaseBegins(Some(_)))), "{news:?}");
        assert_eq!(news.last(), Some(&LogNews::Counts), "{news:?}");
        assert_eq!(live.run(&format!("SET d {more_failures}")).as_deref(), Some("+OK"));
        live.settle();
        live.cut_power();
        live.start(true).expect("after the power cut");
        assert_eq!((live.get("b"), live.get("k49")), ("$1 2".into(), "$3 v49".into()));
        assert_eq!(live.get("d"), format!("$1 {more_failures}"));
        live.machine.clock.advance_us(11_000_000);
    }
}

/// A log of which the next call of the disk fails, with a change that only memory has.
fn broken(seed: u64) -> Live {
    let mut live = Live::new(seed, 1, 1, SyncMode::Always);
    live.start(true).expect("a log");
    for i in 0..40 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.bytes(&[b"SET", b"long", "L".repeat(150_000).as_bytes()]);
    live.settle();
    live.run("SET late 1");
    live.machine.disk.fail(live.machine.disk.calls() + 1, SimFault::Io);
    live
}

/// A key that has gone bad in memory is found under no name. The base once left it out, and its
/// only right copy went with the old log.
#[test]
fn no_base_leaves_out_a_key_that_is_bad_in_memory() {
    let mut live = Live::new(33, 1, 1, SyncMode::Always);
    live.start(true).expect("a log");
    for i in 0..40 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.run("SET rottenkey 0123456789");
    live.settle();
    damage(&live.machine, "default.0.arena", b"rottenkey", 0);
    live.run("SET late 1");
    live.machine.disk.fail(live.machine.disk.calls() + 1, SimFault::Io);
    let mut news = Vec::new();
    for _ in 0..STEPS_MOST {
        live.step_all();
        news.extend(live.news());
        if matches!(news.last(), Some(LogNews::BaseFailed(_) | LogNews::Counts)) {
            break;
        }
    }
    let failed =
        matches!(news.last(), Some(LogNews::BaseFailed(why)) if why.contains("bad in memory"));
    assert!(failed, "{news:?}");
    live.cut_power();
    live.start(true).expect("after the power cut");
    assert_eq!(live.get("rottenkey"), "$10 0123456789", "as it was written");
    assert_eq!(live.get("k39"), "$3 v39");
}

/// What the log has, and what only memory has.
fn assert_all_there(live: &mut Live, at: &str) {
    for i in 0..40 {
        assert_eq!(live.get(&format!("k{i}")), format!("${} v{i}", format!("v{i}").len()), "{at}");
    }
    assert_eq!(live.run("STRLEN long").as_deref(), Some(":150000"), "{at}");
}

/// From the failure on until the new log counts, no change is taken, and none is told durable.
#[test]
fn while_a_log_heals_no_change_is_taken_and_nothing_gets_durable() {
    let mut live = broken(20);
    let durable = |live: &mut Live| live.served().keyspace.reader(0).durable_lsn();
    let (mut refuses, mut steps, before) = (false, 0, durable(&mut live));
    loop {
        live.step_all();
        if live.news().last() == Some(&LogNews::Counts) {
            break;
        }
        let is_taken = live.run("SET more 1").is_some();
        assert!(!(refuses && is_taken), "step {steps}: a change is taken while the log heals");
        refuses |= !is_taken;
        assert_eq!(durable(&mut live), before, "step {steps}: of a chain that doesn't count");
        steps += 1;
        assert!(steps < STEPS_MOST, "it doesn't heal");
    }
    assert!(refuses && steps > 3, "{steps}");
    live.settle();
    let last = live.served().keyspace.reader(0).begun_lsn();
    assert_eq!(durable(&mut live), last);
    assert_eq!(live.get("late"), "$1 1");
}

/// From the end of the threads on nobody writes what is changed: so no shard takes a change then,
/// though its own log is well.
#[test]
fn while_the_threads_end_no_shard_takes_a_change() {
    let mut live = Live::new(22, 2, 2, SyncMode::EverySecond);
    live.start(true).expect("a log");
    let [own, other] = [0, 1].map(|partition| {
        let keyspace = &live.on.as_ref().expect("a store").keyspace;
        let mut keys = (0..).map(|i| format!("k{i}"));
        keys.find(|key| keyspace.partition_of(key.as_bytes()) == partition).expect("some key")
    });
    assert!(
        live.run(&format!("SET {own} 1")).is_some()
            && live.run(&format!("SET {other} 1")).is_some()
    );
    live.settle();
    live.run(&format!("SET {own} 2"));
    live.machine.clock.advance_us(2_000_000);
    live.machine.disk.fail(live.machine.disk.calls() + 1, SimFault::Io);
    let health = |live: &mut Live, shard: usize| {
        live.served().hands.statuses.as_ref().expect("logs")[shard].health()
    };
    for _ in 0..100 {
        live.served().hands.pass(0);
    }
    assert_eq!(health(&mut live, 0), LogHealth::Broken);
    assert!(live.run(&format!("SET {other} 2")).is_some(), "its own log is well");
    let on = live.served();
    on.keeper.step(&mut on.hands);
    assert_eq!(live.run(&format!("SET {other} 3")), None);
    assert_eq!(health(&mut live, 1), LogHealth::Well, "what it was given is still written");
    live.settle();
    assert_eq!(live.news().last(), Some(&LogNews::Counts));
    assert!(live.run(&format!("SET {other} 4")).is_some());
    live.settle();
    live.machine.clock.advance_us(2_000_000);
    live.settle();
    live.cut_power();
    live.start(true).expect("after the power cut");
    assert_eq!((live.get(&own), live.get(&other)), ("$1 2".into(), "$1 4".into()));
}

/// A file in which bits have rotted, as compaction finds: memory has all, so the log is written
/// anew, and grows no further.
#[test]
fn a_file_that_compaction_finds_damaged_goes_by_a_base() {
    let mut live = Live::new(23, 1, 1, SyncMode::Always);
    live.start(true).expect("a log");
    for i in 0..100 {
        live.run(&format!("SET k{i} v{i}"));
    }
    live.settle();
    let listed = list(&live.machine.disk).expect("the folder");
    let oldest = listed.files.first().expect("a file").to_string();
    let mut bytes = live.machine.disk.contents(&oldest).expect("its bytes");
    let at = bytes.windows(3).rposition(|it| it == b"k50").expect("a key");
    bytes[at] ^= 1;
    live.machine.disk.set_contents(&oldest, bytes);
    let mut news = Vec::new();
    for _ in 0..200 {
        live.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
        live.settle();
        news.append(&mut live.news());
    }
    let [LogNews::BaseBegins(Some(cause)), LogNews::Counts] = &news[..] else {
        panic!("{news:?}");
    };
    assert!(cause.contains(&oldest), "{cause}");
    assert!(live.machine.disk.contents(&oldest).is_none());
    live.cut_power();
    live.start(true).expect("after the power cut");
    for i in 0..100 {
        let value = format!("v{i}");
        assert_eq!(live.get(&format!("k{i}")), format!("${} {value}", value.len()));
    }
}

/// The disk stands still at any call while a log heals. After a power cut all is there that was
/// durable; after a kill, with journals or arenas alone too, all that was done.
#[test]
fn a_log_that_heals_may_be_cut_off_anywhere() {
    let (mut call, mut ends) = (1, 0);
    loop {
        let mut was_cut = false;
        for end in 0..3 {
            let mut live = broken(21);
            let disk = &live.machine.disk;
            // The first call is the one that fails.
            let stop = disk.calls() + 1 + call;
            disk.stop_at(stop);
            live.settle_if_it_can();
            was_cut |= live.machine.disk.calls() >= stop;
            let at = format!("call {call}, end {end}");
            match end {
                0 => live.cut_power(),
                1 => live.kill(),
                _ => {
                    live.kill();
                    live.machine.lose_arenas();
                }
            }
            live.start(true).unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_all_there(&mut live, &at);
            if end > 0 {
                assert_eq!(live.get("late"), "$1 1", "{at}");
            }
            ends += 1;
        }
        if !was_cut {
            break;
        }
        call += 1;
    }
    assert!(call > 15 && ends > 45, "{call} calls, {ends} ends");
}
