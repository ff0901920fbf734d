//! What a runtime tells about itself. [`Handle`] may be used from any thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::watch::watchdog::Watch;

/// Counters and gauges of one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// Contexts alive.
    pub contexts: usize,
    /// Contexts of nobody any more whose memory the collector has not given back.
    pub dropped_contexts: usize,
    /// Contexts made since the start.
    pub contexts_created: u64,
    /// JavaScript heap in use, bytes.
    pub heap_bytes: usize,
    /// ArrayBuffers of functions, bytes.
    pub array_buffer_bytes: usize,
    /// Calls that ended, or were stopped.
    pub calls: u64,
    /// Entries into V8.
    pub batches: u64,
    /// Calls stopped by the time limit.
    pub timeouts: u64,
    /// Calls stopped, or not started, since another thread wanted it: see [`Handle::terminate`].
    pub kills: u64,
    /// Isolates given up, since a call in them could not be stopped in time.
    pub isolates_lost: u64,
    /// Calls in such isolates that haven't come back.
    pub lingering: usize,
    /// Calls stopped by the heap limit.
    pub heap_limit_hits: u64,
    /// Calls that were answered with an error.
    pub errors: u64,
}

/// The function that runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its library.
    pub library: String,
    /// Its name.
    pub function: String,
    /// How long it has been running, to some milliseconds.
    pub since: Duration,
}

/// Why a call is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Somebody wants this call to end: FUNCTION KILL.
    Kill,
    /// The server stops: this call ends, and no other one starts in this runtime.
    Shutdown,
}

/// Asks a runtime from another thread what runs in it, and ends it.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Of the isolate that the runtime has now.
    pub(crate) watch: Arc<Mutex<Arc<Watch>>>,
}

impl Handle {
    fn watch(&self) -> Arc<Watch> {
        Arc::clone(&self.watch.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The call that runs now, if any.
    #[must_use]
    pub fn get(&self) -> Option<Running> {
        self.watch().running()
    }

    /// Ends the call that runs now, if any, within some milliseconds; which one it was. If it ends
    /// by itself meanwhile nothing happens: the calls after it are never hit by a [`Reason::Kill`].
    /// What it has written is dropped. Returns at once.
    pub fn terminate(&self, reason: Reason) -> Option<Running> {
        self.watch().terminate(reason)
    }
}
