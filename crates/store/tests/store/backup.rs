//! Backups of a store that runs: marks go through the journals and the logs' threads, and what is
//! restored is what memory was when they were ordered.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use nigh_log::simulated::{SimChance, SimDisk, SimFault, below, once_in};
use nigh_log::{
    BackupError, BackupProgress, ChainMark, SimBackupPlace, World, backup_meta, make_backup,
    read_meta, restore_backup,
};
use nigh_store::{EndOrder, LogOrder, Ordered, StoreError, SyncMode};

use crate::machine::Machine;

const KEYS: u64 = 40;

fn keys() -> Vec<String> {
    (0..KEYS).map(|number| format!("k{number}")).collect()
}

/// A machine with more shards than one.
fn started(seed: u64, shards: usize, mode: SyncMode) -> Machine {
    let mut machine = Machine::new(seed, 4);
    (machine.shards, machine.mode) = (shards, mode);
    machine.start().expect("the first start");
    machine
}

fn world(machine: &Machine) -> World<SimDisk> {
    World {
        storage: Arc::new(machine.disk.clone()),
        clock: Arc::clone(&machine.clock) as _,
        chance: Arc::clone(&machine.chance) as _,
    }
}

/// A change by chance.
fn change(machine: &mut Machine, chance: &SimChance) {
    let key = format!("k{}", below(chance, KEYS));
    let other = format!("k{}", below(chance, KEYS));
    match below(chance, 12) {
        0 => machine.run(&format!("DEL {key}")),
        1 => machine.run(&format!("APPEND {key} {}", "a".repeat(1 + some(chance, 300)))),
        2 => machine.run(&format!("PEXPIRE {key} {}", 100_000 + below(chance, 1000))),
        3 => machine.run(&format!("SET {key} short PX {}", 1 + below(chance, 50))),
        4 if once_in(chance, 6) => machine.bytes(&[b"SET", key.as_bytes(), &[b'L'; 140_000]]),
        // In one partition, by the hash tag: one commit.
        5 => machine.run(&format!("MSET {{tag}}a {other} {{tag}}b {other}")),
        _ => {
            let value = format!("{}:{}", chance_word(chance), "v".repeat(some(chance, 900)));
            machine.bytes(&[b"SET", key.as_bytes(), value.as_bytes()])
        }
    };
}

/// A length below a bound.
fn some(chance: &SimChance, bound: u64) -> usize {
    some_of(below(chance, bound), bound)
}

fn some_of(number: u64, bound: u64) -> usize {
    usize::try_from(number % bound).expect("a small number")
}

fn chance_word(chance: &SimChance) -> u64 {
    use nigh_log::Chance;
    chance.word()
}

/// Where the marks of all logs are told.
type Marks = Receiver<Result<ChainMark, String>>;

/// Orders a mark of each log, as a server does while all shards stand. Files are held as long as
/// what is given beside.
fn mark(machine: &mut Machine) -> (Marks, Arc<()>) {
    let (sender, told) = sync_channel(8);
    let held = Arc::new(());
    for log in &machine.running().logs {
        let (told, holder) = (sender.clone(), Arc::downgrade(&held));
        let what = Ordered::EndFrame(EndOrder { told, hold_bytes: u64::MAX, holder });
        let order = LogOrder { tail: log.journal.tail(), what };
        assert!(log._orders.try_send(order).is_ok());
    }
    (told, held)
}

/// All keys as they are now.
fn state(machine: &mut Machine) -> BTreeMap<String, String> {
    let mut all = keys();
    all.extend(["{tag}a", "{tag}b"].map(String::from));
    let all = machine.state(&all).into_iter();
    all.map(|(key, value)| (key, short(&value))).collect()
}

/// A value that a failed test can show, with its expiry: no two values that were written are one.
fn short(value: &str) -> String {
    let mut hash = std::hash::DefaultHasher::new();
    value.hash(&mut hash);
    let (front, end) = (value.get(..24).unwrap_or(value), value.rsplit(' ').next());
    format!("{front} {:016x} {}", hash.finish(), end.unwrap_or_default())
}

/// Asserts that two states are one.
fn assert_same(is: &BTreeMap<String, String>, should: &BTreeMap<String, String>, at: &str) {
    let keys: BTreeSet<&String> = is.keys().chain(should.keys()).collect();
    let differ = keys.into_iter().filter(|key| is.get(*key) != should.get(*key));
    let differ: Vec<_> = differ.map(|key| (key, is.get(key), should.get(key))).collect();
    assert!(differ.is_empty(), "{at}: {differ:?}");
}

