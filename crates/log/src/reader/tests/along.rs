//! A follower beside the writer itself, over files that are compacted and recycled.

use super::*;
use crate::reader::follower::{Followed, LogFollower};
use crate::storage::simulated::{below, once_in};
use crate::{Added, LogSettings, LogWriter, NewChange, NewCommit, ReplayedCommit};

/// Keys and what they have: LSN and payload.
type Keys = BTreeMap<u8, (u64, Vec<u8>)>;

/// Applies a commit: a payload is a key and a value, or a key alone for one that goes.
fn apply(keys: &mut Keys, commit: &ReplayedCommit<'_>) {
    for change in commit.changes {
        let (key, lsn) = (change.payload[0], change.header.lsn);
        let newer = keys.get(&key).is_some_and(|(has, _)| *has >= lsn);
        match change.header.kind {
            ChangeKind::Gone => drop(keys.remove(&key)),
            _ if change.header.again && newer => {}
            _ => drop(keys.insert(key, (lsn, change.payload.to_vec()))),
        }
    }
}

/// The owner of a stream, and the log's thread.
struct Owner {
    log: HandLog,
    writer: LogWriter<SimDisk>,
    chance: SimChance,
    keys: Keys,
    lsn: u64,
}

impl Owner {
    fn new(seed: u64) -> Owner {
        let log = HandLog::new();
        let settings = LogSettings { file_bytes: 16 << 10 };
        let lasts = [(A, 0)];
        let writer = LogWriter::begin_chain(&log.world(), &log.meta, CHAIN, &lasts, settings, 0);
        let mut writer = writer.expect("begins");
        writer.named();
        Owner { log, writer, chance: SimChance::new(seed), keys: Keys::new(), lsn: 0 }
    }

    fn add(&mut self, first_lsn: u64, kind: ChangeKind, again: bool, payload: &[u8]) {
        let changes = [NewChange { kind, payload: &[payload] }];
        let (needs, clock_ms) = (&[][..], 0);
        let commit = NewCommit { stream: A, first_lsn, again, changes: &changes, needs, clock_ms };
        assert_eq!(self.writer.add(&commit, &|_| 0).expect("adds"), Added::Taken);
    }

    fn change(&mut self) {
        self.lsn += 1;
        let key = u8::try_from(below(&self.chance, 5)).expect("few");
        if once_in(&self.chance, 4) {
            self.keys.remove(&key);
            return self.add(self.lsn, ChangeKind::Gone, false, &[key]);
        }
        let bytes = usize::try_from(below(&self.chance, 1500)).expect("few");
        let payload = [vec![key], vec![7; bytes]].concat();
        self.add(self.lsn, ChangeKind::Put, false, &payload);
        self.keys.insert(key, (self.lsn, payload));
    }

    /// Compacts the oldest file, if there is one to be compacted.
    fn compact(&mut self) {
        let Some(mut victim) = self.writer.victim().expect("is sound") else { return };
        while let Some(step) = victim.advance(600).expect("is sound") {
            for change in &step.changes {
                let (key, lsn) = (change.payload[0], change.header.lsn);
                if self.keys.get(&key).is_some_and(|(has, _)| *has == lsn) {
                    self.add(lsn, ChangeKind::Put, true, change.payload);
                }
            }
        }
        self.writer.judged(victim.file());
        self.writer.release(victim.file());
        self.writer.sync().expect("syncs");
        self.writer.sync().expect("syncs");
    }
}

/// Follows until there is nothing more. One that was left behind starts again. The highest LSN.
fn follow(owner: &Owner, follower: &mut LogFollower<SimDisk>, keys: &mut Keys) -> (u64, bool) {
    let (mut last, mut left_behind) = (0, false);
    loop {
        let each = &mut |commit: &ReplayedCommit<'_>| {
            last = last.max(commit.changes.last().map_or(0, |change| change.header.lsn));
            apply(keys, commit);
            Ok(())
        };
        match follower.advance(each).expect("reads") {
            Followed::Frame => {}
            Followed::NotYet => return (last, left_behind),
            Followed::Gone { .. } => {
                left_behind = true;
                keys.clear();
                *follower = whole(owner);
            }
        }
    }
}

fn whole(owner: &Owner) -> LogFollower<SimDisk> {
    LogFollower::whole(&owner.log.world(), &owner.log.meta, &CHAIN).expect("opens")
}

#[test]
fn a_follower_has_what_the_writer_wrote() {
    let mut left_behind = 0;
    for seed in 0..40 {
        let mut owner = Owner::new(seed);
        let (mut follower, mut keys) = (whole(&owner), Keys::new());
        for _ in 0..300 {
            match below(&owner.chance, 20) {
                0..12 => owner.change(),
                12..14 => owner.writer.write(false).expect("writes"),
                14..16 => owner.writer.sync().expect("syncs"),
                16 => owner.writer.idle_frame().expect("writes"),
                17 => owner.compact(),
                18 => drop(owner.writer.prepare().expect("prepares")),
                _ => {
                    let (last, behind) = follow(&owner, &mut follower, &mut keys);
                    left_behind += u32::from(behind);
                    // What it was given stays true behind a power cut.
                    let log = HandLog {
                        disk: owner.log.disk.power_cut(&owner.chance),
                        meta: owner.log.meta.clone(),
                    };
                    let found = log.find().expect("is sound");
                    assert!(found.last.get(&A).is_some_and(|&lsn| lsn >= last), "seed {seed}");
                }
            }
        }
        owner.writer.close().expect("closes");
        follow(&owner, &mut follower, &mut keys);
        assert_eq!(keys, owner.keys, "seed {seed}");
    }
    assert!(left_behind > 10, "{left_behind}");
}

#[test]
fn a_follower_that_is_told_the_end_has_all_that_is_durable() {
    for seed in 0..10 {
        let mut owner = Owner::new(seed);
        let (mut follower, mut keys) = (whole(&owner), Keys::new());
        for _ in 0..60 {
            (0..below(&owner.chance, 9)).for_each(|_| owner.change());
            let end = owner.writer.end_frame().expect("syncs");
            follower.set_end(end.at);
            follow(&owner, &mut follower, &mut keys);
            assert_eq!(keys, owner.keys, "seed {seed}");
            assert_eq!(follower.position().expect("stands").at, end.at);
        }
    }
}
