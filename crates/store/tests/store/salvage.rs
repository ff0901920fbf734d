//! Damaged logs, and what is saved of them.
//!
//! A store runs over a simulated disk, its log is spoilt, and what `salvage_log` saves is started
//! as a log of its own with fresh memory. A model has the state behind each LSN.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_log::simulated::{SimChance, SimDisk, below};
use nigh_log::{
    ChangeHeader, ChangeKind, LogSettings, LogWriter, Meta, NewChange, NewCommit, ReplayedCommit,
    Storage, World, read_meta, salvage_chain, salvaged_commits, save_meta,
};
use nigh_store::{LogSalvage, SalvageError, StoreError, salvage_log};

use crate::machine::Machine;

/// The stream of the data.
const DATA: u32 = 1 << 8;

/// What a key has, and the LSN of that.
type State = BTreeMap<String, (String, u64)>;

/// A number below this one.
fn pick(chance: &SimChance, most: usize) -> usize {
    usize::try_from(below(chance, most as u64)).expect("it is below")
}

/// A log as a store leaves it, and the states that it went through.
struct Story {
    machine: Machine,
    keys: Vec<String>,
    /// By the LSN of the last change.
    states: BTreeMap<u64, State>,
}

impl Story {
    fn new(seed: u64, steps: u32) -> Story {
        let machine = Machine::started(seed, 1);
        let keys = (0..12).map(|i| format!("k{i}")).collect();
        let mut story = Story { machine, keys, states: BTreeMap::from([(0, State::new())]) };
        let chance = SimChance::new(seed);
        for step in 0..steps {
            let key = story.keys[pick(&chance, 12)].clone();
            let bytes = [10, 700, 3000][pick(&chance, 3)];
            let value = format!("{step}-").repeat(bytes / 4);
            let args: Vec<String> = match below(&chance, 8) {
                0 => vec!["DEL".into(), key],
                1 | 2 => vec!["APPEND".into(), key, value],
                // Long values lie in runs, and changes of theirs stand on earlier ones.
                3 if below(&chance, 4) == 0 => vec!["SET".into(), key, "v".repeat(150_000)],
                3 => vec!["RENAME".into(), key, story.keys[pick(&chance, 12)].clone()],
                _ => vec!["SET".into(), key, value],
            };
            let args: Vec<&[u8]> = args.iter().map(String::as_bytes).collect();
            story.machine.bytes(&args);
            story.note();
            story.machine.settle();
        }
        story.machine.kill();
        story
    }

    fn note(&mut self) {
        let lsn = self.machine.lsns().0;
        let mut state = State::new();
        let before = self.states.last_key_value().expect("a state").1.clone();
        for key in &self.keys {
            let value = self.machine.run(&format!("GET {key}"));
            if value == "$-1" {
                continue;
            }
            let since = before.get(key).filter(|known| known.0 == value).map_or(lsn, |it| it.1);
            state.insert(key.clone(), (value, since));
        }
        self.states.insert(lsn, state);
    }

