//! A store with journal and log: what was told is there after a kill, and after a power cut what
//! was durable.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::time::Duration;

use nigh_log::Chance;
use nigh_log::simulated::{SimChance, SimDisk, below, once_in};
use nigh_shm::JournalError;
use nigh_store::{
    BaseCause, EndOrder, KeyWrite, Keyspace, LogHealth, LogOrder, Ordered, StoreError, SyncMode,
    Turn,
};

use crate::machine::{Log, Machine, seeds};
use crate::support::START_MS;

/// A killed server's successor has all that was told, whether its log has it or not.
#[test]
fn a_kill_loses_nothing() {
    let mut machine = Machine::started(1, 1);
    machine.run("SET a 1");
    machine.settle();
    machine.run("SET b 2");
    machine.run("DEL a");
    machine.kill();
    let report = machine.start().expect("the successor");
    assert_eq!((report.adopted, report.rebuilt, report.base), (2, 0, None), "{report:?}");
    assert_eq!(report.completed, 2, "its log gets what it lacks");
    assert_eq!((machine.run("GET a"), machine.run("GET b")), ("$-1".into(), "$1 2".into()));
    machine.cut_power();
    let report = machine.start().expect("after the power cut");
    assert_eq!(report.rebuilt, 2, "{report:?}");
    assert_eq!((machine.run("GET a"), machine.run("GET b")), ("$-1".into(), "$1 2".into()));
}

/// What was synced is there after a power cut, tombstones and expiries included.
#[test]
fn a_power_cut_leaves_what_was_durable() {
    let mut machine = Machine::started(2, 1);
    for command in ["SET a 1", "SET b 2 PX 100000", "SET c 3", "APPEND a x", "DEL c", "RENAME a d"]
    {
        machine.run(command);
    }
    machine.settle();
    let keys: Vec<String> = ["a", "b", "c", "d"].map(String::from).into();
    let before = machine.state(&keys);
    assert_eq!(before.len(), 2);
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert_eq!(machine.state(&keys), before);
}

/// A value in a run is named in the journal and whole in the log, however it came about.
#[test]
fn long_values_survive_both() {
    let mut machine = Machine::started(3, 1);
    let long = "v".repeat(300_000);
    machine.bytes(&[b"SET", b"long", long.as_bytes()]);
    machine.settle();
    machine.bytes(&[b"APPEND", b"long", b"tail"]);
    machine.run("EXPIRE long 1000");
    machine.run("RENAME long other");
    machine.kill();
    machine.start().expect("the successor");
    let value = machine.run("GET other");
    assert_eq!(value.len(), "$300004 ".len() + 300_004);
    assert!(value.ends_with("vtail"));
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert!(machine.run("GET other") == value, "the value after a power cut");
    assert_ne!(machine.run("TTL other"), ":-1");
}

/// Another number of shards, of partitions: the first gets a base, the second is refused.
#[test]
fn another_number_of_shards_just_works() {
    let mut machine = Machine::started(4, 4);
    let keys: Vec<String> = (0..50).map(|i| format!("k{i}")).collect();
    for key in &keys {
        machine.run(&format!("SET {key} v{key}"));
    }
    machine.settle();
    let before = machine.state(&keys);
    for shards in [3, 1, 2] {
        machine.kill();
        machine.shards = shards;
        let report = machine.start().expect("another number of shards");
        assert_eq!(report.base, Some(BaseCause::Shards));
        assert_eq!(machine.state(&keys), before);
        machine.cut_power();
        let report = machine.start().expect("after the power cut");
        assert_eq!(report.base, None, "{report:?}");
        assert_eq!(machine.state(&keys), before, "{shards} shards");
    }
    machine.kill();
    machine.partitions = 2;
    assert!(matches!(machine.start(), Err(StoreError::Partitions { found: 4, wanted: 2, .. })));
}

