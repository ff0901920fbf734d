//! One partition as a shard has it: its state, and the few primitives that commands are made of.

pub(crate) mod arena_files;
pub(crate) mod counters;
pub(crate) mod halves;
pub(crate) mod overlay;
mod reading;
pub(crate) mod store;
pub(crate) mod store_stats;
pub(crate) mod sweep;
pub(crate) mod watches;
mod writing;
