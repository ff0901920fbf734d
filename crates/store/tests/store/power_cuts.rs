//! Power cuts at any moment of a store that runs: what a client was told is on disk, as promised.
//!
//! ```text
//! a store's life: change ── the log's thread ── syncs that take their time ── change ── …
//!                     └ cut: a copy of the disk without what wasn't synced ── recovery ── which changes are lost?
//! ```
//!
//! 1. `always`: no change is lost that was durable by the shard's word, when a client is answered.
//! 2. `everysec`: a change that is lost was made a second before the cut at most.
//! 3. Now and then a store starts with the copy: its keys are as they were behind the last change
//!    that isn't lost.
//!
//! Cuts between the system calls of a pass: crates/log/tests/log/power.rs.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use nigh_log::simulated::{SimChance, SimDisk, below, once_in};
use nigh_log::{Chance, Clock, LogRecovery, World, read_meta};
use nigh_store::SyncMode;

use crate::machine::Machine;
use crate::slow_syncs::slow;

/// Power cuts of each mode, unless `NIGH_POWER_CUTS` says otherwise.
const CUTS: u64 = 300;
/// Those of one store's life, and those of which one is started with.
const LIFE_CUTS: u64 = 250;
const START_EVERY: u64 = 100;
/// `everysec` promises this, if syncs take less than half a second.
const MOST_LOST_US: u64 = 1_000_000;
const SYNC_MOST_US: u64 = 450_000;
/// Until it is known how long syncs take, they begin too late.
const LEARNS_US: u64 = 3_000_000;
const STEP_US: u64 = 2_000;
const KEYS: u64 = 12;
/// A value in a run of its own.
const LONG_BYTES: usize = 140_000;
/// Cuts between two lines about how far it is.
const TELL_EVERY: u64 = 10_000;
/// The stream of the only partition.
const STREAM: u32 = 1 << 8;

#[derive(Default)]
struct Totals {
    cuts: u64,
    starts: u64,
    told: u64,
    lost: u64,
    longest_us: u64,
}

/// A change: its LSN, its key, its number, and when it was made.
type Made = (u64, u64, u64, u64);

#[test]
fn always_loses_nothing_by_power_cuts() {
    cuts(SyncMode::Always);
}

#[test]
fn everysec_loses_a_second_at_most_by_power_cuts() {
    cuts(SyncMode::EverySecond);
}

fn cuts(mode: SyncMode) {
    let wanted = std::env::var("NIGH_POWER_CUTS").ok().map(|it| it.parse().expect("a number"));
    let (wanted, began, mut totals) = (wanted.unwrap_or(CUTS), Instant::now(), Totals::default());
    let tell = |totals: &Totals| {
        let Totals { cuts, starts, told, lost, longest_us } = totals;
        eprintln!(
            "{mode:?}: {cuts} power cuts, {starts} starts behind them, {told} changes, {lost} not \
             on disk and none of them promised, at most {} ms old; {} s",
            longest_us / 1000,
            began.elapsed().as_secs()
        );
    };
    let mut seed = 0;
    while totals.cuts < wanted {
        let before = totals.cuts / TELL_EVERY;
        seed += 1;
        life(mode, seed, LIFE_CUTS.min(wanted - totals.cuts), &mut totals);
        if totals.cuts / TELL_EVERY > before {
            tell(&totals);
        }
    }
    tell(&totals);
    assert!(totals.starts > 0 && totals.told > totals.cuts, "that is no load");
    // Else nothing was at stake.
    assert!(totals.lost > 0, "the cuts came when all was on disk");
}

/// A store that runs, and so many cuts of copies of its disk.
fn life(mode: SyncMode, seed: u64, cuts: u64, totals: &mut Totals) {
    let (mut machine, took_us) = slow(seed, mode);
    let chance = SimChance::new(seed);
    let mut made: Vec<Made> = Vec::new();
    let (begin, mut number, mut left) = (machine.clock.rising_us(), 0, cuts);
    while left > 0 {
        if once_in(&chance, 200) {
            took_us.store(below(&chance, SYNC_MOST_US), Relaxed);
        }
        machine.clock.advance_us(1 + below(&chance, STEP_US));
        if once_in(&chance, 4) {
            (number, totals.told) = (number + 1, totals.told + 1);
            let key = below(&chance, KEYS);
            let long = if once_in(&chance, 100) { LONG_BYTES } else { 0 };
            machine.bytes(&[b"SET", format!("k{key}").as_bytes(), &value(number, long)]);
            made.push((machine.lsns().0, key, number, machine.clock.rising_us()));
        }
        machine.step();
        let now = machine.clock.rising_us();
        if now < begin + LEARNS_US || !once_in(&chance, 8) {
            continue;
        }
        (left, totals.cuts) = (left - 1, totals.cuts + 1);
        let (_, durable) = machine.lsns();
        let disk = machine.disk.power_cut(&chance);
        let last = last_lsn(&machine, &disk);
        let at = format!("{mode:?}, seed {seed}, cut {} of its life", cuts - left);
        assert!(last >= durable, "{at}: LSN {last} is the last, {durable} was durable");
        let kept = made.partition_point(|it| it.0 <= last);
        totals.lost += (made.len() - kept) as u64;
        let longest_us = made.get(kept).map_or(0, |it| now - it.3);
        totals.longest_us = totals.longest_us.max(longest_us);
        let is_kept = mode != SyncMode::EverySecond || longest_us <= MOST_LOST_US;
        assert!(is_kept, "{at}: a change is lost that is {longest_us} us old");
        if left.is_multiple_of(START_EVERY) {
            totals.starts += 1;
            check_start(disk, seed, &made[..kept], &at);
        }
    }
}

fn value(number: u64, long: usize) -> Vec<u8> {
    let mut value = format!("{number};").into_bytes();
    value.resize(value.len() + long, b'x');
    value
}

/// The last LSN that a recovery finds, which reads all frames.
fn last_lsn(machine: &Machine, disk: &SimDisk) -> u64 {
    let world = World {
        storage: Arc::new(disk.clone()),
        clock: Arc::clone(&machine.clock) as _,
        chance: Arc::clone(&machine.chance) as Arc<dyn Chance>,
    };
    let meta = read_meta(disk).expect("its meta").expect("it has one");
    let found = LogRecovery::find(&world, &meta, &meta.chains[0]).expect("a sound chain");
    found.replay(&mut |_| Ok(()), &mut |_| {}).expect("sound frames");
    found.last.get(&STREAM).copied().unwrap_or(0)
}

/// A store that starts with what is left has the keys as they were behind the last of these
/// changes.
fn check_start(disk: SimDisk, seed: u64, made: &[Made], at: &str) {
    let mut next = Machine::new(seed, 1);
    next.disk = disk;
    next.boot = 2;
    next.start().unwrap_or_else(|error| panic!("{at}: {error}"));
    for key in 0..KEYS {
        let wanted = made.iter().rfind(|it| it.1 == key).map(|it| it.2);
        let found = next.run(&format!("GET k{key}"));
        let found = found.split_once(' ').and_then(|(_, it)| it.split_once(';'));
        assert_eq!(found.and_then(|it| it.0.parse().ok()), wanted, "{at}: k{key}");
    }
}
