//! Telling a process from its forks.
//!
//! ```text
//! a page of its own: 1 ── fork ──> parent: 1, child: 0 (the kernel wipes it: MADV_WIPEONFORK)
//! ```
//!
//! 1. The page's word is stored before anybody else knows of the mark, and never again.
//! 2. A fork's child has the mark at the same address, as all that its parent had.
//! 3. Where the kernel can't wipe (before Linux 4.14), each look asks for the process's id.
//!
//! Any thread.

use crate::format::layout::PAGE_BYTES;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Pid, getpid};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a mark takes.
#[expect(clippy::cast_possible_truncation, reason = "a page")]
const BYTES: usize = PAGE_BYTES as usize;

/// Knows the process that made it: see [`ForkMark::is_in_child`].
pub struct ForkMark {
    page: NonNull<AtomicU64>,
    process: Pid,
    is_wiped: bool,
}

// SAFETY: the page is this mark's alone, and its word is atomic.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// The system gives no page.
    pub fn new() -> Result<ForkMark, std::io::Error> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other
        // memory.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), BYTES, prot, flags) }?;
        let page = NonNull::new(at.cast::<AtomicU64>()).ok_or(Errno::NOMEM)?;
        // SAFETY: the page that was mapped above, and which nobody else knows of.
        let is_wiped = unsafe { rustix::mm::madvise(at, BYTES, Advice::LinuxWipeOnFork) }.is_ok();
        let mark = ForkMark { page, process: getpid(), is_wiped };
        mark.word().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as the mark lives, zeroed or stored to by atomics
        // only, and begins on a page.
        unsafe { self.page.as_ref() }
    }

    /// Whether this is a child, by `fork`, of the process that made the mark; or a child's child.
    /// Costs a load.
    #[inline]
    #[must_use]
    pub fn is_in_child(&self) -> bool {
        match self.is_wiped {
            true => self.word().load(Ordering::Relaxed) == 0,
            false => getpid() != self.process,
        }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and nobody looks at it any more.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_its_process_wiped_or_not() {
        // A child of a real fork is told by crates/nigh's tests.
        let mark = ForkMark::new().expect("a page");
        assert!(!mark.is_in_child());
        mark.word().store(0, Ordering::Relaxed); // as the kernel does
        assert_eq!(mark.is_in_child(), mark.is_wiped);
        let other = Pid::from_raw(mark.process.as_raw_nonzero().get() + 1).expect("a number");
        let mut mark = ForkMark::new().expect("a page");
        mark.is_wiped = false;
        assert!(!mark.is_in_child(), "a kernel that can't wipe");
        mark.process = other;
        assert!(mark.is_in_child());
    }
}
