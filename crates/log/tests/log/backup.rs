//! Backups of logs that are written and compacted meanwhile: each is one moment of all shards, and
//! what stands at its place is whole at every moment, whatever is cut off.

use crate::book::{Book, Halt, ShardBook};
use crate::machine::{Machine, inspect};
use crate::power::{variable, world};
use nigh_log::simulated::{SimChance, SimDisk, SimFault, below, once_in};
use nigh_log::{
    BackupError, BackupReport, ChainMark, Meta, SimBackupPlace, Storage, backup_meta, check_chain,
    make_backup, read_meta, restore_backup,
};
use std::sync::Arc;

const FILE_BYTES: u64 = 16 << 10;

/// Marks all chains, with nothing between two marks, though not all is written yet.
fn mark(machine: &mut Machine<SimDisk>, book: &Book) -> Result<(Vec<ChainMark>, Meta), Halt> {
    machine.drain(book)?;
    let mut marks = Vec::new();
    for shard in &mut machine.shards {
        let end = shard.writer.end_frame()?;
        shard.writer.hold(Some(shard.writer.oldest()));
        marks.push(ChainMark { chain: shard.writer.chain(), end });
    }
    Ok((marks, book.named()))
}

fn let_go(machine: &mut Machine<SimDisk>) {
    machine.shards.iter_mut().for_each(|shard| shard.writer.hold(None));
}

/// The logs go on between two pieces of a copy.
fn go_on(machine: &mut Machine<SimDisk>, book: &mut Book, steps: u64) {
    for _ in 0..steps {
        let i = usize::try_from(below(&machine.chance, 2)).unwrap();
        match below(&machine.chance, 4) {
            0 | 1 => machine.commit(book, i),
            2 => {
                machine.pump(book, i).unwrap();
                machine.shards[i].writer.sync().unwrap();
                machine.shards[i].writer.prepare().unwrap();
            }
            _ => machine.compact(book, i).unwrap(),
        }
        machine.tell(book).unwrap();
    }
}

/// What a book knew at the moment of a backup.
fn moment(book: &Book) -> Book {
    let mut then = book.clone();
    then.shards.iter_mut().for_each(ShardBook::all_durable);
    then
}

/// A backup of a log that goes on meanwhile.
fn back_up(
    machine: &mut Machine<SimDisk>,
    book: &mut Book,
    place: &mut SimBackupPlace,
    steps: u64,
) -> (Book, Result<BackupReport, BackupError>) {
    let (marks, meta) = mark(machine, book).unwrap();
    machine.tell(book).unwrap();
    let then = moment(book);
    let meta = backup_meta(&meta, &marks, &machine.chance).unwrap();
    let log = machine.world.clone();
    let mut watch = |_: &nigh_log::BackupProgress, _: u64| {
        go_on(machine, book, steps);
        true
    };
    let made = make_backup(&log, &meta, place, &mut watch);
    let_go(machine);
    (then, made)
}

/// Restores what stands at a place, and compares a replay with the book of that moment.
fn restored(place: &SimBackupPlace, then: &Book, seed: u64) -> SimDisk {
    let backup = world(place.at.as_ref().expect("a backup"), seed);
    let into = Arc::new(SimDisk::new(seed));
    restore_backup(&backup, &into, &mut |_, _| true).unwrap();
    let log = world(&into, seed);
    let meta = read_meta(&*into).unwrap().unwrap();
    let before = then.named();
    assert_ne!(meta.id, before.id);
    assert!(meta.mark.is_none() && meta.ends.is_empty());
    let mut then = then.clone();
    then.meta = Some(meta);
    inspect(&log, &then).unwrap();
    (*into).clone()
}

