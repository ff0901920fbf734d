//! Names of files in a log's folder.

use crate::position::Chain;

/// What counts.
pub(crate) const META: &str = "meta";
/// Held by the process that has the folder.
pub(crate) const LOCK: &str = "lock";
/// The next `meta`, while it is being made.
pub(crate) const META_NEW: &str = "meta.new";
/// The end of names of files that are being made.
pub(crate) const NEW: &str = ".new";

/// The highest number that a file's name may have: counting on from it never overflows.
const NUMBER_MOST: u64 = 1 << 53;

/// A log file's name, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName {
    /// Generation, from 1.
    pub generation: u64,
    /// The shard.
    pub shard: u32,
    /// The file's number, 1 to 2^53.
    pub number: u64,
}

impl FileName {
    /// The name of a file of a chain.
    #[must_use]
    pub fn of(chain: &Chain, number: u64) -> FileName {
        FileName { generation: chain.generation, shard: chain.shard, number }
    }

    /// Whether it is a file of this chain.
    #[must_use]
    pub fn is_of(&self, chain: &Chain) -> bool {
        (self.generation, self.shard) == (chain.generation, chain.shard)
    }

    /// Parses `gG-sSS-NNNNNNNNNN.log`; `None` if it is no such name, or not as we write it.
    #[must_use]
    pub fn parse(name: &str) -> Option<FileName> {
        let rest = name.strip_prefix('g')?.strip_suffix(".log")?;
        let (generation, rest) = rest.split_once("-s")?;
        let (shard, number) = rest.split_once('-')?;
        let parsed = FileName {
            generation: generation.parse().ok()?,
            shard: shard.parse().ok()?,
            number: number.parse().ok()?,
        };
        let is_number = (1..=NUMBER_MOST).contains(&parsed.number);
        (parsed.to_string() == name && is_number).then_some(parsed)
    }

    /// The name that it has while it is being made.
    #[must_use]
    pub fn new_name(&self) -> String {
        format!("{self}{NEW}")
    }
}

impl std::fmt::Display for FileName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "g{}-s{:02}-{:010}.log", self.generation, self.shard, self.number)
    }
}
