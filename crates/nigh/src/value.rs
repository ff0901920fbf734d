//! A value, lent where it lies in memory.
//!
//! The thread that read it.

use crate::participants::Hold;
use nigh_shm::{Reader, ValueRef};
use std::fmt;
use std::ops::Deref;

/// The bytes of a value, where they lie. They stay as they were read, whatever is written
/// meanwhile.
///
/// A child of a fork mustn't read it: its bytes are the parent's, which doesn't wait for the child.
///
/// While a thread has one, memory that is given up can't be used again: so drop it soon, or copy
/// the bytes. It doesn't leave its thread, and ends before its database:
///
/// ```compile_fail
/// fn leaves(value: nigh::LentValue<'_>) {
///     std::thread::scope(|scope| scope.spawn(|| value.len()).join()).unwrap();
/// }
/// ```
pub struct LentValue<'db> {
    hold: Hold,
    reader: &'db Reader,
    value: ValueRef,
}

impl<'db> LentValue<'db> {
    pub(crate) fn new(hold: Hold, reader: &'db Reader, value: ValueRef) -> LentValue<'db> {
        LentValue { hold, reader, value }
    }
}

impl Deref for LentValue<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.reader.bytes(&self.hold.pin(), self.value)
    }
}

impl AsRef<[u8]> for LentValue<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for LentValue<'_> {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for LentValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LentValue").field(&String::from_utf8_lossy(self)).finish()
    }
}
