//! Where a reader puts the value that it copies out.
//!
//! 1. A length that the system gives no memory for is noted, and never ends the process. It may be
//!    that of memory that was reused, so the reader looks again; the last look tells.
//!
//! One thread at a time.

/// A caller's memory for one value.
pub(super) struct Room<'v> {
    bytes: &'v mut Vec<u8>,
    denied: Option<usize>,
}

impl Room<'_> {
    pub(super) fn of(bytes: &mut Vec<u8>) -> Room<'_> {
        Room { bytes, denied: None }
    }

    /// The memory with so many bytes, which mean nothing yet; `None` if the system gives none.
    #[inline]
    pub(super) fn sized(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.bytes.capacity() && !self.grows(len) {
            return None;
        }
        self.bytes.resize(len, 0);
        Some(self.bytes)
    }

    /// What was there is given back first: it isn't wanted, and would be copied.
    #[cold]
    fn grows(&mut self, len: usize) -> bool {
        *self.bytes = Vec::new();
        let is_denied = self.bytes.try_reserve_exact(len).is_err();
        self.denied = is_denied.then_some(len);
        !is_denied
    }

    /// Bytes for which the system gave no memory when it was last asked.
    pub(super) fn denied(&self) -> Option<usize> {
        self.denied
    }
}

#[cfg(test)]
mod tests {
    use super::Room;

    #[test]
    fn memory_that_the_system_refuses_is_noted_until_it_gives_some() {
        let mut bytes = vec![1; 10];
        let mut room = Room::of(&mut bytes);
        assert!(room.sized(isize::MAX.unsigned_abs()).is_none());
        assert_eq!(room.denied(), Some(isize::MAX.unsigned_abs()));
        // The length was that of memory in reuse: the next look finds another.
        assert_eq!(room.sized(20).map(|it| it.len()), Some(20));
        assert_eq!(room.denied(), None);
        assert_eq!(room.sized(0).map(|it| it.len()), Some(0));
        assert!(bytes.is_empty());
        assert!(bytes.capacity() < 30, "what was there has made place, and wasn't copied");
    }
}
