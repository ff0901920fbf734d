//! Starts that are cut off, fail, or find less than they should; the log's thread at its end.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use nigh_log::simulated::{SimChance, SimFault, below};
use nigh_log::{World, list};
use nigh_store::{Keyspace, Passed, StoreError, StoreOptions, SyncMode, log_of, retire_log};

use crate::durable::two_that_wait;
use crate::machine::{Machine, seeds};
use crate::support::START_MS;

/// A key that is over stays over, also if its arena is gone and the clock has stepped back.
#[test]
fn what_is_over_stays_over_behind_a_power_cut() {
    let mut machine = Machine::started(21, 1);
    // More of them than are removed within a turn.
    let short: Vec<String> = (0..2000).map(|i| format!("short{i}")).collect();
    for key in &short {
        machine.run(&format!("SET {key} 1 PX 1000"));
    }
    machine.settle();
    machine.clock.advance_us(2_000_000);
    machine.run("SET other 2");
    machine.settle();
    machine.clock.set_unix_ms(START_MS);
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert_eq!(machine.run("GET other"), "$1 2");
    // What a shard's turns begin with.
    assert_eq!(machine.running().keyspace.clock_ms(), START_MS + 2_000);
}

/// The exception that docs/durability.md names: of the time by which a view found a key gone,
/// nothing was on disk, and the clock doesn't know it any more.
#[test]
fn what_was_over_by_the_time_alone_is_back_if_the_clock_is_too() {
    let mut machine = Machine::started(22, 1);
    machine.run("SET short 1 PX 1000");
    machine.settle();
    machine.clock.advance_us(2_000_000);
    machine.run("EXISTS other");
    // Views judge by it.
    assert_eq!(machine.running().keyspace.clock_ms(), START_MS + 2_000);
    machine.clock.set_unix_ms(START_MS);
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert_eq!(machine.run("GET short"), "$1 1");
}

const KEYS: usize = 24;

fn keys() -> Vec<String> {
    (0..KEYS).map(|i| format!("k{i}")).collect()
}

/// Calls of a start, the last among them; all, if there are to be more histories than usual.
fn some_of(calls: u64) -> impl Iterator<Item = u64> {
    let step = if seeds().is_some() { 1 } else { 20 };
    (0..calls).step_by(step).map(move |back| calls - back)
}

/// A machine whose logs lack the last changes, before a start that has much to do.
fn scene(which: u32) -> (Machine, BTreeMap<String, String>) {
    let mut machine = Machine::started(300 + u64::from(which), 4);
    let keys = keys();
    for key in &keys {
        machine.run(&format!("SET {key} v{key}"));
    }
    machine.bytes(&[b"SET", b"k1", "L".repeat(150_000).as_bytes()]);
    machine.settle();
    machine.run("DEL k2");
    machine.run("SET k3 new");
    machine.run("RENAME k4 k4");
    machine.run("EXPIRE k5 5000");
    if which % 2 == 1 {
        machine.bytes(&[b"APPEND", b"k1", b"tail"]);
        machine.bytes(&[b"SET", b"k6", "M".repeat(140_000).as_bytes()]);
    }
    let state = machine.state(&keys);
    match which / 2 {
        0 => {}
        1 => machine.shards = 3,
        2 => {
            // Its log breaks.
            machine.disk.fail(machine.disk.calls() + 1, SimFault::Io);
            machine.settle();
        }
        _ => {}
    }
    machine.kill();
    if which / 2 == 3 {
        std::fs::remove_file(machine.dir.path().join("arenas/journal.0")).expect("its journal");
    }
    (machine, state)
}

/// A start that is cut off at any call to the disk: the next one has all, whether the process or
/// the machine ended.
#[test]
fn a_start_may_be_cut_off_anywhere() {
    for which in 0..8 {
        let (mut machine, state) = scene(which);
        let before = machine.disk.calls();
        machine.start().expect("a sound disk");
        let calls = machine.disk.calls() - before;
        assert_eq!(machine.state(&keys()), state);
        for call in some_of(calls) {
            for cut in [false, true] {
                let (mut machine, state) = scene(which);
                machine.disk.stop_at(machine.disk.calls() + call);
                let stopped = machine.start().is_err();
                machine.kill();
                let at = format!("scene {which}, call {call} of {calls}, cut {cut}");
                if cut && stopped {
                    // Once more cut off, somewhere else.
                    machine.disk.stop_at(machine.disk.calls() + calls / 2);
                    let _ = machine.start();
                    machine.kill();
                }
                machine.start().unwrap_or_else(|error| panic!("{at}: {error}"));
                assert_eq!(machine.state(&keys()), state, "{at}");
                if cut {
                    machine.cut_power();
                    machine.start().unwrap_or_else(|error| panic!("{at}, power: {error}"));
                    assert_eq!(machine.state(&keys()), state, "{at}, power");
                }
            }
        }
    }
}