    /// The log's files, with their bytes.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut names = self.machine.disk.names().expect("a sound disk");
        names.retain(|name| name.ends_with(".log"));
        names.sort();
        let bytes = |name: String| {
            let bytes = self.machine.disk.contents(&name).expect("it has a name");
            (name, bytes)
        };
        names.into_iter().map(bytes).collect()
    }

    /// Another disk with the log, as something spoilt it.
    fn spoilt(&self, spoil: impl FnOnce(&mut Vec<(String, Vec<u8>)>)) -> SimDisk {
        let disk = SimDisk::new(77);
        let meta = self.machine.disk.contents("meta").expect("a log");
        let mut files = self.files();
        spoil(&mut files);
        disk.set_contents("meta", meta);
        files.into_iter().for_each(|(name, bytes)| disk.set_contents(&name, bytes));
        disk
    }

    fn world(&self, disk: &SimDisk) -> World<SimDisk> {
        World {
            storage: Arc::new(disk.clone()),
            clock: Arc::clone(&self.machine.clock) as _,
            chance: Arc::clone(&self.machine.chance) as _,
        }
    }

    fn salvage(&self, disk: &SimDisk) -> Result<(SimDisk, LogSalvage), SalvageError> {
        let into = SimDisk::new(78);
        let settings = LogSettings { file_bytes: 32 << 10 };
        let saved = salvage_log(&self.world(disk), &self.world(&into), settings)?;
        Ok((into, saved))
    }

    /// Salvages a spoilt log, starts the rest with fresh memory, and compares that with what was
    /// told. Returns the salvage, and how many keys of the state at the cut are lost.
    fn judge(&self, disk: &SimDisk, what: &str) -> (LogSalvage, usize) {
        let (into, salvage) = self.salvage(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
        let shard = &salvage.shards[0];
        let saved = &shard.saved;
        let mut machine = Machine::new(900, 1);
        (machine.disk, machine.clock) = (into, Arc::clone(&self.machine.clock));
        machine.start().unwrap_or_else(|e| panic!("{what}: {e}: {salvage:?}"));
        let last = saved.last.get(&DATA).copied().unwrap_or(0);
        let dropped = shard.dropped.len() as u64;
        assert_eq!(machine.lsns().0, last + dropped, "{what}");
        // A commit is whole: there was such a state.
        let state = &self.states[&last];
        let mut lost = 0;
        for key in &self.keys {
            let found = machine.run(&format!("GET {key}"));
            let Some((value, lsn)) = state.get(key) else {
                assert_eq!(found, "$-1", "{what}: {key} wasn't there at LSN {last}");
                continue;
            };
            if found == *value {
                continue;
            }
            lost += 1;
            assert_eq!(found, "$-1", "{what}: {key} has what it never had at LSN {last}");
            let again = saved.again.iter().any(|it| it.lsns.contains(lsn));
            let named = shard.dropped.iter().any(|it| it.key == key.as_bytes());
            assert!(again || named || saved.unnamed, "{what}: {key}, LSN {lsn}, isn't named");
        }
        let newest = *self.states.last_key_value().expect("a state").0;
        // What stood in a file without a head, or in none, has no name.
        let unread = saved.files.iter().any(|lost| lost.position == 0);
        if last < newest && !saved.unnamed && !unread && saved.bad.is_some() {
            let named = saved.lsns.iter().find(|it| it.stream == DATA);
            // Of a frame that was cut off or spoilt, and nothing behind it, the place is named.
            assert!(named.is_some() || !saved.files.is_empty(), "{what}: {last} of {newest}");
            if let Some(named) = named {
                assert_eq!(named.first, last + 1, "{what}");
                assert!(named.last <= newest, "{what}");
            }
        }
        (salvage, lost)
    }
}

/// An undamaged log, one that was compacted among them, is saved without loss, and is another log.
#[test]
fn a_sound_log_is_saved_whole() {
    for (seed, steps) in [(1, 5), (2, 60), (3, 250)] {
        let mut story = Story::new(seed, steps);
        let disk = story.spoilt(|_| ());
        let (salvage, lost) = story.judge(&disk, "nothing");
        let saved = &salvage.shards[0].saved;
        assert_eq!((lost, saved.bad.as_ref(), saved.unnamed), (0, None, false));
        assert!(!salvage.shards[0].has_lost() && saved.lsns.is_empty());
        let newest = *story.states.last_key_value().expect("a state").0;
        assert_eq!(saved.last[&DATA], newest);
        assert_ne!(salvage.id, salvage.meta.id);
        // Its old memory doesn't join it.
        story.machine.disk = story.salvage(&disk).expect("is sound").0;
        assert!(matches!(story.machine.start(), Err(StoreError::OtherLog { .. })));
    }
}

