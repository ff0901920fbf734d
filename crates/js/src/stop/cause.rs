//! Why a call is stopped. Plain data; any thread.

/// Why another thread ends a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A client wants this call to end: FUNCTION KILL.
    Kill,
    /// The server stops: this call ends, and no other one starts in this runtime.
    Shutdown,
}

/// Why a call was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its time was over.
    Time,
    /// Its heap was full.
    Heap,
    /// V8 could not go on in its isolate.
    Fatal,
    /// Another thread ordered it.
    Order(Reason),
}
