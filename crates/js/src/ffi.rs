//! The C interface of `shim/shim.h`, which says what each function does and on which thread.
//!
//! 1. This file mirrors the header. At the first start, [`SIZES`] are compared with the shim's.
//! 2. An isolate and its contexts belong to one thread, except for the functions of any thread.

use std::ffi::{c_char, c_void};

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub(crate) data: *const u8,
    pub(crate) length: usize,
}

impl Slice {
    pub(crate) fn of(bytes: &[u8]) -> Slice {
        Slice { data: bytes.as_ptr(), length: bytes.len() }
    }

    const EMPTY: Slice = Slice { data: std::ptr::null(), length: 0 };

    /// A copy as text.
    ///
    /// # Safety
    /// `data` points to `length` readable bytes, or is null.
    pub(crate) unsafe fn text(&self) -> String {
        if self.data.is_null() {
            return String::new();
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(self.data, self.length) };
        String::from_utf8_lossy(bytes).into_owned()
    }
}

#[repr(C)]
pub(crate) struct Fault {
    pub(crate) kind: i32,
    pub(crate) line: i32,
    pub(crate) column: i32,
    reserved: i32,
    pub(crate) message: Slice,
    pub(crate) stack: Slice,
}

impl Fault {
    pub(crate) fn new() -> Fault {
        Fault {
            kind: 0,
            line: 0,
            column: 0,
            reserved: 0,
            message: Slice::EMPTY,
            stack: Slice::EMPTY,
        }
    }
}

pub(crate) const FAULT_NONE: i32 = 0;
pub(crate) const FAULT_IMPORT: i32 = 2;
pub(crate) const FAULT_ASYNC: i32 = 3;
pub(crate) const FAULT_TERMINATED: i32 = 4;

pub(crate) const OUTCOME_DONE: i32 = 0;
pub(crate) const OUTCOME_STOPPED: i32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostTable {
    pub(crate) commit: unsafe extern "C" fn(*mut c_void),
    pub(crate) scan: unsafe extern "C" fn(*mut c_void, u32, u32, f64, u32) -> f64,
    pub(crate) log: unsafe extern "C" fn(*mut c_void, i32, *const u8, usize),
    pub(crate) late: unsafe extern "C" fn(*mut c_void, i32) -> bool,
    pub(crate) fatal: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char),
}

#[repr(C)]
pub(crate) struct IsolateParams {
    pub(crate) snapshot: *const c_void,
    pub(crate) io: *mut u8,
    pub(crate) io_length: usize,
    pub(crate) user: *mut c_void,
    pub(crate) host: HostTable,
    pub(crate) heap_bytes: usize,
    pub(crate) young_bytes: usize,
    pub(crate) array_buffer_bytes: usize,
    pub(crate) stack_bytes: usize,
}

#[repr(C)]
pub(crate) struct RawArena {
    pub(crate) base: *const u8,
    pub(crate) length: usize,
    pub(crate) foreign: bool,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct Heap {
    pub(crate) used_bytes: usize,
    pub(crate) array_buffer_bytes: usize,
    pub(crate) dropped_contexts: usize,
}

/// Sizes of the structs above, in the order in which `nigh_sizes` gives them.
pub(crate) const SIZES: [usize; 5] = [
    size_of::<Slice>(),
    size_of::<Fault>(),
    size_of::<IsolateParams>(),
    size_of::<Heap>(),
    size_of::<RawArena>(),
];

/// How many there are of something, as the shim and the prelude count.
pub(crate) fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// `NighIsolate` of the shim.
#[repr(C)]
pub(crate) struct RawIsolate {
    _private: [u8; 0],
}

/// `NighContext` of the shim.
#[repr(C)]
pub(crate) struct RawContext {
    _private: [u8; 0],
}

unsafe extern "C" {
    pub(crate) fn nigh_sizes(out: *mut usize);
    pub(crate) fn nigh_v8_version() -> *const c_char;
    pub(crate) fn nigh_start(worker_threads: i32, flags: *const c_char);
    pub(crate) fn nigh_snapshot_make(prelude: Slice, fault: *mut Fault) -> *const c_void;
    pub(crate) fn nigh_isolate_new(params: *const IsolateParams) -> *mut RawIsolate;
    pub(crate) fn nigh_isolate_free(isolate: *mut RawIsolate);
    pub(crate) fn nigh_isolate_limits(
        isolate: *mut RawIsolate,
        heap_bytes: usize,
        array_buffer_bytes: usize,
        stack_bytes: usize,
    );
    pub(crate) fn nigh_isolate_heap(isolate: *const RawIsolate, out: *mut Heap);
    pub(crate) fn nigh_isolate_collect(isolate: *mut RawIsolate, dropped_now: bool);
    pub(crate) fn nigh_isolate_pump(isolate: *mut RawIsolate, max: u32);
    pub(crate) fn nigh_isolate_prepare(isolate: *mut RawIsolate, count: usize);
    pub(crate) fn nigh_isolate_lose(isolate: *mut RawIsolate);
    pub(crate) fn nigh_thread_lower(thread: i32, nice: i32);
    pub(crate) fn nigh_terminate(isolate: *mut RawIsolate);
    pub(crate) fn nigh_isolate_recover(isolate: *mut RawIsolate);
    pub(crate) fn nigh_isolate_make_room(isolate: *mut RawIsolate);
    pub(crate) fn nigh_context_new(
        isolate: *mut RawIsolate,
        arenas: *const RawArena,
        count: usize,
    ) -> *mut RawContext;
    pub(crate) fn nigh_context_free(context: *mut RawContext);
    pub(crate) fn nigh_module_install(
        context: *mut RawContext,
        name: Slice,
        source: Slice,
        first_id: u32,
        fault: *mut Fault,
    ) -> i32;
    pub(crate) fn nigh_module_remove(context: *mut RawContext, first_id: u32, count: u32) -> bool;
    pub(crate) fn nigh_run(context: *mut RawContext, now_ms: f64) -> i32;
    pub(crate) fn nigh_on_crash(tell: extern "C" fn());
    pub(crate) fn nigh_write_error(text: Slice);
    pub(crate) fn nigh_allocator_settle();
    pub(crate) fn nigh_allocator_free_bytes() -> usize;
    pub(crate) fn nigh_allocator_trim();
    pub(crate) fn nigh_page_faults() -> u64;
    pub(crate) fn nigh_thread_clock() -> i32;
    pub(crate) fn nigh_clock_ns(clock: i32) -> u64;
}
