//! The exceptions.
//!
//! 1. A panic of the library is an `Error`. PyO3 would raise it as an exception that is no
//!    `Exception`: it ends programs that catch those.
//!
//! Any thread that has the interpreter's lock.

use nigh_client::CallError;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError, PyValueError};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

create_exception!(nigh, Error, PyException, "What any call on a database or client may raise.");
create_exception!(nigh, OpenError, Error, "A database can't be opened. Nothing of it has changed.");
create_exception!(nigh, InUseError, OpenError, "The database is open already, here or elsewhere.");
create_exception!(nigh, DamagedError, OpenError, "The database is damaged.");
create_exception!(nigh, ClosedError, Error, "The database or client is closed.");
create_exception!(nigh, TooLargeError, Error, "A key, a value or a batch is too long.");
create_exception!(nigh, FullError, Error, "Memory is full: the database's own, or the system's.");
create_exception!(nigh, NotANumberError, Error, "The value is no number, or the sum out of range.");
create_exception!(nigh, BusyError, Error, "The disk doesn't keep up: try again later.");
create_exception!(
    nigh,
    NotDurableError,
    Error,
    "The change is made and survives this process, but isn't known to be on disk: that takes too \
     long, or the log broke and is being written anew. Flush to wait again; don't close before."
);
create_exception!(
    nigh,
    LogError,
    Error,
    "The log can't be written: its disk is full, or it broke."
);
create_exception!(
    nigh,
    SnapshotTooOldError,
    Error,
    "The snapshot held back more memory than it may."
);
create_exception!(
    nigh,
    ChangesGoneError,
    Error,
    "The log hasn't all changes any more that a watch was to tell."
);
create_exception!(
    nigh,
    NotOpenError,
    Error,
    "No process has the database open that is to be read: a reader reads again when one has."
);

create_exception!(
    nigh,
    NotAttachedError,
    Error,
    "There is no server now. Nothing was sent: the call may be repeated."
);
create_exception!(nigh, ConnectError, Error, "The server can't be used so: a wrong password, say.");
create_exception!(nigh, NotLocalError, ConnectError, "The call takes local access: there is none.");
create_exception!(
    nigh,
    UnknownOutcomeError,
    Error,
    "A request was sent, and its reply is lost: it may or may not have happened."
);
create_exception!(nigh, UnansweredError, Error, "A read has no answer: it may be repeated.");
create_exception!(nigh, ResponseError, Error, "The server said no.");
create_exception!(
    nigh,
    WatchError,
    Error,
    "A watched key has changed, or the connection that watched it is over: nothing was done."
);
create_exception!(
    nigh,
    TooNewError,
    Error,
    "Too much has changed since the moment of a view: let it pass, and the view begins again."
);

/// Why a database at this path wasn't opened.
pub(crate) fn of_open(error: &::nigh::OpenError) -> PyErr {
    use ::nigh::OpenError as Cause;
    let text = error.to_string();
    match error {
        Cause::InUse { .. } | Cause::MemoryInUse { .. } => InUseError::new_err(text),
        Cause::Damaged { .. } => DamagedError::new_err(text),
        Cause::Option { .. } | Cause::KeepsPrivate => PyValueError::new_err(text),
        _ => OpenError::new_err(text),
    }
}

/// Why a call on the database at this path failed.
pub(crate) fn of_call(path: &str, error: &::nigh::DbError) -> PyErr {
    use ::nigh::DbError as Cause;
    let text = format!("{path}: {error}");
    match error {
        Cause::KeyTooLong { .. } | Cause::ValueTooLong { .. } | Cause::BatchTooLarge { .. } => {
            TooLargeError::new_err(text)
        }
        Cause::Full | Cause::NoMemory { .. } => FullError::new_err(text),
        Cause::NotANumber | Cause::Overflow => NotANumberError::new_err(text),
        Cause::Held | Cause::Late => BusyError::new_err(text),
        Cause::NotDurable { .. } => NotDurableError::new_err(text),
        Cause::LogFull { .. } | Cause::LogBroken { .. } => LogError::new_err(text),
        Cause::SnapshotTooOld { .. } => SnapshotTooOldError::new_err(text),
        Cause::ChangesGone { .. } => ChangesGoneError::new_err(text),
        Cause::PlaceAhead { .. } | Cause::PlacePartitions { .. } | Cause::PlaceOfOther => {
            PyValueError::new_err(text)
        }
        Cause::Closed => ClosedError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// What a use of the database or server of this name gives. A panic within it is an error.
#[inline]
pub(crate) fn guarded<R>(name: &str, call: impl FnOnce() -> R) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("it doesn't say which");
        Error::new_err(format!("{name}: a fault of Nigh's own ({text}): please report it"))
    })
}

/// An error in a child, by fork, of the process that opened the database at this path.
#[inline]
pub(crate) fn check_process(path: &str, fork_mark: &::nigh::ForkMark) -> PyResult<()> {
    if fork_mark.is_in_child() {
        return Err(of_call(path, &::nigh::DbError::Forked));
    }
    Ok(())
}

