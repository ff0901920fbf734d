//! The sizes of a local client's rings, and where they lie: `docs/formats/local.md`.
//!
//! Plain data.

use crate::format::layout::PAGE_BYTES;
use crate::local::error::LocalError;
use crate::ring::{DATA_OFFSET, MOST_BYTES};
use std::ops::Range;

/// Version of what `LOCAL ATTACH` agrees on: this memory, and who wakes whom.
pub const PROTOCOL: u32 = 1;
/// The smallest ring, bytes: a page.
pub const LEAST_LOCAL_BYTES: u32 = 4096;
/// The biggest ring, bytes.
pub const MOST_LOCAL_BYTES: u32 = MOST_BYTES;
/// Offset of the server's bell.
pub(crate) const SERVER_BELL: u64 = 64;
/// Offset of the client's bell.
pub(crate) const CLIENT_BELL: u64 = 128;
/// Offset of the ring of requests.
pub(crate) const REQUESTS: u64 = 4096;
/// The kind of all messages: bytes of the stream.
pub(crate) const STREAM: u16 = 1;

const _: () = {
    assert!(CLIENT_BELL - SERVER_BELL >= 64, "bells on cache lines of their own");
    assert!(REQUESTS == PAGE_BYTES && CLIENT_BELL + 64 <= REQUESTS);
};

/// The sizes of both rings, bytes of messages: powers of two from [`LEAST_LOCAL_BYTES`] to
/// [`MOST_LOCAL_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalSpec {
    /// The ring of requests.
    pub request_bytes: u32,
    /// The ring of replies.
    pub reply_bytes: u32,
}

impl LocalSpec {
    /// Bytes of the memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.replies().end.next_multiple_of(PAGE_BYTES)
    }

    /// Itself, if both sizes are possible.
    ///
    /// # Errors
    /// [`LocalError::RingBytes`] if one isn't.
    pub fn validate(self) -> Result<LocalSpec, LocalError> {
        let possible = LEAST_LOCAL_BYTES..=MOST_LOCAL_BYTES;
        for bytes in [self.request_bytes, self.reply_bytes] {
            if !bytes.is_power_of_two() || !possible.contains(&bytes) {
                let (least, most) = (LEAST_LOCAL_BYTES, MOST_LOCAL_BYTES);
                return Err(LocalError::RingBytes { bytes, least, most });
            }
        }
        Ok(self)
    }

    /// Where the ring of requests lies.
    pub(crate) fn requests(&self) -> Range<u64> {
        REQUESTS..REQUESTS + DATA_OFFSET + u64::from(self.request_bytes)
    }

    /// Where the ring of replies lies.
    pub(crate) fn replies(&self) -> Range<u64> {
        let start = self.requests().end.next_multiple_of(PAGE_BYTES);
        start..start + DATA_OFFSET + u64::from(self.reply_bytes)
    }
}
