//! Syncs of a log that take their time, by the simulated clock, while the log's thread goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nigh_log::simulated::{SimClock, SimFault, SimFile};
use nigh_log::{Clock, SyncEnd, SyncJob};
use nigh_store::{LogHealth, SyncMode, Syncer};

use crate::machine::Machine;

/// Runs a sync at the end of its time.
struct SlowSyncer {
    clock: Arc<SimClock>,
    took_us: Arc<AtomicU64>,
    /// When it ends.
    job: Option<(SyncJob<SimFile>, u64)>,
}

impl Syncer<SimFile> for SlowSyncer {
    fn begin(&mut self, job: SyncJob<SimFile>) {
        assert!(self.job.is_none(), "one sync at a time");
        self.job = Some((job, self.clock.rising_us() + self.took_us.load(Relaxed)));
    }

    fn take(&mut self) -> Option<SyncEnd> {
        let now = self.clock.rising_us();
        self.job.take_if(|(_, end)| *end <= now).map(|(job, _)| job.run())
    }

    fn wait(&mut self) -> SyncEnd {
        let (job, end) = self.job.take().expect("a job that was begun");
        self.clock.advance_us(end.saturating_sub(self.clock.rising_us()));
        job.run()
    }
}

/// A store of one shard, and how long its syncs take.
pub(crate) fn slow(seed: u64, mode: SyncMode) -> (Machine, Arc<AtomicU64>) {
    started_slow(Machine::new(seed, 1), mode)
}

fn started_slow(mut machine: Machine, mode: SyncMode) -> (Machine, Arc<AtomicU64>) {
    machine.mode = mode;
    machine.start().expect("the first start");
    machine.settle();
    let (clock, took_us) = (Arc::clone(&machine.clock), Arc::new(AtomicU64::new(0)));
    let syncer = SlowSyncer { clock, took_us: Arc::clone(&took_us), job: None };
    let mut log = machine.running().logs.remove(0);
    log.thread = log.thread.with_syncer(Box::new(syncer));
    machine.running().logs.push(log);
    (machine, took_us)
}

/// `everysec`: what is a second old is on disk, however long syncs take up to near half a second;
/// and they aren't more than needed. A sync began as early as the longest of those before had
/// taken: so with one that took longer than all of them, more than a second could be lost.
#[test]
fn everysec_loses_a_second_at_most() {
    for (usual_us, took_us) in
        [(0, 0), (20_000, 20_000), (200_000, 200_000), (440_000, 440_000), (1000, 440_000)]
    {
        let (mut machine, slow_us) = slow(1, SyncMode::EverySecond);
        let before = machine.running().logs[0].status.figures().syncs;
        let (mut told, mut oldest) = (Vec::new(), 0);
        for step in 0..5000_u32 {
            machine.clock.advance_us(2000);
            let is_usual = step / 500 % 4 != 3;
            slow_us.store(if is_usual { usual_us } else { took_us }, Relaxed);
            if step % 30 == 0 {
                machine.run("SET k v");
                told.push((machine.lsns().0, machine.clock.rising_us()));
            }
            machine.step();
            let (now, (_, durable)) = (machine.clock.rising_us(), machine.lsns());
            told.retain(|&(lsn, _)| lsn > durable);
            let age = told.first().map_or(0, |&(_, at)| now - at);
            oldest = age.max(oldest);
        }
        let syncs = machine.running().logs[0].status.figures().syncs - before;
        assert!(oldest <= 1_000_000, "syncs of {took_us} us: {oldest} us may be lost");
        assert!(oldest >= 350_000 + took_us, "syncs of {took_us} us begin early: {oldest} us");
        assert!(syncs <= 26, "syncs of {took_us} us: {syncs} in 10 s");
    }
}

/// Frames are written while a sync runs, and the journal gives their entries back: many times its
/// bytes pass through it, though nothing of them is durable yet. A kill loses none of them: what no
/// frame has is in the journal still.
#[test]
fn entries_are_written_while_a_sync_runs() {
    for mode in [SyncMode::Always, SyncMode::EverySecond] {
        let mut machine = Machine::new(2, 1);
        // No file ends, which would wait for the sync.
        machine.file_bytes = 8 << 20;
        let (mut machine, slow_us) = started_slow(machine, mode);
        slow_us.store(60_000_000, Relaxed);
        machine.run("SET a 1");
        machine.settle();
        machine.clock.advance_us(950_000);
        machine.settle();
        let before = machine.lsns();
        let value = "v".repeat(3000);
        for i in 0..1000 {
            assert_eq!(machine.run(&format!("SET b{i} {value}")), "+OK");
        }
        machine.settle();
        assert_eq!(machine.lsns(), (before.0 + 1000, before.1), "a sync is under way");
        let held = machine.running().logs[0].journal.used_bytes();
        assert!(held > 0 && held <= (1 << 20) / 2, "an open frame holds {held} bytes back");
        machine.kill();
        let report = machine.start().expect("from memory and journal");
        assert!(report.completed > 0, "the log lacked the open frame");
        machine.kill();
        machine.lose_memory();
        machine.boot += 1;
        machine.start().expect("from the log alone");
        assert_eq!(machine.run("GET a"), "$1 1");
        assert!((0..1000).all(|i| machine.run(&format!("GET b{i}")) == format!("$3000 {value}")));
    }
}