/// Histories by chance: a backup now and then, some in the place of the one before, all while the
/// logs are written and compacted. Each restores to what memory was at its moment, and the log that
/// was restored goes on.
#[test]
fn a_backup_is_one_moment_of_all_shards() {
    let (mut backups, mut reused, mut compacted, mut files) = (0, 0, 0, 0);
    for seed in 0..variable("NIGH_BACKUP_RUNS", 4) {
        let chance = SimChance::new(seed);
        let disk = SimDisk::new(seed);
        let mut book = Book::new();
        let mut machine = Machine::start(world(&disk, seed), &mut book, FILE_BYTES, seed).unwrap();
        let mut place = SimBackupPlace::new(seed * 100);
        for round in 0..6 {
            for _ in 0..below(&chance, 200) {
                machine.step(&mut book).unwrap();
            }
            place.links = !once_in(&chance, 4);
            let (then, made) = back_up(&mut machine, &mut book, &mut place, 1);
            let report = made.unwrap_or_else(|error| panic!("seed {seed}, {round}: {error}"));
            (backups, reused) = (backups + 1, reused + report.reused_files);
            files += report.files;
            assert!(place.links || report.reused_files == 0);
            let disk = restored(&place, &then, seed * 1000 + round);
            // The restored log is one that goes on.
            if once_in(&chance, 4) {
                let mut then = then;
                then.meta = read_meta(&disk).unwrap();
                let start = world(&disk, seed);
                let mut other = Machine::start(start, &mut then, FILE_BYTES, seed + 1).unwrap();
                (0..100).for_each(|_| other.step(&mut then).unwrap());
                other.drain(&then).unwrap();
                other.tell(&mut then).unwrap();
                inspect(&world(&disk.power_cut(&chance), seed), &then).unwrap();
            }
        }
        compacted += machine.shards.iter().map(|shard| shard.compacted).sum::<u64>();
    }
    println!("{backups} backups, {files} files, {reused} as before, {compacted} compacted");
    assert!(reused > backups / 4 && compacted > 8, "{reused} {compacted}");
}

/// A machine with a backup of it, and more changes since.
fn scene(seed: u64, steps: u64) -> (Machine<SimDisk>, Book, SimBackupPlace, Book) {
    let disk = SimDisk::new(seed);
    let mut book = Book::new();
    let mut machine = Machine::start(world(&disk, seed), &mut book, FILE_BYTES, seed).unwrap();
    go_on(&mut machine, &mut book, steps);
    let mut place = SimBackupPlace::new(seed);
    let (then, made) = back_up(&mut machine, &mut book, &mut place, 0);
    made.unwrap();
    go_on(&mut machine, &mut book, 40);
    (machine, book, place, then)
}

/// Power is cut at any call while a backup is made in the place of an older one: the older one is
/// there, and whole. Or the new one is, and then it is whole on the disk too.
#[test]
fn a_power_cut_leaves_a_whole_backup() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..variable("NIGH_BACKUP_CUTS", 1) {
        for call in 1.. {
            let (mut machine, mut book, mut place, before) = scene(seed, 80);
            place.stop_at = Some(call);
            let (then, made) = back_up(&mut machine, &mut book, &mut place, 0);
            let at = place.at.as_mut().unwrap();
            *at = at.power_cut(&SimChance::new(seed * 10_000 + call));
            match made {
                Err(_) => {
                    old += 1;
                    restored(&place, &before, seed);
                }
                Ok(_) => {
                    new += 1;
                    restored(&place, &then, seed);
                    break;
                }
            }
        }
    }
    assert!(old > 30 && new > 0, "{old} {new}");
}

/// Damage of any file of a backup is found, in any of its parts.
#[test]
fn damage_of_any_file_is_found() {
    let (machine, book, place, then) = scene(7, 200);
    drop((machine, book));
    restored(&place, &then, 1);
    let whole = place.at.as_ref().unwrap();
    let meta = read_meta(whole).unwrap().unwrap();
    let mut tried = 0;
    for name in whole.names().unwrap() {
        let bytes = whole.contents(&name).unwrap();
        let end = meta
            .ends
            .iter()
            .find(|end| name.starts_with(&format!("g1-s{:02}-{:010}", end.shard, end.at.file)));
        let counts = end.map_or(bytes.len() as u64, |end| end.at.position);
        let last = usize::try_from(counts).unwrap();
        // What lies behind a file's last frame is nobody's: its successor says where it ends.
        let last = if name == "meta" {
            last
        } else {
            bytes[..last].iter().rposition(|b| *b != 0).unwrap()
        };
        let some = (0..40).map(|i| i * last / 40).chain([last - 1, last.min(bytes.len() - 1)]);
        for at in some {
            let disk = whole.kill();
            let mut rotten = bytes.clone();
            rotten[at] ^= 0x10;
            disk.set_contents(&name, rotten);
            assert_damage_is_told(&disk, &format!("{name}, offset {at}"));
            tried += 1;
        }
        let disk = whole.kill();
        disk.remove(&name).unwrap();
        assert_damage_is_told(&disk, &format!("{name} is missing"));
        let disk = whole.kill();
        disk.set_contents(&name, bytes[..last / 2].to_vec());
        assert_damage_is_told(&disk, &format!("{name} is short"));
    }
    assert!(tried > 100, "{tried}");
}

