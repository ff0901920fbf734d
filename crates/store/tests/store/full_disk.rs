//! A disk that is full to its last block, for each size that it may have: nothing that was answered
//! is lost, removals are taken and get durable, and they make room by themselves.
//!
//! The shard does as the server does: it looks how the log is before each turn, and refuses all
//! but removals while that is full.

use std::collections::BTreeSet;

use nigh_log::simulated::{SimChance, below, once_in};
use nigh_store::{LogHealth, SyncMode};

use crate::machine::{Machine, seeds};

const BLOCK: u64 = 4 << 10;
const FILE_BYTES: u64 = 64 << 10;
/// What a log keeps by a journal of 1 MiB, and some files more.
const DISK_BYTES: u64 = 3 << 20;
/// Seconds that something gets: a round over all files, in steps.
const SECONDS_MOST: u32 = 60;

/// The store, and the keys that must be there.
struct Shard {
    machine: Machine,
    keys: BTreeSet<u32>,
    next: u32,
    value: String,
}

impl Shard {
    fn started(mode: SyncMode, disk_bytes: u64, value_bytes: usize) -> Shard {
        Shard::started_with(mode, disk_bytes, value_bytes, FILE_BYTES)
    }

    fn started_with(mode: SyncMode, disk_bytes: u64, value_bytes: usize, file_bytes: u64) -> Shard {
        let mut machine = Machine::new(disk_bytes, 1);
        (machine.mode, machine.file_bytes) = (mode, file_bytes);
        machine.disk.set_capacity(disk_bytes);
        machine.start().expect("the first start");
        let mut shard =
            Shard { machine, keys: BTreeSet::new(), next: 0, value: "v".repeat(value_bytes) };
        shard.wait();
        shard
    }

    /// A second in which all gets its turn.
    fn wait(&mut self) {
        for _ in 0..10 {
            self.machine.clock.advance_us(100_000);
            self.machine.settle();
        }
    }

    fn health(&mut self) -> LogHealth {
        let health = self.machine.running().logs[0].status.health();
        assert_ne!(health, LogHealth::Broken, "{}", self.machine.running().logs[0].status.cause());
        health
    }

    /// SETs of one turn: as many as the journal takes. Whether the log took them.
    fn set_many(&mut self, most: u32) -> bool {
        if self.health() == LogHealth::Full {
            return false;
        }
        for _ in 0..most {
            let command = format!("SET k{} {}", self.next, self.value);
            if self.machine.try_run(&command).is_none() {
                break;
            }
            self.keys.insert(self.next);
            self.next += 1;
        }
        true
    }

    /// Fills the disk. `most` SETs are in a turn.
    fn fill(&mut self, most: u32) {
        for _ in 0..100_000 {
            if !self.set_many(most) {
                return;
            }
            self.machine.settle();
        }
        panic!("the disk takes all");
    }

    /// A removal of one key is taken, perhaps after a while; and it is durable then.
    fn remove(&mut self, key: u32) {
        for _ in 0..SECONDS_MOST {
            if let Some(reply) = self.machine.try_run(&format!("DEL k{key}")) {
                assert_eq!(reply, ":1");
                self.keys.remove(&key);
                self.machine.settle();
                return;
            }
            self.wait();
        }
        panic!("no removal is taken: {}", self.machine.disk.used_bytes());
    }

    fn is_durable(&mut self) {
        self.machine.settle();
        if self.machine.mode == SyncMode::No {
            // As WAITAOF does.
            self.machine.running().logs[0].status.want_sync();
        }
        self.machine.clock.advance_us(1_000_000);
        self.machine.settle();
        let (begun, durable) = self.machine.lsns();
        assert_eq!(begun, durable, "all that was answered is on disk");
    }

    fn has_all(&mut self) {
        let value = format!("${} {}", self.value.len(), self.value);
        assert_eq!(self.machine.run("DBSIZE"), format!(":{}", self.keys.len()));
        for key in self.keys.clone() {
            assert_eq!(self.machine.run(&format!("GET k{key}")), value, "k{key}");
        }
    }

    /// Ends, and starts again: by a kill, or by a power cut.
    fn start_again(&mut self, cuts: bool) {
        if cuts {
            self.is_durable();
            self.machine.cut_power();
        } else {
            self.machine.kill();
        }
        self.machine.start().expect("a full disk hinders no start");
        // Before the shard's first tick, the log's thread isn't told what is alive.
        self.machine.settle_untold();
        self.has_all();
    }

    /// Takes writes again, and what they write stays.
    fn heals(&mut self) {
        for _ in 0..SECONDS_MOST {
            if self.health() == LogHealth::Well {
                break;
            }
            self.wait();
        }
        assert_eq!(self.health(), LogHealth::Well, "{} keys", self.keys.len());
        assert!(self.set_many(10));
        self.is_durable();
        self.machine.cut_power();
        self.machine.start().expect("from the log");
        self.has_all();
    }
}

