//! What the process's allocator (glibc's) keeps of freed memory, and giving it back. Any thread.
//!
//! It is here since the shim is the one place in which Nigh calls C. Whoever frees buffers of many
//! megabytes needs it: what lies below anything that is still in use stays with the process
//! otherwise.

use crate::ffi;

/// Sets how much the allocator keeps by itself. Once per process, before large buffers come and go.
pub fn settle() {
    // SAFETY: no preconditions.
    unsafe { ffi::nigh_allocator_settle() };
}

/// Freed bytes that the allocator keeps. Some may have gone back to the system: it doesn't note
/// which.
#[must_use]
pub fn free_bytes() -> usize {
    // SAFETY: no preconditions.
    unsafe { ffi::nigh_allocator_free_bytes() }
}

/// Gives the whole pages among them back to the system: about 0.1 ms for each MiB.
pub fn trim() {
    // SAFETY: no preconditions.
    unsafe { ffi::nigh_allocator_trim() };
}
