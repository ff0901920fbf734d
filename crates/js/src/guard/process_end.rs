//! Says which function or library was running when the process ends: by a fatal error of V8, by an
//! assertion of V8's, or by a signal such as SIGSEGV.
//!
//! 1. [`tell`] runs in signal handlers, on any thread: it allocates nothing, waits for no lock, and
//!    writes by `write` alone.
//! 2. A process tells once.

use std::fmt::{self, Display, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use super::call_watch::CallWatch;
use crate::ffi;

/// Longest line about the end of a process, bytes: two names of 128 and some words.
const LINE_BYTES: usize = 512;

/// The watches of all runtimes that live.
static WATCHES: Mutex<Vec<Weak<CallWatch>>> = Mutex::new(Vec::new());
static TOLD: AtomicBool = AtomicBool::new(false);

/// A line of text on the stack; what doesn't fit is cut off.
pub(crate) struct EndLine {
    bytes: [u8; LINE_BYTES],
    used: usize,
}

impl Default for EndLine {
    fn default() -> EndLine {
        EndLine { bytes: [0; LINE_BYTES], used: 0 }
    }
}

impl Write for EndLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = &mut self.bytes[self.used..];
        let taken = text.len().min(free.len());
        free[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}

impl Display for EndLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes[..self.used]))
    }
}

/// From now on, a signal that ends the process by its own fault (SIGSEGV, SIGABRT and the like)
/// first writes a line to stderr, which names the function that ran. Handlers that were there
/// before run after it. For programs, not for libraries.
pub fn name_what_crashes() {
    static ONCE: Once = Once::new();
    // SAFETY: `on_signal` keeps the rules of signal handlers (invariant 1).
    ONCE.call_once(|| unsafe { ffi::nigh_on_crash(on_signal) });
}

/// Names the calls of a new isolate too, while its watch lives.
pub(crate) fn watch_too(watch: &Arc<CallWatch>) {
    let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    watches.retain(|watch| watch.strong_count() > 0);
    watches.push(Arc::downgrade(watch));
}

/// Another line has said why the process ends.
pub(crate) fn was_told() {
    TOLD.store(true, Ordering::SeqCst);
}

extern "C" fn on_signal() {
    tell();
}

/// Names the call that runs on this thread. If none does, names all running calls, since V8 works
/// on other threads too.
pub(crate) fn tell() {
    let Ok(watches) = WATCHES.try_lock() else { return };
    let running = || {
        let watches = watches.iter().filter_map(Weak::upgrade).map(|watch| (watch.state(), watch));
        watches.filter(|((call, _), _)| *call != 0)
    };
    let is_ours = running().any(|((_, is_here), _)| is_here);
    for ((call, is_here), watch) in running() {
        if is_here || !is_ours {
            if TOLD.swap(true, Ordering::SeqCst) {
                return;
            }
            let mut line = EndLine::default();
            let _ = line.write_str("nigh: the process ends while ");
            let _ = watch.describe(call, &mut line);
            let _ = line.write_str(" runs; the arenas survive\n");
            // SAFETY: the line's own bytes.
            unsafe { ffi::nigh_write_error(ffi::Slice::of(&line.bytes[..line.used])) };
        }
        // The last strong reference isn't dropped here: that would free memory.
        std::mem::forget(watch);
    }
}
