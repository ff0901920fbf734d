//! A writer that waits for the disk, and syncs in place of the log's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nigh_log::simulated::{SimDisk, SimFault, SimFile};
use nigh_log::{Clock, SyncEnd, SyncJob};
use nigh_shm::JournalEntry;
use nigh_store::{
    EndOrder, EntryObserver, LogHealth, LogOrder, LogRunner, LogStatus, Ordered, SyncMode, Syncer,
};

use crate::durable::two_that_wait;
use crate::machine::{Log, Machine};

fn started(seed: u64) -> Machine {
    let mut machine = Machine::new(seed, 1);
    machine.mode = SyncMode::EverySecond;
    machine.start().expect("the first start");
    machine.settle();
    machine
}

fn sync_now(machine: &mut Machine) -> bool {
    machine.running().logs[0].thread.sync_now()
}

/// What the shard has of its log, beside the journal.
struct ShardSide {
    status: Arc<LogStatus>,
    /// Without it the log would be closed.
    _orders: SyncSender<LogOrder>,
}

/// The log with its runner, which takes it.
fn runner(machine: &mut Machine) -> (Arc<LogRunner<SimDisk>>, ShardSide) {
    let Log { thread, status, _orders, .. } = machine.running().logs.remove(0);
    (Arc::new(LogRunner::new(thread)), ShardSide { status, _orders })
}

/// What a writer has synced is on disk, with all that others wrote before.
#[test]
fn what_a_writer_syncs_survives_a_power_cut() {
    let mut machine = started(1);
    machine.run("SET other 1");
    machine.run("MSET a 2 b 3");
    let (last, before) = machine.lsns();
    assert!(before < last);
    assert!(sync_now(&mut machine));
    assert_eq!(machine.lsns(), (last, last));
    assert_eq!(machine.running().logs[0].status.unsynced_since_us(), None);
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert_eq!(machine.run("MGET other a b"), "*3 $1 1 $1 2 $1 3");
}

/// A file ends after some syncs: that one is the thread's, which begins the next.
#[test]
fn a_writer_begins_no_file() {
    let mut machine = started(2);
    let newest = |machine: &Machine| {
        let number = |n: &u32| machine.disk.contents(&format!("g1-s00-{n:010}.log")).is_some();
        (1..100).take_while(number).last().expect("the first one")
    };
    for _ in 0..3 {
        let before = newest(&machine);
        let mut synced = 0;
        loop {
            machine.run("SET k v");
            if !sync_now(&mut machine) {
                break;
            }
            synced += 1;
        }
        assert!((1..10).contains(&synced), "{synced} blocks of a file of eight");
        let (last, durable) = machine.lsns();
        assert_eq!((durable, newest(&machine)), (last - 1, before), "it was left to the thread");
        // As many as the file still takes, and more.
        (0..200).for_each(|_| drop(machine.run("SET k v")));
        machine.settle();
        machine.clock.advance_us(1_000_000);
        machine.settle();
        let (last, durable) = machine.lsns();
        assert_eq!(durable, last);
    }
}

/// What may wait for something else than the disk, or take long, is left as it is to the thread,
/// which does it.
#[test]
fn a_writer_leaves_to_the_thread_what_may_wait() {
    let left = |machine: &mut Machine, what: &str| {
        let before = machine.lsns();
        assert!(!sync_now(machine), "{what}");
        assert_eq!(machine.lsns(), before, "{what}: it has done nothing");
        machine.clock.advance_us(1_000_000);
        machine.settle();
        let (last, durable) = machine.lsns();
        assert_eq!(durable, last, "{what}: the thread does it");
    };
    let mut machine = started(3);
    machine.file_bytes = 4 << 20;
    machine.kill();
    machine.start().expect("with longer files");
    machine.settle();

    machine.bytes(&[b"SET", b"long", "v".repeat(200_000).as_bytes()]);
    left(&mut machine, "a value that lies in an arena");

    (0..100).for_each(|i| drop(machine.run(&format!("SET k{i} {}", "v".repeat(700)))));
    left(&mut machine, "many changes");

    machine.run("SET a 1");
    let log = &machine.running().logs[0];
    let (told, _mark) = sync_channel(1);
    let order = EndOrder { told, hold_bytes: 0, holder: Weak::new() };
    let order = LogOrder { tail: log.journal.tail(), what: Ordered::EndFrame(order) };
    log._orders.send(order).expect("room");
    left(&mut machine, "an order");

    machine.run("SET a 2");
    machine.running().logs[0].status.close();
    left(&mut machine, "a log that is being closed");
    assert!(!sync_now(&mut machine), "a log that is closed");
}

/// A commit that depends on another shard's log would wait for that.
#[test]
fn a_writer_waits_for_no_other_log() {
    let mut machine = Machine::new(4, 2);
    let ([one, _two], [mut own, mut other]) = two_that_wait(&mut machine);
    assert!(!own.thread.sync_now());
    assert_eq!(one.reader(0).durable_lsn(), 0);
    assert!(other.thread.sync_now(), "this one depends on nothing");
    own.thread.pass();
    assert_eq!(one.reader(0).durable_lsn(), 1);
}

/// Runs a sync once it may; tells when it begins.
struct Gate {
    begins: SyncSender<()>,
    may_end: Receiver<()>,
    end: Option<SyncEnd>,
}