/// Bits flip, ends are cut off, files go: what is saved is a state that was, but for what is named.
#[test]
fn what_is_lost_is_named() {
    let (mut whole, mut cut, mut older) = (0, 0, 0);
    for seed in 0..4 {
        let story = Story::new(10 + seed, 120);
        let chance = SimChance::new(seed);
        let files = story.files();
        for round in 0..60 {
            let file = pick(&chance, files.len());
            let (name, bytes) = &files[file];
            // Frames, not the zeros behind them: a flip there is met by nobody.
            let used = bytes.iter().rposition(|&b| b != 0).unwrap_or(0) + 1;
            let at = pick(&chance, used);
            let (kind, bit) = (round % 6, below(&chance, 8));
            let disk = story.spoilt(|files| match kind {
                0 => drop(files.remove(file)),
                1 => files[file].1.truncate(at),
                2 => files[file].1[at / 512 * 512..].fill(0),
                _ => files[file].1[at] ^= 1 << bit,
            });
            let what = format!("seed {seed}, round {round}: {kind} at {name}, {at}");
            let (salvage, lost) = story.judge(&disk, &what);
            let shard = &salvage.shards[0];
            whole += u32::from(!shard.has_lost());
            cut += u32::from(shard.saved.bad.is_some());
            older += u32::from(lost > 0 && !shard.saved.again.is_empty());
        }
    }
    assert!(whole > 0 && cut > 50, "{whole} whole, {cut} cut");
    assert!(older > 0, "none with older records lost");
}

/// The fresh changes of a store's only log: LSN, kind and payload.
fn changes_of(world: &World<SimDisk>, meta: &Meta) -> Vec<(u64, ChangeKind, Vec<u8>)> {
    let chain = meta.chains[0];
    let saved = salvage_chain(world, meta, &chain, &mut |_| Ok(())).expect("is sound");
    let mut all = Vec::new();
    let mut each = |commit: &ReplayedCommit<'_>| {
        let is_fresh = |header: &ChangeHeader| header.stream == DATA && !header.again;
        let of_data = commit.changes.iter().filter(|it| is_fresh(&it.header));
        all.extend(of_data.map(|it| (it.header.lsn, it.header.kind, it.payload.to_vec())));
        Ok(())
    };
    salvaged_commits(world, meta, &chain, &saved, &mut each).expect("is sound");
    all
}

