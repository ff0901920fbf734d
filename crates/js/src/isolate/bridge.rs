//! What the shim calls back into: commit, scan, log. Runs on the runtime's thread, inside
//! `nigh_run` or `nigh_module_install`. No panic leaves it.
//!
//! A callback of a call that has lost its fiber (fiber.rs) touches nothing but `baton`, `entry`,
//! `io` and `watch`: the runtime takes the rest.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crate::caller::host_trait::{Host, Level, Write};
use crate::error_reply;
use crate::ffi;
use crate::fiber::Shared;
use crate::io::{self, Io};
use crate::isolate::log_quota::{Quota, Speaker};
use crate::stop::agreement;
use crate::tenant::Functions;
use crate::watch::process_end;
use crate::watch::watchdog::Watch;

/// What a callback needs; lives at a fixed address as long as the isolate.
pub(crate) struct Bridge {
    pub(crate) io: Io,
    /// The fiber that waits for the entry that runs, and that entry's number. Written between
    /// entries.
    pub(crate) baton: Option<Arc<Shared>>,
    pub(crate) entry: u64,
    /// Set once, when the isolate is made.
    pub(crate) watch: OnceLock<Arc<Watch>>,
    /// Set while JavaScript runs.
    pub(crate) host: Option<NonNull<dyn Host>>,
    pub(crate) functions: Arc<Functions>,
    /// Function of each call that has entered.
    pub(crate) ids: Vec<u32>,
    /// Index in `ids` of the first call of this entry.
    pub(crate) first: usize,
    /// While a module is evaluated: its name; else empty.
    pub(crate) module: String,
    /// Index in `ids`, and the host's error reply, of calls whose commit failed.
    pub(crate) failed: Vec<(usize, String)>,
    /// Where what scans have found ended at most since the last trim.
    pub(crate) scan_end: usize,
    /// Of the batch that runs.
    pub(crate) tenant: u32,
    /// Unix ms of the batch that runs; none outside of batches.
    pub(crate) now_ms: Option<u64>,
    /// What libraries may log by `console`.
    pub(crate) console: Quota,
    /// What functions may log by throwing.
    pub(crate) stacks: Quota,
}

/// The table that the shim gets.
pub(crate) const TABLE: ffi::HostTable = ffi::HostTable { commit, scan, log, late, fatal };

// Words of an entry of the write set, as in 04_db.js.
const ENTRY_BYTES: usize = 32;
const W_OP: usize = 0;
const W_KEY: usize = 1;
const W_KEY_LENGTH: usize = 2;
const W_VALUE: usize = 3;
const W_VALUE_LENGTH: usize = 4;
const W_EXPIRY_LOW: usize = 5;
const W_EXPIRY_HIGH: usize = 6;
const OP_PUT: i32 = 1;
const OP_DELETE: i32 = 2;

impl Bridge {
    /// Index in `ids` of the call that runs.
    fn current(&self) -> usize {
        self.first + size(self.io.word(io::OUT_DONE))
    }

    fn host(&mut self) -> Option<&mut dyn Host> {
        // SAFETY: set by the runtime from the `&mut dyn Host` that it holds for the whole entry and
        // does not touch meanwhile.
        self.host.map(|mut host| unsafe { host.as_mut() })
    }

    fn commit(&mut self) -> Result<(), String> {
        let io = self.io;
        let count = size(io.word(io::OUT_WRITES)).min(io::WRITE_KEYS_MAX as usize);
        let writes: Vec<Write<'_>> = (0..count).map(|index| entry(&io, index)).collect();
        match self.host() {
            Some(host) => host.commit(&writes),
            None => Err("ERR nothing can be written now".to_owned()),
        }
    }

