//! The exceptions.
//!
//! Any thread that has the interpreter's lock.

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError, PyValueError};
use pyo3::prelude::*;

create_exception!(nigh, Error, PyException, "What any call on a database may raise.");
create_exception!(nigh, OpenError, Error, "A database can't be opened. Nothing of it has changed.");
create_exception!(nigh, InUseError, OpenError, "The database is open already, here or elsewhere.");
create_exception!(nigh, DamagedError, OpenError, "The database is damaged.");
create_exception!(nigh, ClosedError, Error, "The database is closed.");
create_exception!(nigh, TooLargeError, Error, "A key, a value or a batch is too long.");
create_exception!(nigh, FullError, Error, "Memory is full: the database's own, or the system's.");
create_exception!(nigh, NotANumberError, Error, "The value is no number, or the sum out of range.");
create_exception!(nigh, BusyError, Error, "The disk doesn't keep up: try again later.");
create_exception!(
    nigh,
    NotDurableError,
    Error,
    "The change is made and survives this process, but the disk hasn't taken it."
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
    "The log hasn't the changes any more from which on a watch was to tell."
);
create_exception!(
    nigh,
    NotOpenError,
    Error,
    "No process has the database open that is to be read: a reader reads again when one has."
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
        Cause::NoSuchChange { .. } => PyValueError::new_err(text),
        Cause::Closed => ClosedError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// Why a reader can't read.
pub(crate) fn of_reader(error: &::nigh::ReaderError) -> PyErr {
    use ::nigh::ReaderError as Cause;
    let text = error.to_string();
    match error {
        Cause::NotOpen { .. } | Cause::Opening { .. } => NotOpenError::new_err(text),
        Cause::Busy { .. } => BusyError::new_err(text),
        Cause::Damaged { .. } => DamagedError::new_err(text),
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

/// The database at this path is closed.
pub(crate) fn closed(path: &str) -> PyErr {
    ClosedError::new_err(format!("{path}: the database is closed: open it again"))
}
