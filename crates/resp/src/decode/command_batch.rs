//! The decoded commands of one call: flat, reusable, without a copy of arguments.
//!
//! ```text
//! commands  (first, argc) (first, argc) …
//! ranges     └─> (start, len) (start, len) …
//!                  └─> the input buffer, or `side` for unescaped or copied arguments
//! ```
//!
//! 1. A range is valid for the buffer from which it was decoded, until its bytes are dropped.
//! 2. Starts have 31 bits; the top bit says that the bytes lie in `side`.
//! 3. Ranges and bytes of `side` that belong to no command are leftovers of a wrong command.
//!
//! Belongs to the thread of its connection.

/// Top bit of a start: the bytes are in the batch's side buffer.
const SIDE: u32 = 1 << 31;
/// Most ranges for which `clear` keeps memory: a batch that was once large gives the rest back.
const KEEP_RANGES: usize = 64 << 10;
/// Most bytes of the side buffer that `clear` keeps.
const KEEP_SIDE_BYTES: usize = 256 << 10;

/// The place of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    start: u32,
    len: u32,
}

impl Range {
    /// A range of the input buffer. The decoder bounds both numbers by 2^31.
    #[inline(always)]
    pub(super) fn input(start: usize, len: usize) -> Self {
        Self { start: narrow(start), len: narrow(len) }
    }

    /// A range of the side buffer.
    pub(super) fn side(start: usize, len: usize) -> Self {
        Self { start: narrow(start) | SIDE, len: narrow(len) }
    }

    /// Moves a range of the input buffer towards the buffer's start, after leading bytes were
    /// dropped.
    pub(super) fn shift(&mut self, dropped: usize) {
        if self.start & SIDE == 0 {
            self.start = self.start.saturating_sub(narrow(dropped));
        }
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "buffers are bounded by 2^31 bytes")]
fn narrow(number: usize) -> u32 {
    debug_assert!(number < SIDE as usize);
    number as u32
}

/// A command: its ranges.
#[derive(Debug, Clone, Copy)]
struct CommandRanges {
    first: u32,
    argc: u32,
}

/// The batch can't hold more: its side buffer would pass 2^31 bytes, or its arguments 2^31.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the commands queued at once exceed 2 GiB, or 2147483648 words: run fewer at a time")]
pub struct BatchFull;

/// Decoded commands. A batch is reused: `clear` keeps memory.
#[derive(Debug, Default)]
pub struct Batch {
    pub(super) ranges: Vec<Range>,
    commands: Vec<CommandRanges>,
    pub(super) side: Vec<u8>,
}

impl Batch {
    /// Memory that an argument takes beside its bytes.
    pub const PLACE_BYTES: usize = size_of::<Range>();

    /// An empty batch, without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of commands.
    #[inline]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is no command.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Forgets all commands and keeps a bounded amount of memory for the next ones.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.ranges.shrink_to(KEEP_RANGES);
        self.commands.clear();
        self.commands.shrink_to(KEEP_RANGES);
        self.side.clear();
        self.side.shrink_to(KEEP_SIDE_BYTES);
    }

    /// The arguments of command `index`, its name first; none if there is no such command.
    #[inline]
    pub fn args(&self, index: usize) -> Args<'_> {
        let ranges = self.commands.get(index).and_then(|command| {
            let first = command.first as usize;
            self.ranges.get(first..first + command.argc as usize)
        });
        Args { ranges: ranges.unwrap_or(&[]), side: &self.side }
    }

    /// Appends a command and copies its arguments, such as one queued by MULTI. It stays valid
    /// after the input buffer has changed.
    ///
    /// # Errors
    /// [`BatchFull`] if the copies would pass 2 GiB, or the arguments 2^31; the batch is unchanged
    /// then.
    pub fn push<'a>(&mut self, args: impl IntoIterator<Item = &'a [u8]>) -> Result<(), BatchFull> {
        let (first, side) = (self.ranges.len(), self.side.len());
        for arg in args {
            let start = self.side.len();
            if start + arg.len() >= SIDE as usize || self.ranges.len() >= SIDE as usize - 1 {
                self.ranges.truncate(first);
                self.side.truncate(side);
                return Err(BatchFull);
            }
            self.side.extend_from_slice(arg);
            self.ranges.push(Range::side(start, arg.len()));
        }
        self.close(first);
        Ok(())
    }

    /// Appends a command whose arguments lie in a text that begins at `start` of the input buffer.
    /// `places` has the offset of each argument in the text, and its length.
    ///
    /// # Panics
    /// If an argument lies beyond 2 GiB of the buffer.
    #[inline]
    pub fn push_places(&mut self, start: usize, places: impl Iterator<Item = (u32, u32)>) {
        let first = self.ranges.len();
        for (at, len) in places {
            let at = start + at as usize;
            assert!(at + (len as usize) < SIDE as usize, "buffers are bounded by 2^31 bytes");
            self.ranges.push(Range::input(at, len as usize));
        }
        self.close(first);
    }

    /// Makes the ranges from `first` on one command.
    #[inline]
    pub(super) fn close(&mut self, first: usize) {
        let argc = narrow(self.ranges.len() - first);
        self.commands.push(CommandRanges { first: narrow(first), argc });
    }
}

