//! A log that its thread and those who wait for the disk have in their hands in turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_shm::JournalReader;
use nigh_store::{SharedLog, SyncMode};

use crate::machine::{Log, Machine};

/// Longest wait for a sync.
const SOON: Duration = Duration::from_secs(60);

/// A machine whose log is at rest.
fn started(mode: SyncMode) -> Machine {
    let mut machine = Machine::new(1, 1);
    machine.mode = mode;
    machine.start().expect("the first start");
    machine.settle();
    machine
}

#[test]
fn who_waits_syncs_though_the_logs_thread_never_runs() {
    let mut machine = started(SyncMode::EverySecond);
    // Without somebody who may give orders, the log would end.
    let Log { thread, _orders, .. } = machine.running().logs.remove(0);
    let log = SharedLog::new(thread);
    let reader = machine.running().keyspace.reader(0).clone();
    for round in 0..5 {
        machine.run(&format!("SET key{round} {round}"));
        assert!(reader.durable_lsn() < reader.begun_lsn());
        log.sync();
        assert_eq!(reader.durable_lsn(), reader.begun_lsn());
    }
    drop(log);
    machine.cut_power();
    machine.start().expect("after the power cut");
    for round in 0..5 {
        let value = machine.run(&format!("GET key{round}"));
        assert!(value.ends_with(&format!(" {round}")), "{round}: {value}");
    }
}

#[test]
fn whoever_asks_for_a_sync_gets_it_whoever_has_the_log() {
    const WRITES: u64 = 2000;
    for mode in [SyncMode::Always, SyncMode::EverySecond] {
        let mut machine = started(mode);
        let Log { thread, status, journal, _orders, .. } = machine.running().logs.remove(0);
        let log = SharedLog::new(thread);
        let reader = machine.running().keyspace.reader(0).clone();
        let (ends, written, synced) =
            (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let run = scope.spawn(|| log.run());
            let waiter = || {
                let begin = Instant::now();
                while !ends.load(Ordering::Relaxed) && begin.elapsed() < SOON {
                    // A pass ends where a file begins, so one wish may not be enough.
                    let (written, begin) = (written.load(Ordering::Acquire), Instant::now());
                    while reader.durable_lsn() < written {
                        assert!(begin.elapsed() < SOON, "{written} isn't on disk");
                        log.sync();
                    }
                    synced.fetch_add(1, Ordering::Relaxed);
                }
            };
            let waiters = [(); 2].map(|()| scope.spawn(waiter));
            for n in 0..WRITES {
                // The journal may be full for a moment.
                while machine.try_run(&format!("SET key{} {n}", n % 40)).is_none() {
                    std::thread::yield_now();
                }
                written.store(reader.begun_lsn(), Ordering::Release);
            }
            let begin = Instant::now();
            while synced.load(Ordering::Relaxed) < 100 && begin.elapsed() < SOON {
                std::thread::yield_now();
            }
            ends.store(true, Ordering::Relaxed);
            let waited = waiters.map(|it| it.join().is_ok());
            log.sync();
            status.close();
            run.join().expect("the log's thread");
            assert_eq!(waited, [true; 2]);
        });
        // The thread has ended, and another one may have the journal, whoever knows the log yet.
        log.sync();
        drop(JournalReader::new(journal.file()));
        machine.cut_power();
        machine.start().expect("after the power cut");
        for key in 0..40 {
            let value = machine.run(&format!("GET key{key}"));
            let last = WRITES - 40 + key;
            assert!(value.ends_with(&format!(" {last}")), "{key}: {value}");
        }
    }
}
