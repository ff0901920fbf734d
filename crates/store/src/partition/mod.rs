//! One partition as a shard has it: its state, and the few primitives that commands are made of.

pub(crate) mod halves;
pub(crate) mod store;
pub(crate) mod store_stats;
pub(crate) mod sweep;
pub(crate) mod view;
pub(crate) mod watches;
