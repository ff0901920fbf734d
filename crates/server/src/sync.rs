//! Locks.
//!
//! Any thread.

use std::sync::{Mutex, MutexGuard};

/// The lock's content; a panic elsewhere leaves these simple collections whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
