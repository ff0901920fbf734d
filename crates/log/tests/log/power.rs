//! Power cuts and kills at any call of any step, by seeds.
//!
//! Behind each: nothing durable is lost, what is left is a prefix of each chain with whole commits,
//! none of them stands on something lost, and a replay gives what memory had at that point. Then it
//! goes on from there.

use crate::book::{Book, Halt};
use crate::machine::Machine;
use nigh_log::simulated::{SimChance, SimClock, SimDisk, below, once_in};
use nigh_log::{Chance, Clock, LogError, World};
use std::sync::Arc;
use std::time::Instant;

/// Cuts without a variable that says otherwise.
const CUTS: u64 = 2_000;
/// Cuts between two lines about how far it is.
const TELL_EVERY: u64 = 10_000;
/// Cuts of one run.
const RUN_CUTS: u64 = 25;
const FILE_BYTES: [u64; 4] = [16 << 10, 20 << 10, 32 << 10, 64 << 10];

/// What was done in all runs.
#[derive(Default)]
struct Tally {
    runs: u64,
    cuts: u64,
    kills: u64,
    steps: u64,
    compacted: u64,
    overlapped: u64,
    bases: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { runs, cuts, kills, steps, compacted, overlapped, bases } = self;
        write!(f, "{runs} runs, {cuts} power cuts, {kills} kills, {steps} steps, ")?;
        write!(f, "{overlapped} syncs with frames written meanwhile, ")?;
        write!(f, "{compacted} files compacted, {bases} bases")
    }
}

