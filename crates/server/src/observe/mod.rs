//! What the server tells of itself: statistics, slow commands, hot keys, and the metrics made of
//! them.

/// Adds these fields of `$part` to those of `$sum`.
macro_rules! add_fields {
    ($sum:expr, $part:expr, $($field:ident)+) => { $($sum.$field += $part.$field;)+ };
}

pub(crate) mod histogram;
pub(crate) mod hotkeys;
pub(crate) mod http;
pub(crate) mod inside;
pub(crate) mod log_totals;
pub(crate) mod metrics;
pub(crate) mod rewrites;
pub(crate) mod slowlog;
pub(crate) mod snapshot;
pub(crate) mod stats;
