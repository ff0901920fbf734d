//! Checksums that are keyed with the log's secret and a file's salt.
//!
//! The key keeps bytes of a value, or of an earlier life of a recycled file, from being taken for a
//! frame. It is no signature.

use crc32c::{crc32c, crc32c_append};

/// The secret of a log: chosen at random, kept in `meta`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// What the sums of one preparation of one file begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SumKey {
    /// The log's.
    pub secret: Secret,
    /// The file's.
    pub salt: u64,
}

impl SumKey {
    /// The sum of a frame's header: `bytes` are those from the body's sum on.
    #[must_use]
    pub(crate) fn header(&self, bytes: &[u8]) -> u32 {
        crc32c_append(self.begin(), bytes)
    }

    /// The sum of a frame's body before its first byte; [`Self::more`] goes on with it.
    #[must_use]
    pub(crate) fn body(&self, position: u64) -> u32 {
        crc32c_append(self.begin(), &position.to_le_bytes())
    }

    /// The sum with some more bytes of the body.
    #[must_use]
    pub(crate) fn more(sum: u32, bytes: &[u8]) -> u32 {
        crc32c_append(sum, bytes)
    }

    fn begin(&self) -> u32 {
        crc32c_append(crc32c(&self.secret.0), &self.salt.to_le_bytes())
    }
}

/// The sum of a file's head: its first 12 bytes, and those from the log id on.
#[must_use]
pub(crate) fn of_head(secret: &Secret, front: &[u8], rest: &[u8]) -> u32 {
    crc32c_append(crc32c_append(crc32c(&secret.0), front), rest)
}

/// The sum of `meta`'s text, which is not keyed.
#[must_use]
pub(crate) fn of_text(text: &[u8]) -> u32 {
    crc32c(text)
}
