//! Strings that the source has and the target hasn't: a command that Nigh doesn't have changed
//! them, or they came from another database. What only changes such a string would make another
//! one.
//!
//! 1. A key is lost until it is set anew, removed or overwritten.
//! 2. Memory: a hash for each of at most [`LOST_MAX`] keys. Two keys with one hash are taken for
//!    one, which among so many befalls one import of 2^24.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::source::SourceError;

/// Most keys that are lost at a time.
const LOST_MAX: usize = 1 << 20;

#[derive(Default)]
pub(super) struct LostStrings {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl LostStrings {
    /// The string of a command at `offset` isn't at the target.
    pub(super) fn add(&mut self, key: &[u8], offset: u64) -> Result<(), SourceError> {
        self.hashes.insert(self.hasher.hash_one(key));
        match self.hashes.len() > LOST_MAX {
            true => Err(SourceError::TooManyLost { offset, most: LOST_MAX }),
            false => Ok(()),
        }
    }

    /// The key is at the target as at the source again. Whether it was lost.
    pub(super) fn take(&mut self, key: &[u8]) -> bool {
        !self.hashes.is_empty() && self.hashes.remove(&self.hasher.hash_one(key))
    }

    pub(super) fn has(&self, key: &[u8]) -> bool {
        !self.hashes.is_empty() && self.hashes.contains(&self.hasher.hash_one(key))
    }

    /// All keys went.
    pub(super) fn clear(&mut self) {
        self.hashes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many that an import doesn't keep them in mind end it, with what to do.
    #[test]
    fn there_are_so_many_at_most() {
        let mut lost = LostStrings::default();
        for n in 0..LOST_MAX {
            lost.add(&n.to_le_bytes(), 0).expect("there is room");
        }
        lost.add(&0_usize.to_le_bytes(), 0).expect("it is known");
        let error = lost.add(b"one more", 7).expect_err("it is one more").to_string();
        let told = ["more than 1048576 strings", "at offset 7", "BGREWRITEAOF"];
        assert!(told.iter().all(|told| error.contains(told)), "{error}");
    }
}
