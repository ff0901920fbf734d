//! Data from Redis, and back: what `nigh import` and `nigh export` do.
//!
//! ```text
//! RDB file, AOF, running Redis ─> rdb, aof ─> import ─> target ─> Nigh
//! Nigh ─> export ─> RESP commands, which `redis-cli --pipe` and `nigh import` take
//! ```
//!
//! 1. Sources are hostile: no bytes panic, hang, or allocate by a length field. Faults have
//!    offsets.
//! 2. What Nigh can't hold is counted and named by kind ([`LeftOut`]), never dropped in silence.
//! 3. Memory is bounded, whatever the size of a source or a value; but for one command of an AOF
//!    and one exported value.
//!
//! Everything runs on the caller's thread, but for one that reads the replies of the server that is
//! filled.
//!
//! Rooms, lowest first: left_out source rdb aof target fault replica applying import export
//!
//! | room | what it holds |
//! |---|---|
//! | left_out | counts of what isn't imported, by kind |
//! | source | bytes with an offset and a sum; the faults of a source |
//! | rdb | RDB files, key by key |
//! | aof | append-only files: commands, manifest, what a command means here |
//! | target | pipelined writing to the server that is filled |
//! | fault | why an import ends early |
//! | replica | the snapshot of a running server |
//! | applying | keys and commands, one by one, to the target |
//! | import | a whole import |
//! | export | a whole export |
#![forbid(unsafe_code)]

mod aof;
mod applying;
mod export;
mod fault;
mod import;
mod left_out;
mod rdb;
mod replica;
mod source;
mod target;

pub use aof::{AofReader, ManifestError, Survey, Words, files_of, survey};
pub use export::{ExportError, Exported, export};
pub use fault::ImportError;
pub use import::{ImportOptions, Imported, Origin, OriginError, Progress, import};
pub use left_out::LeftOut;
pub use rdb::{Entry, Found, RdbReader, ValueKind};
pub use source::{Input, SourceError};
pub use target::TargetError;
