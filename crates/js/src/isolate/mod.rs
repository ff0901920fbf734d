//! One V8 isolate with its io memory, its contexts and its watchdog. It belongs to the thread that
//! made it.
//!
//! ```text
//! runtime ── enter ──> Isolate ── fiber ── V8 ── callbacks ──> Bridge ──> Host
//!                         ├── io memory: request, response, write set
//!                         └── Watchdog ── terminates, or takes the fiber away
//! ```
//!
//! 1. Trusted code runs in V8 by `native`, user code by [`Isolate::enter`] alone: both on the stack
//!    that V8 knows.
//! 2. A call that V8 doesn't leave costs the isolate: [`Isolate::replace`] puts a new one in its
//!    place. The old one is freed on its own thread, when V8 returns there.
//!
//! | file | what it holds |
//! |---|---|
//! | `startup` | starts V8; the startup snapshot |
//! | `bridge` | the callbacks of the shim |
//! | `log_quota` | how many lines functions may log |
//! | `lingering` | calls that were given up and haven't come back |
//! | `rest` | when V8 collects while no function is called |

mod bridge;
pub(crate) mod lingering;
pub(crate) mod log_quota;
pub(crate) mod rest;
pub(crate) mod startup;

use std::any::Any;
use std::collections::HashSet;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use thiserror::Error;

use crate::caller::function_limits::FunctionLimits;
use crate::ffi;
use crate::fiber::user_code::UserCode;
use crate::fiber::{Entered, Fiber, Wreck};
use crate::guard::process_end;
use crate::guard::watchdog::Watchdog;
use crate::io::{self, Io, Mapped};
use crate::stop::agreement;
use crate::stop::cause::Cause;

use bridge::Bridge;
use lingering::Fate;

/// Young generation: three semi-spaces of 16 MiB, so that V8 collects a busy tenant's garbage
/// between batches rather than in them.
const YOUNG_BYTES: usize = 48 << 20;
/// Numbers of calls begin at 1. Once they have reached this, they begin anew behind the batch. A
/// batch, and the starts of libraries before it, have far fewer calls than there are numbers beyond
/// this. V8 is fastest with numbers below 2^30.
const STATES_USED_UP: i32 = 1 << 29;

/// Why a runtime could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// V8 refused, or the system had no memory or thread.
    #[error("V8 does not start: {reason}")]
    V8 {
        /// V8's or the system's message.
        reason: String,
    },
}

/// The isolate. Fields are dropped in order: the watchdog's thread must end before the isolate.
pub(crate) struct Isolate {
    watchdog: Option<Watchdog>,
    raw: *mut ffi::RawIsolate,
    bridge: *mut Bridge,
    /// The fiber on which the runtime runs, unless that is a plain thread.
    fiber: Option<Rc<Fiber>>,
    /// Contexts that are alive.
    contexts: HashSet<*mut ffi::RawContext>,
    pub(crate) io: Io,
    next_state: i32,
    /// Last, since all other fields use it.
    _mapped: Arc<Mapped>,
}

impl Isolate {
    pub(crate) fn new(
        limits: &FunctionLimits,
        fiber: Option<Rc<Fiber>>,
    ) -> Result<Isolate, StartError> {
        let fail = |reason: String| StartError::V8 { reason };
        let snapshot = native(fiber.as_deref(), startup::snapshot).map_err(fail)?;
        let mapped = Arc::new(Mapped::new().map_err(|error| {
            let bytes = Io::total();
            fail(format!(
                "cannot reserve {bytes} bytes of address space: {error}: raise the limit (ulimit -v)"
            ))
        })?);
        let io = mapped.io();
        let baton = fiber.as_ref().map(|fiber| Arc::clone(fiber.shared()));
        let bridge = Box::into_raw(Box::new(Bridge::new(io, baton.clone())));
        let params = ffi::IsolateParams {
            snapshot,
            io: io.base(),
            io_length: Io::total(),
            user: bridge.cast::<c_void>(),
            host: bridge::TABLE,
            heap_bytes: limits.heap_bytes,
            young_bytes: YOUNG_BYTES,
            array_buffer_bytes: limits.array_buffer_bytes,
            stack_bytes: limits.stack_bytes,
        };
        let raw = native(fiber.as_deref(), || {
            // SAFETY: V8 has been started; snapshot, io and bridge outlive the isolate (see Drop).
            unsafe { ffi::nigh_isolate_new(&raw const params) }
        });
        let mut isolate = Isolate {
            watchdog: None,
            raw,
            bridge,
            fiber,
            contexts: HashSet::new(),
            io,
            _mapped: Arc::clone(&mapped),
            next_state: 1,
        };
        let watchdog = Watchdog::start(raw, mapped, baton)
            .map_err(|error| fail(format!("cannot start the watchdog's thread: {error}")))?;
        let _ = isolate.bridge().watch.set(Arc::clone(&watchdog.watch)); // only here
        isolate.watchdog = Some(watchdog);
        isolate.set_limits(limits);
        Ok(isolate)
    }

