//! Signals that come while a call waits for a server.
//!
//! 1. Python runs their handlers in its main thread, when that asks for it.
//! 2. What a handler raises is kept for the call that it interrupts, which is of the same thread.
//!
//! Any thread without the interpreter's lock.

use pyo3::prelude::*;
use std::cell::Cell;

thread_local! {
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
    static ARE_HANDLED: Cell<bool> = const { Cell::new(false) };
}

/// Runs the handlers of the signals that have come. Whether none has raised an exception.
pub(crate) fn none_raises() -> bool {
    let before = ARE_HANDLED.replace(true);
    let handled = Python::try_attach(|py| py.check_signals());
    ARE_HANDLED.set(before);
    match handled {
        Some(Ok(())) => true,
        Some(Err(raised)) => {
            RAISED.set(Some(raised));
            false
        }
        // The interpreter ends.
        None => false,
    }
}

/// What a handler has raised.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Whether a handler runs in this thread, and a call on a client below it.
pub(crate) fn are_handled() -> bool {
    ARE_HANDLED.get()
}
