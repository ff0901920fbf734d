//! What makes a shard's changes last: between its journal and its log.

pub(crate) mod log_status;
pub(crate) mod sync_mode;
