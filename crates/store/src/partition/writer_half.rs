//! The writer of an arena, which only the owner's store has.
//!
//! 1. A view never writes, because the server sends writes to the owner. A write that reaches a
//!    view is a bug, and ends the thread.
//!
//! Thread: the store's.

use std::ops::{Deref, DerefMut};

use nigh_shm::Writer;

const ELSEWHERE: &str = "a view of a store doesn't write: writes are sent to the owner";

/// The writer of an arena, if it is here.
pub(crate) struct WriterHalf(Option<Writer>);

impl WriterHalf {
    /// The owner's half.
    pub(crate) fn here(writer: Writer) -> WriterHalf {
        WriterHalf(Some(writer))
    }

    /// A view's half.
    pub(crate) fn elsewhere() -> WriterHalf {
        WriterHalf(None)
    }

    /// Whether this is the owner's half.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.0.is_some()
    }
}

impl Deref for WriterHalf {
    type Target = Writer;

    #[inline]
    fn deref(&self) -> &Writer {
        self.0.as_ref().expect(ELSEWHERE)
    }
}

impl DerefMut for WriterHalf {
    #[inline]
    fn deref_mut(&mut self) -> &mut Writer {
        self.0.as_mut().expect(ELSEWHERE)
    }
}
