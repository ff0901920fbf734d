//! Each call to the disk fails once: the log says so and is broken or full, or goes on; and nothing
//! that was told durable is ever lost.

use crate::book::{Book, Halt, SHARDS};
use crate::machine::{Machine, inspect};
use crate::power::{variable, world};
use nigh_log::simulated::{SimChance, SimDisk, SimFault, below, once_in};
use nigh_log::{Chance, LogError};
use std::collections::BTreeMap;

const FILE_BYTES: u64 = 16 << 10;
/// Failures that are tried without a variable that says otherwise.
const FAULTS: u64 = 300;
/// Calls of a run; with many failures, of a long one.
const RUN_CALLS: u64 = 2_000;
const LONG_CALLS: u64 = 10_000;
/// Steps behind a failure.
const STEPS_BEHIND: u64 = 40;

/// One run with one failure.
struct Run {
    disk: SimDisk,
    book: Book,
    chance: SimChance,
    fault: SimFault,
    /// The call that fails, counted on all disks; and calls on those before this one.
    at: u64,
    calls_before: u64,
    /// Steps since the failure; `None`: it hasn't come.
    behind: Option<u64>,
    /// The log has told it. Of a sync that runs beside, that may be some steps later.
    is_told: bool,
    /// A log broke in the process before.
    broken: bool,
    /// How it ended.
    outcome: &'static str,
}

/// How a process ends.
enum End {
    /// The run is over.
    Over,
    Killed,
    PowerCut,
}

/// `NIGH_FAULTS` says how many failures; 6,000 are one of each kind at each call of the short run.
#[test]
fn each_call_may_fail_once() {
    let wanted = variable("NIGH_FAULTS", FAULTS);
    let calls = if wanted > 3 * RUN_CALLS { LONG_CALLS } else { RUN_CALLS };
    let all = 3 * calls;
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    let mut violations = Vec::new();
    for i in 0..wanted.min(all) {
        // Spread over the run, each kind in turn.
        let nth = i * all / wanted.min(all);
        let fault = [SimFault::Io, SimFault::NoSpace, SimFault::Short][(i % 3) as usize];
        let at = 1 + nth / 3;
        let mut run = Run {
            disk: SimDisk::new(at),
            book: Book::new(),
            chance: SimChance::new(at),
            fault,
            at,
            calls_before: 0,
            behind: None,
            is_told: false,
            broken: false,
            outcome: "went on",
        };
        match run.all(calls) {
            Ok(()) => *outcomes.entry(run.outcome).or_default() += 1,
            Err(what) => {
                let failed = run.disk.failed_call();
                violations.push(format!("{fault:?} at call {at} {failed:?}: {what}"));
            }
        }
    }
    println!("{outcomes:?}, {} violations", violations.len());
    assert!(violations.is_empty(), "{violations:#?}");
    for outcome in ["broke", "was full", "went on", "did not start"] {
        assert!(outcomes.contains_key(outcome), "no run {outcome}");
    }
}

impl Run {
    /// Processes, one after the other, until so many calls were made and the failure is past.
    fn all(&mut self, calls: u64) -> Result<(), String> {
        for life in 0..20 {
            if self.behind.is_none() {
                self.disk.fail(self.at - self.calls_before, self.fault);
            }
            match self.live(life, calls)? {
                End::Over => return self.check(),
                End::Killed => {
                    self.calls_before += self.disk.calls();
                    self.disk = self.disk.kill();
                }
                End::PowerCut => {
                    self.calls_before += self.disk.calls();
                    self.disk = self.disk.power_cut(&self.chance);
                    self.book.power_was_cut();
                }
            }
        }
        Err("it doesn't come to an end".into())
    }

    /// What is left is right, whatever comes now.
    fn check(&self) -> Result<(), String> {
        let found = inspect(&world(&self.disk.kill(), 1), &self.book);
        found.map_err(|halt| format!("killed at the end: {halt}"))?;
        let mut book = self.book.clone();
        book.power_was_cut();
        for _ in 0..2 {
            let cut = self.disk.power_cut(&self.chance);
            let found = inspect(&world(&cut, 1), &book);
            found.map_err(|halt| format!("power cut at the end: {halt}"))?;
        }
        Ok(())
    }

    /// One process. The first ends halfway.
    fn live(&mut self, life: u64, calls: u64) -> Result<End, String> {
        let broken = std::mem::take(&mut self.broken);
        let world = world(&self.disk, 100 + life);
        let started = Machine::start_after(broken, world, &mut self.book, FILE_BYTES, life);
        let mut machine = match started {
            Ok(machine) => machine,
            Err(halt) => {
                self.expect(&halt)?;
                self.outcome = "did not start";
                return Ok(self.give_up(true));
            }
        };
        loop {
            let made = self.calls_before + self.disk.calls();
            match &mut self.behind {
                Some(steps) if *steps > STEPS_BEHIND => return Ok(End::Over),
                Some(steps) => *steps += 1,
                None if self.disk.failed_call().is_some() => self.behind = Some(0),
                None if life == 0 && made > calls / 2 => return Ok(End::Killed),
                None => {}
            }
            let stepped = machine.step(&mut self.book);
            let told = machine.tell(&mut self.book);
            told.map_err(|halt| halt.to_string())?;
            if let Err(halt) = stepped {
                self.expect(&halt)?;
                if let Some(end) = self.heal(&mut machine, &halt)? {
                    return Ok(end);
                }
            }
        }
    }

