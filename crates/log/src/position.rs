//! A position in a chain, and the chain itself.

use std::fmt;

/// A place in a chain of log files; later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogPosition {
    /// Number of the file, from 1; 0: before all.
    pub file: u64,
    /// Offset in it, bytes.
    pub position: u64,
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offset {} of file {}", self.position, self.file)
    }
}

/// The log of one shard within a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chain {
    /// Generation, from 1.
    pub generation: u64,
    /// The shard.
    pub shard: u32,
    /// How many shards the generation has.
    pub shards: u32,
}
