//! Strings, a file for each group of commands.

pub(crate) mod encoding;
pub(crate) mod numbers;
pub(crate) mod ranges;
pub(crate) mod several;
pub(crate) mod whole;

/// Name of the type, as TYPE and SCAN have it, in upper case.
pub(crate) const NAME: &str = "STRING";

/// Longest value, bytes (Redis: `proto-max-bulk-len`).
pub(crate) const MAX_VALUE_BYTES: u64 = 512 << 20;
