//! The counters and gauges of a runtime, and its running call. Plain data; any thread.

use std::time::Duration;

/// Counters and gauges of one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// Contexts alive.
    pub contexts: usize,
    /// Dropped contexts whose memory the collector has not given back.
    pub dropped_contexts: usize,
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
    /// Calls that another thread stopped, or kept from starting: see
    /// [`Handle::terminate`](crate::Handle::terminate).
    pub kills: u64,
    /// Isolates given up, since a call in them could not be stopped in time.
    pub isolates_lost: u64,
    /// Calls in such isolates that haven't come back.
    pub lingering: usize,
    /// Calls stopped by the heap limit.
    pub heap_limit_hits: u64,
    /// Calls answered with an error.
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