/// A number that the environment gives.
pub(crate) fn variable(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// `NIGH_POWER_CUTS` says how many, `NIGH_POWER_SEED` the first run's seed; each run has the next.
#[test]
fn what_is_durable_survives_power_cuts_and_kills() {
    let (wanted, first) = (variable("NIGH_POWER_CUTS", CUTS), variable("NIGH_POWER_SEED", 1));
    let (mut tally, mut violations) = (Tally::default(), Vec::new());
    let began = Instant::now();
    let tell = |tally: &Tally, violations: usize| {
        println!("{tally}, {violations} violations; {} s", began.elapsed().as_secs());
    };
    while tally.cuts < wanted {
        let (seed, before) = (first + tally.runs, tally.cuts / TELL_EVERY);
        tally.runs += 1;
        violations.extend(run(seed, &mut tally).err().map(|what| format!("seed {seed}: {what}")));
        if tally.cuts / TELL_EVERY > before {
            tell(&tally, violations.len());
        }
    }
    tell(&tally, violations.len());
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(wanted < 100 || tally.compacted > wanted, "too few files were compacted");
    assert!(wanted < 100 || tally.overlapped > wanted / 4, "too few syncs had frames beside");
}

/// One run from an empty disk on.
fn run(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let chance = SimChance::new(seed);
    let clock = Arc::new(SimClock::new(1_800_000_000_000));
    let mut disk = SimDisk::new(seed);
    let mut book = Book::new();
    for _ in 0..RUN_CUTS {
        let file_bytes = FILE_BYTES[usize::try_from(below(&chance, 4)).unwrap()];
        let world = World {
            storage: Arc::new(disk.clone()),
            clock: Arc::<SimClock>::clone(&clock),
            chance: Arc::new(SimChance::new(chance.word())),
        };
        // Most are cut while they serve, some while they start.
        let calls = if once_in(&chance, 4) { 100 } else { 1200 };
        let stop = disk.calls() + 1 + below(&chance, calls);
        disk.stop_at(stop);
        let steps = below(&chance, 350);
        let seed = chance.word();
        match serve(world, &mut book, file_bytes, seed, steps, &clock, tally) {
            Ok(()) => {}
            Err(Halt::Wrong(what)) => return Err(what),
            Err(Halt::Log(_) | Halt::InDoubt(_)) if disk.calls() >= stop => {}
            Err(halt) => return Err(halt.to_string()),
        }
        if once_in(&chance, 3) {
            tally.kills += 1;
            disk = disk.kill();
        } else {
            tally.cuts += 1;
            disk = disk.power_cut(&chance);
            book.power_was_cut();
        }
    }
    Ok(())
}

/// A process from its start up to some steps, or until its disk stands still.
fn serve(
    world: World<SimDisk>,
    book: &mut Book,
    file_bytes: u64,
    seed: u64,
    steps: u64,
    clock: &SimClock,
    tally: &mut Tally,
) -> Result<(), Halt> {
    let mut machine = Machine::start(world, book, file_bytes, seed)?;
    let chance = SimChance::new(seed);
    let mut result = Ok(());
    for _ in 0..steps {
        tally.steps += 1;
        match below(&chance, 50) {
            0 => clock.set_unix_ms(clock.unix_ms() - below(&chance, 1000)),
            _ => clock.advance_us(below(&chance, 20_000)),
        }
        result = machine.step(book);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() && once_in(&chance, 5) {
        result = close(&mut machine, book);
    }
    tally.bases += machine.bases;
    tally.overlapped += machine.shards.iter().map(|shard| shard.overlapped).sum::<u64>();
    tally.compacted += machine.shards.iter().map(|shard| shard.compacted).sum::<u64>();
    // What was synced before the disk stood still was told, or may have been.
    machine.tell(book)?;
    result
}

/// A clean end: all that was committed is durable.
fn close(machine: &mut Machine<SimDisk>, book: &mut Book) -> Result<(), Halt> {
    machine.drain(book)?;
    for shard in &mut machine.shards {
        shard.writer.close()?;
        if !shard.writer.is_synced() {
            return Err(Halt::Wrong("a closed log isn't synced".into()));
        }
    }
    machine.tell(book)?;
    book.shards.iter().try_for_each(|shard| match shard.marks.front() {
        Some(mark) => Err(Halt::Wrong(format!("{mark:?} isn't durable behind a clean end"))),
        None => Ok(()),
    })
}

/// A world with this disk.
pub(crate) fn world(disk: &SimDisk, seed: u64) -> World<SimDisk> {
    World {
        storage: Arc::new(disk.clone()),
        clock: Arc::new(SimClock::new(1)),
        chance: Arc::new(SimChance::new(seed)),
    }
}

/// A file that was prepared and never begun is prepared again by the next start, under a higher
/// number. Cut off anywhere, neither name has a head that isn't its own: that would be damage.
#[test]
fn a_file_that_was_never_begun_can_be_prepared_again() {
    let mut cuts = 0;
    for seed in 0..2 {
        let disk = SimDisk::new(seed);
        let mut book = Book::new();
        let start = |disk: &SimDisk, book: &Book| {
            Machine::start(world(disk, seed), &mut book.clone(), 16 << 10, 5)
        };
        let mut machine = Machine::start(world(&disk, seed), &mut book, 16 << 10, 5).unwrap();
        machine.drain(&book).unwrap();
        machine.tell(&mut book).unwrap();
        while !machine.shards[0].writer.prepare().unwrap() {}
        for stop in 1.. {
            let disk = disk.kill();
            disk.stop_at(stop);
            if start(&disk, &book).is_ok() {
                break;
            }
            for luck in 0..3 {
                let cut = disk.power_cut(&SimChance::new(seed * 100 + luck));
                let again = start(&cut, &book);
                cuts += 1;
                again.unwrap_or_else(|halt| panic!("seed {seed}, call {stop}: {halt}"));
            }
        }
    }
    assert!(cuts > 200, "{cuts}");
}

#[test]
fn a_broken_writer_says_so_from_then_on() {
    let disk = SimDisk::new(3);
    let mut book = Book::new();
    let mut machine = Machine::start(world(&disk, 4), &mut book, 16 << 10, 5).unwrap();
    machine.commit(&mut book, 0);
    machine.pump(&book, 0).unwrap();
    disk.stop_at(disk.calls() + 1);
    let writer = &mut machine.shards[0].writer;
    assert!(matches!(writer.sync(), Err(LogError::Io { .. })));
    let cause = writer.broken().expect("it is broken").to_string();
    for again in [writer.sync(), writer.write(false), writer.idle_frame(), writer.close()] {
        assert!(matches!(again, Err(LogError::Broken { cause: was }) if was == cause));
    }
}
