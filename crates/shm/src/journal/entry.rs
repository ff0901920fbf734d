//! Reading the entries of a ring, none of which is believed.
//!
//! ```text
//! position ── header ── kind ── SKIP: behind it          each step stays below the tail,
//!                          └── COMMIT: needs, changes     and within one piece of the ring
//! ```
//!
//! 1. Every length is compared with what was published before it is followed.
//! 2. A walk ends: each entry has at least 32 bytes.
//!
//! Errors are boxed, so that what is right travels in registers: each entry is read so.
//!
//! The bytes below the tail aren't written while they are read: by the log's thread, since head
//! waits for it; by a start, since nobody writes.

use super::layout::{ENTRY_SHARE, Effect, change as c, entry as e, header};
use super::payload::StreamChange;
use crate::format::format_fault::{FormatFault, ensure};
use crate::format::layout::{LSN_END, round_up};
use crate::format::words::{MappedWords, SharedWords};
use std::sync::atomic::Ordering::Relaxed;

/// A ring that can be read up to a tail.
#[derive(Clone, Copy)]
pub(super) struct Published {
    pub(super) words: MappedWords,
    pub(super) ring_bytes: u64,
    pub(super) tail: u64,
}

/// The fixed part of a commit's entry.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EntryHead {
    pub(super) position: u64,
    /// The position behind it.
    pub(super) end: u64,
    needs: u16,
    /// 0: it is a SKIP.
    changes: u32,
    pub(super) clock_ms: u64,
    /// The stream of all its changes.
    pub(super) stream: u32,
    /// The number of its first change.
    pub(super) first_lsn: u64,
}

/// An entry of one PUT or GONE that depends on nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlainHead {
    /// The position behind it.
    pub(super) end: u64,
    /// Where its payload lies in the file.
    pub(super) payload_at: u64,
    pub(super) payload_bytes: u32,
    pub(super) stream: u32,
    pub(super) lsn: u64,
    pub(super) effect: Effect,
    pub(super) clock_ms: u64,
}

/// The header of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangeHead {
    pub(crate) payload_bytes: u32,
    pub(crate) stream: u32,
    pub(crate) lsn: u64,
    pub(crate) effect: Effect,
    pub(crate) more: bool,
}

impl ChangeHead {
    #[inline]
    pub(crate) fn to_words(self) -> [u64; 3] {
        let more = if self.more { c::FLAG_MORE } else { 0 };
        [
            u64::from(self.payload_bytes) | u64::from(self.stream) << 32,
            self.lsn,
            u64::from(self.effect.byte()) | u64::from(more) << 8,
        ]
    }

    #[expect(clippy::cast_possible_truncation, reason = "parts of words")]
    fn from_words([lengths, lsn, kind]: [u64; 3]) -> Option<ChangeHead> {
        let (flags, zeros) = ((kind >> 8) as u8, kind >> 16);
        if flags & !c::FLAG_MORE != 0 || zeros != 0 {
            return None;
        }
        Some(ChangeHead {
            payload_bytes: lengths as u32,
            stream: (lengths >> 32) as u32,
            lsn,
            effect: Effect::of_byte(kind as u8)?,
            more: flags != 0,
        })
    }
}

impl Published {
    /// Where a position lies in the file.
    pub(super) fn offset(&self, position: u64) -> u64 {
        header::BYTES + (position & (self.ring_bytes - 1))
    }

