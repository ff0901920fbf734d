//! The callbacks of the shim: commit, scan, log, late, fatal.
//!
//! ```text
//! user code ── prelude ── callbacks.cc ── with_bridge ──> Bridge ──> Host
//!                                           └ nothing, if the call has lost its fiber
//! ```
//!
//! 1. They run on the isolate's thread, inside of `nigh_run` or `nigh_module_install`. No panic
//!    leaves them.
//! 2. A callback of a call that has lost its fiber (fiber/mod.rs) uses only `baton`, `entry`, `io`
//!    and `watch`: the runtime has taken the rest.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use super::log_quota::{self, Quota, Speaker};
use crate::caller::host_trait::{Host, Level};
use crate::error_reply;
use crate::ffi;
use crate::fiber::FiberShared;
use crate::guard::call_watch::CallWatch;
use crate::guard::process_end;
use crate::io::found_keys::FoundKeys;
use crate::io::{self, Io, write_set};
use crate::stop::agreement;
use crate::tenant::Functions;

/// The state of callbacks. It lives at a fixed address as long as the isolate.
pub(crate) struct Bridge {
    pub(crate) io: Io,
    /// The fiber that waits for the running entry.
    pub(crate) baton: Option<Arc<FiberShared>>,
    /// That entry's number. Written between entries.
    pub(crate) entry: u64,
    /// Set once, when the isolate is made.
    pub(crate) watch: OnceLock<Arc<CallWatch>>,
    /// Set while JavaScript runs, by [`Bridge::lend`].
    host: Option<NonNull<dyn Host>>,
    pub(crate) functions: Arc<Functions>,
    /// Function of each call of the request.
    pub(crate) ids: Vec<u32>,
    /// Index in `ids` of the first call of this entry.
    pub(crate) first: usize,
    /// Name of the module that is being evaluated; else empty.
    pub(crate) module: String,
    /// Calls whose commit failed: index in `ids`, and the host's error reply.
    pub(crate) failed: Vec<(usize, String)>,
    /// The farthest end of found keys since the last trim, as an offset.
    pub(crate) scan_end: usize,
    /// Tenant of the running batch.
    pub(crate) tenant: u32,
    /// Unix ms of the running batch; none outside of batches.
    pub(crate) now_ms: Option<u64>,
    /// Bounds the log of libraries by `console`.
    pub(crate) console: Quota,
    /// Bounds the stacks of thrown errors in the log.
    pub(crate) stacks: Quota,
}

/// The callbacks for the shim.
pub(crate) const TABLE: ffi::HostTable = ffi::HostTable { commit, scan, log, late, fatal };

impl Bridge {
    /// A bridge for an isolate with this memory, which a fiber waits for if there is one.
    pub(crate) fn new(io: Io, baton: Option<Arc<FiberShared>>) -> Bridge {
        Bridge {
            io,
            baton,
            entry: 0,
            watch: OnceLock::new(),
            host: None,
            functions: Arc::default(),
            ids: Vec::new(),
            first: 0,
            module: String::new(),
            failed: Vec::new(),
            scan_end: 0,
            tenant: 0,
            now_ms: None,
            console: Quota::new(log_quota::CONSOLE_LINES),
            stacks: Quota::new(log_quota::STACKS),
        }
    }

    /// Takes over the state of the running batch from the bridge of an isolate that was lost.
    pub(crate) fn succeed(&mut self, old: &mut Bridge) {
        self.functions = Arc::clone(&old.functions);
        self.ids = std::mem::take(&mut old.ids);
        (self.tenant, self.now_ms) = (old.tenant, old.now_ms);
        std::mem::swap(&mut self.console, &mut old.console);
        std::mem::swap(&mut self.stacks, &mut old.stacks);
        old.host = None;
    }

