//! The watchdog stops calls that run too long. Each runtime has one, with a thread of its own.
//!
//! 1. A termination hits its call or doesn't happen (stop/agreement.rs). A call pays two plain
//!    memory accesses for that. Only the watchdog's thread stops calls; V8's heap limit needs no
//!    watchdog, since its callback runs on the call's own thread.
//! 2. Time is CPU time of the runtime's thread, so a busy machine stops no call. The thread samples
//!    it at each tick: a call is stopped between its limit and two ticks more.
//! 3. A [`Handle`](crate::Handle) notes an order and wakes this thread, which carries it out.
//!    Shutdown lasts: the thread stops every call that it sees from then on, and the runtime starts
//!    none.
//! 4. If V8 doesn't leave a call within [`SEIZE_AFTER_NS`] after its termination, the call loses
//!    the fiber that waits for it (fiber/mod.rs): the shard goes on. Without a fiber, or if too
//!    many calls are stuck already, the process ends after the grace period.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

use super::call_watch::CallWatch;
use super::process_end::{self, EndLine};
use crate::ffi;
use crate::fiber::FiberShared;
use crate::io::Mapped;
use crate::stop::cause::Reason;

/// Ticks without a call after which the thread sleeps until it is woken, or for `SLEEP`.
const IDLE_TICKS: u32 = 20;
/// Longest sleep: bounds the cost of a lost wake-up.
const SLEEP: Duration = Duration::from_millis(100);
/// CPU time, ns, that V8 has to leave a call after its termination. With it, a shard answers other
/// calls some 80 ms after a call with a limit of 50 ms began, a new isolate included.
const SEIZE_AFTER_NS: u64 = 10_000_000;

/// Runs until dropped.
pub(crate) struct Watchdog {
    pub(crate) watch: Arc<CallWatch>,
    sleep: Arc<Sleep>,
    thread: Option<JoinHandle<()>>,
}

/// How the thread sleeps and ends.
#[derive(Default)]
struct Sleep {
    is_sleeping: AtomicBool,
    /// [`Watchdog::wake`] was called since it slept.
    is_woken: AtomicBool,
    is_over: AtomicBool,
}

impl Watchdog {
    /// Watches calls of the calling thread in `isolate`, which must outlive this.
    pub(crate) fn start(
        isolate: *mut ffi::RawIsolate,
        mapped: Arc<Mapped>,
        fiber: Option<Arc<FiberShared>>,
    ) -> Result<Watchdog, std::io::Error> {
        membarrier(MembarrierCommand::RegisterPrivateExpedited)?;
        let watch = Arc::new(CallWatch::new(isolate, mapped, fiber));
        process_end::watch_too(&watch);
        let sleep = Arc::new(Sleep::default());
        let patrol = Patrol { watch: Arc::clone(&watch), sleep: Arc::clone(&sleep) };
        let thread =
            std::thread::Builder::new().name("nigh-watchdog".into()).spawn(move || patrol.run())?;
        watch.set_watchdog(thread.thread().clone());
        Ok(Watchdog { watch, sleep, thread: Some(thread) })
    }

    /// To be called before JavaScript runs.
    pub(crate) fn wake(&self) {
        if self.sleep.is_sleeping.load(Ordering::Relaxed)
            && let Some(thread) = &self.thread
        {
            self.sleep.is_woken.store(true, Ordering::SeqCst);
            thread.thread().unpark();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.sleep.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // it panics nowhere; if it did, it is over all the same
        }
    }
}

/// The work of the watchdog's thread.
struct Patrol {
    watch: Arc<CallWatch>,
    sleep: Arc<Sleep>,
}

impl Patrol {
    fn run(&self) {
        let mut idle = 0;
        while !self.sleep.is_over.load(Ordering::SeqCst) {
            // The order first: its call was running when it was given, so a later number is another
            // call's.
            let order = self.watch.take_order();
            let call = self.watch.call();
            if call == 0 {
                idle += 1;
                self.watch.saw_none();
                self.watch.stop_lost();
                if idle > IDLE_TICKS {
                    if self.rest() {
                        idle = 0;
                    }
                    continue;
                }
            } else {
                idle = 0;
                self.watch.end_batch();
                let order = order.filter(|(wanted, _)| *wanted == call).map(|(_, reason)| reason);
                let closing = self.watch.is_closing().then_some(Reason::Shutdown);
                self.look(call, order.or(closing));
            }
            std::thread::park_timeout(self.tick());
        }
    }

    fn tick(&self) -> Duration {
        Duration::from_millis((self.watch.call_ms.load(Ordering::Relaxed) / 10).clamp(1, 10))
    }

    /// Sleeps while no call runs. True if the runtime woke the thread, so that a call runs soon; by
    /// itself the thread only looks whether a wake-up was lost.
    fn rest(&self) -> bool {
        self.sleep.is_sleeping.store(true, Ordering::SeqCst);
        if self.watch.call() == 0 {
            std::thread::park_timeout(SLEEP);
        }
        self.sleep.is_sleeping.store(false, Ordering::SeqCst);
        self.sleep.is_woken.swap(false, Ordering::SeqCst)
    }

    /// One tick while `call` runs.
    fn look(&self, call: i32, order: Option<Reason>) {
        let used = self.watch.saw(call);
        let limit_ns = self.watch.call_ms.load(Ordering::Relaxed).saturating_mul(1_000_000);
        let grace_ns = self.watch.grace_ms.load(Ordering::Relaxed).saturating_mul(1_000_000);
        if !self.watch.is_issued(call) {
            if order.is_some() || used.all_ns >= limit_ns {
                self.watch.stop(call, used.all_ns, order);
            }
        } else if used.all_ns >= used.until_stop_ns + SEIZE_AFTER_NS {
            self.watch.seize(call);
            if !self.watch.is_lost() && used.all_ns >= limit_ns.saturating_add(grace_ns) {
                self.give_up(call);
            }
        }
    }

    fn give_up(&self, call: i32) -> ! {
        let grace_ms = self.watch.grace_ms.load(Ordering::Relaxed);
        let mut what = EndLine::default();
        // Names are short; a line that is cut off says enough.
        let _ = self.watch.describe(call, &mut what);
        eprintln!(
            "nigh: {what} did not stop within {grace_ms} ms (setting: function-kill-grace-ms); \
             ending the process, its arenas survive"
        );
        process_end::was_told();
        std::process::abort();
    }
}
