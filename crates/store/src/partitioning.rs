//! The partition of a key, and the cursor of a walk over all partitions.
//!
//! ```text
//! key ──tag──> hash ──> partition = hash × partitions / 2^32
//! ```
//!
//! 1. All partitions of a tenant have one seed, so the hash of a tag is the same in each.
//!
//! Thread: any; it is pure.

/// Most partitions of a keyspace.
pub const MOST_PARTITIONS: usize = 64;

/// The part of a key that chooses its partition: the text between its first `{` and the next `}`,
/// if that isn't empty, else the whole key. (Redis Cluster's hash tags.)
#[inline]
#[must_use]
pub fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let rest = &key[open + 1..];
    match memchr::memchr(b'}', rest) {
        None | Some(0) => key,
        Some(end) => &rest[..end],
    }
}

/// The partition of a key whose tag has this hash.
#[inline]
#[must_use]
pub(crate) fn partition_of_hash(hash: u32, partitions: usize) -> usize {
    ((u64::from(hash) * partitions as u64) >> 32) as usize
}

/// The number of a store's partition, of so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionNumber {
    pub(crate) partition: u64,
    pub(crate) partitions: u64,
}

impl PartitionNumber {
    /// The keyspace's cursor for a store's cursor. The store's 0 is its end: it becomes the start
    /// of the next partition, or 0 after the last one.
    pub(crate) fn outward(self, cursor: u64) -> u64 {
        match cursor {
            0 if self.partition + 1 == self.partitions => 0,
            0 => self.partition + 1,
            _ => cursor.saturating_mul(self.partitions).saturating_add(self.partition),
        }
    }

    /// The store's cursor for the keyspace's.
    pub(crate) fn inward(self, cursor: u64) -> u64 {
        cursor / self.partitions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_what_redis_cluster_takes() {
        for (key, expected) in [
            ("plain", "plain"),
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("}{", "}{"),
            ("", ""),
        ] {
            assert_eq!(tag(key.as_bytes()), expected.as_bytes(), "of {key}");
        }
    }

    #[test]
    fn hashes_fill_all_partitions_alike() {
        for partitions in [1, 2, 3, 7, MOST_PARTITIONS] {
            let mut counts = vec![0u32; partitions];
            for step in 0..64_000u32 {
                counts[partition_of_hash(step.wrapping_mul(67_109), partitions)] += 1;
            }
            let fair = 64_000 / u32::try_from(partitions).expect("small");
            assert!(counts.iter().all(|count| count.abs_diff(fair) <= fair / 4), "{counts:?}");
        }
        assert_eq!(partition_of_hash(u32::MAX, 7), 6);
    }

    #[test]
    fn a_walk_over_all_partitions_begins_and_ends_with_0() {
        for partitions in [1, 2, 5] {
            let place = |partition| PartitionNumber { partition, partitions };
            let mut cursor = 0;
            for partition in 0..partitions {
                assert_eq!(cursor % partitions, partition);
                assert_eq!(place(partition).inward(cursor), 0, "each is walked from its start");
                let inside = place(partition).outward(77);
                assert_eq!((inside % partitions, place(partition).inward(inside)), (partition, 77));
                cursor = place(partition).outward(0);
            }
            assert_eq!(cursor, 0);
        }
    }
}
