//! A commit that is to be appended, as the store hands it over. Any thread.
//!
//! 1. A commit is of one stream, its LSNs rise by one, and it lies in one frame.
//! 2. What breaks a rule of the format is our own mistake, and panics before anything is taken.

use crate::format::change::{ChangeHeader, ChangeKind, framed_bytes};
use crate::format::layout::{LSN_END, PAYLOAD_BYTES_MOST};

/// A change of a commit.
#[derive(Debug, Clone, Copy)]
pub struct NewChange<'a> {
    /// What it does.
    pub kind: ChangeKind,
    /// Its payload, in pieces: at most 513 MiB.
    pub payload: &'a [&'a [u8]],
}

/// A commit, or a record that compaction appends again.
#[derive(Debug, Clone, Copy)]
pub struct NewCommit<'a> {
    /// The stream.
    pub stream: u32,
    /// LSN of the first change; the others follow.
    pub first_lsn: u64,
    /// Appended again, not fresh: one PUT, with the LSN that it has.
    pub again: bool,
    /// The changes, at least one.
    pub changes: &'a [NewChange<'a>],
    /// Streams of other logs, and the LSNs in them that must be durable before this is written.
    pub needs: &'a [(u32, u64)],
    /// The owner's clock word when the commit began, ms.
    pub clock_ms: u64,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It is in a frame.
    Taken,
    /// Nothing was taken, since something that it needs isn't durable. All before it is written.
    Waits,
    /// Nothing was taken, since it belongs into the next file, and a sync of this one is under way.
    Syncs,
}

impl NewChange<'_> {
    /// Bytes of the payload.
    fn payload_bytes(&self) -> u32 {
        let bytes: usize = self.payload.iter().map(|piece| piece.len()).sum();
        let bytes = u32::try_from(bytes).ok().filter(|&bytes| bytes <= PAYLOAD_BYTES_MOST);
        bytes.expect("a change has at most 513 MiB")
    }
}

impl<'a> NewCommit<'a> {
    /// LSN of the last change.
    pub(super) fn last_lsn(&self) -> u64 {
        self.first_lsn + (self.changes.len() as u64).saturating_sub(1)
    }

    /// The changes, each with its header.
    pub(super) fn headed(&self) -> impl Iterator<Item = (ChangeHeader, &'a NewChange<'a>)> {
        let NewCommit { stream, first_lsn, again, changes, .. } = *self;
        changes.iter().zip(1..).map(move |(change, place)| {
            let header = ChangeHeader {
                payload_bytes: change.payload_bytes(),
                stream,
                lsn: first_lsn + place - 1,
                kind: change.kind,
                more: place < changes.len() as u64,
                again,
            };
            (header, change)
        })
    }

    /// Bytes of its changes in a frame.
    pub(super) fn bytes_in_frame(&self) -> usize {
        self.changes.iter().map(|change| framed_bytes(change.payload_bytes())).sum()
    }

    /// Checks the rules of the format; `last` is the stream's last LSN in the chain.
    ///
    /// # Panics
    /// If one is broken.
    pub(super) fn check(&self, last: u64) {
        let (stream, first) = (self.stream, self.first_lsn);
        assert!(!self.changes.is_empty(), "a commit of stream {stream} has no changes");
        assert!(first > 0 && self.last_lsn() < LSN_END, "LSN {first} of stream {stream}");
        if self.again {
            let alone = matches!(self.changes, [one] if one.kind == ChangeKind::Put);
            assert!(alone, "what is appended again is one PUT");
            assert!(
                first <= last,
                "LSN {first} of stream {stream} comes again, {last} is its last"
            );
        } else {
            assert_eq!(first, last + 1, "the LSNs of stream {stream} have a gap");
        }
        for (i, change) in self.changes.iter().enumerate() {
            if change.kind == ChangeKind::Clear {
                assert_eq!(i, 0, "a commit of stream {stream} clears behind its first change");
                assert_eq!(change.payload_bytes(), 0, "a change that clears has a payload");
            }
        }
    }
}