    pub(crate) fn set_limits(&mut self, limits: &FunctionLimits) {
        let watch = &self.watchdog().watch;
        watch.call_ms.store(limits.call_ms, Ordering::Relaxed);
        watch.grace_ms.store(limits.grace_ms, Ordering::Relaxed);
        self.native(|| {
            // SAFETY: our isolate, on its thread.
            unsafe {
                ffi::nigh_isolate_limits(
                    self.raw,
                    limits.heap_bytes,
                    limits.array_buffer_bytes,
                    limits.stack_bytes,
                );
            }
        });
    }

    /// Calls trusted code on the stack that V8 knows.
    fn native<R>(&self, f: impl FnOnce() -> R) -> R {
        native(self.fiber.as_deref(), f)
    }

    /// Runs user code.
    pub(crate) fn enter(&mut self, entry: UserCode) -> Entered {
        let Some(fiber) = self.fiber.clone() else { return Entered::Back(entry.perform()) };
        let number = fiber.number();
        self.bridge().entry = number;
        self.watchdog().watch.entry.store(number, Ordering::SeqCst);
        fiber.enter(number, entry)
    }

    /// A context over these arenas, which stay readable as long as it lives; null if V8 can't make
    /// one.
    pub(crate) fn new_context(&mut self, arenas: &[ffi::RawArena]) -> *mut ffi::RawContext {
        let context = self.native(|| {
            // SAFETY: our isolate; the arenas stay readable, by the contract of `Mapping::new`.
            unsafe { ffi::nigh_context_new(self.raw, arenas.as_ptr(), arenas.len()) }
        });
        if !context.is_null() {
            self.contexts.insert(context);
        }
        context
    }

    /// Drops a context, unless it belongs to an isolate that was lost.
    pub(crate) fn free_context(&mut self, context: *mut ffi::RawContext) {
        if self.contexts.remove(&context) {
            // SAFETY: a live context of this isolate, which nothing uses after this; no JavaScript
            // runs.
            self.native(|| unsafe { ffi::nigh_context_free(context) });
        }
    }

    /// Removes `count` functions from number `first_id` on from a context; false if that fails.
    pub(crate) fn remove_functions(
        &self,
        context: *mut ffi::RawContext,
        first_id: u32,
        count: u32,
    ) -> bool {
        assert!(self.contexts.contains(&context), "a context of this isolate");
        // SAFETY: a live context, on its thread.
        self.native(|| unsafe { ffi::nigh_module_remove(context, first_id, count) })
    }

    /// Runs V8's own tasks, at most `tasks`, and makes contexts ahead.
    pub(crate) fn idle(&self, tasks: u32, contexts: usize) {
        // SAFETY: our isolate, on its thread.
        self.native(|| unsafe { ffi::nigh_isolate_pump(self.raw, tasks) });
        // SAFETY: as above.
        self.native(|| unsafe { ffi::nigh_isolate_prepare(self.raw, contexts) });
    }

    /// Makes V8 begin a collection; its tasks do the rest. `dropped_now`: collects at once if there
    /// are dropped contexts.
    pub(crate) fn begin_collection(&self, dropped_now: bool) {
        // SAFETY: our isolate, on its thread.
        self.native(|| unsafe { ffi::nigh_isolate_collect(self.raw, dropped_now) });
    }

    /// Collects if dropped contexts hold much memory. V8 counts it as used, and would stop the next
    /// call for it.
    pub(crate) fn make_room(&self) {
        // SAFETY: our isolate, on its thread.
        self.native(|| unsafe { ffi::nigh_isolate_make_room(self.raw) });
    }

    fn recover_heap(&self) {
        // SAFETY: our isolate, on its thread.
        self.native(|| unsafe { ffi::nigh_isolate_recover(self.raw) });
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        self.watchdog.as_ref().expect("set in new")
    }

    /// The state of the callbacks. The result must not be held while JavaScript runs.
    pub(crate) fn bridge(&mut self) -> &mut Bridge {
        // SAFETY: made in `new`, freed in `drop`. Callbacks use it only while JavaScript runs, and
        // no caller holds this reference then.
        unsafe { &mut *self.bridge }
    }

    /// The first of `count` new numbers for calls.
    pub(crate) fn take_states(&mut self, count: usize) -> i32 {
        let first = self.next_state;
        let next = i32::try_from(count).ok().and_then(|count| first.checked_add(count));
        self.next_state = next.expect("far fewer calls than numbers");
        first
    }

    /// Whether the numbers of calls have to begin anew.
    pub(crate) fn has_used_up_states(&self) -> bool {
        self.next_state >= STATES_USED_UP
    }

    /// Begins anew with the numbers of calls. An object that a call has left in a context knows its
    /// call by the number alone, so all contexts must be gone.
    pub(crate) fn renew_states(&mut self) {
        assert!(self.contexts.is_empty(), "no context has seen the numbers");
        self.next_state = 1;
    }