/// `always`: what comes while a sync runs is durable by the next one, which begins at its end.
#[test]
fn the_next_group_is_synced_behind_the_current_one() {
    let (mut machine, slow_us) = slow(3, SyncMode::Always);
    slow_us.store(1000, Relaxed);
    machine.run("SET a 1");
    machine.settle();
    let (a, none) = machine.lsns();
    assert!(none < a);
    machine.clock.advance_us(600);
    machine.run("SET b 2");
    machine.settle();
    machine.clock.advance_us(400);
    machine.settle();
    assert_eq!(machine.lsns(), (a + 1, a));
    machine.clock.advance_us(999);
    machine.settle();
    assert_eq!(machine.lsns(), (a + 1, a));
    machine.clock.advance_us(1);
    machine.settle();
    assert_eq!(machine.lsns(), (a + 1, a + 1));
}

/// Whole frames are written while a sync runs, and the sync ends: it has made durable what was
/// written before it began, and no more. They are durable by the next one.
#[test]
fn what_is_written_while_a_sync_runs_is_not_durable_at_its_end() {
    let mut machine = Machine::new(6, 1);
    // No file ends, which would wait for the sync.
    machine.file_bytes = 8 << 20;
    let (mut machine, slow_us) = started_slow(machine, SyncMode::Always);
    slow_us.store(1000, Relaxed);
    machine.run("SET a 1");
    machine.settle();
    let (a, _) = machine.lsns();
    let value = "v".repeat(3000);
    for i in 0..1000 {
        assert_eq!(machine.run(&format!("SET b{i} {value}")), "+OK");
    }
    machine.settle();
    // More than the journal takes has passed through it: so frames were written.
    let held = machine.running().logs[0].journal.used_bytes();
    assert!(held <= (1 << 20) / 2, "{held} bytes are in no frame");
    for durable in [a, a + 1000] {
        machine.clock.advance_us(1000);
        machine.settle();
        assert_eq!(machine.lsns(), (a + 1000, durable));
    }
}

/// `everysec`: a client that asks for a sync while one runs waits for the end of that one and the
/// next, and not for a second.
#[test]
fn a_sync_that_is_asked_for_while_one_runs_begins_behind_it() {
    let (mut machine, slow_us) = slow(5, SyncMode::EverySecond);
    slow_us.store(1000, Relaxed);
    let status = Arc::clone(&machine.running().logs[0].status);
    machine.run("SET a 1");
    status.want_sync();
    machine.settle();
    machine.run("SET b 2");
    let (b, _) = machine.lsns();
    status.want_sync();
    machine.settle();
    assert!(machine.lsns().1 < b - 1, "the first sync runs");
    for durable in [b - 1, b] {
        machine.clock.advance_us(1000);
        machine.settle();
        assert_eq!(machine.lsns(), (b, durable));
    }
}

/// A sync beside that fails breaks the log, and none is tried again.
#[test]
fn a_failed_sync_beside_breaks_the_log_for_good() {
    let (mut machine, slow_us) = slow(4, SyncMode::Always);
    slow_us.store(1000, Relaxed);
    machine.run("SET a 1");
    machine.settle();
    machine.run("SET b 2");
    machine.settle();
    let (_, durable) = machine.lsns();
    machine.disk.fail(machine.disk.calls() + 1, SimFault::Io);
    machine.clock.advance_us(1000);
    machine.settle();
    assert_eq!(machine.running().logs[0].status.health(), LogHealth::Broken);
    assert!(machine.disk.failed_call().is_some_and(|call| call.contains("sync")));
    let calls = machine.disk.calls();
    for _ in 0..20 {
        machine.clock.advance_us(500_000);
        machine.settle();
    }
    assert_eq!((machine.disk.calls(), machine.lsns().1), (calls, durable));
}

/// Records that compaction appends again aren't synced before it is done with their file, if nobody
/// waits. Nothing is lost with them, so no write waits for that: they have no age.
#[test]
fn records_that_come_again_make_no_write_wait() {
    let mut machine = Machine::new(7, 1);
    machine.mode = SyncMode::Always;
    machine.start().expect("the first start");
    for i in 0..100 {
        machine.bytes(&[b"SET", format!("k{i}").as_bytes(), "x".repeat(300).as_bytes()]);
    }
    for _ in 0..60 {
        machine.bytes(&[b"SET", b"hot", "x".repeat(2000).as_bytes()]);
    }
    machine.settle_untold();
    let (status, live) = {
        let running = machine.running();
        (Arc::clone(&running.logs[0].status), running.keyspace.live_bytes())
    };
    status.tell_live(live);
    let (bytes, mut steps) = (status.figures().bytes, 0);
    while machine.step() {
        machine.clock.advance_us(3_000_000);
        machine.running().logs[0].thread.pass();
        let (last, durable) = machine.lsns();
        assert_eq!((durable, status.unsynced_since_us()), (last, None), "step {steps}");
        steps += 1;
    }
    assert!(steps > 3 && status.figures().bytes < bytes, "a file went");
}
