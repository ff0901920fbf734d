//! The words of a ring or a bell on the heap, as a type that other crates may name.
//!
//! 1. Words that two threads store lie so far apart, and from both ends, that they share no cache
//!    line with each other or with other memory, however the allocation is aligned.
//!
//! For any thread; the ring says which side may store which word.

use super::bytes::DATA;
use crate::format::words::{HeapWords, SharedWords};
use std::sync::atomic::Ordering;

/// Heap memory that two threads share.
#[derive(Clone)]
pub struct HeapMemory(HeapWords);

impl HeapMemory {
    /// Zeroed memory for so many bytes of messages.
    pub(crate) fn for_ring(capacity: u64) -> HeapMemory {
        HeapMemory::zeroed(DATA + capacity)
    }

    /// So many zeroed bytes.
    pub(crate) fn zeroed(bytes: u64) -> HeapMemory {
        HeapMemory(HeapWords::new(usize::try_from(bytes).expect("usize has 64 bits")))
    }
}

impl SharedWords for HeapMemory {
    #[inline]
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        self.0.load32(offset, order)
    }
    fn store32(&self, offset: u64, value: u32, order: Ordering) {
        self.0.store32(offset, value, order);
    }
    #[inline]
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.0.load64(offset, order)
    }
    #[inline]
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        self.0.store64(offset, value, order);
    }
    #[inline]
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        self.0.add64(offset, n, order)
    }
    #[inline]
    fn fence(&self, order: Ordering) {
        self.0.fence(order);
    }
    #[inline]
    fn load_words(&self, offset: u64, to: &mut [[u8; 8]]) {
        self.0.load_words(offset, to);
    }
    #[inline]
    fn store_words(&self, offset: u64, from: &[[u8; 8]]) {
        self.0.store_words(offset, from);
    }
    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        self.0.copy_in(offset, bytes);
    }
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        self.0.copy_out(offset, bytes);
    }
    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.0.equals(offset, bytes)
    }
    fn prefetch(&self, offset: u64) {
        self.0.prefetch(offset);
    }
}
