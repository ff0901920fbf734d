//! Bytes that begin at a block's address: a disk takes them from where they lie, without a copy.
//!
//! They begin there as long as they stay within the capacity that was asked for; behind that they
//! are only slower to write.

use crate::format::layout::BLOCK_BYTES;
use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// Addresses are multiples of this: bytes.
pub(crate) const ALIGN: usize = 4096;

const _: () = assert!(ALIGN as u64 == BLOCK_BYTES);

/// See the header of this file.
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes {
    bytes: Vec<u8>,
    /// Bytes before the first one.
    lead: usize,
}

impl AlignedBytes {
    /// No bytes, with room for so many.
    pub(crate) fn with_capacity(capacity: usize) -> AlignedBytes {
        AlignedBytes::in_memory(Vec::with_capacity(capacity + ALIGN))
    }

    /// No bytes, in memory that has none.
    fn in_memory(mut bytes: Vec<u8>) -> AlignedBytes {
        let lead = bytes.as_ptr().align_offset(ALIGN);
        bytes.resize(lead, 0);
        AlignedBytes { bytes, lead }
    }

    /// So many zeros.
    pub(crate) fn zeros(count: usize) -> AlignedBytes {
        let mut zeros = AlignedBytes::with_capacity(count);
        zeros.resize(count);
        zeros
    }

    /// Room for so many bytes in all.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity().saturating_sub(ALIGN)
    }

    /// Cuts what is behind so many bytes, or adds zeros.
    pub(crate) fn resize(&mut self, count: usize) {
        self.bytes.resize(self.lead + count, 0);
    }

    /// The same, on a block again if there has to be more memory.
    pub(crate) fn try_resize(&mut self, count: usize) -> Result<(), TryReserveError> {
        if count > self.capacity() {
            let mut memory = Vec::new();
            memory.try_reserve_exact(count + ALIGN)?;
            let mut larger = AlignedBytes::in_memory(memory);
            larger.extend_from_slice(self);
            *self = larger;
        }
        self.resize(count);
        Ok(())
    }

    /// Adds bytes.
    pub(crate) fn extend_from_slice(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.lead..).unwrap_or_default()
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.lead..).unwrap_or_default()
    }
}