/// A failed sync breaks the log: writes are refused from then on, and the next start heals it.
#[test]
fn a_failed_sync_is_told_and_the_next_start_heals() {
    let mut machine = Machine::started(5, 1);
    machine.run("SET a 1");
    machine.settle();
    machine.run("SET b 2");
    let next = machine.disk.calls() + 1;
    machine.disk.fail(next, nigh_log::simulated::SimFault::Io);
    machine.settle();
    let status = Arc::clone(&machine.running().logs[0].status);
    assert_eq!(status.health(), LogHealth::Broken);
    assert!(!status.cause().is_empty());
    machine.kill();
    let report = machine.start().expect("the next start");
    assert_eq!(report.base, Some(BaseCause::Broken));
    assert_eq!((machine.run("GET a"), machine.run("GET b")), ("$1 1".into(), "$1 2".into()));
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert_eq!((machine.run("GET a"), machine.run("GET b")), ("$1 1".into(), "$1 2".into()));
}

/// A start whose own sync fails doesn't leave the next one to believe the disk: that writes a base.
#[test]
fn a_start_that_cant_sync_is_remembered() {
    let mut machine = Machine::new(11, 1);
    // Few files are set aside.
    machine.file_bytes = 1 << 20;
    machine.start().expect("the first start");
    machine.run("SET a 1");
    machine.settle();
    machine.kill();
    let mut bases = 0;
    for back in 0..60 {
        let before = machine.disk.calls();
        machine.start().expect("a sound disk");
        let calls = machine.disk.calls() - before;
        machine.settle();
        machine.kill();
        let call = (machine.disk.calls() + calls).saturating_sub(back);
        machine.disk.fail(call, nigh_log::simulated::SimFault::Io);
        let failed = machine.start().is_err();
        machine.kill();
        let report = machine.start().expect("a disk that works again");
        bases += u32::from(failed && report.base == Some(BaseCause::Broken));
        assert_eq!(machine.run("GET a"), "$1 1", "{back} calls before the end");
        machine.kill();
    }
    assert!(bases > 0);
}

/// Memory and log that don't belong together are refused with both ids.
#[test]
fn a_strange_log_is_refused() {
    let mut one = Machine::started(6, 1);
    one.run("SET a 1");
    one.settle();
    one.kill();
    let mut other = Machine::started(7, 1);
    other.kill();
    let own = std::mem::replace(&mut one.disk, other.disk.clone());
    assert!(matches!(one.start(), Err(StoreError::OtherLog { .. })));
    one.disk = SimDisk::new(8);
    assert!(matches!(one.start(), Err(StoreError::LogMissing { .. })));
    one.disk = own;
    one.start().expect("its own log");
    assert_eq!(one.run("GET a"), "$1 1");
}

/// Files that are out of date go, however long the store runs; what is alive stays, after a kill
/// and a power cut too, a value that stands on old changes among it.
#[test]
fn the_log_stays_short() {
    let mut machine = Machine::started(9, 1);
    machine.bytes(&[b"SET", b"long", "v".repeat(140_000).as_bytes()]);
    machine.run("SET old 1");
    let (mut most, mut first_file) = (0, true);
    for round in 0..400 {
        machine.run(&format!("APPEND long {round},"));
        machine.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
        machine.run("EXPIRE long 5000");
        machine.settle();
        most = most.max(machine.running().logs[0].status.figures().bytes);
        first_file &= machine.disk.contents("g1-s00-0000000001.log").is_some();
    }
    assert!(!first_file, "the first file went");
    // 400 rounds write 400 x 2 KB; alive are some 150 KB.
    assert!(most < 700_000, "{most} bytes of files");
    let long = machine.run("GET long");
    // The power cut first: a start that adopts an arena takes nothing of its values for granted.
    for cut in [true, false] {
        if cut {
            machine.cut_power()
        } else {
            machine.kill()
        }
        machine.start().expect("a start");
        assert!(machine.run("GET long") == long, "cut: {cut}");
        assert_eq!(machine.run("GET old"), "$1 1");
        machine.settle();
    }
}

