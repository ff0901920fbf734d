//! What the server tells of itself: statistics, slow commands, hot keys, and the metrics made of
//! them.

pub(crate) mod histogram;
pub(crate) mod hotkeys;
pub(crate) mod http;
pub(crate) mod inside;
pub(crate) mod metrics;
pub(crate) mod slowlog;
pub(crate) mod snapshot;
pub(crate) mod stats;
