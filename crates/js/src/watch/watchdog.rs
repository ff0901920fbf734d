//! Stops calls that run too long: one thread per runtime.
//!
//! How it and a call agree whether the call has ended is `stop.rs`. A termination hits the call
//! that it was meant for or does not happen; a call pays two plain memory accesses for it. V8's
//! heap-limit callback runs on the call's own thread and needs none of this.
//!
//! Other threads order a stop by a [`Handle`](crate::Handle): it notes the number of the call that
//! it sees and wakes this thread, which alone carries stops out, as above. Calls carry numbers, so
//! an order for a call that has ended meanwhile is dropped: a kill never hits the next call.
//! Shutdown is an order that lasts: every call that this thread sees from then on is stopped, and
//! the runtime starts none.
//!
//! A call that V8 doesn't leave some time after its termination (`SEIZE_AFTER_NS`) loses the fiber
//! that waits for it (fiber.rs): all else of the shard goes on. Where there is no fiber, or too
//! many calls are stuck already, it costs the process after the grace period.
//!
//! Time is CPU time of the runtime's thread, so a busy machine stops nobody. It is sampled every
//! tick: a call is stopped between its limit and two ticks more.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::caller::runtime_stats::{Reason, Running};
use crate::ffi;
use crate::fiber::Shared;
use crate::io::{self, Io, Mapped};
use crate::stop::agreement;
use crate::tenant::Functions;
use crate::watch::process_end::{self, Line};

/// Ticks without a call after which the thread sleeps until it is woken, or for `SLEEP`.
const IDLE_TICKS: u32 = 20;
/// Longest sleep: bounds what a lost wake-up costs.
const SLEEP: Duration = Duration::from_millis(100);
/// CPU time, ns, that V8 has to leave a call after its termination: with it a shard answers others
/// some 80 ms after a call with a limit of 50 ms began, a new isolate included.
const SEIZE_AFTER_NS: u64 = 10_000_000;

/// What the runtime, its watchdog and its [`Handle`](crate::Handle)s share.
pub(crate) struct Watch {
    io: Io,
    _mapped: Arc<Mapped>,
    clock: i32,
    /// What runs the shard, and the number of the entry that it waits for.
    fiber: Option<Arc<Shared>>,
    pub(crate) entry: AtomicU64,
    pub(crate) call_ms: AtomicU64,
    pub(crate) grace_ms: AtomicU64,
    sleeping: AtomicBool,
    /// Somebody has called [`Watchdog::wake`] since it slept.
    woken: AtomicBool,
    stop: AtomicBool,
    names: Mutex<Names>,
    seen: Mutex<Seen>,
    /// What another thread wants to be stopped.
    order: Mutex<Option<(i32, Reason)>>,
    /// The last call that was stopped by an order.
    ordered: Mutex<Option<(i32, Reason)>>,
    /// No call is to start any more.
    closing: AtomicBool,
    /// Another isolate has taken the place of this one.
    lost: AtomicBool,
    /// V8 has given the isolate up.
    broken: AtomicBool,
    isolate: IsolatePointer,
    thread: OnceLock<Thread>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Which functions the calls of the running batch are.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) functions: Arc<Functions>,
    /// Function of each call of the batch.
    pub(crate) ids: Vec<u32>,
    /// Number of the first call.
    pub(crate) first: i32,
    /// When the batch has had its time: it goes on to no further call.
    pub(crate) until: Option<Instant>,
    /// Number and name of the library that starts, or was the last to.
    pub(crate) module: Option<(i32, Box<str>)>,
}

/// What the watchdog saw at its last tick.
struct Seen {
    call: i32,
    cpu_ns: u64,
    since: Instant,
    /// CPU time that it had used when it was told to stop.
    stopped_ns: u64,
}

impl Seen {
    fn new(call: i32, cpu_ns: u64) -> Seen {
        Seen { call, cpu_ns, since: Instant::now(), stopped_ns: 0 }
    }
}

struct IsolatePointer(*mut ffi::RawIsolate);
// SAFETY: used for `nigh_terminate` and `nigh_isolate_lose` only, which any thread may call; the
// watchdog's thread ends before the isolate.
unsafe impl Send for IsolatePointer {}
// SAFETY: as above.
unsafe impl Sync for IsolatePointer {}

