//! What the replies of a connection stand on: changes of streams, which may not be on disk yet.
//!
//! ```text
//! a command looks at a partition ──> Depends ──(replies are about to leave)──> Kept { needs } ──(on disk)──> they leave
//! ```
//!
//! 1. A tenant's streams are its partitions, by number, and its libraries.
//! 2. `wrote` is within `looked`.
//!
//! Plain data of the shard's thread; [`crate::turn::unsynced`] keeps the rules.

use nigh_shm::MOST_PARTITIONS;

/// The stream of a tenant's libraries: the number behind those of all partitions.
pub(crate) const LIBRARY_STREAM: usize = MOST_PARTITIONS;
const _: () = assert!(LIBRARY_STREAM < u128::BITS as usize, "a bit for each stream");

/// Some streams of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Streams(u128);

impl Streams {
    pub(crate) const NONE: Self = Self(0);
    /// The libraries'.
    pub(crate) const LIBRARIES: Self = Self(1 << LIBRARY_STREAM);

    /// The one of this number, such as a partition's.
    #[inline]
    pub(crate) fn of(stream: usize) -> Self {
        Self(1 << stream)
    }

    /// Those of the first so many partitions.
    pub(crate) fn of_all(partitions: usize) -> Self {
        Self((1 << partitions) - 1)
    }

    /// Those of both.
    #[inline]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it is among them.
    pub(crate) fn has(self, stream: usize) -> bool {
        self.0 >> stream & 1 == 1
    }

    /// Their numbers, rising.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (next < u128::BITS as usize).then_some(next)
        })
    }
}

/// What replies depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Depends {
    /// Streams that their commands have looked at.
    pub(crate) looked: Streams,
    /// Those in which their commands have written.
    pub(crate) wrote: Streams,
    /// One of them called a function with the flag `durable`: they wait whatever the mode is.
    pub(crate) insists: bool,
}

impl Depends {
    /// Whether they depend on nothing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.looked == Streams::NONE
    }

    /// A command has looked at some streams, and may have written to others.
    pub(crate) fn add(&mut self, looked: Streams, wrote: Streams) {
        self.looked = self.looked.and(looked).and(wrote);
        self.wrote = self.wrote.and(wrote);
    }
}

/// A change that is to be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) stream: usize,
    pub(crate) lsn: u64,
}

/// Replies that are kept until changes are on disk.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Those changes; none: nothing is kept.
    pub(crate) needs: Vec<Need>,
    /// Bytes of replies that waited when they were gathered.
    pub(crate) bytes: usize,
}

impl Kept {
    /// Whether replies are kept.
    #[inline]
    pub(crate) fn keeps(&self) -> bool {
        !self.needs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_apart() {
        let some = Streams::of(3).and(Streams::of(63)).and(Streams::LIBRARIES);
        assert_eq!(some.iter().collect::<Vec<_>>(), [3, 63, LIBRARY_STREAM]);
        assert!(some.has(63) && !some.has(62) && some.has(LIBRARY_STREAM));
        assert_eq!(Streams::of_all(MOST_PARTITIONS).iter().count(), MOST_PARTITIONS);
        assert!(!Streams::of_all(MOST_PARTITIONS).has(LIBRARY_STREAM));
        assert_eq!(Streams::NONE.iter().next(), None);
    }

    #[test]
    fn what_was_written_was_looked_at() {
        let mut depends = Depends::default();
        assert!(depends.is_empty());
        depends.add(Streams::NONE, Streams::of(1));
        assert!(depends.looked.has(1) && depends.wrote.has(1) && !depends.is_empty());
        depends.add(Streams::of(2), Streams::NONE);
        assert!(depends.looked.has(2) && !depends.wrote.has(2));
    }
}