fn assert_damage_is_told(disk: &SimDisk, what: &str) {
    let backup = world(disk, 1);
    let checked = read_meta(disk).and_then(|meta| {
        let Some(meta) = meta else { return Ok(false) };
        for chain in &meta.chains {
            check_chain(&backup, &meta, chain, &mut |_| ())?;
        }
        Ok(true)
    });
    assert!(!matches!(checked, Ok(true)), "{what}: the check finds it whole");
    let into = Arc::new(SimDisk::new(1));
    let restored = restore_backup(&backup, &into, &mut |_, _| true);
    assert!(restored.is_err(), "{what}: it is restored");
    assert!(into.names().unwrap().is_empty(), "{what}: something is left");
}

/// A file of the older backup that has rotted isn't taken over: all is copied anew.
#[test]
fn what_has_rotted_in_the_older_backup_is_copied_anew() {
    let mut anew = 0;
    for seed in 0..6 {
        let (mut machine, mut book, mut place, _) = scene(seed, 250);
        let at = place.at.clone().unwrap();
        let names = at.names().unwrap();
        let names: Vec<&String> = names.iter().filter(|name| name.contains("-s00-")).collect();
        let first = names[names.len() * 2 / 3];
        let mut bytes = at.contents(first).unwrap();
        let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() - 300;
        bytes[middle] ^= 1;
        at.set_contents(first, bytes);
        let (then, made) = back_up(&mut machine, &mut book, &mut place, 0);
        let report = made.unwrap();
        anew += u64::from(place.linked.get() > 0 && report.reused_files == 0);
        restored(&place, &then, seed);
    }
    assert!(anew > 0);
}

