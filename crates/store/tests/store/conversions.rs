//! Data with a log gets another number of partitions; that is cut off at any call to the disk, or
//! the disk fails.
//!
//! ```text
//! open ── copy ── chains ── meta names them ── swap ── old files go
//!                               ^ from here on the log is that of the copy
//! ```

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_log::simulated::{SimChance, SimFault};
use nigh_log::{Storage, World};
use nigh_shm::Domain;
use nigh_store::{
    Conversion, Copying, Keyspace, LiveFault, LogOptions, StoreError, StoreOptions, SyncMode,
    left_in_log,
};

use crate::machine::{Machine, seeds};
use crate::support::START_MS;

const KEYS: usize = 40;
/// The calls behind the renaming of `meta`, and some before.
const LAST_CALLS: u64 = 12;
/// Steps of a copy: some keys are copied in each.
const STEPS_MOST: u32 = 10_000;

fn keys() -> Vec<String> {
    (0..KEYS).map(|i| format!("k{i}")).collect()
}

/// A machine with keys of all kinds in this many partitions, whose log lacks the last changes; it
/// stands still.
fn scene(partitions: usize, shards: usize) -> (Machine, BTreeMap<String, String>) {
    let mut machine = Machine::new(40 + partitions as u64, partitions);
    machine.shards = shards;
    machine.start().expect("the first start");
    for key in keys() {
        machine.run(&format!("SET {key} v{key}"));
    }
    machine.bytes(&[b"SET", b"k1", "L".repeat(150_000).as_bytes()]);
    machine.bytes(&[b"APPEND", b"k1", b"tail"]);
    machine.settle();
    machine.run("DEL k2");
    machine.run("PEXPIREAT k3 9999999999999");
    machine.run("RENAME k4 k5");
    machine.bytes(&[b"APPEND", b"k1", b"more"]);
    let state = machine.state(&keys());
    machine.kill();
    (machine, state)
}

fn arenas(machine: &Machine) -> PathBuf {
    machine.dir.path().join("arenas")
}

fn beside(machine: &Machine) -> PathBuf {
    machine.dir.path().join("arenas.convert")
}

fn world(machine: &Machine) -> World<nigh_log::simulated::SimDisk> {
    World {
        storage: Arc::new(machine.disk.clone()),
        clock: Arc::clone(&machine.clock) as _,
        chance: Arc::clone(&machine.chance) as _,
    }
}

/// Why a conversion ended early.
#[derive(Debug)]
enum Ended {
    Store(StoreError),
    Fault(LiveFault),
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Ended {
        Ended::Store(error)
    }
}

/// Converts as the program does, but perhaps for the swap.
fn convert(machine: &Machine, partitions: usize, swaps: bool) -> Result<(), Ended> {
    convert_while(machine, partitions, swaps, &|| true)
}

