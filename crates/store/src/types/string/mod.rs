//! Strings.

mod numbers;
mod ranges;
mod several;
mod whole;

/// Longest value, bytes (Redis: `proto-max-bulk-len`).
pub const MAX_VALUE_BYTES: u64 = 512 << 20;
