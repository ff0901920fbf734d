//! The watch of an isolate's calls: which call runs, for how long, and whether it is to stop.
//!
//! ```text
//! runtime ──── names, limits, entry ──>             <── saw, stop, seize ─── watchdog
//! callbacks ── V8 gave up ────────────>  CallWatch  <── running, terminate ── handles
//!                                                   <── state, describe ──── process_end
//! ```
//!
//! 1. Calls carry numbers. An order names the call that was running when it was given, so it never
//!    hits a later one. Shutdown is an order that lasts: [`CallWatch::is_closing`].
//! 2. [`CallWatch::state`] and [`CallWatch::describe`] allocate nothing and wait for nothing: a
//!    signal handler calls them.
//!
//! Any thread.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::caller::runtime_stats::Running;
use crate::ffi;
use crate::fiber::FiberShared;
use crate::io::{self, Io, Mapped};
use crate::stop::agreement;
use crate::stop::cause::Reason;
use crate::tenant::Functions;

/// The state of the running call, for the runtime, its watchdog, callbacks and handles.
pub(crate) struct CallWatch {
    io: Io,
    _mapped: Arc<Mapped>,
    /// CPU clock of the isolate's thread.
    clock: i32,
    /// The fiber that waits for the call, if the runtime is on one.
    fiber: Option<Arc<FiberShared>>,
    /// Number of the entry for which the fiber waits.
    pub(crate) entry: AtomicU64,
    pub(crate) call_ms: AtomicU64,
    pub(crate) grace_ms: AtomicU64,
    names: Mutex<Names>,
    seen: Mutex<Seen>,
    /// The call that another thread wants to be stopped.
    order: Mutex<Option<(i32, Reason)>>,
    /// The last call that was stopped by an order.
    ordered: Mutex<Option<(i32, Reason)>>,
    /// No further call is to start.
    closing: AtomicBool,
    /// Another isolate has taken the place of this one.
    lost: AtomicBool,
    /// V8 has given the isolate up.
    broken: Arc<AtomicBool>,
    isolate: IsolatePointer,
    /// The watchdog's thread.
    watchdog: OnceLock<Thread>,
}

impl std::fmt::Debug for CallWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallWatch").finish_non_exhaustive()
    }
}

/// The functions of the calls in the running batch.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) functions: Arc<Functions>,
    /// Function of each call of the batch.
    pub(crate) ids: Vec<u32>,
    /// Number of the first call.
    pub(crate) first: i32,
    /// When the batch has had its time: no further call begins then.
    pub(crate) until: Option<Instant>,
    /// Number and name of the library that starts, or started last.
    pub(crate) module: Option<(i32, Box<str>)>,
}

/// The call that ran at the watchdog's last tick.
struct Seen {
    call: i32,
    /// CPU time of the thread at the first tick of the call, ns.
    cpu_ns: u64,
    since: Instant,
    /// CPU time that the call had used when it was told to stop, ns.
    stopped_ns: u64,
}

impl Seen {
    fn new(call: i32, cpu_ns: u64) -> Seen {
        Seen { call, cpu_ns, since: Instant::now(), stopped_ns: 0 }
    }
}

/// CPU time of a call, ns.
pub(super) struct Used {
    pub(super) all_ns: u64,
    /// Its part until the call was told to stop.
    pub(super) until_stop_ns: u64,
}

struct IsolatePointer(*mut ffi::RawIsolate);
// SAFETY: used for `nigh_terminate` and `nigh_isolate_lose` only, which any thread may call; the
// watchdog's thread ends before the isolate.
unsafe impl Send for IsolatePointer {}
// SAFETY: as above.
unsafe impl Sync for IsolatePointer {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallWatch {
    /// Watches calls of the calling thread in `isolate`, which must outlive the watchdog.
    pub(super) fn new(
        isolate: *mut ffi::RawIsolate,
        mapped: Arc<Mapped>,
        fiber: Option<Arc<FiberShared>>,
    ) -> CallWatch {
        // SAFETY: no preconditions.
        let clock = unsafe { ffi::nigh_thread_clock() };
        CallWatch {
            io: mapped.io(),
            _mapped: mapped,
            clock,
            fiber,
            entry: AtomicU64::new(0),
            call_ms: AtomicU64::new(50),
            grace_ms: AtomicU64::new(5_000),
            names: Mutex::default(),
            seen: Mutex::new(Seen::new(0, 0)),
            order: Mutex::default(),
            ordered: Mutex::default(),
            closing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            broken: Arc::new(AtomicBool::new(false)),
            isolate: IsolatePointer(isolate),
            watchdog: OnceLock::new(),
        }
    }

    // --- for the runtime ---

    /// Tells which calls run next.
    pub(crate) fn set_names(&self, set: impl FnOnce(&mut Names)) {
        set(&mut lock(&self.names));
    }

