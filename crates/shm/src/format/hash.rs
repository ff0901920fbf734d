//! The hash of keys: xxHash32 with a secret seed per arena. Any thread.

/// Hash of a key (xxHash32, <https://github.com/Cyan4973/xxHash>); JavaScript computes the same.
#[must_use]
#[inline]
pub(crate) fn hash(seed: u32, key: &[u8]) -> u32 {
    xxhash_rust::xxh32::xxh32(key, seed)
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn hash_is_xxh32_as_specified() {
        // The reference implementation's vectors: another implementation must find the same entry.
        assert_eq!(hash(0, b""), 0x02CC_5D05);
        assert_eq!(hash(0, b"a"), 0x550D_7456);
        assert_eq!(hash(0, b"abc"), 0x32D1_53FF);
    }
}