/// Files that aren't held are prepared again while they are copied: that is told, and the older
/// backup stays.
#[test]
fn files_that_go_meanwhile_are_told() {
    let mut gone = 0;
    for seed in 0..6 {
        let (mut machine, mut book, mut place, before) = scene(seed, 80);
        let (marks, meta) = mark(&mut machine, &book).unwrap();
        let_go(&mut machine);
        let meta = backup_meta(&meta, &marks, &machine.chance).unwrap();
        let log = machine.world.clone();
        place.links = false;
        let mut watch = |_: &nigh_log::BackupProgress, _: u64| {
            go_on(&mut machine, &mut book, 60);
            true
        };
        match make_backup(&log, &meta, &mut place, &mut watch) {
            Ok(_) => {}
            Err(BackupError::Gone) => {
                gone += 1;
                restored(&place, &before, seed);
                assert!(place.new.is_none());
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(gone > 2, "{gone}");
}

/// Files that aren't held may go between the marks and the first look, too. That passed for a log
/// that can't be read.
#[test]
fn files_that_go_before_the_first_look_are_told_alike() {
    let mut gone = 0;
    for seed in 0..6 {
        let (mut machine, mut book, mut place, before) = scene(seed, 80);
        let (marks, meta) = mark(&mut machine, &book).unwrap();
        let_go(&mut machine);
        let meta = backup_meta(&meta, &marks, &machine.chance).unwrap();
        go_on(&mut machine, &mut book, 400);
        match make_backup(&machine.world.clone(), &meta, &mut place, &mut |_, _| true) {
            Ok(_) => {}
            Err(BackupError::Gone) => {
                gone += 1;
                restored(&place, &before, seed);
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(gone > 2, "{gone}");
}

/// Each of these gets a sentence, and nothing is left.
#[test]
fn what_cant_be_is_refused_and_leaves_nothing() {
    let (mut machine, mut book, mut place, before) = scene(3, 80);
    let refused = |place: &SimBackupPlace, made: Result<BackupReport, BackupError>, words: &str| {
        let error = made.expect_err(words).to_string();
        assert!(error.contains(words), "{error:?}");
        assert!(place.new.is_none(), "{words}");
        restored(place, &before, 1);
    };
    place.room_bytes = 1 << 20;
    let (_, made) = back_up(&mut machine, &mut book, &mut place, 0);
    refused(&place, made, "free some, or name a folder on another disk");
    place.room_bytes = u64::MAX;
    // It is stopped.
    let (marks, meta) = mark(&mut machine, &book).unwrap();
    let meta = backup_meta(&meta, &marks, &machine.chance).unwrap();
    let log = machine.world.clone();
    let made = make_backup(&log, &meta, &mut place, &mut |_, _| false);
    refused(&place, made, "stopped");
    // The chains were replaced by bases.
    let other = Meta { chains: Vec::new(), ..book.named() };
    assert!(matches!(backup_meta(&other, &marks, &*log.chance), Err(BackupError::Replaced)));
    // Another log's backup, and a log itself, are no place.
    let foreign = Meta { id: [9; 16], ..meta.clone() };
    let made = make_backup(&log, &foreign, &mut place, &mut |_, _| true);
    assert!(made.is_err() && place.new.is_none());
    let mut of_log = SimBackupPlace::new(9);
    of_log.at = Some((*log.storage).clone());
    let made = make_backup(&log, &meta, &mut of_log, &mut |_, _| true);
    assert!(made.unwrap_err().to_string().contains("it is a log's folder"));
    // A log is no backup, and a full folder no target.
    let into = Arc::new(SimDisk::new(1));
    let error = restore_backup(&log, &into, &mut |_, _| true).unwrap_err();
    assert!(error.to_string().contains("no backup"), "{error}");
    into.set_contents("x", vec![1]);
    let backup = world(place.at.as_ref().unwrap(), 1);
    let error = restore_backup(&backup, &into, &mut |_, _| true).unwrap_err();
    assert!(error.to_string().contains("isn't empty"), "{error}");
    assert_eq!(into.names().unwrap(), ["x"]);
}

/// A disk that is full in the middle of a copy: the sentence says what helps, and nothing is left.
#[test]
fn a_disk_that_is_full_in_the_middle_of_a_copy_is_told_with_what_helps() {
    let (_, _, place, _) = scene(4, 40);
    let backup = world(place.at.as_ref().unwrap(), 1);
    let mut full = 0;
    for call in 1.. {
        let into = Arc::new(SimDisk::new(call));
        into.fail(call, SimFault::NoSpace);
        let Err(error) = restore_backup(&backup, &into, &mut |_, _| true) else {
            if into.failed_call().is_none() {
                break;
            }
            continue;
        };
        let text = error.to_string();
        if matches!(error, BackupError::Target(_)) {
            assert!(text.ends_with(": free some, or name a folder on another disk"), "{text}");
            full += 1;
        }
        assert!(into.names().unwrap().is_empty(), "call {call}: {text}");
    }
    assert!(full > 5, "{full}");
}

/// A restore that is cut off at any call leaves no log, or the whole one.
#[test]
fn a_restore_that_is_cut_off_leaves_no_log_or_a_whole_one() {
    let (_, _, place, then) = scene(5, 80);
    let backup = world(place.at.as_ref().unwrap(), 1);
    for call in 1.. {
        let into = Arc::new(SimDisk::new(call));
        into.stop_at(call);
        let made = restore_backup(&backup, &into, &mut |_, _| true);
        let disk = into.power_cut(&SimChance::new(call));
        match read_meta(&disk) {
            Ok(None) => assert!(made.is_err()),
            Ok(Some(meta)) => {
                let mut then = then.clone();
                then.meta = Some(meta);
                inspect(&world(&disk, 1), &then).unwrap();
            }
            Err(error) => panic!("call {call}: {error}"),
        }
        if made.is_ok() {
            assert!(call > 30);
            return;
        }
    }
}
