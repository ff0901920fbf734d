//! The thread that looks after a database while nobody calls: expiry, cleaning, memory ahead of
//! need, compaction of the log, and a new log if it broke.
//!
//! 1. It never has the lock for longer than one bounded step.
//! 2. It ends with the database.
//!
//! One thread, `nigh-upkeep`.

use crate::healing::LogHealer;
use crate::shared_db::{DbPartition, SharedDb};
use nigh_shm::spawn_without_signals;
use nigh_store::Maintenance;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Between looks while nothing is to be done.
const TICK: Duration = Duration::from_millis(100);
/// Until memory comes back from another thread: about 2 MiB's worth.
const SOON: Duration = Duration::from_millis(2);
/// Between steps, so that writers get the lock.
const BREATH: Duration = Duration::from_micros(50);

/// Starts the thread.
pub(crate) fn start(shared: Arc<SharedDb>, healer: LogHealer) -> std::io::Result<JoinHandle<()>> {
    let run = move || run(&shared, healer);
    spawn_without_signals("nigh-upkeep".to_owned(), run)
}

/// Has it end.
pub(crate) fn end(shared: &SharedDb, thread: &Thread) {
    shared.ends.store(true, Ordering::SeqCst);
    thread.unpark();
}

fn run(shared: &SharedDb, mut healer: LogHealer) {
    let mut next_tick = Instant::now();
    let mut heals = false;
    while !shared.ends.load(Ordering::SeqCst) {
        let now = Instant::now();
        let is_tick = now >= next_tick;
        let mut left = Maintenance::default();
        for partition in &shared.partitions {
            // A writer panicked: nothing is to be looked after any more.
            let Some(one) = look_after(partition, is_tick) else { return };
            left.more |= one.more;
            left.waiting |= one.waiting;
            if is_tick {
                partition.log.look(shared.world.clock.rising_us());
            }
        }
        if is_tick {
            next_tick = now + TICK;
        }
        if is_tick || heals {
            heals = healer.step(shared);
        }
        let most = match (left.more, left.waiting) {
            (true, _) => BREATH,
            (false, true) => SOON,
            (false, false) if heals => SOON,
            (false, false) => TICK,
        };
        std::thread::park_timeout(most);
    }
}

/// A step of the upkeep of a partition, and what it has left; `None` if a writer panicked.
fn look_after(partition: &DbPartition, is_tick: bool) -> Option<Maintenance> {
    let (left, has_news) = {
        let mut owning = partition.owner.take().ok()?;
        let owner = owning.owner();
        if is_tick {
            partition.log.status().tell_live(owner.keyspace.live_bytes());
        }
        let tail = owner.tail();
        (owner.look_after(), owner.tail() != tail)
    };
    if left.more || has_news {
        // The log's thread takes orders, sends more to look at, and tells watches what expired.
        partition.log.status().wake();
    }
    Some(left)
}