/// Runs until dropped.
pub(crate) struct Watchdog {
    pub(crate) watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches calls of the calling thread in `isolate`, which must outlive this.
    pub(crate) fn start(
        isolate: *mut ffi::RawIsolate,
        mapped: Arc<Mapped>,
        fiber: Option<Arc<Shared>>,
    ) -> Result<Watchdog, std::io::Error> {
        membarrier(MembarrierCommand::RegisterPrivateExpedited)?;
        // SAFETY: no preconditions.
        let clock = unsafe { ffi::nigh_thread_clock() };
        let watch = Arc::new(Watch {
            io: mapped.io(),
            _mapped: mapped,
            clock,
            fiber,
            entry: AtomicU64::new(0),
            call_ms: AtomicU64::new(50),
            grace_ms: AtomicU64::new(5_000),
            sleeping: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            names: Mutex::default(),
            seen: Mutex::new(Seen::new(0, 0)),
            order: Mutex::default(),
            ordered: Mutex::default(),
            closing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            isolate: IsolatePointer(isolate),
            thread: OnceLock::new(),
        });
        process_end::watch_too(&watch);
        let shared = Arc::clone(&watch);
        let thread = std::thread::Builder::new().name("nigh-watchdog".into()).spawn(move || {
            shared.run();
        })?;
        let _ = watch.thread.set(thread.thread().clone()); // only here
        Ok(Watchdog { watch, thread: Some(thread) })
    }