    /// Writes the found keys as 04_db.js reads them: number, then length and bytes of each.
    fn scan(&mut self, prefix: (usize, usize), cursor: u64, count: u32) -> Option<u64> {
        let io = self.io;
        let prefix = io.bytes(prefix.0, prefix.1).to_vec();
        let end = io::SCAN_AT + io::SCAN_ROOM;
        let mut at = io::SCAN_AT + 8;
        let mut found = 0;
        let mut full = false;
        let next = self.host()?.scan(&prefix, cursor, count, &mut |key| {
            full |= key.len() + 16 > end - at;
            if !full {
                io.set_word(at / 4, i32::try_from(key.len()).unwrap_or(0));
                io.put(at + 8, key);
                at += 8 + key.len().next_multiple_of(8);
                found += 1;
            }
        });
        io.set_word(io::SCAN_AT / 4, found);
        self.scan_end = self.scan_end.max(at);
        (!full).then_some(next)
    }

    fn log(&mut self, level: i32, text: &str) {
        let level = match level {
            0 => Level::Debug,
            1 => Level::Info,
            2 => Level::Warn,
            _ => Level::Error,
        };
        let functions = Arc::clone(&self.functions);
        let calling = self.module.is_empty();
        let id = self.ids.get(self.current()).filter(|_| calling);
        let (library, function) = match id.and_then(|&id| functions.by_id(id)) {
            Some(callable) => (Arc::clone(&callable.library), callable.name.as_str()),
            None => (self.module.as_str().into(), ""),
        };
        let speaker =
            Speaker { tenant: self.tenant, library: Arc::clone(&library), function: String::new() };
        // Outside of batches a library is loaded, which happens at an administrator's pace; what
        // one evaluation logs is bounded by the prelude.
        let may = self.now_ms.is_none_or(|now_ms| self.console.take(speaker, now_ms));
        if let Some(host) = self.host().filter(|_| may) {
            host.log(level, &library, function, &error_reply::without_prelude(text));
        }
    }

    /// Begins a batch; what was dropped from the log in seconds that are over is told to `host`.
    pub(crate) fn begin(&mut self, tenant: u32, now_ms: u64, host: &mut dyn Host) {
        self.tenant = tenant;
        self.now_ms = Some(now_ms);
        let mut tell = |speaker: Option<&Speaker>, text: &str| {
            let (library, function) =
                speaker.map_or(("", ""), |who| (&*who.library, who.function.as_str()));
            host.log(Level::Warn, library, function, text);
        };
        self.console.report(now_ms, &mut |speaker, dropped| {
            tell(speaker, &format!("{dropped} more lines of the console were dropped"));
        });
        self.stacks.report(now_ms, &mut |speaker, dropped| {
            tell(
                speaker,
                &format!("{dropped} more errors were thrown, whose stacks are not logged"),
            );
        });
    }
}

fn size(word: i32) -> usize {
    usize::try_from(word).unwrap_or(0)
}

fn entry(io: &Io, index: usize) -> Write<'_> {
    let words = (io::WRITES_AT + index * ENTRY_BYTES) / 4;
    let word = |number: usize| io.word(words + number);
    let bytes = |at: usize, length: usize| io.bytes(size(word(at)), size(word(length)));
    let key = bytes(W_KEY, W_KEY_LENGTH);
    let low = u64::from(word(W_EXPIRY_LOW).cast_unsigned());
    let expiry_ms = u64::from(word(W_EXPIRY_HIGH).cast_unsigned()) << 32 | low;
    match word(W_OP) {
        OP_PUT => Write::Put { key, value: bytes(W_VALUE, W_VALUE_LENGTH), expiry_ms },
        OP_DELETE => Write::Delete { key },
        _ => Write::Expire { key, expiry_ms },
    }
}