/// Backs up while changes go on; gives what memory was at the marks.
fn back_up(
    machine: &mut Machine,
    place: &mut SimBackupPlace,
    chance: &SimChance,
) -> (BTreeMap<String, String>, Result<(), BackupError>) {
    let then = state(machine);
    let (told, held) = mark(machine);
    // Later changes, some of them before any log's thread has come to its mark.
    (0..below(chance, 20)).for_each(|_| change(machine, chance));
    let shards = machine.shards;
    let mut marks = Vec::new();
    for _ in 0..10_000 {
        machine.step();
        marks.extend(told.try_iter().map(|mark| mark.expect("a log that is well")));
        if marks.len() == shards {
            break;
        }
    }
    assert_eq!(marks.len(), shards, "a log comes to its mark");
    let log = world(machine);
    let meta = read_meta(&*log.storage).expect("its meta").expect("its meta");
    let meta = backup_meta(&meta, &marks, &*log.chance).expect("the chains that were marked");
    let mut watch = |_: &BackupProgress, _: u64| {
        change(machine, chance);
        machine.step();
        true
    };
    let made = make_backup(&log, &meta, place, &mut watch).map(drop);
    drop(held);
    (then, made)
}

/// A machine on what was restored of a backup, with no memory of its own.
fn restored(of: &Machine, place: &SimBackupPlace, seed: u64) -> Machine {
    let mut backup = world(of);
    backup.storage = Arc::new(place.at.clone().expect("a backup"));
    let into = Arc::new(SimDisk::new(seed));
    restore_backup(&backup, &into, &mut |_, _| true).expect("a whole backup");
    let mut machine = Machine::new(seed, of.partitions);
    machine.clock = Arc::clone(&of.clock);
    (machine.shards, machine.mode) = (of.shards, of.mode);
    machine.disk = (*into).clone();
    machine
}

/// Random histories over several shards, with backups at any time while files are compacted: what
/// is restored is what memory was at the marks, expiries too; and it goes on from there.
#[test]
fn a_backup_is_what_memory_was_at_the_marks() {
    let mut files = 0;
    for seed in 0..6 {
        let chance = SimChance::new(seed);
        let mode = [SyncMode::Always, SyncMode::EverySecond, SyncMode::No][some_of(seed, 3)];
        let mut machine = started(900 + seed, 1 + some_of(seed, 4), mode);
        let mut place = SimBackupPlace::new(seed);
        for round in 0..4 {
            for _ in 0..below(&chance, 250) {
                change(&mut machine, &chance);
                if once_in(&chance, 3) {
                    machine.step();
                }
                if once_in(&chance, 4) {
                    machine.clock.advance_us(below(&chance, 3000));
                }
            }
            let lsns = machine.lsns().0;
            let (then, made) = back_up(&mut machine, &mut place, &chance);
            made.unwrap_or_else(|error| panic!("seed {seed}, {round}: {error}"));
            let mut again = restored(&machine, &place, seed * 100 + round);
            again.start().unwrap_or_else(|error| panic!("seed {seed}, {round}: {error}"));
            let at = format!("seed {seed}, {round}, at {}", again.clock_ms());
            assert_same(&state(&mut again), &state_now(&then, &again), &at);
            assert!(again.lsns().0 >= lsns, "LSNs go on");
            // It goes on, also through a power cut.
            (0..30).for_each(|_| change(&mut again, &chance));
            again.settle();
            again.clock.advance_us(1_000_000);
            again.settle();
            let before = state(&mut again);
            again.mode = SyncMode::Always;
            again.kill();
            again.start().expect("a log that goes on");
            again.settle();
            assert_same(&state(&mut again), &before, &format!("later, {at}"));
            again.cut_power();
            again.start().expect("after the power cut");
            assert_same(&state(&mut again), &before, &format!("later, {at}"));
        }
        let names = nigh_log::Storage::names(&machine.disk).expect("names");
        let number = |name: &String| name.split(['-', '.']).nth(2)?.parse::<u64>().ok();
        files += names.iter().filter_map(number).max().expect("a file");
    }
    assert!(files > 100, "{files} files came");
}

