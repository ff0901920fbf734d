//! Bounds the freed memory that the process's allocator (glibc's) keeps, and gives it back. Any
//! thread.
//!
//! It is in this crate since only the shim calls C. A process that frees buffers of many megabytes
//! needs it: by itself, glibc keeps all freed memory that lies below a block in use.

use crate::ffi;

/// Bounds what the allocator keeps by itself. Once per process, before large buffers come and go.
pub fn settle() {
    // SAFETY: no preconditions.
    unsafe { ffi::nigh_allocator_settle() };
}

/// Freed bytes that the allocator keeps. Some of them may have gone back to the system: it doesn't
/// note which.
#[must_use]
pub fn free_bytes() -> usize {
    // SAFETY: no preconditions.
    unsafe { ffi::nigh_allocator_free_bytes() }
}

/// Gives freed memory back to the system, in whole pages: about 0.1 ms for each MiB.
pub fn trim() {
    // SAFETY: no preconditions.
    unsafe { ffi::nigh_allocator_trim() };
}

/// How often the process touched a page that wasn't resident, and the kernel had to make it so
/// without reading a file.
#[must_use]
pub fn page_faults() -> u64 {
    // SAFETY: no preconditions.
    unsafe { ffi::nigh_page_faults() }
}