    /// To be called before JavaScript runs.
    pub(crate) fn wake(&self) {
        if self.watch.sleeping.load(Ordering::Relaxed)
            && let Some(thread) = &self.thread
        {
            self.watch.woken.store(true, Ordering::SeqCst);
            thread.thread().unpark();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.watch.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join(); // it panics nowhere; if it did, it is over all the same
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Tells which calls run next.
    pub(crate) fn set_names(&self, set: impl FnOnce(&mut Names)) {
        set(&mut lock(&self.names));
    }

    /// Orders the stop of the call that runs now, if it has a name; which one. Shutdown holds for
    /// all calls.
    pub(crate) fn terminate(&self, reason: Reason) -> Option<Running> {
        if reason == Reason::Shutdown {
            self.closing.store(true, Ordering::SeqCst);
        }
        let call = self.io.state().load(Ordering::SeqCst);
        let running = self.running_call(call);
        if running.is_some() {
            *lock(&self.order) = Some((call, reason));
        }
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        running
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Why call `k`, which was stopped, was: by an order, or else by its time.
    pub(crate) fn reason(&self, k: i32) -> Option<Reason> {
        lock(&self.ordered).filter(|(call, _)| *call == k).map(|(_, reason)| reason)
    }

    /// The call that runs now.
    pub(crate) fn running(&self) -> Option<Running> {
        self.running_call(self.io.state().load(Ordering::Relaxed))
    }

    fn running_call(&self, call: i32) -> Option<Running> {
        if call == 0 {
            return None;
        }
        let (library, function) = self.name_of(call)?;
        let seen = lock(&self.seen);
        let since = if seen.call == call { seen.since.elapsed() } else { Duration::ZERO };
        Some(Running { library, function, since })
    }

    fn name_of(&self, call: i32) -> Option<(String, String)> {
        let names = lock(&self.names);
        let index = usize::try_from(call.checked_sub(names.first)?).ok()?;
        let id = *names.ids.get(index)?;
        let function = names.functions.by_id(id)?;
        Some((function.library.to_string(), function.name.clone()))
    }

    /// CPU time of the isolate's thread.
    pub(crate) fn cpu_ns(&self) -> u64 {
        // SAFETY: no preconditions; a clock of a thread that has ended reads as 0.
        unsafe { ffi::nigh_clock_ns(self.clock) }
    }

    fn tick(&self) -> Duration {
        Duration::from_millis((self.call_ms.load(Ordering::Relaxed) / 10).clamp(1, 10))
    }

    fn run(&self) {
        let mut idle = 0;
        while !self.stop.load(Ordering::SeqCst) {
            // The order first: its call ran when it was given, so a call with another number comes
            // later.
            let order = lock(&self.order).take();
            let lost = self.lost.load(Ordering::SeqCst);
            let state = if lost { 0 } else { self.io.state().load(Ordering::SeqCst) };
            if state == 0 {
                idle += 1;
                lock(&self.seen).call = 0;
                if idle > IDLE_TICKS {
                    self.sleeping.store(true, Ordering::SeqCst);
                    if lost || self.io.state().load(Ordering::SeqCst) == 0 {
                        std::thread::park_timeout(SLEEP);
                    }
                    self.sleeping.store(false, Ordering::SeqCst);
                    // Who woke it runs a call soon. By itself it only looks whether that was
                    // missed.
                    if self.woken.swap(false, Ordering::SeqCst) {
                        idle = 0;
                    }
                    continue;
                }
            } else {
                idle = 0;
                self.end_batch();
                let order = order.filter(|(call, _)| *call == state).map(|(_, reason)| reason);
                let closing = self.is_closing().then_some(Reason::Shutdown);
                self.look(state, order.or(closing));
            }
            std::thread::park_timeout(self.tick());
        }
    }

    /// Takes over what outlives an isolate.
    pub(crate) fn succeed(&self, old: &Watch) {
        self.closing.store(old.is_closing(), Ordering::SeqCst);
    }

    /// One tick while call `call` runs.
    fn look(&self, call: i32, order: Option<Reason>) {
        let now = self.cpu_ns();
        let (used_ns, stopped_ns) = {
            let mut seen = lock(&self.seen);
            if seen.call != call {
                *seen = Seen::new(call, now);
            }
            (now.saturating_sub(seen.cpu_ns), seen.stopped_ns)
        };
        let limit_ns = self.call_ms.load(Ordering::Relaxed).saturating_mul(1_000_000);
        let grace_ns = self.grace_ms.load(Ordering::Relaxed).saturating_mul(1_000_000);
        if !self.is_issued(call) {
            if order.is_some() || used_ns >= limit_ns {
                lock(&self.seen).stopped_ns = used_ns;
                // Before the termination, so that whoever sees that finds the reason.
                *lock(&self.ordered) = order.map(|reason| (call, reason));
                // SAFETY: the isolate outlives this thread, which its owner joins first.
                agreement::stop(&self.io, call, || unsafe { ffi::nigh_terminate(self.isolate.0) });
            }
        } else if used_ns >= stopped_ns + SEIZE_AFTER_NS {
            self.seize(call);
            let lost = self.lost.load(Ordering::SeqCst);
            if !lost && used_ns >= limit_ns.saturating_add(grace_ns) {
                self.give_up(call);
            }
        }
    }

    /// While a call runs: tells the dispatcher when it is to begin no further one. If that comes
    /// too late, it names calls that are over.
    fn end_batch(&self) {
        let names = lock(&self.names);
        if names.until.is_some_and(|until| Instant::now() >= until) {
            self.io.shared(io::OVERTIME).store(names.first, Ordering::Relaxed);
        }
    }

    fn is_issued(&self, call: i32) -> bool {
        agreement::is_issued(&self.io, call)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// On the isolate's thread, when V8 has given up: true if all else goes on without this
    /// isolate. If not, the process has to end.
    pub(crate) fn is_given_up(&self, why: &str) -> bool {
        let call = self.io.state().load(Ordering::SeqCst);
        let taken = self.fiber.as_ref().is_some_and(|fiber| {
            let mark = || {
                self.broken.store(true, Ordering::SeqCst);
                self.mark_lost();
            };
            call != 0 && fiber.seize(self.entry.load(Ordering::SeqCst), || true, mark)
        });
        let lost = self.lost.load(Ordering::SeqCst);
        if lost {
            let (library, function) = self.name_of(call).unwrap_or_default();
            tracing::error!(
                library,
                function,
                why,
                taken,
                "V8 gave up in a function: its shard goes on in a new V8 isolate; the memory of the old one is lost \
                 until the server starts anew"
            );
        }
        lost
    }

    fn mark_lost(&self) {
        // SAFETY: the isolate outlives this: its thread is here, or its owner joins the watchdog
        // first.
        unsafe { ffi::nigh_isolate_lose(self.isolate.0) };
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Takes the fiber from a call that doesn't come back.
    fn seize(&self, call: i32) {
        let Some(fiber) = &self.fiber else { return };
        let number = self.entry.load(Ordering::SeqCst);
        if fiber.seize(number, || self.is_issued(call), || self.mark_lost()) {
            let (library, function) = self.name_of(call).unwrap_or_default();
            tracing::warn!(
                library,
                function,
                "a function that was stopped doesn't come back: its shard goes on without it, in a new V8 isolate"
            );
        }
    }

    fn give_up(&self, call: i32) -> ! {
        let grace_ms = self.grace_ms.load(Ordering::Relaxed);
        let mut what = Line::default();
        // Names are short; a line that is cut off says enough.
        let _ = self.describe(call, &mut what);
        eprintln!(
            "nigh: {what} did not stop within {grace_ms} ms (setting: function-kill-grace-ms); \
             ending the process, its arenas survive"
        );
        process_end::was_told();
        std::process::abort();
    }

    /// Writes what the call is: the function and its library, or the library that starts. Allocates
    /// nothing and waits for nothing, since a process that is ending runs it too.
    pub(crate) fn describe(&self, call: i32, out: &mut Line) -> std::fmt::Result {
        let Ok(names) = self.names.try_lock() else {
            return out.write_str("a function, whose name can't be told now,");
        };
        if let Some((number, library)) = &names.module
            && *number == call
        {
            return write!(out, "library '{library}', which was being started,");
        }
        let index = call.checked_sub(names.first).and_then(|index| usize::try_from(index).ok());
        let id = index.and_then(|index| names.ids.get(index));
        match id.and_then(|id| names.functions.by_id(*id)) {
            Some(found) => {
                write!(out, "function '{}' of library '{}'", found.name, found.library)
            }
            None => out.write_str("a function"),
        }
    }

    /// The number of the call that runs, or 0; and whether the calling thread runs it.
    pub(crate) fn state(&self) -> (i32, bool) {
        // SAFETY: no preconditions.
        let clock = unsafe { ffi::nigh_thread_clock() };
        (self.io.state().load(Ordering::SeqCst), clock == self.clock)
    }
}
