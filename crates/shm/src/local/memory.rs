//! The mapped memory of a local client, which its other side writes too.
//!
//! 1. Its size is sealed, so its pages stay while it is mapped; it is unmapped with the last part.
//! 2. Every access is by atomic words ([`SharedWords`]): the other side may look at any moment. No
//!    reference to its bytes is formed.
//!
//! Any thread.

use crate::format::words::{MappedWords, SharedWords};
use crate::memory::file_mapping::FileMapping;
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A part of the memory of a local client.
#[derive(Clone)]
pub struct LocalMemory {
    words: MappedWords,
    mapping: Arc<FileMapping>,
}

impl LocalMemory {
    /// Maps so many bytes of a file whose size is sealed.
    pub(super) fn map(file: BorrowedFd<'_>, bytes: u64) -> Result<LocalMemory, Errno> {
        let mapping = FileMapping::reserve(usize::try_from(bytes).map_err(|_| Errno::NOMEM)?)?;
        mapping.map(file, 0, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(LocalMemory { words: mapping.words(), mapping: Arc::new(mapping) })
    }

    /// A part of it, which begins at a multiple of 64.
    pub(super) fn part(&self, range: Range<u64>) -> LocalMemory {
        LocalMemory { words: self.words.part(range), mapping: Arc::clone(&self.mapping) }
    }
}

impl LocalMemory {
    /// Gives the pages of the whole file back to the system, for all that have it: they read as
    /// zeros, and a write takes a new one.
    pub(super) fn wipe(&self) {
        // What is refused goes back when the last process that has it lets go.
        let _ = self.mapping.advise(0, self.mapping.len() as u64, Advice::LinuxRemove);
    }
}

impl SharedWords for LocalMemory {
    #[inline]
    fn len(&self) -> u64 {
        self.words.len()
    }
    fn load32(&self, offset: u64, order: Ordering) -> u32 {
        self.words.load32(offset, order)
    }
    fn store32(&self, offset: u64, value: u32, order: Ordering) {
        self.words.store32(offset, value, order);
    }
    #[inline]
    fn load64(&self, offset: u64, order: Ordering) -> u64 {
        self.words.load64(offset, order)
    }
    #[inline]
    fn store64(&self, offset: u64, value: u64, order: Ordering) {
        self.words.store64(offset, value, order);
    }
    #[inline]
    fn add64(&self, offset: u64, n: u64, order: Ordering) -> u64 {
        self.words.add64(offset, n, order)
    }
    #[inline]
    fn fence(&self, order: Ordering) {
        self.words.fence(order);
    }
    #[inline]
    fn load_words(&self, offset: u64, to: &mut [[u8; 8]]) {
        self.words.load_words(offset, to);
    }
    #[inline]
    fn store_words(&self, offset: u64, from: &[[u8; 8]]) {
        self.words.store_words(offset, from);
    }
    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        self.words.copy_out(offset, bytes);
    }
    fn prefetch(&self, offset: u64) {
        self.words.prefetch(offset);
    }
}