    /// For a test: as if so many calls had been made that the next one uses the numbers up.
    #[cfg(test)]
    pub(crate) fn use_up_states(&mut self) {
        self.next_state = STATES_USED_UP - 1;
    }

    /// For a test that terminates the running call.
    #[cfg(test)]
    pub(crate) fn raw(&self) -> *mut ffi::RawIsolate {
        self.raw
    }

    /// To be called when call `k` is over, however it ended. True if nothing stops it any more.
    pub(crate) fn settle(&mut self, k: i32) -> bool {
        self.io.state().store(0, Ordering::SeqCst); // SYNC(call-state)
        let free = agreement::settle(&self.io, k);
        agreement::forget(&self.io);
        free
    }

    /// After call `k` was stopped, and its context dropped: waits until the termination can hit
    /// nothing else, and takes it back. Returns why the call was stopped.
    pub(crate) fn recover(&mut self, k: i32) -> Cause {
        let by_heap = self.io.word(io::HEAP_HIT) == k;
        self.settle(k);
        self.recover_heap();
        if by_heap { Cause::Heap } else { self.cause(k) }
    }

    /// Why the watchdog has stopped call `k`.
    fn cause(&self, k: i32) -> Cause {
        let watch = &self.watchdog().watch;
        if watch.broken().load(Ordering::SeqCst) {
            return Cause::Fatal;
        }
        watch.reason(k).map_or(Cause::Time, Cause::Order)
    }

    /// Puts a new isolate in the place of this one, which call `k` doesn't leave. The old carrier
    /// gets this one by `grave`, with `keep`, which its contexts read. Returns why the call was
    /// stopped, and what becomes of the old isolate.
    pub(crate) fn replace(
        &mut self,
        k: i32,
        limits: &FunctionLimits,
        grave: &Sender<Wreck>,
        keep: Vec<Arc<dyn Any + Send + Sync>>,
    ) -> (Cause, Fate) {
        let cause = self.cause(k);
        let fresh = Isolate::new(limits, self.fiber.take());
        let mut fresh = fresh.unwrap_or_else(|error| end_without_isolate(&error));
        // The old carrier uses none of this any more (bridge.rs, invariant 2).
        fresh.bridge().succeed(self.bridge());
        let broken = Arc::clone(self.watchdog().watch.broken());
        let gone = Arc::new(AtomicBool::new(false));
        let isolate = std::mem::replace(self, fresh);
        let wreck = LostIsolate { isolate: Some(isolate), _keep: keep, gone: Arc::clone(&gone) };
        // The old carrier waits for it.
        let _ = grave.send(Box::new(wreck));
        (cause, Fate { gone, broken })
    }

    /// Collects if the heap came near its limit in code that is not to be stopped.
    pub(crate) fn relieve(&mut self) {
        if self.io.word(io::HEAP_HIT) != 0 {
            self.recover_heap();
        }
    }

    pub(crate) fn heap(&self) -> ffi::Heap {
        let mut heap = ffi::Heap::default();
        // SAFETY: our isolate, on its thread.
        unsafe { ffi::nigh_isolate_heap(self.raw, &raw mut heap) };
        heap
    }
}

/// The system gives no memory or thread for an isolate more, and V8 doesn't leave the old one: it
/// can neither be used nor freed.
fn end_without_isolate(error: &StartError) -> ! {
    eprintln!(
        "nigh: a function did not stop, and there is no V8 isolate to go on in: {error}; ending the process, its \
         arenas survive"
    );
    process_end::was_told();
    std::process::abort();
}

impl Drop for Isolate {
    fn drop(&mut self) {
        self.watchdog = None; // joins its thread
        for context in std::mem::take(&mut self.contexts) {
            // SAFETY: a live context of this isolate, on its thread; no JavaScript runs.
            self.native(|| unsafe { ffi::nigh_context_free(context) });
        }
        // SAFETY: on its thread; all contexts have been freed, no JavaScript runs.
        self.native(|| unsafe { ffi::nigh_isolate_free(self.raw) });
        // SAFETY: from Box::into_raw; the isolate that used it is gone.
        drop(unsafe { Box::from_raw(self.bridge) });
    }
}

/// Calls `f` on the stack that V8 knows.
fn native<R>(fiber: Option<&Fiber>, f: impl FnOnce() -> R) -> R {
    match fiber {
        Some(fiber) => fiber.native(f),
        None => f(),
    }
}

/// An isolate that a call didn't leave in time, for the thread on which that call runs.
struct LostIsolate {
    isolate: Option<Isolate>,
    /// The arenas that its contexts read.
    _keep: Vec<Arc<dyn Any + Send + Sync>>,
    gone: Arc<AtomicBool>,
}

// SAFETY: it goes to the isolate's own thread. `replace` has taken the fiber out of it.
unsafe impl Send for LostIsolate {}

impl Drop for LostIsolate {
    fn drop(&mut self) {
        if let Some(isolate) = self.isolate.take() {
            isolate.recover_heap();
            drop(isolate);
        }
        self.gone.store(true, Ordering::Release); // SYNC(wreck-gone)
    }
}
