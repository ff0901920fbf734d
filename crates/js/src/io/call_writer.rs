//! Writes the calls of a batch into the request part of the io memory, as 06_dispatch.js reads
//! them. The runtime's thread.
//!
//! ```text
//! head: function, flags, counts, next, place | pairs: keys, args | triples: overlay | their bytes
//! ```

use super::{Io, REQUEST_AT, REQUEST_ROOM};
use crate::caller::fcall::Call;

// Words of a call, as in 06_dispatch.js (C_LISTS, CALL_…, ARG_…).
pub(super) const HEAD_WORDS: usize = 8;
const PAIR_WORDS: usize = 2;
const TRIPLE_WORDS: usize = 3;
pub(super) const CALL_RESP3: i32 = 1;
pub(super) const CALL_NO_WRITES: i32 = 2;
pub(super) const CALL_OVERLAY: i32 = 4;
pub(super) const CALL_CLEARED: i32 = 8;
pub(super) const CALL_STABLE: i32 = 16;
pub(super) const CALL_CROSS_SLOT: i32 = 32;
pub(super) const CALL_CONTINUES: i32 = 64;
/// log2 of the windows of an arena. The first window of its arena names a partition.
pub(crate) const WINDOWS_SHIFT: u32 = 4;
const ARG_TEXT: u32 = 0;
pub(super) const ARG_BYTES: u32 = 2;
pub(super) const ARG_KIND_SHIFT: u32 = 30;

/// How a call runs.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) no_writes: bool,
    /// It may write to other partitions than its own one.
    pub(crate) cross_slot: bool,
    /// All that it reads of an arena must belong to one moment.
    pub(crate) stable: bool,
}

/// The request while it is being filled.
#[derive(Default)]
pub(crate) struct CallWriter {
    /// Offset of the next call.
    end: usize,
    /// The farthest end of calls that were removed, since it was taken last.
    high: usize,
    /// Word at which each call begins.
    pub(crate) heads: Vec<i32>,
    /// Whether each call has an overlay.
    pub(crate) overlays: Vec<bool>,
}

impl CallWriter {
    /// Removes all calls.
    pub(crate) fn clear(&mut self) {
        self.high = self.high.max(self.end);
        self.end = REQUEST_AT;
        self.heads.clear();
        self.overlays.clear();
    }

    /// Offset behind the calls.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// The farthest offset behind calls since it was taken last.
    pub(crate) fn take_high(&mut self) -> usize {
        std::mem::take(&mut self.high).max(self.end)
    }

    /// The most bytes that a call takes.
    fn size(call: &Call<'_>) -> usize {
        let list = |list: &[&[u8]]| -> usize {
            list.iter().map(|bytes| bytes.len().saturating_add(4 * PAIR_WORDS + 8)).sum()
        };
        let entry = |(key, _): &(Box<[u8]>, Option<u32>)| key.len() + 4 * TRIPLE_WORDS + 8;
        let overlay: usize = call.overlay.entries.iter().map(entry).sum();
        list(call.keys) + list(call.args) + overlay + 4 * HEAD_WORDS + 16
    }

    /// Adds a call; false if it doesn't fit behind the others.
    pub(crate) fn push(&mut self, io: &Io, call: &Call<'_>, id: u32, how: How) -> bool {
        let room = REQUEST_AT + REQUEST_ROOM - self.end;
        if Self::size(call) > room {
            return false;
        }
        let overlay = call.overlay;
        let head = self.end / 4;
        let mut flags = 0;
        for (set, bit) in [
            (call.resp3, CALL_RESP3),
            (how.no_writes, CALL_NO_WRITES),
            (overlay.is_there(), CALL_OVERLAY),
            (overlay.cleared, CALL_CLEARED),
            (how.stable, CALL_STABLE),
            (how.cross_slot, CALL_CROSS_SLOT),
            (overlay.continues, CALL_CONTINUES),
        ] {
            flags |= if set { bit } else { 0 };
        }
        let lists = head + HEAD_WORDS;
        let triples = lists + PAIR_WORDS * (call.keys.len() + call.args.len());
        let words = triples + TRIPLE_WORDS * overlay.entries.len();
        let mut data = (words * 4).next_multiple_of(8);

        for (index, bytes) in call.keys.iter().chain(call.args).enumerate() {
            let pair = lists + PAIR_WORDS * index;
            io.set_word(pair, word(data));
            io.set_word(pair + 1, packed(bytes));
            data = put(io, data, bytes);
        }
        for (index, (key, record)) in overlay.entries.iter().enumerate() {
            let triple = triples + TRIPLE_WORDS * index;
            io.set_word(triple, word(data));
            io.set_word(triple + 1, word(key.len()));
            io.set_word(triple + 2, record.unwrap_or(0).cast_signed());
            data = put(io, data, key);
        }
        let head_words = [
            id.cast_signed(),
            flags,
            word(call.keys.len()),
            word(call.args.len()),
            word(overlay.entries.len()),
            word(data / 4),
            (call.partition << WINDOWS_SHIFT).cast_signed(),
        ];
        io.set_words(head, &head_words);
        self.heads.push(word(head));
        self.overlays.push(overlay.is_there());
        self.end = data;
        true
    }
}

/// Puts bytes at `at`, with zeros behind them up to a whole word; where the next ones go.
fn put(io: &Io, at: usize, bytes: &[u8]) -> usize {
    io.set_word((at + bytes.len()) / 4, 0);
    io.put(at, bytes);
    (at + bytes.len()).next_multiple_of(8)
}

/// An offset or a length in the io memory, as a word.
fn word(value: usize) -> i32 {
    i32::try_from(value).expect("the io memory is smaller than 2 GiB")
}

/// A length with the kind of an argument.
fn packed(bytes: &[u8]) -> i32 {
    let text = bytes.is_ascii() || std::str::from_utf8(bytes).is_ok();
    let kind = if text { ARG_TEXT } else { ARG_BYTES };
    word(bytes.len()) | (kind << ARG_KIND_SHIFT).cast_signed()
}
