//! The embedded library for Python: the module `nigh`, which `nigh.pyi` describes.
//!
//! ```text
//! db[b"k"] = v ── bytes, or a copy of a buffer ── open database ── nigh::Db
//! db[b"k"]    <── bytes: a copy <── LentValue, which doesn't leave its call
//! ```
//!
//! 1. While a call uses a database, no Python code runs in its thread: so nobody closes it there,
//!    and nobody waits for itself. Arguments are turned into bytes before, lists are made behind.
//! 2. The interpreter's lock is free while a call waits for the disk, opens, closes, or copies a
//!    long value, and while it waits for changes. Short calls keep it: to get it back from a busy
//!    thread takes milliseconds. A write tries without waiting first, and gives it up if it must.
//! 3. Exceptions name the database, and say what happened and what to do.
//!
//! Rooms, lowest first: errors arguments walk open_db batch snapshot watch reader database

#![deny(unsafe_code)]

mod arguments;
mod batch;
mod database;
mod errors;
mod open_db;
mod reader;
mod snapshot;
mod walk;
mod watch;

/// A durable key-value store inside your process.
#[pyo3::pymodule]
mod nigh {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::database::{Db, Stats};
    #[pymodule_export]
    use crate::errors::{
        BusyError, ChangesGoneError, ClosedError, DamagedError, Error, FullError, InUseError,
        LogError, NotANumberError, NotDurableError, NotOpenError, OpenError, SnapshotTooOldError,
        TooLargeError,
    };
    #[pymodule_export]
    use crate::reader::{Reader, open_reader};
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::walk::Walk;
    #[pymodule_export]
    use crate::watch::{Event, Watch};
}