/// All sizes of a disk, block by block, up to one file more.
fn each_size(mut story: impl FnMut(SyncMode, u64, u64)) {
    for mode in SyncMode::ALL {
        for step in 0..=FILE_BYTES / BLOCK {
            story(mode, DISK_BYTES + step * BLOCK, step);
        }
    }
}

/// All keys go at once. This was refused room for its note once, when the journal had filled the
/// last file to its end.
#[test]
fn a_flush_heals_a_disk_of_any_size() {
    each_size(|mode, disk_bytes, step| {
        let mut shard = Shard::started(mode, disk_bytes, 3000);
        // A journal that is full at that moment, or nearly empty.
        shard.fill(if step % 2 == 0 { 1000 } else { 3 });
        shard.has_all();
        shard.is_durable();
        if step % 4 >= 2 {
            shard.start_again(step % 3 == 0);
        }
        assert_eq!(shard.machine.try_run("FLUSHALL").as_deref(), Some("+OK"));
        shard.keys.clear();
        shard.is_durable();
        shard.heals();
    });
}

/// Keys go one by one, each of them synced for itself: a block for each. There is an end to what is
/// kept for that; compaction makes room for more before. With `appendfsync no` it didn't begin: for
/// that all has to be synced on a full disk, and nothing was.
#[test]
fn removals_heal_a_disk_of_any_size() {
    each_size(|mode, disk_bytes, step| {
        let mut shard = Shard::started(mode, disk_bytes, if step % 2 == 0 { 1000 } else { 3000 });
        shard.fill(if step % 2 == 0 { 1000 } else { 3 });
        shard.is_durable();
        let all: Vec<u32> = shard.keys.iter().copied().collect();
        // From the newest on, from the oldest on, and here and there.
        let order: Vec<u32> = match step % 3 {
            0 => all.iter().rev().copied().collect(),
            1 => all.clone(),
            _ => (0..7).flat_map(|part| all.iter().skip(part).step_by(7)).copied().collect(),
        };
        for (count, key) in order.into_iter().enumerate() {
            if shard.health() == LogHealth::Well && count > 0 {
                break;
            }
            shard.remove(key);
            if count % 50 == 49 && step % 4 >= 2 && count < 150 {
                shard.start_again(step % 8 >= 4);
            }
        }
        shard.heals();
    });
}

/// Long values lie in the journal by their names only. Many wait for the log when it is found full,
/// and all of them have room.
#[test]
fn long_values_that_wait_have_room() {
    each_size(|mode, disk_bytes, step| {
        // A file has room for two.
        let (disk_bytes, file_bytes) = (2 * disk_bytes + 2 * step * BLOCK, 4 * FILE_BYTES);
        let mut shard = Shard::started_with(mode, disk_bytes, 100_000, file_bytes);
        shard.fill(if step % 2 == 0 { 1000 } else { 3 });
        shard.has_all();
        shard.is_durable();
        if step % 4 >= 2 {
            shard.start_again(step % 8 >= 4);
        }
        for key in shard.keys.clone() {
            if shard.health() == LogHealth::Well {
                break;
            }
            shard.remove(key);
        }
        shard.heals();
    });
}

/// Anything in any order, on a disk that is full most of the time: nothing is lost, and in the end
/// there is room again.
#[test]
fn histories_of_full_disks() {
    for seed in 0..seeds().unwrap_or(3) {
        let chance = SimChance::new(seed);
        let mode = SyncMode::ALL[usize::try_from(below(&chance, 3)).expect("few")];
        let disk_bytes = DISK_BYTES + below(&chance, 1 << 20);
        let value_bytes = [30, 300, 3000, 9000][usize::try_from(below(&chance, 4)).expect("few")];
        let mut shard = Shard::started(mode, disk_bytes, value_bytes);
        for _ in 0..200 {
            match below(&chance, 20) {
                0 => shard.start_again(once_in(&chance, 2)),
                1 => shard.wait(),
                2 if once_in(&chance, 10) => {
                    if shard.machine.try_run("FLUSHALL").is_some() {
                        shard.keys.clear();
                    }
                }
                2..8 => {
                    for key in shard.keys.iter().copied().take(40).collect::<Vec<_>>() {
                        if shard.machine.try_run(&format!("DEL k{key}")).is_some() {
                            shard.keys.remove(&key);
                        }
                        if once_in(&chance, 2) {
                            shard.machine.settle();
                        }
                    }
                }
                _ => {
                    let most = u32::try_from(below(&chance, 300)).expect("few");
                    shard.set_many(most);
                    if once_in(&chance, 2) {
                        shard.machine.settle();
                    }
                }
            }
            let _ = shard.health();
        }
        shard.has_all();
        shard.wait();
        for key in shard.keys.clone() {
            shard.remove(key);
        }
        shard.heals();
    }
}
