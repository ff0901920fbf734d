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
//!    long value. Short calls keep it: to get it back from a busy thread takes milliseconds.
//! 3. Exceptions name the database, and say what happened and what to do.
//!
//! Rooms, lowest first: errors arguments open_db batch walk database

#![deny(unsafe_code)]

mod arguments;
mod batch;
mod database;
mod errors;
mod open_db;
mod walk;

/// A durable key-value store inside your process.
#[pyo3::pymodule]
mod nigh {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::database::{Db, Stats};
    #[pymodule_export]
    use crate::errors::{
        BusyError, ClosedError, DamagedError, Error, FullError, InUseError, LogError,
        NotANumberError, NotDurableError, OpenError, TooLargeError,
    };
    #[pymodule_export]
    use crate::walk::Walk;
}