/// A key whose newest change stands on a version that is lost goes, by a change of its own, and is
/// named; one that was written anew behind that stays.
#[test]
fn what_stands_on_nothing_is_dropped_and_named() {
    let long = "v".repeat(150_000);
    let ran = |commands: &[&[&str]]| {
        let mut machine = Machine::started(40, 1);
        for words in commands {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            machine.bytes(&words);
            machine.settle();
        }
        machine.kill();
        let world = World {
            storage: Arc::new(machine.disk.clone()),
            clock: Arc::clone(&machine.clock) as _,
            chance: Arc::clone(&machine.chance) as _,
        };
        let meta = read_meta(&*world.storage).expect("is sound").expect("is there");
        (changes_of(&world, &meta), world, meta)
    };
    let (with, world, meta) = ran(&[
        &["SET", "gone", &long],
        &["SET", "healed", &long],
        &["EXPIRE", "gone", "9999"],
        &["EXPIRE", "healed", "9999"],
        &["SET", "healed", "anew"],
    ]);
    let (without, ..) = ran(&[&["SET", "other", "1"], &["SET", "another", "2"]]);
    // The first two may have been compacted away.
    let with: Vec<_> = with.into_iter().filter(|it| it.0 > 2).collect();
    let kinds: Vec<_> = without.iter().chain(&with).map(|it| (it.0, it.1)).collect();
    let (put, based) = (ChangeKind::Put, ChangeKind::Based);
    assert_eq!(kinds, [(1, put), (2, put), (3, based), (4, based), (5, put)]);
    // The versions that others stand on are lost, as if other keys had been written instead.
    let disk = SimDisk::new(81);
    let forged = World { storage: Arc::new(disk.clone()), ..world };
    let settings = LogSettings { file_bytes: 32 << 10 };
    let mut writer =
        LogWriter::begin_chain(&forged, &meta, meta.chains[0], &[(0, 0), (DATA, 0)], settings, 0)
            .expect("a sound disk");
    for (lsn, kind, payload) in without.iter().chain(&with) {
        let changes = [NewChange { kind: *kind, payload: &[payload] }];
        let commit = NewCommit {
            stream: DATA,
            first_lsn: *lsn,
            again: false,
            changes: &changes,
            needs: &[],
            clock_ms: 0,
        };
        writer.add(&commit, &|_| u64::MAX).expect("a sound disk");
    }
    writer.write(true).and_then(|()| writer.close()).expect("a sound disk");
    save_meta(&disk, &meta).expect("a sound disk");
    let start = |disk: SimDisk| {
        let mut machine = Machine::new(41, 1);
        machine.disk = disk;
        machine.start().map(|_| machine)
    };
    assert!(matches!(start(disk.clone()), Err(StoreError::NoBase { .. })));
    let into = SimDisk::new(82);
    let into_world = World { storage: Arc::new(into.clone()), ..forged.clone() };
    let saved = salvage_log(&forged, &into_world, settings).expect("is readable");
    let shard = &saved.shards[0];
    let [dropped] = &shard.dropped[..] else { panic!("{:?}", shard.dropped) };
    assert_eq!((&*dropped.key, dropped.lsn, dropped.removed_lsn), (&b"gone"[..], 3, 6));
    assert!(shard.has_lost() && shard.saved.bad.is_none());
    let mut machine = start(into).expect("is whole");
    assert_eq!(machine.run("GET gone"), "$-1");
    assert_eq!(machine.lsns().0, 6);
    for (key, value) in [("healed", "anew"), ("other", "1"), ("another", "2")] {
        assert!(machine.run(&format!("GET {key}")).contains(value), "{key}");
    }
}

/// A copy goes into an empty folder only; a folder without a log has nothing to save.
#[test]
fn a_salvage_takes_an_empty_folder_and_a_log() {
    let story = Story::new(30, 3);
    let world = story.world(&story.machine.disk);
    let own = salvage_log(&world, &world, LogSettings::default());
    assert!(matches!(own, Err(SalvageError::NotEmpty { .. })));
    let nothing = story.salvage(&SimDisk::new(5));
    assert!(matches!(nothing, Err(SalvageError::Nothing)));
    let disk = story.spoilt(|_| ());
    let mut meta = disk.contents("meta").expect("a log");
    meta[30] ^= 1;
    disk.set_contents("meta", meta);
    assert!(matches!(story.salvage(&disk), Err(SalvageError::NoMeta(_))));
    disk.remove("meta").expect("a sound disk");
    assert!(matches!(story.salvage(&disk), Err(SalvageError::NoMeta(_))));
}

/// A full disk, or one that fails: an error, and no log.
#[test]
fn a_copy_that_cant_be_written_is_none() {
    let story = Story::new(31, 20);
    let disk = story.spoilt(|_| ());
    let settings = LogSettings { file_bytes: 32 << 10 };
    let mut failed = 0;
    for call in 1..200 {
        let into = SimDisk::new(79);
        into.fail(call, nigh_log::simulated::SimFault::Io);
        let saved = salvage_log(&story.world(&disk), &story.world(&into), settings);
        let was_met = into.failed_call().is_some();
        match saved {
            Err(_) => {
                assert!(was_met, "call {call}");
                failed += 1;
            }
            // A copy that is told of is whole, whatever failed on the way.
            Ok(saved) => assert_eq!(saved.shards[0].saved.bad, None, "call {call}"),
        }
    }
    assert!(failed > 20, "{failed} of 199 failed");
    let into = SimDisk::new(80);
    into.set_capacity(20 << 10);
    let saved = salvage_log(&story.world(&disk), &story.world(&into), settings);
    assert!(matches!(saved, Err(SalvageError::Target(_))));
}
