//! Checksums of records and of values in runs: CRC32C (Castagnoli).
//!
//! 1. A record's sum covers its bytes from the key's first to its last, then the header but for the
//!    sum itself and `prev`. So what is long is summed when it is written, and the header when its
//!    numbers are known.
//! 2. A run's name holds the sum of the value, which a longer value continues.
//!
//! Pure functions: any thread.

use crate::format::head::Head;
use crate::format::layout::record as r;
use crate::format::words::SharedWords;

/// Bytes that are summed of a header.
pub(crate) const OF_HEADER: usize = 24;
/// From so many bytes on the crate sums three parts at a time; up to there it takes longer than one
/// after the other.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 768;
/// Bytes that are copied out at a time.
const PIECE_BYTES: usize = 4096;

/// The sum of `bytes` behind what has the sum `before`; 0 before the first.
#[inline]
pub(crate) fn more(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() < SHORT_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions, as was just asked.
        return unsafe { more_of_few(before, bytes) };
    }
    crc32c::crc32c_append(before, bytes)
}

/// The same of few bytes: word after word, without what the crate does beforehand for many.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn more_of_few(before: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks();
    let mut sum = u64::from(!before);
    for word in words {
        sum = _mm_crc32_u64(sum, u64::from_le_bytes(*word));
    }
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
    let mut sum = sum as u32;
    let (halves, rest) = rest.as_chunks();
    for half in halves {
        sum = _mm_crc32_u32(sum, u32::from_le_bytes(*half));
    }
    !rest.iter().fold(sum, |sum, byte| _mm_crc32_u8(sum, *byte))
}

/// The bytes of a header that are summed.
#[inline]
pub(crate) fn header(head: &Head) -> [u8; OF_HEADER] {
    // By whole words: a sum that reads wider than was written waits until all is in the cache.
    let [lengths, lsn, expiry_ms, rest] = head.to_words();
    let words = [
        lengths & u64::from(u32::MAX) | lsn << 32,
        lsn >> 32 | expiry_ms << 32,
        expiry_ms >> 32 | rest >> 32 << 32,
    ];
    let mut summed = [0; OF_HEADER];
    for (bytes, word) in summed.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    summed
}

/// The sum of a record, from that of what stands behind its header.
#[inline]
pub(crate) fn of_record(body: u32, head: &Head) -> u32 {
    more(body, &header(head))
}

/// The sum that the record at `offset` should have. Its shape has been checked.
pub(crate) fn expected<W: SharedWords>(words: &W, offset: u64, head: &Head) -> u32 {
    of_record(of_bytes(words, offset + r::KEY, head.bytes() - r::KEY), head)
}

/// The sum that a record with this header should have, from the bytes behind its header where they
/// lie.
#[inline]
pub(crate) fn of_lent(body: &[u8], head: &Head) -> u32 {
    of_record(more(0, body), head)
}

/// The sum of `len` bytes at `offset`.
pub(crate) fn of_bytes<W: SharedWords>(words: &W, offset: u64, len: u64) -> u32 {
    let mut piece = [0; PIECE_BYTES];
    let (mut sum, mut at, end) = (0, offset, offset + len);
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        words.copy_out(at, &mut piece[..wanted]);
        sum = more(sum, &piece[..wanted]);
        at += wanted as u64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_crc32c_as_iscsi_has_it() {
        // RFC 3720, B.4: so that others can compute it.
        assert_eq!(more(0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(more(0, &[0xFF; 32]), 0x62A8_AB43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(more(0, &rising), 0x46DD_794E);
        assert_eq!(more(more(0, &rising[..7]), &rising[7..]), 0x46DD_794E, "in pieces, the same");
    }

    #[test]
    fn few_bytes_are_summed_like_many() {
        // Any length on either side of where the way changes, at any alignment, behind anything.
        let bytes: Vec<u8> =
            (0..=255).cycle().map(|i: u8| i.wrapping_mul(31) ^ (i >> 3)).take(2000).collect();
        for len in (0..100).chain(700..900) {
            for at in 0..9 {
                let (some, before) = (&bytes[at..at + len], crc32c::crc32c(&bytes[..len]));
                assert_eq!(
                    more(before, some),
                    crc32c::crc32c_append(before, some),
                    "{len} at {at}"
                );
            }
        }
    }

    #[test]
    fn what_is_summed_of_a_header_are_its_bytes() {
        let head = Head::from_bytes(b"value_len,sum,lsn,expiry,prev...");
        let (bytes, summed) = (head.to_bytes(), header(&head));
        assert_eq!(summed[..], [&bytes[..4], &bytes[8..24], &bytes[28..]].concat());
    }

    #[test]
    fn the_header_is_summed_but_for_the_sum_and_prev() {
        let head = Head {
            value_len: 3,
            checksum: 7,
            lsn: 9,
            expiry_ms: 11,
            prev: 13,
            key_len: 1,
            kind: r::KIND_STRING,
            flags: 0,
        };
        let sum = of_record(5, &head);
        assert_eq!(of_record(5, &Head { checksum: 8, prev: 0, ..head }), sum);
        let others = [
            Head { value_len: 4, ..head },
            Head { lsn: 10, ..head },
            Head { expiry_ms: 12, ..head },
            Head { key_len: 2, ..head },
            Head { kind: r::KIND_INTENT, ..head },
            Head { flags: r::FLAG_RUN, ..head },
        ];
        assert!(
            others.iter().all(|other| of_record(5, other) != sum) && of_record(6, &head) != sum
        );
    }
}
