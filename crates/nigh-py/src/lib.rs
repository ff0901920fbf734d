//! The library and the client for Python: the module `nigh`, which `nigh.pyi` describes.
//!
//! ```text
//! db[b"k"] = v ── bytes, or a copy of a buffer ── open database ── nigh::Db
//! db[b"k"]    <── bytes: a copy <── LentValue, which doesn't leave its call
//!
//! client.get(k) ── words ── open client ──┬─ a server's memory: with the interpreter's lock
//! client.set(k, v) ───────────────────────┴─ its ring or socket: without
//! ```
//!
//! 1. While a call uses a database, no Python code runs in its thread: so nobody closes it there,
//!    and nobody waits for itself. Arguments are turned into bytes before, lists are made behind.
//! 2. The interpreter's lock is free while a call waits for the disk, opens, closes, or writes a
//!    long value, and while it waits for changes. Other calls keep it, reads of long values too: to
//!    get it back from a busy thread takes milliseconds. A write tries without waiting first, and
//!    gives it up if it must.
//! 3. Exceptions name the database or server, and say what happened and what to do. A panic of the
//!    library is one too (`errors.rs`).
//! 4. A client's read of memory keeps the interpreter's lock; what waits for a server gives it up.
//!
//! Rooms, lowest first: errors arguments copies walk open_db batch snapshot watch reader database
//! panics signals open_client watchers request gathering replies command_words commands key_walk
//! view pipeline client

#![deny(unsafe_code)]

mod arguments;
mod batch;
mod client;
mod command_words;
mod commands;
mod copies;
mod database;
mod errors;
mod gathering;
mod key_walk;
mod open_client;
mod open_db;
#[cfg(debug_assertions)]
mod panics;
mod pipeline;
mod reader;
mod replies;
mod request;
mod signals;
mod snapshot;
mod view;
mod walk;
mod watch;
mod watchers;

/// A durable key-value store inside your process, and a client of a server.
#[pyo3::pymodule]
mod nigh {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::database::{Db, Stats};
    #[pymodule_export]
    use crate::errors::{
        BusyError, ChangesGoneError, ClosedError, ConnectError, DamagedError, Error, FullError,
        InUseError, LogError, NotANumberError, NotAttachedError, NotDurableError, NotLocalError,
        NotOpenError, OpenError, ResponseError, SnapshotTooOldError, TooLargeError, TooNewError,
        UnansweredError, UnknownOutcomeError, WatchError,
    };
    #[cfg(debug_assertions)]
    #[pymodule_export]
    use crate::panics::panics;
    #[pymodule_export]
    use crate::pipeline::Pipeline;
    #[pymodule_export]
    use crate::reader::{Reader, open_reader};
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::view::View;
    #[pymodule_export]
    use crate::walk::Walk;
    #[pymodule_export]
    use crate::watch::{Event, Watch};
}
