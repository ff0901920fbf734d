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
fn partition_of_hash(hash: u32, partitions: usize) -> usize {
    ((u64::from(hash) * partitions as u64) >> 32) as usize
}

/// The partition of a key with this hash, of so many; `hash_of` gives the hash of another tag.
#[inline]
#[must_use]
pub fn partition_of(
    key: &[u8],
    hash: u32,
    partitions: usize,
    hash_of: impl FnOnce(&[u8]) -> u32,
) -> usize {
    if partitions == 1 {
        return 0;
    }
    let tag = tag(key);
    let hash = if tag.len() == key.len() { hash } else { hash_of(tag) };
    partition_of_hash(hash, partitions)
}

/// The number of a store's partition, of so many.
#[derive(Clone, Copy, Debug)]
pub struct PartitionNumber {
    /// The partition, from 0 on.
    pub partition: u64,
    /// How many there are.
    pub partitions: u64,
}

impl PartitionNumber {
    /// The partition in which a walk over all of them goes on at a cursor.
    #[must_use]
    pub fn of_cursor(cursor: u64, partitions: u64) -> PartitionNumber {
        PartitionNumber { partition: cursor % partitions, partitions }
    }

    /// The keyspace's cursor for a store's cursor. The store's 0 is its end: it becomes the start
    /// of the next partition, or 0 after the last one.
    #[must_use]
    pub fn outward(self, cursor: u64) -> u64 {
        match cursor {
            0 if self.partition + 1 == self.partitions => 0,
            0 => self.partition + 1,
            _ => cursor.saturating_mul(self.partitions).saturating_add(self.partition),
        }
    }

    /// The store's cursor for the keyspace's.
    #[must_use]
    pub fn inward(self, cursor: u64) -> u64 {
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