fn convert_while(
    machine: &Machine,
    partitions: usize,
    swaps: bool,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), Ended> {
    let mut options = StoreOptions::new(arenas(machine), 32 << 20);
    options.system_capacity_bytes = 4 << 20;
    options.partitions = machine.partitions;
    let log = LogOptions {
        shards: machine.shards,
        settings: nigh_log::LogSettings { file_bytes: machine.file_bytes },
        journal_bytes: 1 << 20,
        mode: SyncMode::EverySecond,
        boot_id: [machine.boot; 16],
        progress: Arc::new(|_| {}),
    };
    let domain = Domain::new(1);
    let (from, _, opened) = Keyspace::open_with_log(&options, &log, &world(machine), &domain)?;
    let mut wanted = options.clone();
    wanted.dir = beside(machine);
    wanted.partitions = partitions;
    let (mut to, _) = Keyspace::open(&wanted, &domain)?;
    let mut copying = Copying::new(&from, &mut to, machine.clock_ms());
    let now_ms = copying.now_ms();
    let mut me = domain.join();
    let is_done = (0..STEPS_MOST).any(|_| {
        let is_done = copying.step(&me.pin()).expect("room for all");
        me.quiescent();
        is_done
    });
    assert!(is_done);
    let mut conversion = Conversion::write(opened, &log, &mut to, now_ms, goes_on)?;
    drop((from, to));
    for name in names(&arenas(machine)).iter().filter(|name| name.starts_with("journal.")) {
        let at = |dir: PathBuf| dir.join(name);
        std::fs::hard_link(at(arenas(machine)), at(beside(machine))).expect("one file system");
    }
    conversion.name().map_err(Ended::Fault)?;
    if swaps {
        let old = machine.dir.path().join("old");
        std::fs::rename(arenas(machine), &old).expect("a folder of ours");
        std::fs::rename(beside(machine), arenas(machine)).expect("a folder of ours");
        std::fs::rename(&old, beside(machine)).expect("a folder of ours");
    }
    let _ = conversion.remove_old();
    Ok(())
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("it is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("readable").file_name();
    entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect()
}

/// Starts with what the log says there is. Returns the number of partitions.
fn start(machine: &mut Machine, at: &str) -> usize {
    let _ = std::fs::remove_dir_all(beside(machine));
    let refused = match machine.start() {
        Ok(_) => return machine.partitions,
        Err(StoreError::Partitions { found, .. }) => found,
        Err(error) => panic!("{at}: {error}"),
    };
    machine.partitions = refused;
    machine.start().unwrap_or_else(|error| panic!("{at}: {error}"));
    machine.partitions
}

/// Nothing is there but what a store of so many partitions has.
fn assert_clean(machine: &Machine, partitions: usize, at: &str) {
    let of_data = |name: &&String| name.starts_with("default.");
    let data = names(&arenas(machine)).iter().filter(of_data).count();
    assert_eq!(data, partitions, "{at}: {:?}", names(&arenas(machine)));
    let meta = machine.disk.contents("meta").expect("its meta");
    let meta = String::from_utf8_lossy(&meta).into_owned();
    let generation = meta.lines().find_map(|line| line.strip_prefix("chain "));
    let generation = generation.and_then(|line| line.split(' ').next()).expect("a chain");
    let listing = nigh_log::list(&machine.disk).expect("a sound disk");
    let of_others = |file: &&nigh_log::FileName| file.generation.to_string() != generation;
    let left: Vec<_> = listing.files.iter().filter(of_others).collect();
    assert!(left.is_empty(), "{at}: {left:?} beside generation {generation}");
}

/// More partitions and fewer: all is there, by the arenas and by the log alone. A start finds what
/// the conversion made, and writes and builds nothing anew.
#[test]
fn data_with_a_log_gets_other_partitions() {
    for (before, wanted, shards) in [(1, 3, 1), (3, 2, 2), (2, 1, 2), (2, 2, 1)] {
        let at = format!("{before} to {wanted}");
        let (mut machine, state) = scene(before, shards);
        convert(&machine, wanted, true).expect(&at);
        let _ = std::fs::remove_dir_all(beside(&machine));
        assert!(matches!(machine.start(), Err(StoreError::Partitions { .. })) || before == wanted);
        machine.running = None;
        machine.partitions = wanted;
        let report = machine.start().expect(&at);
        assert_eq!((report.rebuilt, report.base, report.completed), (0, None, 0), "{at}");
        assert_eq!(machine.state(&keys()), state, "{at}");
        assert_clean(&machine, wanted, &at);
        machine.run("SET k2 again");
        machine.settle();
        let state = machine.state(&keys());
        machine.cut_power();
        let report = machine.start().expect(&at);
        assert_eq!(report.rebuilt, wanted + 1, "{at}");
        assert_eq!(machine.state(&keys()), state, "{at}, by the log");
    }
}

/// The log alone is enough: after a reboot there are no arenas.
#[test]
fn a_log_without_arenas_is_converted() {
    let (mut machine, state) = scene(2, 1);
    machine.start().expect("a sound disk");
    machine.settle();
    machine.cut_power();
    let meta = nigh_log::read_meta(&machine.disk).expect("sound").expect("its meta");
    let left = left_in_log(&arenas(&machine), "default", &meta).expect("readable");
    let left = left.expect("the log has data");
    assert_eq!((left.partitions, left.capacity_bytes), (2, 0));
    convert(&machine, 5, true).expect("the log is whole");
    machine.partitions = 5;
    start(&mut machine, "without arenas");
    assert_eq!(machine.state(&keys()), state);
}

/// A key that was over before the machine's clock stepped back stays over.
#[test]
fn a_copy_judges_expiry_by_the_latest_clock() {
    let (mut machine, _) = scene(1, 1);
    machine.start().expect("a sound disk");
    // More of them than are removed within a turn.
    (0..2000).for_each(|i| drop(machine.run(&format!("SET short{i} 1 PX 1000"))));
    machine.clock.advance_us(2_000_000);
    machine.run("SET other 2");
    machine.settle();
    let left = machine.running().keyspace.stats().keys;
    assert!(left > 100, "{left} keys are there, some of them over");
    machine.kill();
    machine.clock.set_unix_ms(START_MS);
    convert(&machine, 2, true).expect("a sound disk");
    machine.partitions = 2;
    start(&mut machine, "the clock stepped back");
    assert_eq!(machine.run("GET other"), "$1 2");
    for i in 0..2000 {
        assert_eq!(machine.run(&format!("GET short{i}")), "$-1");
    }
}

/// One who is interrupted while the chains are written has written nothing that stays.
#[test]
fn a_conversion_that_is_stopped_leaves_nothing() {
    for records in [0, 1, 20] {
        let (mut machine, state) = scene(1, 2);
        let asked = Cell::new(0);
        let goes_on = || asked.replace(asked.get() + 1) < records;
        let ended = convert_while(&machine, 3, true, &goes_on);
        assert!(matches!(ended, Err(Ended::Store(StoreError::Stopped))), "{ended:?}");
        assert_eq!(asked.get(), records + 1);
        assert_clean(&machine, 1, "stopped");
        machine.kill();
        assert_eq!(start(&mut machine, "stopped"), 1);
        assert_eq!(machine.state(&keys()), state);
    }
}

/// Calls of a conversion, the last ones among them; all, if there are to be more histories than
/// usual.
fn some_of(calls: u64) -> impl Iterator<Item = u64> {
    let step = if seeds().is_some() { 1 } else { 20 };
    (1..=calls).filter(move |call| calls - call < LAST_CALLS || call % step == 0)
}

/// Calls to the disk that a conversion makes.
fn calls_of(machine: &Machine, wanted: usize) -> u64 {
    let made = machine.disk.calls();
    convert(machine, wanted, true).expect("a sound disk");
    machine.disk.calls() - made
}

/// A conversion that is cut off at any call to the disk, and whose memory is lost or not: the next
/// start has all, in the old partitions or the new. What is left over goes.
#[test]
fn a_conversion_may_be_cut_off_anywhere() {
    for (before, wanted) in [(1, 3), (3, 2), (2, 2)] {
        let calls = calls_of(&scene(before, 2).0, wanted);
        let (mut old, mut new) = (0, 0);
        for call in some_of(calls) {
            for (swaps, cut) in [(false, false), (true, false), (false, true), (true, true)] {
                let at = format!("{before} to {wanted}, call {call} of {calls}, {swaps}, {cut}");
                let (mut machine, state) = scene(before, 2);
                machine.disk.stop_at(machine.disk.calls() + call);
                let _ = convert(&machine, wanted, swaps);
                machine.kill();
                let found = start(&mut machine, &at);
                *(if found == before { &mut old } else { &mut new }) += 1;
                assert_eq!(machine.state(&keys()), state, "{at}");
                assert_clean(&machine, found, &at);
                if cut {
                    machine.settle();
                    machine.cut_power();
                    start(&mut machine, &at);
                    assert_eq!(machine.state(&keys()), state, "{at}, power");
                }
            }
        }
        assert!(old > 0 && (new > 0 || before == wanted), "{old} old, {new} new");
    }
}

/// Power goes at any call, with all that is in memory: the log has what was on disk before the
/// conversion began, whole.
#[test]
fn a_power_cut_in_a_conversion_loses_nothing_that_was_on_disk() {
    let on_disk = |before, luck| {
        let (mut machine, state) = scene(before, 2);
        machine.chance = Arc::new(SimChance::new(luck));
        machine.start().expect("a sound disk");
        machine.settle();
        machine.kill();
        (machine, state)
    };
    for (before, wanted) in [(1, 3), (3, 2)] {
        let calls = calls_of(&on_disk(before, 0).0, wanted);
        let (mut old, mut new) = (0, 0);
        for call in some_of(calls) {
            let at = format!("{before} to {wanted}, call {call} of {calls}");
            let (mut machine, state) = on_disk(before, call);
            machine.disk.stop_at(machine.disk.calls() + call);
            let _ = convert(&machine, wanted, call % 2 == 0);
            machine.cut_power();
            let found = start(&mut machine, &at);
            *(if found == before { &mut old } else { &mut new }) += 1;
            assert_eq!(machine.state(&keys()), state, "{at}");
            assert_clean(&machine, found, &at);
        }
        assert!(old > 0 && new > 0, "{old} old, {new} new");
    }
}

/// A call to the disk fails: the conversion says so, and all is as it was. Or it isn't known
/// whether the renaming lasts; then no file of either log goes until a later one counts.
#[test]
fn a_conversion_that_fails_changes_nothing() {
    let (machine, _) = scene(1, 2);
    let files = machine.disk.names().expect("a sound disk").len() as u64;
    let calls = calls_of(&machine, 3);
    let (mut unchanged, mut in_doubt) = (0, 0);
    // Behind the renaming the old log's files go, a call for each. Threads take turns, so a call
    // isn't always at the same place: the one behind the renaming may be met only in another pass
    // over those near it.
    let renaming = calls.saturating_sub(files);
    let near = renaming.saturating_sub(2 * LAST_CALLS) + 1..=renaming + 2 * LAST_CALLS;
    let again = (1..10).flat_map(|pass| near.clone().map(move |call| (pass, call)));
    for (pass, call) in some_of(calls).map(|call| (0, call)).chain(again) {
        if pass > 0 && in_doubt > 0 {
            break;
        }
        let (mut machine, state) = scene(1, 2);
        machine.disk.fail(machine.disk.calls() + call, SimFault::Io);
        let ended = convert(&machine, 3, true);
        let what = (machine.disk.failed_call(), &ended);
        let at = format!("call {call} of {calls}: {what:?}");
        let counts = match &ended {
            Ok(()) => 3,
            Err(Ended::Fault(LiveFault::InDoubt(_))) => {
                in_doubt += 1;
                0
            }
            Err(Ended::Store(_) | Ended::Fault(_)) => {
                unchanged += 1;
                1
            }
        };
        machine.disk.forget_cache();
        machine.kill();
        let found = start(&mut machine, &at);
        assert!(counts == 0 || found == counts, "{at}: {found} partitions");
        assert_eq!(machine.state(&keys()), state, "{at}");
        machine.settle();
        machine.cut_power();
        start(&mut machine, &at);
        assert_eq!(machine.state(&keys()), state, "{at}, power");
    }
    assert!(unchanged > 0 && in_doubt > 0, "{unchanged} unchanged, {in_doubt} in doubt");
}