    #[cold]
    fn fault<T>(
        &self,
        position: u64,
        what: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Result<T, Box<FormatFault>> {
        Err(Box::new(FormatFault::new(self.offset(position), what, expected, found)))
    }

    /// The commit at a position, or the first behind it that is no SKIP; `None` at the tail.
    #[inline]
    pub(super) fn commit_at(&self, position: u64) -> Result<Option<EntryHead>, Box<FormatFault>> {
        if position >= self.tail {
            return Ok(None);
        }
        let mut head = self.entry_at(position)?;
        if head.is_skip() {
            // It ends where the ring does, so there are never two in a row.
            let at = head.end;
            if at >= self.tail {
                return Ok(None);
            }
            head = self.entry_at(at)?;
            if head.is_skip() {
                return self.fault(at, "kind of an entry", "a commit behind a SKIP", "a SKIP");
            }
        }
        Ok(Some(head))
    }

    /// The entry at a position, if it is plain: [`Self::commit_at`] says the same of it. Nearly all
    /// are, and without a loop or an error this is quicker (docs/design/0018-the-log.md).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "parts of words")]
    pub(super) fn plain_at(&self, position: u64) -> Option<PlainHead> {
        // A commit without dependencies, of one change.
        const COUNTS: u64 = e::KIND_COMMIT as u64 | 1 << 32;
        const PUT: u64 = Effect::Put.byte() as u64;
        const GONE: u64 = Effect::Gone.byte() as u64;
        const PAYLOAD: u64 = e::HEADER_BYTES + c::HEADER_BYTES;
        let at = self.offset(position);
        let published = self.tail.saturating_sub(position);
        let room = published.min(header::BYTES + self.ring_bytes - at);
        if room < PAYLOAD {
            return None;
        }
        let word = |i| self.words.load64(at + i, Relaxed);
        let [found, bytes, counts] = [e::POSITION, e::BYTES, e::KIND].map(word);
        let [lengths, lsn, kind] =
            [c::PAYLOAD_BYTES, c::LSN, c::KIND].map(|i| word(e::HEADER_BYTES + i));
        let (payload_bytes, stream) = (lengths as u32, (lengths >> 32) as u32);
        let whole = round_up(PAYLOAD + round_up(payload_bytes.into(), c::ALIGN), e::ALIGN);
        let effect = match kind {
            PUT => Effect::Put,
            GONE => Effect::Gone,
            _ => return None,
        };
        let fits = whole <= room.min(self.ring_bytes / ENTRY_SHARE);
        let is_right = found == position && bytes == whole && (1..LSN_END).contains(&lsn);
        (counts == COUNTS && fits && is_right).then(|| PlainHead {
            end: position + whole,
            payload_at: at + PAYLOAD,
            payload_bytes,
            stream,
            lsn,
            effect,
            clock_ms: word(e::CLOCK),
        })
    }

    /// The entry at a position below the tail: a commit's is found whole.
    #[expect(clippy::cast_possible_truncation, reason = "parts of words")]
    #[inline]
    fn entry_at(&self, position: u64) -> Result<EntryHead, Box<FormatFault>> {
        let at = self.offset(position);
        let word = |i| self.words.load64(at + i, Relaxed);
        let found = word(e::POSITION);
        ensure(found == position, || {
            FormatFault::new(at, "position of an entry", position, found)
        })?;
        let (lengths, counts) = (word(e::BYTES), word(e::KIND));
        let bytes = u64::from(lengths as u32);
        let (kind, needs) = (counts as u16, (counts >> 16) as u16);
        let to_end = header::BYTES + self.ring_bytes - at;
        let (least, most) = match kind {
            e::KIND_SKIP => (to_end, to_end),
            e::KIND_COMMIT => (e::HEADER_BYTES, to_end.min(self.ring_bytes / ENTRY_SHARE)),
            _ => return self.fault(position, "kind of an entry", "1 or 2", kind),
        };
        let most = most.min(self.tail - position);
        if !(least..=most).contains(&bytes) || !bytes.is_multiple_of(e::ALIGN) || lengths >> 32 != 0
        {
            let expected = format!("a multiple of 32 from {least} to {most}");
            return self.fault(position, "bytes of an entry", expected, lengths);
        }
        let end = position + bytes;
        let mut head = EntryHead { position, end, ..EntryHead::default() };
        if kind == e::KIND_SKIP {
            return Ok(head);
        }
        let changes = (counts >> 32) as u32;
        let room = bytes - e::HEADER_BYTES;
        if usize::from(needs) > e::NEEDS_MOST || u64::from(needs) * e::NEED_BYTES > room {
            return self.fault(
                position,
                "dependencies of an entry",
                "what fits, at most 64",
                needs,
            );
        }
        if changes == 0 || u64::from(changes) * c::HEADER_BYTES > room {
            return self.fault(position, "changes of an entry", "what fits, at least 1", changes);
        }
        (head.needs, head.changes, head.clock_ms) = (needs, changes, word(e::CLOCK));
        (head.stream, head.first_lsn) = self.check_changes(&head)?;
        Ok(head)
    }

    /// Whether the changes of a commit fill it, and follow on each other: the stream and the LSN
    /// of the first.
    #[inline]
    fn check_changes(&self, head: &EntryHead) -> Result<(u32, u64), Box<FormatFault>> {
        let (mut at, mut first) = (head.first_change(), (0, 0));
        let mut before: Option<ChangeHead> = None;
        for i in 0..head.changes {
            let (change, end) = self.change_at(head, at)?;
            let (stream, lsn) = match before {
                None => {
                    first = (change.stream, change.lsn);
                    first
                }
                Some(before) => (before.stream, before.lsn + 1),
            };
            if change.stream != stream || change.lsn != lsn {
                let expected = format!("{lsn} of stream {stream}");
                let found = format!("{} of stream {}", change.lsn, change.stream);
                return self.fault(at, "LSN of a change", expected, found);
            }
            if change.more != (i + 1 < head.changes) {
                return self.fault(at, "flag MORE of a change", !change.more, change.more);
            }
            if change.effect == Effect::Clear && (i > 0 || change.payload_bytes != 0) {
                return self.fault(at, "change that clears", "the first, without payload", i);
            }
            before = Some(change);
            at = end;
        }
        let unused = head.end - at;
        ensure(unused < e::ALIGN, || {
            FormatFault::new(self.offset(at), "bytes behind the last change", "0 to 31", unused)
        })?;
        Ok(first)
    }

    /// The change at a position within a commit, and where it ends.
    #[inline]
    fn change_at(&self, head: &EntryHead, at: u64) -> Result<(ChangeHead, u64), Box<FormatFault>> {
        if at + c::HEADER_BYTES > head.end {
            return self.fault(at, "end of an entry", "behind its changes", head.end);
        }
        let offset = self.offset(at);
        let words = [0, 8, 16].map(|i| self.words.load64(offset + i, Relaxed));
        let Some(change) = ChangeHead::from_words(words) else {
            return self.fault(
                at,
                "header of a change",
                "kind, flags, zeros",
                format!("{words:x?}"),
            );
        };
        if change.lsn == 0 || change.lsn >= LSN_END {
            return self.fault(at, "LSN of a change", "1 to 2^53 - 1", change.lsn);
        }
        let end = at + c::HEADER_BYTES + round_up(change.payload_bytes.into(), c::ALIGN);
        if end > head.end {
            return self.fault(at, "payload of a change", "within its entry", change.payload_bytes);
        }
        Ok((change, end))
    }

    /// The dependencies of a commit: stream and LSN of each.
    pub(super) fn needs(&self, head: &EntryHead) -> impl Iterator<Item = (u32, u64)> + use<> {
        let (words, first) = (self.words, self.offset(head.position) + e::HEADER_BYTES);
        (0..u64::from(head.needs)).map(move |i| {
            let at = first + i * e::NEED_BYTES;
            (words.load32(at, Relaxed), words.load64(at + 8, Relaxed))
        })
    }

    /// The changes of a commit that was found whole.
    ///
    /// # Safety
    /// The entry stays as it is as long as `'a` lasts, and mapped.
    #[inline]
    pub(super) unsafe fn changes<'a>(
        self,
        head: &EntryHead,
    ) -> impl Iterator<Item = (ChangeHead, StreamChange<'a>)> + use<'a> {
        let (head, mut at) = (*head, head.first_change());
        (0..head.changes).map_while(move |_| {
            let (change, end) = self.change_at(&head, at).ok()?;
            let payload_at = self.offset(at) + c::HEADER_BYTES;
            at = end;
            let ChangeHead { lsn, effect, payload_bytes, .. } = change;
            // SAFETY: the payload lies in the entry, which stays as it is as long as `'a` lasts, as
            // the caller promises.
            let payload = unsafe { self.words.bytes(payload_at, payload_bytes as usize) };
            Some((change, StreamChange { lsn, effect, payload, rest: &[] }))
        })
    }
}

impl EntryHead {
    fn is_skip(&self) -> bool {
        self.changes == 0
    }

    fn first_change(&self) -> u64 {
        self.position + e::HEADER_BYTES + u64::from(self.needs) * e::NEED_BYTES
    }

    /// Number of its changes.
    pub(super) fn changes(&self) -> u32 {
        self.changes
    }
}