    /// Takes over the state that outlives an isolate. The handle does it, so that no Shutdown comes
    /// between.
    pub(super) fn succeed(&self, old: &CallWatch) {
        self.closing.store(old.is_closing(), Ordering::SeqCst);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Becomes true when V8 gives the isolate up.
    pub(crate) fn broken(&self) -> &Arc<AtomicBool> {
        &self.broken
    }

    /// Why call `k` was stopped, if an order did it.
    pub(crate) fn reason(&self, k: i32) -> Option<Reason> {
        lock(&self.ordered).filter(|(call, _)| *call == k).map(|(_, reason)| reason)
    }

    /// CPU time of the isolate's thread.
    pub(crate) fn cpu_ns(&self) -> u64 {
        // SAFETY: no preconditions; a clock of a thread that has ended reads as 0.
        unsafe { ffi::nigh_clock_ns(self.clock) }
    }

    // --- for handles ---

    /// Orders the stop of the call that runs now, if it has a name, and says which one that is.
    /// Shutdown holds for all calls.
    pub(super) fn terminate(&self, reason: Reason) -> Option<Running> {
        if reason == Reason::Shutdown {
            self.closing.store(true, Ordering::SeqCst);
        }
        let call = self.io.state().load(Ordering::SeqCst);
        let running = self.running_call(call);
        if running.is_some() {
            *lock(&self.order) = Some((call, reason));
        }
        if let Some(watchdog) = self.watchdog.get() {
            watchdog.unpark();
        }
        running
    }

    /// The call that runs now.
    pub(super) fn running(&self) -> Option<Running> {
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

    /// Library and function of a call.
    fn name_of(&self, call: i32) -> Option<(String, String)> {
        let names = lock(&self.names);
        let index = usize::try_from(call.checked_sub(names.first)?).ok()?;
        let id = *names.ids.get(index)?;
        let function = names.functions.by_id(id)?;
        Some((function.library.to_string(), function.name.clone()))
    }

    // --- for the watchdog ---

    /// The thread that an order wakes. Once.
    pub(super) fn set_watchdog(&self, thread: Thread) {
        let _ = self.watchdog.set(thread);
    }

    pub(super) fn take_order(&self) -> Option<(i32, Reason)> {
        lock(&self.order).take()
    }

    /// The number of the running call; 0 if there is none, or if the isolate is lost.
    pub(super) fn call(&self) -> i32 {
        if self.is_lost() { 0 } else { self.io.state().load(Ordering::SeqCst) }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Notes that no call ran at this tick.
    pub(super) fn saw_none(&self) {
        lock(&self.seen).call = 0;
    }

    /// Notes that `call` runs at this tick; the CPU time that it has used.
    pub(super) fn saw(&self, call: i32) -> Used {
        let now = self.cpu_ns();
        let mut seen = lock(&self.seen);
        if seen.call != call {
            *seen = Seen::new(call, now);
        }
        Used { all_ns: now.saturating_sub(seen.cpu_ns), until_stop_ns: seen.stopped_ns }
    }

    /// Tells the dispatcher, once the batch has had its time, to begin no further call. If that
    /// comes too late, it names calls that are over.
    pub(super) fn end_batch(&self) {
        let names = lock(&self.names);
        if names.until.is_some_and(|until| Instant::now() >= until) {
            self.io.shared(io::OVERTIME).store(names.first, Ordering::Relaxed);
        }
    }

    /// Whether `call` has been told to stop.
    pub(super) fn is_issued(&self, call: i32) -> bool {
        agreement::is_issued(&self.io, call)
    }

    /// Stops `call`, which has used `used_ns`, by an order or for its time.
    pub(super) fn stop(&self, call: i32, used_ns: u64, order: Option<Reason>) {
        lock(&self.seen).stopped_ns = used_ns;
        // Before the termination: the runtime finds the reason once it sees the termination.
        *lock(&self.ordered) = order.map(|reason| (call, reason));
        // SAFETY: the isolate outlives the watchdog's thread, which its owner joins first.
        agreement::stop(&self.io, call, || unsafe { ffi::nigh_terminate(self.isolate.0) });
    }

    /// Stops the call of an isolate that is lost once more (agreement.rs, invariant 5). No call
    /// comes behind it that this could hit.
    pub(super) fn stop_lost(&self) {
        if self.is_lost() {
            // SAFETY: as in `stop`.
            unsafe { ffi::nigh_terminate(self.isolate.0) };
        }
    }

    /// Takes the fiber from a call that doesn't come back.
    pub(super) fn seize(&self, call: i32) {
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

    fn mark_lost(&self) {
        // SAFETY: the isolate outlives this: its thread is here, or its owner joins the watchdog
        // first.
        unsafe { ffi::nigh_isolate_lose(self.isolate.0) };
        self.lost.store(true, Ordering::SeqCst);
    }

    // --- for callbacks ---

    /// V8 has given up, on the isolate's thread. True if the fiber goes on without this isolate, or
    /// has done so before; if not, the process has to end.
    pub(crate) fn is_given_up(&self, why: &str) -> bool {
        let call = self.io.state().load(Ordering::SeqCst);
        let taken = self.fiber.as_ref().is_some_and(|fiber| {
            let mark = || {
                self.broken.store(true, Ordering::SeqCst);
                self.mark_lost();
            };
            call != 0 && fiber.seize(self.entry.load(Ordering::SeqCst), || true, mark)
        });
        let lost = self.is_lost();
        if lost {
            self.broken.store(true, Ordering::SeqCst);
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

    // --- for the end of the process ---

    /// The number of the running call, or 0; and whether the calling thread runs it.
    pub(super) fn state(&self) -> (i32, bool) {
        // SAFETY: no preconditions.
        let clock = unsafe { ffi::nigh_thread_clock() };
        (self.io.state().load(Ordering::SeqCst), clock == self.clock)
    }

    /// Writes what `call` is: a function and its library, or a library that starts.
    pub(super) fn describe(&self, call: i32, out: &mut impl Write) -> std::fmt::Result {
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
}
