//! A durable key-value store inside your process.
//!
//! ```text
//! get ── no lock ──────────────> memory <── publish ── put, by the calling thread, under a lock
//!                                                          └──> journal ── nigh-log ──> files
//! ```
//!
//! What it is not: keys have no order, all data must fit memory, one process writes at a time, and
//! it runs on Linux on x86-64.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data");
//! let db = nigh::Db::open(path, &nigh::Options::new())?;
//! db.put(b"greeting", b"hello")?;         // survives this process; on disk within about a second
//! assert_eq!(db.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));   // no lock, no copy
//! let strong = nigh::WriteOptions::strong();
//! db.put_with(b"order", b"paid", &strong)?;               // on disk when it returns
//! db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! 1. A write that has returned survives this process, also if that is killed. It is on disk within
//!    about a second; a strong one when it returns. (What a killed process had not written yet
//!    waits in its journal for the next open. If the folder is moved elsewhere before that, it
//!    waits for an hour. If its file system is mounted anew under another device number before
//!    that, the next open doesn't find it, and what only the journal had is lost.)
//! 2. A [`WriteBatch`] is all or nothing, in memory, in the log, for [`Db::multi_get`], and for a
//!    [`Snapshot`].
//! 3. Reads take no lock, and lend the bytes where they lie. (A read that writers have overtaken
//!    eight times has it once, and so has one of a key whose time is over by the reader's clock
//!    only.)
//! 4. A [`Watch`] tells each change under its prefix once, in order, or that it lost some. No
//!    writer waits for it, nor for a snapshot that is read.
//! 5. A log that broke is written anew from memory while reads go on.
//! 6. A child of a fork is refused with an error.
//! 7. Memory is the process's own. With [`Options::shared`], other processes read along
//!    ([`Db::open_reader`]): the owner never waits for them.
//!
//! Why it is built so: `docs/design/0021-embedded.md`.
//!
//! Rooms, lowest first: threads watch_place error copies reader_error options batch participants
//! value snapshot_pin watch_event watch_history watch log_side left_writes owner shared_db folders
//! leftovers healing reads writes watching snapshot stats upkeep db_reader functions opening db
//! db_functions

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "functions"), forbid(unsafe_code))]

mod batch;
mod copies;
mod db;
#[cfg(feature = "functions")]
mod db_functions;
mod db_reader;
mod error;
mod folders;
#[cfg(feature = "functions")]
mod functions;
mod healing;
mod left_writes;
mod leftovers;
mod log_side;
mod opening;
mod options;
mod owner;
mod participants;
mod reader_error;
mod reads;
mod shared_db;
mod snapshot;
mod snapshot_pin;
mod stats;
pub mod threads;
mod upkeep;
mod value;
mod watch;
mod watch_event;
mod watch_history;
mod watch_place;
mod watching;
mod writes;

pub use batch::WriteBatch;
pub use db::Db;
pub use db_reader::{DbReader, TimeToLive};
pub use error::{DbError, OpenError};
#[cfg(feature = "functions")]
pub use functions::{FunctionError, FunctionLibrary};
#[cfg(feature = "functions")]
pub use nigh_resp::frame::Frame;
pub use nigh_shm::ForkMark;
pub use options::{Durability, Options, WriteOptions};
pub use reader_error::ReaderError;
pub use snapshot::Snapshot;
pub use stats::{DbStats, PartitionStats};
pub use value::LentValue;
pub use watch::Watch;
pub use watch_event::WatchEvent;
pub use watch_place::{PlaceError, WatchPlace};
