//! One V8 isolate with its io memory and its watchdog. Belongs to the thread that made it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bridge::{self, Bridge};
use crate::fault::Cause;
use crate::ffi;
use crate::io::{self, Io, Mapped};
use crate::limits::Limits;
use crate::quota::{self, Quota};
use crate::runtime::StartError;
use crate::snapshot;
use crate::watchdog::Watchdog;

/// Young generation: three semi-spaces of 16 MiB, so that a busy tenant's garbage is collected between
/// batches rather than in them.
const YOUNG_BYTES: usize = 48 << 20;
/// Calls are numbered from 1 and begin anew before they reach this.
const STATE_MAX: i32 = 1 << 30;

/// The isolate. Fields are dropped in order: the watchdog's thread must end before the isolate.
pub(crate) struct Isolate {
    watchdog: Option<Watchdog>,
    raw: *mut ffi::RawIsolate,
    bridge: *mut Bridge,
    pub(crate) io: Io,
    next_state: i32,
    heap_hits: u64,
    /// Last, since all else uses it.
    _mapped: Arc<Mapped>,
}

impl Isolate {
    pub(crate) fn new(limits: &Limits) -> Result<Isolate, StartError> {
        let fail = |reason: String| StartError::V8 { reason };
        let snapshot = snapshot::snapshot().map_err(fail)?;
        let mapped = Arc::new(Mapped::new().map_err(|error| {
            fail(format!("cannot reserve {} bytes of address space: {error}", Io::total()))
        })?);
        let io = mapped.io();
        let bridge = Box::into_raw(Box::new(Bridge {
            io,
            host: None,
            functions: Arc::default(),
            ids: Vec::new(),
            first: 0,
            module: String::new(),
            failed: Vec::new(),
            scan_end: 0,
            tenant: 0,
            now_ms: None,
            console: Quota::new(quota::CONSOLE_LINES),
            stacks: Quota::new(quota::STACKS),
        }));
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
        // SAFETY: V8 has been started; snapshot, io and bridge outlive the isolate (see Drop).
        let raw = unsafe { ffi::nigh_isolate_new(&raw const params) };
        let mut isolate = Isolate {
            watchdog: None,
            raw,
            bridge,
            io,
            _mapped: Arc::clone(&mapped),
            next_state: 1,
            heap_hits: 0,
        };
        let watchdog = Watchdog::start(raw, mapped)
            .map_err(|error| fail(format!("cannot start the watchdog's thread: {error}")))?;
        isolate.watchdog = Some(watchdog);
        isolate.set_limits(limits);
        Ok(isolate)
    }

    pub(crate) fn set_limits(&mut self, limits: &Limits) {
        let watch = &self.watchdog().watch;
        watch.call_ms.store(limits.call_ms, Ordering::Relaxed);
        watch.grace_ms.store(limits.grace_ms, Ordering::Relaxed);
        // SAFETY: our isolate, on its thread.
        unsafe {
            ffi::nigh_isolate_limits(
                self.raw,
                limits.heap_bytes,
                limits.array_buffer_bytes,
                limits.stack_bytes,
            );
        }
    }

    pub(crate) fn raw(&self) -> *mut ffi::RawIsolate {
        self.raw
    }

    pub(crate) fn watchdog(&self) -> &Watchdog {
        self.watchdog.as_ref().expect("set in new")
    }

    /// What the callbacks use; not to be held while JavaScript runs.
    pub(crate) fn bridge(&mut self) -> &mut Bridge {
        // SAFETY: made in `new`, freed in `drop`; callbacks use it only while JavaScript runs, in which
        // time nobody holds this reference.
        unsafe { &mut *self.bridge }
    }

    /// Numbers for `count` calls: the first.
    pub(crate) fn take_states(&mut self, count: usize) -> i32 {
        let count = i32::try_from(count).unwrap_or(STATE_MAX - 1);
        if self.next_state >= STATE_MAX - count {
            self.next_state = 1;
        }
        let first = self.next_state;
        self.next_state += count;
        first
    }

    /// To be called when call `k` is over, however it ended: true if nothing stops it any more.
    pub(crate) fn settle(&mut self, k: i32) -> bool {
        self.io.state().store(0, Ordering::SeqCst); // SYNC(call-state)
        // SAFETY: our isolate, on its thread.
        let free = unsafe { ffi::nigh_settle(self.raw, k) };
        self.io.shared(io::KILL).store(0, Ordering::SeqCst);
        self.io.shared(io::ISSUED).store(0, Ordering::SeqCst); // numbers of calls come again
        free
    }

    /// After call `k` was stopped: waits until its termination can hit nothing else any more, and takes
    /// it back. What stopped it. The context it ran in must be gone.
    pub(crate) fn recover(&mut self, k: i32) -> Cause {
        let hits = self.heap().heap_limit_hits;
        let by_heap = hits != self.heap_hits;
        self.heap_hits = hits;
        self.settle(k);
        // SAFETY: our isolate, on its thread.
        unsafe { ffi::nigh_isolate_recover(self.raw) };
        match self.watchdog().watch.reason(k) {
            _ if by_heap => Cause::Heap,
            Some(reason) => Cause::Order(reason),
            None => Cause::Time,
        }
    }

    /// Collects if the heap came near its limit in code that is not to be stopped.
    pub(crate) fn relieve(&mut self) {
        if self.io.word(io::HEAP_HIT) != 0 {
            // SAFETY: our isolate, on its thread.
            unsafe { ffi::nigh_isolate_recover(self.raw) };
        }
    }

    pub(crate) fn heap(&self) -> ffi::Heap {
        let mut heap = ffi::Heap::default();
        // SAFETY: our isolate, on its thread.
        unsafe { ffi::nigh_isolate_heap(self.raw, &raw mut heap) };
        heap
    }
}

impl Drop for Isolate {
    fn drop(&mut self) {
        self.watchdog = None; // joins its thread
        // SAFETY: on its thread; all contexts have been freed by the runtime, no JavaScript runs.
        unsafe { ffi::nigh_isolate_free(self.raw) };
        // SAFETY: from Box::into_raw; the isolate that used it is gone.
        drop(unsafe { Box::from_raw(self.bridge) });
    }
}
