//! A run: starts the engines' processes, has them work in turn, and notes what each did.
//!
//! ```text
//! pair 1: nigh leveldb rocksdb lmdb redb fjall
//! pair 2:      leveldb rocksdb lmdb redb fjall nigh      one works, all others stand still
//! ```
//!
//! Invariant: folders of databases go with the field they belong to, also after an error.

use crate::engines::{EngineKind, OURS, Place};
use crate::host::Host;
use crate::interrupt;
use crate::machine::Machine;
use crate::plan::{DRAGON_TIME, Plan};
use crate::protocol::{Done, Kind, Order, Until};
use crate::results::{Book, BytesNote, Entry, RowId, RunNote, Sample};
use crate::workloads::{
    DELETE_RANDOM, DRAGONDB, FILL_RANDOM, FILL_SEQ, FILL_SYNC, GROUP_WRITERS, OPEN_CLOSED,
    OPEN_CRASH, WORKLOADS, WRITER_BESIDE, dragon_row,
};
use anyhow::{Context, Result};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// The part of the keys that is written again before a process is killed or closed.
const WRITTEN_BEFORE_END: u64 = 10;
/// How long a process runs before each slice in which it writes without waiting for the disk.
const REST: Duration = Duration::from_millis(150);

/// Databases that are measured in turn.
struct Field {
    // Before the folders: processes end first.
    hosts: Vec<Host>,
    _dir: TempDir,
    _memory_dir: TempDir,
}

/// Everything of a run.
pub(crate) struct Conductor<'a> {
    plan: &'a Plan,
    book: Book,
}

/// Does all that the plan wants.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let note = RunNote {
        run: u64::try_from(since.as_millis())?,
        machine: Machine::look(&plan.dir),
        keys: plan.keys,
        pairs: plan.pairs,
        millis: plan.millis,
        command: plan.command(),
    };
    let mut conductor = Conductor { plan, book: Book::begin(&plan.results, note)? };
    conductor.random_loads()?;
    conductor.sequential_loads()?;
    conductor.syncs()?;
    conductor.openings()?;
    conductor.dragondb()
}

