//! Addresses of this process, with a file mapped over their beginning or not.
//!
//! 1. Addresses are reserved once (PROT_READ, no reserve), so that a stray read behind what is
//!    mapped sees zeros, never SIGBUS.
//! 2. One process maps a file for writing at most once at a time. What a fork's child has of its
//!    parent's mappings doesn't count: nothing there uses them.
//!
//! Any thread.

use crate::format::layout::PAGE_BYTES;
use crate::format::words::MappedWords;
use crate::memory::guarded::Guarded;
use crate::memory::hugepages::HUGE_PAGE_BYTES;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and inode of a file.
pub(crate) type FileIdentity = (u64, u64);

/// Files that a process has mapped for writing (invariant 2).
struct Mapped {
    process: u32,
    files: BTreeSet<FileIdentity>,
}

static MAPPED: Mutex<Mapped> = Mutex::new(Mapped { process: 0, files: BTreeSet::new() });

/// Those of this process.
fn mapped() -> MutexGuard<'static, Mapped> {
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if mapped.process != process {
        *mapped = Mapped { process, files: BTreeSet::new() };
    }
    mapped
}

/// Reserved address space; unmapped when dropped.
pub(crate) struct FileMapping {
    base: NonNull<u8>,
    len: usize,
    /// The file that is mapped for writing, if one is, and the process that does so.
    claimed: Option<(u32, FileIdentity)>,
    /// It reads zeros where the file was cut off.
    guarded: Option<Guarded>,
    /// Bytes of the file whose memory goes back to the system with the mapping.
    over: Range<u64>,
}

// SAFETY: a mapping is plain address space; what is done to its bytes is up to `MappedWords`.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Reserves addresses without memory, so that a huge page of a file lies on one of addresses.
    pub(crate) fn reserve(len: usize) -> Result<FileMapping, Errno> {
        let in_memory = |bytes: u64| usize::try_from(bytes).map_err(|_| Errno::NOMEM);
        let (page, small) = (in_memory(HUGE_PAGE_BYTES)?, in_memory(PAGE_BYTES)?);
        let len = len.checked_next_multiple_of(small).ok_or(Errno::NOMEM)?;
        let all = len.checked_add(page).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other
        // memory.
        let at = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), all, ProtFlags::READ, flags)
        }?;
        let before = at.cast::<u8>().align_offset(page);
        let base = NonNull::new(at.cast::<u8>().wrapping_add(before)).ok_or(Errno::NOMEM)?;
        let end = base.as_ptr().wrapping_add(len);
        for (from, len) in [(at, before), (end.cast(), page - before)] {
            if len > 0 {
                // SAFETY: what was mapped above, and nobody knows of, before and behind what is
                // kept.
                unsafe { rustix::mm::munmap(from, len) }?;
            }
        }
        Ok(FileMapping { base, len, claimed: None, guarded: None, over: 0..0 })
    }

    /// Maps a file read-only from its beginning over at least `len` bytes of addresses.
    pub(crate) fn read_only(file: &File, len: usize) -> Result<FileMapping, Errno> {
        let mapping = FileMapping::reserve(len)?;
        mapping.map(file, 0, mapping.len as u64, ProtFlags::READ)?;
        Ok(mapping)
    }

    /// The same of a file that others may cut off meanwhile.
    pub(crate) fn guarded(file: &File, len: usize) -> Result<FileMapping, Errno> {
        let mut mapping = FileMapping::read_only(file, len)?;
        mapping.guarded = Some(Guarded::new(mapping.base(), mapping.len)?);
        Ok(mapping)
    }

    /// Maps `[from, to)` of the file over the reservation.
    pub(crate) fn map(
        &self,
        file: impl AsFd,
        from: u64,
        to: u64,
        prot: ProtFlags,
    ) -> Result<(), Errno> {
        let len = usize::try_from(to - from).map_err(|_| Errno::NOMEM)?;
        assert!(to <= self.len as u64 && from < to, "{from}..{to} of {}", self.len);
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range lies within this reservation (asserted above), where nothing was mapped
        // but anonymous zeros that nobody holds a reference to (no record lies behind the border).
        let at = unsafe { rustix::mm::mmap(self.at(from), len, prot, flags, file, from) }?;
        assert!(at == self.at(from), "MAP_FIXED maps where it is told to");
        Ok(())
    }

    fn at(&self, offset: u64) -> *mut c_void {
        assert!(offset <= self.len as u64, "offset {offset} of {}", self.len);
        self.base.as_ptr().wrapping_add(usize::try_from(offset).unwrap_or(0)).cast()
    }

    /// Advises the system on a range.
    pub(crate) fn advise(&self, offset: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        let (at, end) = (self.at(offset), self.at(offset + len));
        // SAFETY: the range lies within this mapping. Populating changes no byte; removing is done
        // to bytes that nobody may read any more (the caller's grace period), or that are read by
        // atomic words and checked (a local client's).
        unsafe { rustix::mm::madvise(at, end as usize - at as usize, advice) }
    }

    /// Notes that this process maps a file for writing, until the mapping is dropped. False if it
    /// does so already.
    pub(crate) fn claim(&mut self, identity: FileIdentity) -> bool {
        let mut mapped = mapped();
        let is_new = mapped.files.insert(identity);
        self.claimed = is_new.then_some((mapped.process, identity)).or(self.claimed);
        is_new
    }

    /// The file's memory between two offsets goes back to the system when the mapping ends.
    pub(crate) fn set_over(&mut self, from: u64, to: u64) {
        self.over = from..to;
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// Its addresses, bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The words of this mapping.
    pub(crate) fn words(&self) -> MappedWords {
        // SAFETY: `len` bytes at `base` stay mapped until this mapping is dropped; its owners keep
        // it as long as they use the words. Stores go to backed slots of a writable region only.
        unsafe { MappedWords::new(self.base, self.len as u64) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // Before others may get its addresses.
        drop(self.guarded.take());
        if !self.over.is_empty() {
            // What is refused goes back when the last process that has it mapped lets go.
            let len = self.over.end - self.over.start;
            let _ = self.advise(self.over.start, len, Advice::LinuxRemove);
        }
        // SAFETY: the mapping is ours alone, and its owner has waited until nobody can read it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        if let Some((process, identity)) = self.claimed {
            let mut mapped = mapped();
            // A child that drops its parent's mapping may have one of its own.
            if mapped.process == process {
                mapped.files.remove(&identity);
            }
        }
    }
}
