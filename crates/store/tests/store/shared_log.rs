//! A log that its thread and those who wait for the disk have in their hands in turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_store::{SharedLog, SyncMode};

use crate::machine::{Log, Machine};

/// Longest wait for a sync.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn who_waits_syncs_though_the_logs_thread_never_runs() {
    let mut machine = Machine::new(1, 1);
    machine.mode = SyncMode::EverySecond;
    machine.start().expect("the first start");
    let Log { thread, .. } = machine.running().logs.remove(0);
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
        let mut machine = Machine::new(2, 1);
        machine.mode = mode;
        machine.start().expect("the first start");
        let Log { thread, status, journal: _journal, _orders, .. } =
            machine.running().logs.remove(0);
        let log = SharedLog::new(thread);
        let reader = machine.running().keyspace.reader(0).clone();
        let (ends, synced) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let run = scope.spawn(|| log.run());
            let waiter = || {
                while !ends.load(Ordering::Relaxed) {
                    // One wish is enough, also if another one has the log just now.
                    let (begun, begin) = (reader.begun_lsn(), Instant::now());
                    log.sync();
                    while reader.durable_lsn() < begun {
                        assert!(begin.elapsed() < SOON, "{begun} isn't on disk");
                        std::thread::yield_now();
                    }
                    synced.fetch_add(1, Ordering::Relaxed);
                }
            };
            let waiters = [(); 2].map(|()| scope.spawn(waiter));
            for n in 0..WRITES {
                machine.run(&format!("SET key{} {n}", n % 40));
            }
            while synced.load(Ordering::Relaxed) < 100 {
                std::thread::yield_now();
            }
            ends.store(true, Ordering::Relaxed);
            waiters.into_iter().for_each(|it| it.join().expect("a waiter"));
            log.sync();
            status.close();
            run.join().expect("the log's thread");
        });
        drop(log);
        machine.cut_power();
        machine.start().expect("after the power cut");
        for key in 0..40 {
            let value = machine.run(&format!("GET key{key}"));
            let last = WRITES - 40 + key;
            assert!(value.ends_with(&format!(" {last}")), "{key}: {value}");
        }
    }
}
