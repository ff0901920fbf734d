//! What the thread of a log does when nothing comes, and when it is woken for that. It runs by
//! itself here, over a simulated disk and clock.
//!
//! It rests in real time: a second, if nobody wakes it. What must come sooner is looked for in
//! several rounds, and found in one: a machine stands still now and then.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nigh_log::simulated::SimDisk;
use nigh_store::{LogRunner, LogStatus, SyncMode};

use crate::machine::{Log, Machine};

const ROUNDS: u32 = 6;
/// Less than the rest that somebody should end.
const SOON: Duration = Duration::from_millis(500);
/// The thread rests again by then.
const RESTS: Duration = Duration::from_millis(50);

/// A log whose thread runs.
struct Run {
    machine: Machine,
    runner: Arc<LogRunner<SimDisk>>,
    status: Arc<LogStatus>,
    thread: JoinHandle<()>,
}

impl Run {
    fn new(seed: u64, mode: SyncMode) -> Run {
        let mut machine = Machine::new(seed, 1);
        (machine.mode, machine.file_bytes) = (mode, 1 << 20); // no file ends
        machine.start().expect("the first start");
        machine.settle();
        let Log { thread, status, _orders: orders, .. } = machine.running().logs.remove(0);
        let runner = Arc::new(LogRunner::new(thread));
        let own = Arc::clone(&runner);
        let thread = std::thread::spawn(move || {
            own.run();
            // Without it the log would have been closed.
            drop(orders);
        });
        Run { machine, runner, status, thread }
    }

    /// How long it takes until the disk is called again.
    fn until_called(&self, calls: u64) -> Duration {
        until("a frame is written", || self.machine.disk.calls() > calls)
    }

    fn end(self) {
        self.status.close();
        self.thread.join().expect("it ends");
    }
}

/// Waits until something holds. How long that took.
fn until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
    begin.elapsed()
}

/// Whether a round takes no longer than [`SOON`]. The first doesn't count: the thread hasn't
/// rested yet.
fn assert_one_is_quick(mut round: impl FnMut(u32) -> Duration) {
    let mut took = Vec::new();
    for number in 0..ROUNDS {
        took.push(round(number));
        if number > 0 && took[took.len() - 1] < SOON {
            return;
        }
        std::thread::sleep(RESTS);
    }
    panic!("not one within {SOON:?}: {took:?}");
}

/// If nothing follows a sync for a while, a frame tells what it made durable. The thread writes it,
/// and is woken for that by a writer that has synced in its place.
#[test]
fn a_frame_follows_a_writers_sync_soon() {
    let mut run = Run::new(1, SyncMode::Always);
    assert_one_is_quick(|round| {
        run.machine.clock.advance_us(1_000_000);
        run.machine.run(&format!("SET a {round}"));
        until("nobody else has the log", || run.runner.sync_now());
        let calls = run.machine.disk.calls();
        run.machine.clock.advance_us(20_000);
        run.until_called(calls)
    });
    run.end();
}

/// With `everysec`, what has come is written when nothing more comes for a moment, long before it
/// is synced: no sync is due here, since the clock stands still.
#[test]
fn an_open_frame_is_written_when_nothing_more_comes() {
    let mut run = Run::new(2, SyncMode::EverySecond);
    assert_one_is_quick(|round| {
        let calls = run.machine.disk.calls();
        run.machine.run(&format!("SET a {round}"));
        run.status.wake();
        run.until_called(calls)
    });
    let (last, durable) = run.machine.lsns();
    assert!(durable < last, "nothing is synced");
    run.end();
}