/// What was at the marks, without what is over by now.
fn state_now(then: &BTreeMap<String, String>, machine: &Machine) -> BTreeMap<String, String> {
    let now = i64::try_from(machine.clock_ms()).expect("a time");
    let lasts = |(_, value): &(&String, &String)| {
        let expiry = value.rsplit(" :").next().and_then(|it| it.parse::<i64>().ok());
        expiry.is_none_or(|at| at < 0 || at >= now)
    };
    then.iter().filter(lasts).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// A client that waits for the answer of a change on one shard, and then changes another one: a
/// backup that has the second has the first, wherever the threads of the logs are.
#[test]
fn what_was_answered_before_is_there() {
    let mut halves = 0;
    for seed in 0..20 {
        let chance = SimChance::new(seed);
        let mut machine = started(1000 + seed, 4, SyncMode::EverySecond);
        let mut place = SimBackupPlace::new(seed);
        // Keys of all partitions, in an order that goes over the shards.
        for number in 0..200 {
            machine.run(&format!("SET k{} {number}", number % KEYS));
            if once_in(&chance, 10) {
                let which = some(&chance, 4);
                machine.running().logs[which].thread.pass();
            }
        }
        let (then, made) = back_up(&mut machine, &mut place, &chance);
        made.expect("a sound disk");
        let mut again = restored(&machine, &place, seed);
        again.start().expect("a whole log");
        assert_same(&state(&mut again), &then, "");
        halves += u64::from(state(&mut machine) != then);
    }
    assert!(halves > 10, "changes went on meanwhile");
}

/// Memory of the log that was backed up refuses the one that was restored, and a backup isn't
/// started on.
#[test]
fn ids_keep_a_restored_log_and_old_memory_apart() {
    let mut machine = started(50, 2, SyncMode::Always);
    let chance = SimChance::new(1);
    (0..50).for_each(|_| change(&mut machine, &chance));
    machine.settle();
    let mut place = SimBackupPlace::new(1);
    back_up(&mut machine, &mut place, &chance).1.expect("a sound disk");
    let other = restored(&machine, &place, 2);
    let own = machine.disk.clone();
    machine.kill();
    machine.disk = other.disk.clone();
    assert!(matches!(machine.start(), Err(StoreError::OtherLog { .. })));
    machine.disk = place.at.clone().expect("a backup");
    let error = machine.start().expect_err("a backup").to_string();
    assert!(error.contains("nigh restore"), "{error}");
    machine.disk = own.kill();
    machine.start().expect("its own log");
}

/// A file that a reader holds stays, though a second one comes, which needs only later files.
#[test]
fn a_second_mark_holds_what_the_first_one_held() {
    let chance = SimChance::new(7);
    let mut machine = started(70, 1, SyncMode::Always);
    let change_often = |machine: &mut Machine| {
        for _ in 0..1000 {
            change(machine, &chance);
            machine.step();
        }
    };
    change_often(&mut machine);
    let before = begun_files(&machine);
    let mark_once = |machine: &mut Machine| {
        let (told, held) = mark(machine);
        machine.settle();
        told.recv().expect("an answer").expect("a log that is well");
        held
    };
    let first = mark_once(&mut machine);
    change_often(&mut machine);
    let held: BTreeSet<_> = begun_files(&machine).difference(&before).cloned().collect();
    assert!(held.len() > 10, "{held:?}");
    // By now compaction has let go of all files that were there at the first mark.
    let second = mark_once(&mut machine);
    drop(first);
    change_often(&mut machine);
    let lost: Vec<_> = held.difference(&begun_files(&machine)).cloned().collect();
    assert!(lost.is_empty(), "{lost:?}");
    drop(second);
    let are_let_go = (0..5).any(|_| {
        change_often(&mut machine);
        held.is_disjoint(&begun_files(&machine))
    });
    assert!(are_let_go, "{:?}", begun_files(&machine));
}

/// The names of all files of the log that were begun.
fn begun_files(machine: &Machine) -> BTreeSet<String> {
    let names = nigh_log::Storage::names(&machine.disk).expect("names");
    names.into_iter().filter(|name| name.ends_with(".log")).collect()
}

/// A log that broke says so instead of a mark, and one that is closed too.
#[test]
fn a_broken_log_gives_no_mark() {
    let mut machine = started(60, 2, SyncMode::Always);
    machine.run("SET a 1");
    machine.settle();
    machine.run("SET a 2");
    let (told, _held) = mark(&mut machine);
    machine.disk.fail(machine.disk.calls() + 1, SimFault::Io);
    for _ in 0..100 {
        machine.step();
    }
    let marks: Vec<_> = told.try_iter().collect();
    assert_eq!(marks.len(), 2);
    assert!(marks.iter().any(Result::is_err), "{marks:?}");
    // Those that ask later are told at once.
    let (told, _held) = mark(&mut machine);
    machine.step();
    assert!(told.try_iter().any(|mark| mark.is_err()));
}