    /// Lets callbacks use `host` until [`Bridge::take_back`]. The caller doesn't use it meanwhile.
    pub(crate) fn lend(&mut self, host: &mut dyn Host) {
        let host: NonNull<dyn Host + '_> = host.into();
        // SAFETY: only the lifetime in the type changes; the caller takes the host back in time.
        self.host =
            Some(unsafe { std::mem::transmute::<NonNull<dyn Host + '_>, NonNull<dyn Host>>(host) });
    }

    /// Lets callbacks use no host any more.
    pub(crate) fn take_back(&mut self) {
        self.host = None;
    }

    /// Index in `ids` of the running call.
    fn current(&self) -> usize {
        self.first + io::size_of(self.io.word(io::OUT_DONE))
    }

    fn host(&mut self) -> Option<&mut dyn Host> {
        // SAFETY: it comes from the `&mut dyn Host` that the runtime has lent for the whole entry,
        // and does not use meanwhile.
        self.host.map(|mut host| unsafe { host.as_mut() })
    }

    fn commit(&mut self) -> Result<(), String> {
        let io = self.io;
        match self.host() {
            Some(host) => host.commit(&write_set::writes(&io)),
            None => Err("ERR nothing can be written now".to_owned()),
        }
    }

    /// The next cursor; `None` if the found keys have no room.
    fn scan(&mut self, prefix: (usize, usize), cursor: u64, count: u32) -> Option<u64> {
        let io = self.io;
        let prefix = io.bytes(prefix.0, prefix.1).to_vec();
        let mut found = FoundKeys::new(io);
        let next = self.host()?.scan(&prefix, cursor, count, &mut |key| found.add(key));
        let (end, had_room) = found.finish();
        self.scan_end = self.scan_end.max(end);
        had_room.then_some(next)
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
        // Outside of batches, only a library that is being loaded logs: administrators load few,
        // and the prelude bounds the lines of each evaluation.
        let may = self.now_ms.is_none_or(|now_ms| self.console.take(speaker, now_ms));
        if let Some(host) = self.host().filter(|_| may) {
            host.log(level, &library, function, &error_reply::without_prelude(text));
        }
    }

    /// Begins a batch. Tells `host` how many lines were dropped from the log in seconds that are
    /// over.
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

/// Calls `f` with the Bridge at `user`, while the fiber can't be lost; `None` if it is lost
/// already.
///
/// # Safety `user` is the bridge of the isolate that calls back, on the isolate's thread, while
/// JavaScript runs.
unsafe fn with_bridge<R>(user: *mut c_void, f: impl FnOnce(&mut Bridge) -> R) -> Option<R> {
    let bridge = user.cast::<Bridge>();
    // SAFETY: it lives as long as the isolate; this borrows one field, to which no thread writes
    // now.
    let baton = unsafe { &(*bridge).baton };
    // SAFETY: as above.
    let entry = unsafe { (*bridge).entry };
    let _held = match baton {
        Some(baton) => Some(baton.hold(entry)?),
        None => None,
    };
    // SAFETY: the fiber waits for this entry, so only this uses the bridge until it returns.
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
    // SAFETY: the shim passes the isolate's `user`. A call that lost its fiber has been answered,
    // so it commits nothing.
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
    // SAFETY: the bridge lives as long as the isolate; this reads one field, which never changes.
    // So a call that lost its fiber may come here too: it finds that it was stopped.
    let io = unsafe { (*user.cast::<Bridge>()).io };
    agreement::settle(&io, k)
}

/// The places in which V8 gives up in a call alone. In any other the process lacks memory, and an
/// isolate that stays would make that worse.
const OF_A_CALL: [&str; 3] = [
    // V8's: the call asks for a table of more elements than V8 can have, or for such a list.
    "invalid table size",
    "invalid array length",
    // The shim's: a call that was told to stop has used up the heap that it may have for that
    // (shim/isolate.cc).
    "heap slack used up",
];

/// V8 can't go on in this isolate. If a fiber waits for the running entry, the fiber goes on
/// without the isolate. This thread then waits for ever, since nothing of the isolate can be used
/// or freed.
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
    if OF_A_CALL.contains(&&*text(place)) && !bridge.is_null() {
        // SAFETY: it lives as long as the isolate; this field doesn't change once the isolate runs
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
