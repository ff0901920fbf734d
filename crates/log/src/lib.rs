//! A shard's log on disk: durable append of opaque, checksummed bytes.
//!
//! Each shard has one *chain* of log files. Its [`LogWriter`] appends commits in frames, syncs them
//! in groups and recycles files; a start reads a chain's end with [`LogRecovery`] and replays it; a
//! [`LogFollower`] reads along while the chain is written and compacted. `docs/formats/log.md` has
//! the bytes and the rules, and `crates/log/models` has shown the rules.
//!
//! ```text
//! journal ── commits ──> LogWriter ── frames ──> files ── LogRecovery ──> commits ──> store
//! owner's looks ── AGAIN ──^                       └── LogFollower ──> backup, replication
//! ```
//!
//! 1. A change's payload is the store's: the log checks that it is what was written, and no more.
//! 2. Files, clock and chance are traits ([`Storage`], [`Clock`], [`Chance`]), so that a simulated
//!    disk drives the shipped code.
//! 3. Nothing is tried again behind a failed write or sync: the writer is broken from then on.
//!
//! Rooms, lowest first: position error format storage folder reader writer backup
//!
//! | room | what it holds |
//! |---|---|
//! | position | a position in a chain, and which chain
//! | format | the bytes: heads, frames, changes, `meta`, names, checksums |
//! | error | what can go wrong |
//! | storage | the traits, real files, and a simulated disk |
//! | folder | what stands in a folder: `meta`, files of chains, leftovers |
//! | reader | frames of a file; where a chain ends; replay; a follower |
//! | writer | composing frames, syncing, changing files, compaction |
//! | backup | copies of a log that is being written, and logs made of them |

mod backup;
mod error;
mod folder;
mod format;
mod position;
mod reader;
mod storage;
mod writer;

pub use backup::error::BackupError;
pub use backup::make::BackupReport;
pub use backup::make::ChainMark;
pub use backup::make::backup_meta;
pub use backup::make::make_backup;
pub use backup::place::BackupPlace;
pub use backup::progress::BackupPhase;
pub use backup::progress::BackupProgress;
pub use backup::progress::BackupWatch;
pub use backup::real_place::RealBackupPlace;
pub use backup::restore::RestoreReport;
pub use backup::restore::restore_backup;
#[cfg(feature = "simulation")]
pub use backup::simulated_place::SimBackupPlace;
pub use error::LogError;
pub use folder::listing::Listing;
pub use folder::listing::list;
pub use folder::listing::need_meta;
pub use folder::listing::remove_chains;
pub use folder::listing::remove_unnamed;
pub use folder::meta_file::MetaFault;
pub use folder::meta_file::look_at_meta;
pub use folder::meta_file::read_meta;
pub use folder::meta_file::save_meta;
pub use format::change::ChangeHeader;
pub use format::change::ChangeKind;
pub use format::frame_body::FramedChange;
pub use format::meta::ChainEnd;
pub use format::meta::Meta;
pub use format::meta::TenantLine;
pub use format::names::FileName;
pub use format::sum::Secret;
pub use position::Chain;
pub use position::LogPosition;
pub use reader::chain_file::ChainFile;
pub use reader::commits::{CommitReceiver, FrameTaker};
pub use reader::commits::{ReplayedCommit, ReplayedFrame};
pub use reader::ends::LogRecovery;
pub use reader::ends::NewestFile;
pub use reader::ends::TornTail;
pub use reader::follower::FollowPosition;
pub use reader::follower::Followed;
pub use reader::follower::LogFollower;
pub use reader::log_file::ChainKey;
pub use reader::salvage::BadFrame;
pub use reader::salvage::ChainReport;
pub use reader::salvage::LostAgain;
pub use reader::salvage::LostFile;
pub use reader::salvage::LostLsns;
pub use reader::salvage::SalvagedChain;
pub use reader::salvage::check_chain;
pub use reader::salvage::salvage_chain;
pub use reader::salvage::salvaged_commits;
pub use reader::victim::VictimReader;
pub use reader::victim::VictimStep;
pub use storage::Chance;
pub use storage::Clock;
pub use storage::Storage;
pub use storage::StoredFile;
pub use storage::World;
pub use storage::read_exact_at;
pub use storage::real::FileSystemKind;
pub use storage::real::RealChance;
pub use storage::real::RealClock;
pub use storage::real::RealFile;
pub use storage::real::RealFolder;
pub use storage::real::boot_id;
#[cfg(feature = "simulation")]
pub use storage::simulated;
pub use storage::write_all_at;
pub use writer::log_writer::LogWriter;
pub use writer::new_commit::Added;
pub use writer::new_commit::NewChange;
pub use writer::new_commit::NewCommit;
pub use writer::settings::LogSettings;
pub use writer::sync_job::SyncEnd;
pub use writer::sync_job::SyncJob;