/// The arguments of one command, the command's name first. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Args<'a> {
    ranges: &'a [Range],
    side: &'a [u8],
}

impl<'a> Args<'a> {
    /// Number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there is no argument.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Argument `index` (0 is the command's name), in the decoded buffer. Empty if there is no such
    /// argument: see [`Args::len`].
    #[inline]
    pub fn get<'b>(&self, buf: &'b [u8], index: usize) -> &'b [u8]
    where
        'a: 'b,
    {
        self.ranges.get(index).map_or(&[], |range| self.bytes(buf, *range))
    }

    /// All arguments in order.
    #[inline]
    pub fn iter<'b>(
        &self,
        buf: &'b [u8],
    ) -> impl ExactSizeIterator<Item = &'b [u8]> + Clone + use<'a, 'b>
    where
        'a: 'b,
    {
        let args = *self;
        self.ranges.iter().map(move |range| args.bytes(buf, *range))
    }

    /// The bytes of the decoded buffer from the first argument to the last, with the headers
    /// between them; [`Args::places`] tells the place of each argument. `None` if an argument was
    /// unescaped or copied.
    #[inline]
    pub fn text<'b>(&self, buf: &'b [u8]) -> Option<&'b [u8]> {
        let (first, last) = (self.ranges.first()?, self.ranges.last()?);
        if self.ranges.iter().any(|range| range.start & SIDE != 0) {
            return None;
        }
        buf.get(first.start as usize..last.start as usize + last.len as usize)
    }

    /// For each argument its offset in [`Args::text`], and its length.
    #[inline]
    pub fn places(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + use<'a> {
        let start = self.ranges.first().map_or(0, |first| first.start);
        self.ranges.iter().map(move |range| (range.start.wrapping_sub(start), range.len))
    }

    /// The arguments from `index` on; none if there are fewer.
    #[inline]
    pub fn from(&self, index: usize) -> Self {
        Self { ranges: self.ranges.get(index..).unwrap_or(&[]), side: self.side }
    }

    #[inline]
    fn bytes<'b>(&self, buf: &'b [u8], range: Range) -> &'b [u8]
    where
        'a: 'b,
    {
        let start = (range.start & !SIDE) as usize;
        let source = if range.start & SIDE == 0 { buf } else { self.side };
        source.get(start..start + range.len as usize).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::{Batch, BatchFull};

    #[test]
    fn a_batch_that_was_large_keeps_room_for_an_ordinary_one() {
        // `clear` keeps bounded memory, and not none: it runs for each read of a connection.
        let mut batch = Batch::new();
        batch.push((0..200_000).map(|_| &b"0123456789"[..])).expect("room");
        batch.clear();
        assert!((64 << 10..200_000).contains(&batch.ranges.capacity()));
        assert!((256 << 10..2_000_000).contains(&batch.side.capacity()));
        (0..200_000).for_each(|_| batch.push([]).expect("room"));
        batch.clear();
        assert!((64 << 10..200_000).contains(&batch.commands.capacity()));
        assert!(batch.is_empty());
    }

    #[test]
    fn a_copy_that_would_pass_2_gib_changes_nothing() {
        // Untouched zeros take no memory.
        let huge = vec![0; 1 << 31];
        let mut batch = Batch::new();
        batch.push([b"SET".as_slice(), b"k"]).expect("room");
        assert_eq!(batch.push([b"SET".as_slice(), &huge]), Err(BatchFull));
        assert_eq!((batch.len(), batch.ranges.len(), batch.side.len()), (1, 2, 4));
        assert!(!batch.is_empty() && !batch.args(0).is_empty() && batch.args(1).is_empty());
    }

    #[test]
    fn places_end_before_2_gib() {
        Batch::new().push_places((1 << 31) - 9, [(4, 4)].into_iter());
        let over = std::panic::catch_unwind(|| {
            Batch::new().push_places((1 << 31) - 9, [(4, 5)].into_iter());
        });
        assert!(over.is_err());
    }
}