impl Syncer<SimFile> for Gate {
    fn begin(&mut self, job: SyncJob<SimFile>) {
        self.begins.send(()).expect("the test waits");
        self.may_end.recv().expect("the test lets it end");
        self.end = Some(job.run());
    }

    fn take(&mut self) -> Option<SyncEnd> {
        self.end.take()
    }

    fn wait(&mut self) -> SyncEnd {
        self.end.take().expect("a job that was begun")
    }
}

/// What is written while a writer syncs is as old as that takes, when the thread comes to it. Else
/// it would be on disk later than a second behind its write.
#[test]
fn what_comes_while_a_writer_syncs_is_counted_from_then() {
    const TOOK_US: u64 = 300_000;
    let mut machine = started(9);
    machine.run("SET strong 1");
    let (begins, began) = sync_channel(1);
    let (lets_end, may_end) = sync_channel(1);
    let mut log = machine.running().logs.remove(0);
    log.thread = log.thread.with_syncer(Box::new(Gate { begins, may_end, end: None }));
    machine.clock.advance_us(1000); // 0 stands for none
    let begin_us = machine.clock.rising_us();
    let log = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            assert!(log.thread.sync_now());
            log
        });
        began.recv().expect("it syncs");
        machine.run("SET eventual 1");
        machine.clock.advance_us(TOOK_US);
        lets_end.send(()).expect("it waits");
        writer.join().expect("its write")
    });
    let status = Arc::clone(&log.status);
    machine.running().logs.push(log);
    let (last, durable) = machine.lsns();
    assert_eq!((durable, status.unsynced_since_us()), (last - 1, None));
    machine.step();
    assert_eq!(status.unsynced_since_us(), Some(begin_us));
}

/// A sync that fails breaks the log, whoever makes it; and nothing is tried again.
#[test]
fn a_writers_sync_that_fails_breaks_the_log() {
    let mut machine = started(5);
    machine.run("SET a 1");
    let (last, before) = machine.lsns();
    machine.disk.fail(machine.disk.calls() + 2, SimFault::Io);
    sync_now(&mut machine);
    assert_eq!(machine.running().logs[0].status.health(), LogHealth::Broken);
    assert!(!sync_now(&mut machine), "a broken log");
    assert_eq!(machine.lsns(), (last, before));
}

struct Mistaken;

impl EntryObserver for Mistaken {
    fn wants_entries(&self) -> bool {
        true
    }

    fn see(&mut self, _: &JournalEntry<'_>) {
        panic!("an observer's mistake");
    }
}

/// A pass that panics at a writer breaks the log, so that nobody waits in vain; its thread ends,
/// and gives back what it had.
#[test]
fn a_pass_that_panics_at_a_writer_breaks_the_log() {
    let mut machine = started(6);
    machine.run("SET a 1");
    let mut log = machine.running().logs.remove(0);
    log.thread = log.thread.with_observer(Box::new(Mistaken));
    let runner = LogRunner::new(log.thread);
    let unwound = catch_unwind(AssertUnwindSafe(|| runner.sync_now()));
    assert!(unwound.is_err());
    assert_eq!(log.status.health(), LogHealth::Broken);
    assert!(!runner.sync_now(), "nobody has it any more");
    runner.run();
}

/// A strong write of a destructor, while its thread unwinds, is a write like any other: the log
/// stays well.
#[test]
fn a_writer_that_unwinds_already_breaks_nothing() {
    struct Writes<'a>(&'a LogRunner<SimDisk>, &'a AtomicBool);
    impl Drop for Writes<'_> {
        fn drop(&mut self) {
            self.1.store(self.0.sync_now(), SeqCst);
        }
    }
    let mut machine = started(7);
    machine.run("SET a 1");
    let (runner, shard) = runner(&mut machine);
    let synced = AtomicBool::new(false);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _writes = Writes(&runner, &synced);
        panic!("of the application");
    }));
    assert!(unwound.is_err() && synced.load(SeqCst));
    assert_eq!(shard.status.health(), LogHealth::Well);
    let (last, durable) = machine.lsns();
    assert_eq!(durable, last);
}

/// Writers that sync beside the thread, which runs: each finds its own on disk, and at the end all
/// is there.
#[test]
fn writers_and_the_thread_take_turns() {
    let mut machine = started(8);
    let (runner, shard) = runner(&mut machine);
    let thread = std::thread::spawn({
        let runner = Arc::clone(&runner);
        move || runner.run()
    });
    let mut own = 0;
    for i in 0..300 {
        // Its entries: some in place of the thread, some by it.
        assert_eq!(machine.run(&format!("SET k {i}")), "+OK");
        let (last, _) = machine.lsns();
        if runner.sync_now() {
            own += 1;
            assert!(machine.lsns().1 >= last);
        }
        let begin = Instant::now();
        while machine.lsns().1 < last {
            assert!(begin.elapsed() < Duration::from_secs(60), "write {i} isn't synced");
            shard.status.want_sync();
            std::thread::yield_now();
        }
    }
    assert!(own > 0, "the thread rests now and then");
    shard.status.close();
    thread.join().expect("it ends");
    assert!(!runner.sync_now(), "the log is closed");
    machine.cut_power();
    machine.start().expect("after the power cut");
    assert_eq!(machine.run("GET k"), "$3 299");
}