/// Calls `f` with the Bridge that `user` is, while the fiber can't be lost; `None` if it is lost
/// already.
///
/// # Safety
/// `user` is what the runtime gave to the isolate that calls back, on its thread, while JavaScript
/// runs.
unsafe fn with_bridge<R>(user: *mut c_void, f: impl FnOnce(&mut Bridge) -> R) -> Option<R> {
    let bridge = user.cast::<Bridge>();
    // SAFETY: it lives as long as the isolate; only this field is borrowed, which nobody writes
    // now.
    let baton = unsafe { &(*bridge).baton };
    // SAFETY: as above.
    let entry = unsafe { (*bridge).entry };
    let _held = match baton {
        Some(baton) => Some(baton.hold(entry)?),
        None => None,
    };
    // SAFETY: the fiber waits for this entry, so nobody else uses the bridge until this returns.
    Some(f(unsafe { &mut *bridge }))
}

unsafe extern "C" fn commit(user: *mut c_void) {
    let run = |bridge: &mut Bridge| {
        let result = catch_unwind(AssertUnwindSafe(|| bridge.commit()));
        let result = result.unwrap_or_else(|_| Err("ERR internal error in commit".to_owned()));
        if let Err(reply) = result {
            let index = bridge.current();
            bridge.failed.push((index, reply));
        }
    };
    // SAFETY: the shim gives what it got. A call that lost its fiber has been answered: it commits
    // nothing.
    let _ = unsafe { with_bridge(user, run) };
}

unsafe extern "C" fn scan(
    user: *mut c_void,
    prefix: u32,
    prefix_length: u32,
    cursor: f64,
    count: u32,
) -> f64 {
    let prefix = (prefix as usize, prefix_length as usize);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a safe integer >= 0"
    )]
    let cursor = cursor as u64;
    let run = |bridge: &mut Bridge| {
        let scan = || bridge.scan(prefix, cursor, count);
        catch_unwind(AssertUnwindSafe(scan)).ok().flatten()
    };
    // SAFETY: as in `commit`.
    match unsafe { with_bridge(user, run) } {
        #[expect(clippy::cast_precision_loss, reason = "checked: below 2^53")]
        Some(Some(next)) if next < 1 << 53 => next as f64,
        _ => -1.0,
    }
}

unsafe extern "C" fn log(user: *mut c_void, level: i32, text: *const u8, length: usize) {
    // SAFETY: the shim passes a range of the io memory.
    let text = unsafe { std::slice::from_raw_parts(text, length) };
    let text = String::from_utf8_lossy(text);
    let run = |bridge: &mut Bridge| {
        // A log line may be lost.
        let _ = catch_unwind(AssertUnwindSafe(|| bridge.log(level, &text)));
    };
    // SAFETY: as in `commit`.
    let _ = unsafe { with_bridge(user, run) };
}

unsafe extern "C" fn late(user: *mut c_void, k: i32) -> bool {
    // SAFETY: the bridge lives as long as the isolate; only this field is read, which nobody ever
    // writes. So a call that lost its fiber may come here too: it finds that it was stopped.
    let io = unsafe { (*user.cast::<Bridge>()).io };
    agreement::settle(&io, k)
}

/// Where V8 gives up for what a call asks: a table of more elements than it can have. Elsewhere the
/// process lacks memory, and an isolate that stays makes that worse.
const TOO_LARGE: &str = "invalid table size";

/// V8 can't go on in this isolate. If a fiber waits for what runs in it, that goes on without it,
/// and this thread stays where it is, with all that the isolate has: nothing of it can be used or
/// freed any more.
unsafe extern "C" fn fatal(user: *mut c_void, place: *const c_char, message: *const c_char) {
    let text = |pointer: *const c_char| {
        if pointer.is_null() {
            return "".into();
        }
        // SAFETY: V8 passes strings that end with NUL.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy()
    };
    let why = format!("{} ({})", text(message), text(place));
    let bridge = user.cast::<Bridge>();
    if text(place) == TOO_LARGE && !bridge.is_null() {
        // SAFETY: it lives as long as the isolate; nobody writes this field once the isolate runs
        // code.
        let watch = unsafe { &(*bridge).watch };
        if watch.get().is_some_and(|watch| watch.is_given_up(&why)) {
            loop {
                std::thread::park();
            }
        }
    }
    eprintln!("nigh: V8 ends the process: {why}");
    process_end::tell();
}