/// Why a reader can't read.
pub(crate) fn of_reader(error: &::nigh::ReaderError) -> PyErr {
    use ::nigh::ReaderError as Cause;
    let text = error.to_string();
    match error {
        Cause::NotOpen { .. } | Cause::Opening { .. } => NotOpenError::new_err(text),
        Cause::Busy { .. } => BusyError::new_err(text),
        Cause::NoMemory { .. } => FullError::new_err(text),
        Cause::Damaged { .. } => DamagedError::new_err(text),
        Cause::Forked { .. } => Error::new_err(text),
        _ => OpenError::new_err(text),
    }
}

/// A key isn't there.
pub(crate) fn no_key(key: &[u8]) -> PyErr {
    PyKeyError::new_err(key.to_vec())
}

/// The library tells an event that isn't known here.
pub(crate) fn unknown_event(event: &str) -> PyErr {
    Error::new_err(format!("the event {event} isn't known: please report it"))
}

/// A snapshot, watch or reader of the database at this path is closed.
pub(crate) fn ended(path: &str, what: &str) -> PyErr {
    ClosedError::new_err(format!("{path}: the {what} is closed: begin another"))
}

/// The place that a text says.
pub(crate) fn place(text: &str) -> PyResult<::nigh::WatchPlace> {
    text.parse().map_err(|error: ::nigh::PlaceError| PyValueError::new_err(error.to_string()))
}

/// The database at this path is closed.
pub(crate) fn closed(path: &str) -> PyErr {
    ClosedError::new_err(format!("{path}: the database is closed: open it again"))
}

/// Why a client's call failed.
pub(crate) fn of_client(error: &CallError) -> PyErr {
    let text = error.to_string();
    match error {
        CallError::NotAttached { address, cause } => NotAttachedError::new_err(format!(
            "not attached to {address}: {cause}; nothing was sent: call again, or have calls wait \
             (the option `wait`)"
        )),
        CallError::CantConnect { .. }
        | CallError::NotPermitted { .. }
        | CallError::Unexpected { .. } => ConnectError::new_err(text),
        CallError::Refused { address, command, reply } => {
            refused(address, command, reply.as_bytes())
        }
        CallError::NotLocal { .. } => NotLocalError::new_err(text),
        // Only connections of pipelines that watch keys attach once.
        CallError::Over { address, cause } => WatchError::new_err(format!(
            "{address}: the connection that watched keys is over ({cause}); nothing was done: watch \
             and read again"
        )),
        CallError::Unknown { .. } => UnknownOutcomeError::new_err(text),
        CallError::Unanswered { .. } => UnansweredError::new_err(text),
        CallError::TooNew { .. } => TooNewError::new_err(text),
        CallError::KeyTooLong { .. }
        | CallError::ValueTooLong { .. }
        | CallError::TooManyWords { .. } => TooLargeError::new_err(text),
        CallError::NoMemory { .. } => FullError::new_err(text),
        CallError::NotSynced { address, after } => BusyError::new_err(format!(
            "what a view read at {address} isn't on disk after {after:?}: is its log well (INFO \
             persistence)? The option `reads_unsynced` shows it earlier"
        )),
        _ => Error::new_err(text),
    }
}

/// An error reply to a command; its attribute `reply` is the reply itself.
pub(crate) fn refused(address: &str, command: &str, reply: &[u8]) -> PyErr {
    let is_too_long = nigh_client::says_too_long(reply);
    let reply = String::from_utf8_lossy(reply);
    let text = format!("{address} refused {command}: {reply}");
    let error =
        if is_too_long { TooLargeError::new_err(text) } else { ResponseError::new_err(text) };
    Python::attach(|py| with(py, error, "reply", reply.as_ref()))
}

/// An exception with one more attribute.
pub(crate) fn with<'py>(
    py: Python<'py>,
    error: PyErr,
    name: &str,
    value: impl IntoPyObject<'py>,
) -> PyErr {
    match error.value(py).setattr(name, value) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// A key that a pipeline watches has changed.
pub(crate) fn watched_key_changed(address: &str) -> PyErr {
    WatchError::new_err(format!(
        "{address}: a watched key has changed, so nothing was done: watch and read again"
    ))
}

/// A signal's handler calls the client on which a call waits.
pub(crate) fn in_a_handler(address: &str) -> PyErr {
    Error::new_err(format!(
        "{address}: a signal's handler calls the client while a call on it waits: note the signal, \
         or raise an exception, and call behind it"
    ))
}

/// A pipeline's calls come in an order that has no meaning.
pub(crate) fn out_of_order(what: &str) -> PyErr {
    Error::new_err(what.to_owned())
}

/// A view's moment is over.
pub(crate) fn too_new(address: &str) -> PyErr {
    TooNewError::new_err(format!(
        "too much has changed at {address} since the moment of this view: let this exception pass, \
         and the view begins again"
    ))
}

/// A view is used outside of its function, or by two threads at once.
pub(crate) fn view_over(address: &str) -> PyErr {
    ClosedError::new_err(format!(
        "{address}: this view is over, or another thread reads by it: read in the function that \
         `Client.view` calls, by one thread at a time"
    ))
}

/// The client of this address is closed.
pub(crate) fn client_closed(address: &str) -> PyErr {
    ClosedError::new_err(format!("{address}: the client is closed: connect another"))
}

/// The reply is none that the command has.
pub(crate) fn unexpected(address: &str, command: &str) -> PyErr {
    let (address, command) = (address.to_owned(), command.to_owned());
    of_client(&CallError::Unexpected { address, command })
}