impl Conductor<'_> {
    /// Empty databases of these engines.
    fn start(&self, engines: &[&'static EngineKind], keys: u64, strong: bool) -> Result<Field> {
        let folder = |dir| {
            let made = tempfile::Builder::new().prefix("nigh-bench-embedded-").tempdir_in(dir);
            made.with_context(|| format!("no folder can be made in {dir:?}"))
        };
        let (dir, memory_dir) = (folder(&self.plan.dir)?, folder(&self.plan.memory_dir)?);
        let mut hosts = Vec::new();
        for kind in engines {
            let place = Place {
                dir: dir.path().join(kind.name),
                memory_dir: memory_dir.path().join(kind.name),
                keys,
                strong,
            };
            hosts.push(Host::start(kind, &place, false)?);
        }
        Ok(Field { hosts, _dir: dir, _memory_dir: memory_dir })
    }

    /// Notes what one engine did.
    fn note(&mut self, id: RowId<'_>, engine: &str, pair: u64, done: Done) -> Result<()> {
        self.book.add(Entry::Sample(Sample {
            run: self.book.run,
            row: id.row.to_owned(),
            engine: engine.to_owned(),
            threads: id.threads,
            keys: id.keys,
            pair,
            operations: done.operations,
            nanos: done.nanos,
        }))
    }

    /// Has each engine that is meant do something, beginning with another one in each pair.
    fn round(
        &mut self,
        field: &mut Field,
        id: RowId<'_>,
        pair: u64,
        order: &Order,
        is_meant: impl Fn(&EngineKind) -> bool,
    ) -> Result<()> {
        let hosts = &mut field.hosts;
        let first = usize::try_from(pair)? % hosts.len().max(1);
        let (behind, before) = hosts.split_at_mut(first);
        for host in before.iter_mut().chain(behind).filter(|host| is_meant(host.kind)) {
            interrupt::check()?;
            if order.writes() && !host.is_strong() {
                host.rest(REST)?;
            }
            let done = host.order(order)?;
            self.note(id, host.kind.name, pair, done)?;
            if matches!(order, Order::Work { kind: Kind::ReadBesideWriter, .. }) {
                let writer = Done { operations: done.beside, ..done };
                self.note(RowId { row: WRITER_BESIDE, ..id }, host.kind.name, pair, writer)?;
            }
        }
        Ok(())
    }

    /// Says the medians of a row.
    fn tell(&self, id: RowId<'_>, begun: Instant) {
        let medians: Vec<String> = self
            .plan
            .engines
            .iter()
            .filter_map(|kind| {
                let rate = self.book.results.quartiles(id, kind.name, Sample::rate)?;
                Some(format!("{} {:.1} k", kind.name, rate.median / 1000.0))
            })
            .collect();
        let (row, threads, seconds) = (id.row, id.threads, begun.elapsed().as_secs_f64());
        eprintln!("{row:17} {threads:2} thread(s), {seconds:5.1} s: {}", medians.join(", "));
    }

    /// A load, in as many slices as there are pairs.
    fn slices(
        &mut self,
        field: &mut Field,
        (id, all): (RowId<'_>, u64),
        order: impl Fn(u64, u64) -> Order,
    ) -> Result<()> {
        let (begun, pairs) = (Instant::now(), self.plan.pairs);
        for pair in 0..pairs {
            let order = order(all * pair / pairs, all * (pair + 1) / pairs);
            self.round(field, id, pair, &order, |_| true)?;
        }
        self.book.end_row()?;
        self.tell(id, begun);
        Ok(())
    }

    /// What the databases take after a load.
    fn footprints(&mut self, field: &mut Field, id: RowId<'_>) -> Result<()> {
        for host in &mut field.hosts {
            host.rest(Duration::from_millis(self.plan.rest_millis))?;
            self.book.add(Entry::Bytes(BytesNote {
                run: self.book.run,
                row: id.row.to_owned(),
                engine: host.kind.name.to_owned(),
                threads: id.threads,
                keys: id.keys,
                footprint: host.footprint()?,
            }))?;
        }
        Ok(())
    }

    /// Loads all keys, unmeasured.
    fn load(&self, field: &mut Field, keys: u64) -> Result<()> {
        eprintln!("loading {keys} keys");
        for host in &mut field.hosts {
            host.order(&Order::Fill { sequential: false, from: 0, to: keys, threads: 1 })?;
        }
        Ok(())
    }

    /// Random loads, what is done with them, and their removal. Work for a time is done by each
    /// number of threads in each pair, with the first load.
    fn random_loads(&mut self) -> Result<()> {
        let (plan, keys) = (self.plan, self.plan.keys);
        let works: Vec<(&str, Kind)> = WORKLOADS
            .iter()
            .filter(|workload| plan.wants(workload.name))
            .filter_map(|workload| Some((workload.name, workload.kind?)))
            .collect();
        for (at, threads) in plan.threads.iter().copied().enumerate() {
            let works = if at == 0 { &works[..] } else { &[] };
            let (fills, deletes) = (plan.wants(FILL_RANDOM), plan.wants(DELETE_RANDOM));
            if works.is_empty() && !fills && !deletes {
                continue;
            }
            let mut field = self.start(&plan.engines, keys, false)?;
            if fills {
                let id = RowId { row: FILL_RANDOM, threads, keys };
                let fill = |from, to| Order::Fill { sequential: false, from, to, threads };
                self.slices(&mut field, (id, keys), fill)?;
                self.footprints(&mut field, id)?;
            } else {
                self.load(&mut field, keys)?;
            }
            for (row, kind) in works {
                self.work(&mut field, row, *kind)?;
            }
            if deletes {
                let id = RowId { row: DELETE_RANDOM, threads, keys };
                let delete = |from, to| Order::Delete { from, to, threads };
                self.slices(&mut field, (id, keys / 2), delete)?;
            }
        }
        Ok(())
    }

    /// Slices of work for a time.
    fn work(&mut self, field: &mut Field, row: &str, kind: Kind) -> Result<()> {
        let (begun, plan, keys) = (Instant::now(), self.plan, self.plan.keys);
        let is_meant = |engine: &EngineKind| kind != Kind::MultiGet || engine.multi_get.is_some();
        for pair in 0..plan.pairs {
            for threads in plan.threads.iter().copied() {
                let (until, seed) = (Until::Millis(plan.millis), pair << 8 | u64::from(threads));
                let order = Order::Work { kind, until, keys, threads, seed };
                self.round(field, RowId { row, threads, keys }, pair, &order, is_meant)?;
            }
        }
        self.book.end_row()?;
        for threads in plan.threads.iter().copied() {
            self.tell(RowId { row, threads, keys }, begun);
        }
        Ok(())
    }

    fn sequential_loads(&mut self) -> Result<()> {
        let (plan, keys) = (self.plan, self.plan.keys);
        for threads in plan.threads.iter().copied().filter(|_| plan.wants(FILL_SEQ)) {
            let mut field = self.start(&plan.engines, keys, false)?;
            let id = RowId { row: FILL_SEQ, threads, keys };
            let fill = |from, to| Order::Fill { sequential: true, from, to, threads };
            self.slices(&mut field, (id, keys), fill)?;
            self.footprints(&mut field, id)?;
        }
        Ok(())
    }

    /// Writes that wait for the disk.
    fn syncs(&mut self) -> Result<()> {
        let (plan, keys, row) = (self.plan, self.plan.keys, FILL_SYNC);
        if !plan.wants(row) {
            return Ok(());
        }
        let mut field = self.start(&plan.engines, keys, true)?;
        let writers: Vec<u32> = plan.threads.iter().copied().chain([GROUP_WRITERS]).collect();
        let begun = Instant::now();
        for pair in 0..plan.pairs {
            for threads in writers.iter().copied() {
                let until = Until::Millis(plan.millis);
                let seed = pair << 8 | u64::from(threads);
                let order = Order::Work { kind: Kind::Overwrite, until, keys, threads, seed };
                let id = RowId { row, threads, keys };
                self.round(&mut field, id, pair, &order, |engine| {
                    threads < GROUP_WRITERS || engine.groups_commits
                })?;
            }
        }
        self.book.end_row()?;
        for threads in writers {
            self.tell(RowId { row, threads, keys }, begun);
        }
        Ok(())
    }

    /// Opens after SIGKILL, and after a close, of databases that were full and were written to.
    fn openings(&mut self) -> Result<()> {
        let (plan, keys) = (self.plan, self.plan.keys);
        if !plan.wants(OPEN_CRASH) && !plan.wants(OPEN_CLOSED) {
            return Ok(());
        }
        let mut field = self.start(&plan.engines, keys, false)?;
        self.load(&mut field, keys)?;
        let again =
            Order::Fill { sequential: false, from: 0, to: keys / WRITTEN_BEFORE_END, threads: 1 };
        for row in [OPEN_CRASH, OPEN_CLOSED].into_iter().filter(|row| plan.wants(row)) {
            let (begun, id) = (Instant::now(), RowId { row, threads: 1, keys });
            for pair in 0..plan.openings {
                for mut host in std::mem::take(&mut field.hosts) {
                    interrupt::check()?;
                    host.order(&again)?;
                    let host = host.opened_again(row == OPEN_CRASH)?;
                    self.note(id, host.kind.name, pair, host.opened)?;
                    field.hosts.push(host);
                }
            }
            self.book.end_row()?;
            let seconds = begun.elapsed().as_secs_f64();
            let medians = plan.engines.iter().filter_map(|kind| {
                let time = self.book.results.quartiles(id, kind.name, Sample::millis)?;
                Some(format!("{} {:.1} ms", kind.name, time.median))
            });
            eprintln!("{row:17} {seconds:19.1} s: {}", medians.collect::<Vec<_>>().join(", "));
        }
        Ok(())
    }

    /// The operations of DragonDB's tables: puts into an empty store, gets, and both in turn.
    fn dragondb(&mut self) -> Result<()> {
        let plan = self.plan;
        let ours: Vec<&EngineKind> =
            plan.engines.iter().copied().filter(|kind| kind.name == OURS).collect();
        if !plan.wants(DRAGONDB) || ours.is_empty() {
            return Ok(());
        }
        for (keys, strong, threads) in dragon_cases(plan) {
            let begun = Instant::now();
            for pair in 0..plan.dragon_repeats {
                let mut field = self.start(&ours, keys, strong)?;
                let fill = Order::Fill { sequential: false, from: 0, to: keys, threads };
                let work = |kind| {
                    let until = Until::Operations(keys);
                    Order::Work { kind, until, keys, threads, seed: pair }
                };
                for (name, order) in
                    [("puts", fill), ("gets", work(Kind::Read)), ("mixed", work(Kind::Mixed))]
                {
                    let row = &dragon_row(name, strong);
                    self.round(&mut field, RowId { row, threads, keys }, pair, &order, |_| true)?;
                }
                if begun.elapsed() > DRAGON_TIME {
                    break;
                }
            }
            self.book.end_row()?;
            let row = &dragon_row("puts", strong);
            self.tell(RowId { row, threads, keys }, begun);
        }
        Ok(())
    }
}

/// Operations, durability and threads of DragonDB's tables.
fn dragon_cases(plan: &Plan) -> Vec<(u64, bool, u32)> {
    let mut cases = Vec::new();
    for keys in plan.dragon_sizes {
        for strong in [false, true] {
            cases.extend(plan.threads.iter().map(|threads| (keys, strong, *threads)));
        }
    }
    cases
}