/// A key that is deleted behind the look at its file, and before its record is appended again: the
/// record comes before the deletion. Else a start from the log would have the key back.
#[test]
fn what_is_deleted_before_it_is_appended_again_stays_deleted() {
    let mut machine = Machine::started(10, 1);
    let keys: Vec<String> = (0..1600).map(|i| format!("k{i}")).collect();
    for key in &keys {
        assert_eq!(machine.run(&format!("SET {key} 1")), "+OK");
    }
    machine.settle();
    // Several files go meanwhile, each in some of these steps.
    let deleted = keys.len() / 2;
    for (at, key) in keys[..deleted].iter().enumerate() {
        if at % 8 == 0 {
            machine.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
            let running = machine.running();
            let live = running.keyspace.live_bytes();
            running.logs.iter().for_each(|log| log.status.tell_live(live));
        }
        machine.step();
        assert_eq!(machine.run(&format!("DEL {key}")), ":1");
    }
    machine.settle();
    assert!(machine.disk.contents("g1-s00-0000000001.log").is_none(), "the first file went");
    machine.cut_power();
    machine.start().expect("from the log alone");
    for (at, key) in keys.iter().enumerate() {
        let expected = if at < deleted { "$-1" } else { "$1 1" };
        assert_eq!(machine.run(&format!("GET {key}")), expected, "{key}");
    }
}

/// Two shards, and their logs, which have nothing yet: first the second shard has written, then the
/// first one. So the first one's log waits for the other.
pub(crate) fn two_that_wait(machine: &mut Machine) -> ([Keyspace; 2], [Log; 2]) {
    machine.shards = 2;
    machine.start().expect("a start");
    machine.settle();
    let mut running = machine.running.take().expect("a store that runs");
    let mut shards = running.keyspace.divide(2).into_iter();
    let (mut one, mut two) = (shards.next().expect("0"), shards.next().expect("1"));
    let key = |partition| {
        let keys = (0..).map(|i| format!("k{i}").into_bytes());
        keys.into_iter().find(|key| one.partition_of(key) == partition).expect("some key")
    };
    let (here, there) = (key(0), key(1));
    let pin = running.participant.pin();
    let turn = Turn { now_ms: START_MS, pin: &pin, random: 1 };
    let put = |key| KeyWrite::Put { key, value: b"v", expiry_ms: 0 };
    two.commit_call(1, &[put(&there)], &turn).expect("room");
    one.commit_call(0, &[put(&here)], &turn).expect("room");
    let other = running.logs.remove(1);
    ([one, two], [running.logs.remove(0), other])
}

/// The log's thread has looked at the journal when an order comes that has its place behind later
/// entries: it waits for these. The mark of a backup lay before writes that were answered before.
#[test]
fn an_order_that_is_ahead_of_the_journal_waits_for_its_entries() {
    let mut machine = Machine::started(11, 1);
    machine.run("SET k 1");
    let before = machine.running().logs[0].journal.tail();
    machine.run("SET k 2");
    let after = machine.running().logs[0].journal.tail();
    machine.settle();
    let (told, mark) = sync_channel(1);
    let log = &mut machine.running().logs[0];
    let what = Ordered::EndFrame(EndOrder { told, hold_bytes: u64::MAX, holder: Weak::new() });
    let order = LogOrder { tail: after + (after - before), what };
    log._orders.send(order).expect("it has room");
    for _ in 0..10 {
        log.thread.pass();
    }
    assert!(mark.try_recv().is_err(), "the entry that it comes behind isn't there");
    machine.run("SET k 3");
    machine.running().logs[0].thread.pass();
    mark.try_recv().expect("it is obeyed").expect("a mark");
    let (last, durable) = machine.lsns();
    assert_eq!(durable, last, "behind the entry");
}

/// What a call writes isn't on disk before what it may have read at another shard: its log waits.
#[test]
fn a_call_isnt_on_disk_before_what_it_read() {
    let mut machine = Machine::new(10, 2);
    let ([one, two], [mut own, mut other]) = two_that_wait(&mut machine);
    let durable = |keyspace: &Keyspace, partition| keyspace.reader(partition).durable_lsn();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || own.thread.pass());
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(durable(&one, 0), 0, "it waits for the other log");
        other.thread.pass();
        assert_eq!(durable(&two, 1), 1);
        waits.join().expect("its pass");
    });
    assert_eq!(durable(&one, 0), 1);
}