/// A start whose own sync or write fails doesn't leave the next one to believe the disk.
#[test]
fn a_start_that_cant_sync_loses_nothing() {
    let mut failures = 0;
    for which in 0..6 {
        let (mut machine, _) = scene(which);
        let before = machine.disk.calls();
        machine.start().expect("a sound disk");
        let calls = machine.disk.calls() - before;
        for call in some_of(calls) {
            let (mut machine, state) = scene(which);
            machine.disk.fail(machine.disk.calls() + call, SimFault::Io);
            let failed = machine.start().is_err();
            failures += u32::from(failed);
            let what = (failed, machine.disk.failed_call());
            machine.kill();
            let at = format!("scene {which}, call {call} of {calls}, {what:?}");
            machine.start().unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(machine.state(&keys()), state, "{at}");
            machine.cut_power();
            machine.start().unwrap_or_else(|error| panic!("{at}, power: {error}"));
            assert_eq!(machine.state(&keys()), state, "{at}, power");
        }
    }
    assert!(failures > 0);
}

/// A start whose renaming of meta may not last has all logs broken, whatever the next one finds.
#[test]
fn a_base_whose_name_is_in_doubt_is_written_again() {
    let scene = || {
        let mut machine = Machine::started(700, 2);
        machine.run("SET a 1");
        machine.settle();
        machine.kill();
        machine.shards = 2;
        machine
    };
    let mut machine = scene();
    let before = machine.disk.calls();
    machine.start().expect("a sound disk");
    let calls = machine.disk.calls() - before;
    let mut again = 0;
    for call in 1..=calls {
        let mut machine = scene();
        machine.disk.fail(machine.disk.calls() + call, SimFault::Io);
        let failed = machine.start().is_err();
        let is_named = |machine: &Machine| {
            let meta = machine.disk.contents("meta").expect("its meta");
            String::from_utf8_lossy(&meta).contains("chain 2 ")
        };
        let what = machine.disk.failed_call().unwrap_or_default();
        let is_in_doubt = failed && is_named(&machine) && what.starts_with("sync_folder");
        machine.kill();
        let report = machine.start().unwrap_or_else(|error| panic!("{what}: {error}"));
        if is_in_doubt {
            again += u32::from(report.base.is_some());
        }
        assert_eq!(machine.run("GET a"), "$1 1");
    }
    assert!(again > 0);
}

/// Retires the log of a machine that stands still.
pub(crate) fn retire(machine: &Machine) -> Result<(), StoreError> {
    let dir = machine.dir.path().join("arenas");
    let id = log_of(&dir).expect("the arenas").expect("the id of their log");
    let mut options = StoreOptions::new(&dir, 32 << 20);
    options.partitions = machine.partitions;
    let world = World {
        storage: Arc::new(machine.disk.clone()),
        clock: Arc::clone(&machine.clock) as _,
        chance: Arc::clone(&machine.chance) as _,
    };
    retire_log(&options, id, &[machine.boot; 16], &world)
}

/// A log is retired only if the arenas can do without it; and an arena that goes behind that is
/// missed by the next start with a log.
#[test]
fn a_log_that_is_needed_is_not_retired() {
    let arena = "default.1.arena";
    let mut machine = Machine::started(800, 2);
    machine.run("SET damaged 1");
    machine.settle();
    let path = machine.dir.path().join("arenas").join(arena);
    for _ in 0..2 {
        machine.kill();
        std::fs::remove_file(&path).expect("an arena");
        assert!(matches!(retire(&machine), Err(StoreError::RetireNeeded { .. })));
        assert_eq!(machine.start().expect("its log").rebuilt, 1);
    }
    machine.kill();
    let name = |partition| format!("default.{partition}.arena");
    let has_key = |it: &String| {
        let all = std::fs::read(machine.dir.path().join("arenas").join(it)).expect("an arena");
        all.windows(7).any(|it| it == b"damaged")
    };
    let of_key = [name(0), name(1)].into_iter().find(has_key).expect("one of them");
    damage(&machine, &of_key, b"damaged", 32);
    assert!(matches!(retire(&machine), Err(StoreError::RetireNeeded { .. })));
    machine.start().expect("its log");
    assert_eq!(machine.run("GET damaged"), "$1 1");
    machine.kill();
    retire(&machine).expect("whole arenas");
    std::fs::remove_file(&path).expect("an arena");
    assert!(matches!(machine.start(), Err(StoreError::Missing { .. })));
}

