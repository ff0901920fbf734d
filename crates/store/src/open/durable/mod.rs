//! Opening a store with a log.

mod ahead;
mod arenas;
pub(crate) mod attached;
pub(crate) mod base;
mod building;
mod found;
mod journals;
pub(crate) mod live_log;
pub(crate) mod log_keeper;
pub(crate) mod log_options;
mod plan;
mod rebuild;
mod rest;
pub(crate) mod retire;
pub(crate) mod start;
pub(crate) mod streams_of;