/// Random commands in all modes, while logs are written, synced and compacted a step at a time.
/// After a kill all is there, though the arenas are gone too; after a power cut, a prefix that has
/// all that was told durable.
#[test]
fn histories_with_kills_and_power_cuts() {
    let seeds = seeds().unwrap_or(12);
    let mut ends = [0; 3];
    for seed in 0..seeds {
        let mut machine = Machine::new(100 + seed, 1);
        machine.mode = SyncMode::ALL[(seed % 3) as usize];
        machine.start().expect("the first start");
        let chance = Arc::new(SimChance::new(seed));
        let keys: Vec<String> = (0..8).map(|i| format!("k{i}")).collect();
        // Each state, with the LSN of the last change in it.
        let mut states = vec![(BTreeMap::new(), 0)];
        for step in 0..150 {
            let command = command(&*chance, &keys, step);
            let args: Vec<&[u8]> = command.iter().map(String::as_bytes).collect();
            machine.bytes(&args);
            states.push((machine.state(&keys), machine.lsns().0));
            machine.clock.advance_us(below(&*chance, 300_000));
            match below(&*chance, 5) {
                0 => machine.settle(),
                1 | 2 => drop(machine.step()),
                3 => drop(machine.running().logs[0].thread.sync_now()),
                _ => {}
            }
            let end = match below(&*chance, 36) {
                0 | 1 => 0,
                2 => 1,
                3 | 4 => 2,
                _ => continue,
            };
            let (_, durable) = machine.lsns();
            match end {
                0 => machine.kill(),
                1 => {
                    machine.kill();
                    machine.lose_arenas();
                }
                _ => machine.cut_power(),
            }
            ends[end] += 1;
            let at = format!("seed {seed}, step {step}, end {end}");
            match machine.start() {
                Ok(_) => {}
                // What only the journal names lay in an arena that is gone: a start can't do
                // without.
                Err(StoreError::Journal(error)) if end == 1 && is_value_missing(&error) => break,
                Err(error) => panic!("{at}: {error}"),
            }
            let state = machine.state(&keys);
            let least = if end < 2 { states.last().expect("some").1 } else { durable };
            let found = states.iter().rposition(|it| it.0 == state);
            let found = found.filter(|&found| states[found].1 >= least);
            let found = found.unwrap_or_else(|| panic!("{at}: no state that has LSN {least}"));
            states.truncate(found + 1);
            // A start gives no number again.
            states[found].1 = machine.lsns().0;
        }
    }
    let [kills, lost, cuts] = ends;
    eprintln!(
        "{seeds} histories, {kills} kills, {lost} of arenas too, {cuts} power cuts: none wrong"
    );
    assert!(seeds < 12 || ends.iter().all(|&count| count > 0), "{ends:?} is no history");
}

fn is_value_missing(error: &JournalError) -> bool {
    matches!(error, JournalError::Value { what: "its arena isn't at hand", .. })
}

fn command(chance: &dyn Chance, keys: &[String], step: u64) -> Vec<String> {
    let key = || keys[usize::try_from(below(chance, keys.len() as u64)).expect("few")].clone();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let value = format!("v{step}");
    match below(chance, 14) {
        0..4 => vec!["SET".into(), key(), value],
        4 => vec!["SET".into(), key(), "L".repeat(140_000)],
        5 => vec!["APPEND".into(), key(), value],
        6 => vec!["DEL".into(), key()],
        7 => vec!["RENAME".into(), key(), key()],
        8 => vec!["EXPIRE".into(), key(), "5000".into()],
        9 => vec!["PERSIST".into(), key()],
        10 => vec!["MSET".into(), key(), value.clone(), key(), value],
        11 => vec!["GETDEL".into(), key()],
        12 if once_in(chance, 6) => words(&["FLUSHALL"]),
        _ => vec!["SET".into(), key(), value, "PX".into(), "900000".into()],
    }
}
