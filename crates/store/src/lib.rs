//! One partition's state at one shard: applies the Redis data commands to the arena,
//! deterministically.
//!
//! ```text
//! Op + arguments + Turn ──> Store::apply ──> ReplySink
//!                              │
//!                 overlay of the transaction, if there is one
//!                              │
//!                        arena (nigh-shm)
//! ```
//!
//! 1. Replies are byte-equal to Redis's, down to the order in which a command checks its
//!    arguments.
//! 2. Clock and randomness are passed in with each [`Turn`]. No code here reads them.
//! 3. A command, a transaction and a function's write set are each all or nothing, also when the
//!    process is killed half-way.
//!
//! Thread: a store belongs to one shard's thread; other shards have views of it.
//!
//! Rooms, lowest first: error text op reply_sink turn split_mix durability folder
//! eviction partition making_room commit library upkeep call types apply open salvage keyspace
//! convert
//!
//! | room | what it holds |
//! |---|---|
//! | error | errors, and the texts that a client reads |
//! | text | reading arguments: integers, options, patterns, floats |
//! | op, reply_sink, turn, split_mix | a command, its reply, its time, its random numbers |
//! | durability | between a shard's journal and its log |
//! | folder | the files of arenas, and whether they belong together |
//! | eviction | which keys may go, and when they were used |
//! | partition | the state of one partition, and the steps that commands are made of |
//! | making_room | when keys go, and how many |
//! | commit | several writes as one: transactions, WATCH, write sets |
//! | library, upkeep | function libraries; the work of each turn |
//! | call | a command's arguments, and how it ends |
//! | types | the data types: a file or folder for each |
//! | apply | commands for keys of any type, and the dispatcher |
//! | open | opening and closing |
//! | salvage | what can be saved of a damaged log |
//! | keyspace | all partitions of a tenant, and commands over several |
//! | convert | copying into other arenas, and the log of a copy |
//!
//! # Where versions of Redis differ
//!
//! The texts and rules are those of 7.0.15, and of 7.2 where a reply of these commands differs:
//!
//! | command | 7.0.15 | here, as 7.2 |
//! |---|---|---|
//! | MSETNX with one key twice | the assertion in `dbAdd` fails | the last value counts |
//!
//! # Where Nigh differs on purpose
//!
//! | what | Redis | here |
//! |---|---|---|
//! | key over 65,535 bytes | taken | `ERR key is longer than 65535 bytes` |
//! | DB other than 0 in COPY | 16 databases | `ERR DB index is out of range` |
//! | arguments repeated in errors | whole, as bytes | 1,024 bytes at most, and as UTF-8 |
//! | OBJECT ENCODING, REFCOUNT | remembered | derived, see `types/string/encoding.rs` |
//! | OBJECT IDLETIME | remembered | 0 unless a policy is LRU: then known at the owner, to about a second |
//! | EXPIRE, PERSIST, RENAME in a full arena | never refused | refused when the reserve is used up |

#![forbid(unsafe_code)]

mod apply;
mod call;
mod commit;
mod convert;
mod durability;
mod error;
mod eviction;
mod folder;
mod keyspace;
mod library;
mod making_room;
mod op;
mod open;
mod partition;
mod reply_sink;
mod salvage;
mod split_mix;
#[cfg(test)]
mod tests_store;
mod text;
mod turn;
mod types;
mod upkeep;

pub use commit::write_set::KeyWrite;
pub use convert::conversion::{Conversion, left_in_log};
pub use convert::copying::{
    Copied, CopyError, Copying, Left, Refused, Source, copy_bytes, left_in,
};
pub use convert::old_keyspace::OldKeyspace;
pub use durability::base_stage::LogStage;
pub use durability::compaction::CompactionPace;
pub use durability::log_runner::LogRunner;
pub use durability::log_status::{LogFigures, LogHealth, LogStatus};
pub use durability::log_sync::Syncer;
pub use durability::log_thread::{EntryObserver, LogThread, LogThreadParts, Passed, ThreadLog};
pub use durability::orders::{AgainRecord, EndOrder, LogOrder, Look, LookBatch, Ordered};
pub use durability::shard_compaction::ShardCompaction;
pub use durability::streams::SharedStreams;
pub use durability::sync_mode::SyncMode;
pub use durability::thread_ends::LogThreadEnds;
pub use error::{BUSY, JOURNAL_FULL, StoreError, together_error_text, write_error_text};
pub use eviction::policy::Policy;
pub use folder::edition::Edition;
pub use folder::look::faults_of;
pub use folder::manifest::{MANIFEST, NEW_MANIFEST, list_others};
pub use folder::names::{DEFAULT_TENANT, arena_of_name, path_of as arena_path};
pub use folder::tmpfs::{TMPFS, is_tmpfs};
pub use keyspace::Keyspace;
pub use op::{Op, Span};
pub use open::durable::attached::{AttachedShard, AttachedStream, LogBerth};
pub use open::durable::live_log::{LiveFault, LiveLog};
pub use open::durable::log_keeper::{KeeperRefusal, LogKeeper, LogNews, LogPort, LogStatuses};
pub use open::durable::log_options::{
    BaseCause, LogOptions, OpenedLog, ReplayProgress, ShardLog, StartReport,
};
pub use open::durable::retire::{log_of, remove_journals, retire_log};
pub use open::durable::streams_of::{data_stream, partitions_of};
pub use open::store_options::{Opened, StoreOptions};
pub use partition::arena_files::ClosedArenas;
pub use partition::counters::{Lack, Scarce};
pub use partition::overlay::StagedKeys;
pub use partition::store::{Store, Views};
pub use partition::store_stats::StoreStats;
pub use partition::watches::WatchToken;
pub use reply_sink::ReplySink;
pub use salvage::log_salvage::{DroppedKey, LogSalvage, SalvagedShard, salvage_log};
pub use salvage::salvage_error::SalvageError;
pub use text::arguments::integer;
pub use text::glob::Glob;
pub use turn::Turn;
pub use upkeep::Maintenance;
