//! Asking for the memory of look-ups that are about to come: their index lines, then the records
//! that these name.
//!
//! Each look-up misses the TLB and the cache twice. A core works on several misses at once only
//! while few instructions lie between them, so each pass is a loop of its own, as short as can be
//! (design 11).
//!
//! Hints only, by whatever stands in the words by now. Any thread.

use crate::format::layout::{LINE_BYTES, LINE_ENTRIES, entry_reference, entry_tag, record as r};
use crate::format::words::SharedWords;
use crate::index::Table;
use std::sync::atomic::Ordering::Relaxed;

/// Lines of a record that are asked for: its header, a short key and a short value.
const RECORD_LINES: u64 = 3;
/// Records that are asked for in one go.
const RECORDS_AT_ONCE: usize = 64;

/// Asks for the home lines of some hashes, each in its arena's table, and for the records that
/// these lines name.
#[inline]
pub(crate) fn prefetch_records<'a, W: SharedWords + 'a>(
    looks: impl Iterator<Item = (&'a W, Table, u32)> + Clone,
) {
    looks.clone().for_each(|(words, table, hash)| words.prefetch(home_line(table, hash)));
    let mut looks = looks.peekable();
    while let Some((words, ..)) = looks.peek() {
        let mut records = [(*words, 0); RECORDS_AT_ONCE];
        let mut count = 0;
        for (record, (words, table, hash)) in records.iter_mut().zip(looks.by_ref()) {
            *record = (words, named_record(words, home_line(table, hash), hash));
            count += 1;
        }
        for (words, at) in &records[..count] {
            (0..RECORD_LINES).for_each(|line| words.prefetch(at + line * LINE_BYTES));
        }
    }
}

/// Offset of the line at which a search begins.
#[inline]
fn home_line(table: Table, hash: u32) -> u64 {
    table.line_offset(table.home(hash))
}

/// Offset of the record that the first entry of a hash in a line names. Without one, or if nothing
/// stands there any more, it is an offset in the arena's header.
#[inline]
fn named_record<W: SharedWords>(words: &W, line: u64, hash: u32) -> u64 {
    let mut named = 0;
    for i in (0..LINE_ENTRIES).rev() {
        let entry = words.load64(line + 8 * i, Relaxed);
        if entry_tag(entry) == hash {
            named = entry;
        }
    }
    u64::from(entry_reference(named)) * r::UNIT
}