/// Changes bytes of a file in the arenas' folder: those at, or so far before, where others stand.
pub(crate) fn damage(machine: &Machine, file: &str, bytes: &[u8], before: usize) {
    damage_to(machine, file, (bytes, before), [0xA5; 8]);
}

/// The same, to these bytes.
pub(crate) fn damage_to(
    machine: &Machine,
    file: &str,
    (bytes, before): (&[u8], usize),
    to: [u8; 8],
) {
    let path = machine.dir.path().join("arenas").join(file);
    let all = std::fs::read(&path).expect("an arena");
    let places = all.windows(bytes.len()).enumerate().filter(|(_, it)| *it == bytes);
    let places: Vec<usize> = places.map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("an arena");
    for at in places {
        file.write_all_at(&to, (at - before) as u64).expect("an arena that is there");
    }
}

/// A start that set a damaged arena aside and was cut off: the next one finds the values that only
/// that file has.
#[test]
fn values_set_aside_are_found_by_later_starts() {
    let scene = || {
        let mut machine = Machine::started(400, 1);
        machine.run("SET damaged 1");
        machine.settle();
        machine.bytes(&[b"SET", b"long", &[b'L'; 150_000]]);
        machine.run("APPEND long tail");
        machine.kill();
        damage(&machine, "default.0.arena", b"damaged", 32);
        machine
    };
    let mut machine = scene();
    let before = machine.disk.calls();
    let report = machine.start().expect("a sound disk");
    assert_eq!((report.rebuilt, report.set_aside.len()), (1, 1), "{report:?}");
    let calls = machine.disk.calls() - before;
    for call in 1..=calls {
        let mut machine = scene();
        for _ in 0..2 {
            machine.disk.stop_at(machine.disk.calls() + call);
            let _ = machine.start();
            machine.kill();
        }
        machine.start().unwrap_or_else(|error| panic!("call {call} of {calls}: {error}"));
        assert_eq!(machine.run("GET damaged"), "$1 1");
        assert!(machine.run("GET long").ends_with("LLLtail"));
        machine.kill();
        let names = std::fs::read_dir(machine.dir.path().join("arenas")).expect("the folder");
        let mut names = names.map(|name| name.expect("a name").file_name());
        assert!(names.all(|name| !name.to_string_lossy().contains("aside")), "call {call}");
    }
}

/// A file that couldn't be opened, as a process without a descriptor can't, is compacted later.
#[test]
fn a_file_that_cant_be_opened_is_compacted_later() {
    let scene = || {
        let mut machine = Machine::started(501, 1);
        for _ in 0..60 {
            machine.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
        }
        machine.settle_untold();
        machine
    };
    let oldest = |machine: &Machine| list(&machine.disk).expect("the folder").files[0].number;
    let mut machine = scene();
    let (first, calls) = (oldest(&machine), machine.disk.calls());
    machine.settle();
    assert!(oldest(&machine) > first, "it is compacted");
    let calls = machine.disk.calls() - calls;
    let mut found = false;
    for call in 1..=calls {
        let mut machine = scene();
        machine.disk.fail(machine.disk.calls() + call, SimFault::Io);
        machine.settle();
        let what = machine.disk.failed_call().unwrap_or_default();
        if what != format!("open g1-s00-{first:010}.log") {
            continue;
        }
        found = true;
        let fault = machine.running().logs[0].status.compaction_fault();
        assert!(fault.contains("open failed"), "{fault:?}");
        machine.clock.advance_us(1_000_000);
        machine.settle();
        assert_eq!(machine.running().logs[0].status.compaction_fault(), "");
        assert!(oldest(&machine) > first, "it is compacted in the end");
        break;
    }
    assert!(found, "one call opens it");
}

/// Logs that are closed together write all that they have, though one waits for the other.
#[test]
fn a_log_that_waits_is_written_to_its_end() {
    let mut machine = Machine::new(600, 2);
    let ([one, two], [mut own, mut other]) = two_that_wait(&mut machine);
    [&own, &other].iter().for_each(|log| log.status.close());
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || while own.thread.pass() != Passed::Ended {});
        std::thread::sleep(Duration::from_millis(50));
        while other.thread.pass() != Passed::Ended {}
        waits.join().expect("its passes");
    });
    let durable = |keyspace: &Keyspace, partition| keyspace.reader(partition).durable_lsn();
    assert_eq!((durable(&one, 0), durable(&two, 1)), (1, 1));
}

