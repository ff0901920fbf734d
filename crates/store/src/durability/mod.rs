//! What makes a shard's changes last: between its journal and its log.

pub(crate) mod base_stage;
mod base_thread;
pub(crate) mod compaction;
pub(crate) mod log_runner;
pub(crate) mod log_sink;
pub(crate) mod log_status;
pub(crate) mod log_sync;
pub(crate) mod log_thread;
pub(crate) mod looks;
mod mending;
mod obeying;
pub(crate) mod orders;
pub(crate) mod shard_base;
pub(crate) mod shard_compaction;
pub(crate) mod streams;
pub(crate) mod sync_mode;
mod taking;
pub(crate) mod thread_ends;
