//! Hostile bytes of a log: a sound one with some bytes changed, or files of any bytes.
//!
//! 1. Finding where a chain ends, replaying, checking, salvaging and following don't panic.
//! 2. What is given of a changed log was in the sound one, in its order: a keyed sum keeps other
//!    bytes out.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_log::simulated::{SimChance, SimClock, SimDisk};
use nigh_log::{
    Chain, ChangeKind, FollowPosition, Followed, LogFollower, LogRecovery, LogSettings, LogWriter,
    Meta, NewChange, NewCommit, ReplayedCommit, Secret, World, check_chain, read_meta,
    salvage_chain, save_meta,
};
use std::sync::{Arc, OnceLock};

const CHAIN: Chain = Chain { generation: 1, shard: 0, shards: 1 };
const STREAM: u32 = 1 << 8;
/// Most changes to the sound log.
const CHANGES_MAX: usize = 16;

/// Files by name, and the payloads of all commits.
struct Sound {
    files: Vec<(String, Vec<u8>)>,
    payloads: Vec<Vec<u8>>,
}

fn world(disk: &SimDisk) -> World<SimDisk> {
    World {
        storage: Arc::new(disk.clone()),
        clock: Arc::new(SimClock::new(1_700_000_000_000)),
        chance: Arc::new(SimChance::new(7)),
    }
}

fn sound() -> &'static Sound {
    static SOUND: OnceLock<Sound> = OnceLock::new();
    SOUND.get_or_init(|| {
        let disk = SimDisk::new(1);
        let world = world(&disk);
        let mut meta = Meta::new([3; 16], Secret([5; 16]));
        (meta.next_generation, meta.chains) = (2, vec![CHAIN]);
        save_meta(&disk, &meta).expect("a sound disk");
        let settings = LogSettings { file_bytes: 16 << 10 };
        let writer = LogWriter::begin_chain(&world, &meta, CHAIN, &[(STREAM, 0)], settings, 1);
        let mut writer = writer.expect("a sound disk");
        writer.named();
        let mut payloads = Vec::new();
        for lsn in 1..=60u64 {
            let payload = vec![lsn as u8; (lsn * 29 % 900) as usize];
            let pieces = [payload.as_slice()];
            let changes = [NewChange { kind: ChangeKind::Put, payload: &pieces }];
            let commit = NewCommit {
                stream: STREAM,
                first_lsn: lsn,
                again: false,
                changes: &changes,
                needs: &[],
                clock_ms: lsn,
            };
            writer.add(&commit, &|_| 0).expect("a sound disk");
            writer.write(lsn % 7 == 0).expect("a sound disk");
            if lsn % 7 == 0 {
                writer.sync().expect("a sound disk");
            }
            payloads.push(payload);
        }
        use nigh_log::Storage;
        let names = disk.names().expect("a sound disk");
        let files = names.into_iter().map(|name| {
            let bytes = disk.contents(&name).expect("it is there");
            (name, bytes)
        });
        Sound { files: files.collect(), payloads }
    })
}

/// Compares what is given with the sound log.
struct Receiver {
    sound: &'static Sound,
    first: Option<u64>,
    last: u64,
}

impl Receiver {
    fn new(sound: &'static Sound) -> Receiver {
        Receiver { sound, first: None, last: 0 }
    }

    fn take(&mut self, commit: &ReplayedCommit<'_>) -> Result<(), String> {
        for change in commit.changes {
            let lsn = change.header.lsn;
            let known = usize::try_from(lsn - 1).ok().and_then(|at| self.sound.payloads.get(at));
            assert!(known.is_some_and(|it| it == change.payload), "bytes that were never written");
            let is_next = self.first.is_none() || lsn == self.last + 1;
            assert!(is_next, "what is given has an order: {lsn} behind {}", self.last);
            self.first.get_or_insert(lsn);
            self.last = lsn;
        }
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let sound = sound();
    let disk = SimDisk::new(2);
    let mut files = sound.files.clone();
    // Changes: a file, a position, how many bytes, and the bytes; or the file's new length.
    let mut rest = data;
    for _ in 0..CHANGES_MAX {
        let Some((&[which, a, b, len], behind)) = rest.split_first_chunk::<4>() else { break };
        let at = usize::from(which) % files.len();
        let (_, bytes) = &mut files[at];
        let position = usize::from(u16::from_le_bytes([a, b])) % (bytes.len() + 1);
        if len == 0 {
            bytes.truncate(position);
            rest = behind;
            continue;
        }
        let (new, behind) = behind.split_at(behind.len().min(usize::from(len)));
        let end = bytes.len().min(position + new.len());
        bytes[position..end].copy_from_slice(&new[..end - position]);
        rest = behind;
    }
    files.into_iter().for_each(|(name, bytes)| disk.set_contents(&name, bytes));
    let world = world(&disk);
    let Ok(Some(meta)) = read_meta(&disk) else { return };
    let Some(&chain) = meta.chains.first() else { return };
    let _ = check_chain(&world, &meta, &chain, &mut |_| ());
    if let Ok(recovery) = LogRecovery::find(&world, &meta, &chain) {
        let mut receiver = Receiver::new(sound);
        let _ = recovery.replay(&mut |commit| receiver.take(commit), &mut |_| ());
        assert!(receiver.first.is_none_or(|first| first == 1), "the beginning is missing");
    }
    let mut receiver = Receiver::new(sound);
    let _ = salvage_chain(&world, &meta, &chain, &mut |commit| receiver.take(commit));
    if let Ok(mut follower) = LogFollower::whole(&world, &meta, &chain) {
        let mut receiver = Receiver::new(sound);
        for _ in 0..200 {
            match follower.advance(&mut |commit| receiver.take(commit)) {
                Ok(Followed::Frame) => {}
                _ => break,
            }
        }
        let _: Option<FollowPosition> = follower.position();
    }
});