/// A log that is being closed doesn't wait for one that ended without what it needs: its entry
/// stays in the journal.
#[test]
fn a_log_that_is_closed_waits_for_none_that_has_ended() {
    let mut machine = Machine::new(601, 2);
    let ([one, _two], [mut own, mut other]) = two_that_wait(&mut machine);
    own.status.close();
    other.status.abandon();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || while own.thread.pass() != Passed::Ended {});
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished(), "the other log's thread runs");
        while other.thread.pass() != Passed::Ended {}
        waits.join().expect("its passes");
    });
    assert_eq!(one.reader(0).durable_lsn(), 0);
}

/// A partition's keys with their values, and the last LSN in that state.
type PartState = (BTreeMap<String, String>, u64);

/// Several partitions on shards whose number changes, starts that are cut off or fail, logs that
/// break: after a kill all is there, after a power cut a prefix of each partition that has all that
/// was told durable.
#[test]
fn histories_of_several_shards() {
    for seed in 0..seeds().unwrap_or(6) {
        history(seed);
    }
}

fn history(seed: u64) {
    const PARTITIONS: usize = 3;
    let mut machine = Machine::new(9_000 + seed, PARTITIONS);
    let chance = SimChance::new(seed);
    let few = |end: u64| usize::try_from(below(&chance, end)).expect("few");
    machine.mode = SyncMode::ALL[few(3)];
    machine.start().expect("the first start");
    let mut keys = vec![Vec::new(); PARTITIONS];
    for key in (0..30).map(|i| format!("k{i}")) {
        let partition = machine.running().keyspace.partition_of(key.as_bytes());
        keys[partition].push(key);
    }
    let mut states: Vec<Vec<PartState>> = vec![vec![(BTreeMap::new(), 0)]; PARTITIONS];
    for step in 0..120 {
        let partition = few(PARTITIONS as u64);
        let of = &keys[partition];
        let key = of[few(of.len() as u64)].as_str();
        let (long, value) = ("L".repeat(140_000), format!("v{step}"));
        let command: Vec<&str> = match few(9) {
            0 => vec!["SET", key, &long],
            1 | 2 => vec!["APPEND", key, &value],
            3 => vec!["DEL", key],
            4 => vec!["EXPIRE", key, "5000"],
            5 => vec!["SET", key, &value, "PX", "60000"],
            6 => vec!["RENAME", key, &of[few(of.len() as u64)]],
            _ => vec!["SET", key, &value],
        };
        machine.bytes(&command.iter().map(|it| it.as_bytes()).collect::<Vec<_>>());
        for (partition, states) in states.iter_mut().enumerate() {
            let lsn = machine.running().keyspace.reader(partition).begun_lsn();
            states.push((machine.state(&keys[partition]), lsn));
        }
        machine.clock.advance_us(below(&chance, 300_000));
        match few(4) {
            0 => machine.settle(),
            1 | 2 => drop(machine.step()),
            _ => {}
        }
        if few(40) == 0 {
            machine.disk.fail(machine.disk.calls() + 1 + below(&chance, 20), SimFault::Io);
        }
        if few(14) != 0 {
            continue;
        }
        let durable = |it| machine.running.as_ref().map(|on| on.keyspace.reader(it).durable_lsn());
        let mut least: Vec<u64> = (0..PARTITIONS).filter_map(durable).collect();
        let mut at = format!("seed {seed}, step {step}: ");
        if few(3) == 0 {
            at += "cut, ";
            machine.cut_power();
        } else {
            at += "kill, ";
            machine.kill();
            least = states.iter().map(|of| of.last().expect("some").1).collect();
        }
        for _ in 0..few(4) {
            machine.shards = 1 + few(3);
            let call = machine.disk.calls() + 1 + below(&chance, 150);
            if few(3) == 0 {
                machine.disk.fail(call, SimFault::Io);
            } else {
                machine.disk.stop_at(call);
            }
            let failed = machine.start().is_err();
            let what = machine.disk.failed_call();
            at += &format!("{} shards fail {failed} {what:?}, ", machine.shards);
            machine.kill();
        }
        machine.start().unwrap_or_else(|error| panic!("{at}: {error}"));
        if few(3) == 0 {
            // A start has told that all is durable.
            at += "cut behind the start";
            machine.cut_power();
            machine.start().unwrap_or_else(|error| panic!("{at}: {error}"));
        }
        for (partition, states) in states.iter_mut().enumerate() {
            let state = machine.state(&keys[partition]);
            let found = states.iter().rposition(|it| it.0 == state);
            let found = found.filter(|&found| states[found].1 >= least[partition]);
            let least = least[partition];
            let found = found.unwrap_or_else(|| panic!("{at}: {partition} has no LSN {least}"));
            states.truncate(found + 1);
            states[found].1 = machine.running().keyspace.reader(partition).begun_lsn();
        }
    }
}
