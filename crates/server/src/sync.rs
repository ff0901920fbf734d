//! Locks, and what happens when a piece of work ends, however it does.
//!
//! Any thread.

use std::sync::{Mutex, MutexGuard};

/// The lock's content; a panic elsewhere leaves these simple collections whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Does something when it is dropped.
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