    /// The log may say this, once.
    fn expect(&mut self, halt: &Halt) -> Result<(), String> {
        let wrong = || Err(format!("{halt}"));
        let (Halt::Log(error) | Halt::InDoubt(error)) = halt else { return wrong() };
        let source = match error {
            LogError::Io { source, .. } => source,
            LogError::Full { source } if self.fault == SimFault::NoSpace => source,
            _ => return wrong(),
        };
        let code = match self.fault {
            SimFault::Io => 5,
            SimFault::NoSpace => 28,
            SimFault::Short | SimFault::NoMemory => return wrong(),
        };
        let is_told = std::mem::replace(&mut self.is_told, true);
        if is_told || source.raw_os_error() != Some(code) {
            return wrong();
        }
        self.behind = Some(0);
        Ok(())
    }

    /// What the server does behind a failure. `Some`: its process ends.
    fn heal(&mut self, machine: &mut Machine<SimDisk>, halt: &Halt) -> Result<Option<End>, String> {
        let in_doubt = matches!(halt, Halt::InDoubt(_));
        let named = |i: &usize| machine.shards.len() > *i && !machine.unnamed.contains(i);
        let broken: Vec<usize> = (0..SHARDS)
            .filter(named)
            .filter(|&i| machine.shards[i].writer.broken().is_some())
            .collect();
        self.outcome = match halt {
            Halt::Log(LogError::Full { .. }) => "was full",
            _ if in_doubt => "was in doubt",
            _ if !broken.is_empty() => "broke",
            _ => "went on",
        };
        for &i in &broken {
            let writer = &mut machine.shards[i].writer;
            for again in [writer.write(true), writer.sync(), writer.close()] {
                if !matches!(again, Err(LogError::Broken { .. })) {
                    return Err(format!("a broken log says {again:?}"));
                }
            }
        }
        let amid_bases = machine.shards.len() < SHARDS || !machine.unnamed.is_empty();
        if amid_bases || (in_doubt || !broken.is_empty()) && once_in(&self.chance, 2) {
            return Ok(Some(self.give_up(in_doubt || !broken.is_empty())));
        }
        let stuck = |i: &usize| in_doubt || broken.contains(i) || machine.shards[*i].stuck;
        let which: Vec<usize> = (0..SHARDS).filter(stuck).collect();
        if !which.is_empty() {
            machine.base(&mut self.book, which, false).map_err(|halt| halt.to_string())?;
        }
        Ok(None)
    }

    /// The process ends; if a log broke, that is known to the next one, unless power is cut.
    fn give_up(&mut self, broken: bool) -> End {
        if once_in(&self.chance, 2) {
            self.broken = broken;
            return End::Killed;
        }
        End::PowerCut
    }
}

/// With a full disk writes are refused, nothing is lost, and compaction makes room.
#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    let (mut refused, mut compacted) = (0, 0);
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let mut book = Book::new();
        let mut machine = Machine::start(world(&disk, seed), &mut book, FILE_BYTES, seed).unwrap();
        let chance = SimChance::new(seed);
        for round in 0..6 {
            let capacity = if round % 2 == 0 { disk.used_bytes() + 30_000 } else { u64::MAX };
            disk.set_capacity(capacity);
            for _ in 0..400 {
                let i = usize::from(once_in(&chance, 2));
                let done = match below(&chance, 7) {
                    0 => {
                        machine.commit(&mut book, i);
                        Ok(())
                    }
                    1..=2 => machine.shards[i].writer.prepare().map(drop),
                    3 => machine.pump(&book, i).map(drop),
                    4 => machine.shards[i].sync(),
                    5 => machine.shards[i].step_beside(),
                    _ => machine.compact(&book, i),
                };
                machine.tell(&mut book).unwrap();
                match done {
                    Ok(()) => {}
                    Err(LogError::Full { .. }) => refused += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
            let shards = machine.shards.iter();
            shards.for_each(|shard| assert_eq!(shard.writer.broken(), None));
            inspect(&world(&disk.kill(), seed), &book).unwrap();
        }
        disk.set_capacity(u64::MAX);
        machine.drain(&book).unwrap();
        machine.tell(&mut book).unwrap();
        book.power_was_cut();
        let cut = disk.power_cut(&chance);
        inspect(&world(&cut, chance.word()), &book).unwrap();
        compacted += machine.shards.iter().map(|shard| shard.compacted).sum::<u64>();
    }
    println!("refused {refused} times, {compacted} files compacted");
    assert!(refused > 50 && compacted > 20, "{refused} {compacted}");
}
