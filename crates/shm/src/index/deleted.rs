//! Deleted entries that no search needs any more become EMPTY again.
//!
//! ```text
//! before  | e e x e e e e e | e e e . . . . . |   x: deleted; does a key of the first line lie in the second?
//! after   | e e . e e e e e | e e e . . . . . |   none: a search may end at the first line
//! ```
//!
//! Without this, keys that come and go leave no line that was never full: a search for a key that
//! isn't there looks at all lines of its probe, and the table is rebuilt again and again.
//!
//! 1. A line gets EMPTY entries only if no live key was pushed past it.
//! 2. Readers need no care: a key that they look for was pushed past none of the lines that get
//!    EMPTY entries, as long as it is there.
//!
//! The arena's writer only.

use super::{DELETED, Index};
use crate::format::layout::{LINE_BYTES, PROBE_LINES, REF_MOVED, entry_reference, entry_tag};
use crate::format::words::SharedWords;
use std::sync::atomic::Ordering::Release;

impl Index {
    /// An entry of this hash was deleted from the line at this offset: frees deleted entries there,
    /// and in the lines that it had been pushed past.
    pub(super) fn free_deleted<W: SharedWords>(&mut self, words: &W, hash: u32, line_at: u64) {
        let (table, mask) = (self.current, self.current.lines - 1);
        let (home, mut line) = (table.home(hash), (line_at - table.offset) / LINE_BYTES);
        for _ in 0..PROBE_LINES {
            let at = table.line_offset(line);
            let entries = words.line(at);
            if !entries.contains(&0) {
                if self.is_passed(words, line) {
                    return;
                }
                for (i, _) in (0u64..).zip(entries).filter(|&(_, e)| e == DELETED) {
                    // SYNC(index-publish): the record's bytes are still there for a reader that has
                    // read its entry.
                    words.store64(at + 8 * i, 0, Release);
                    self.load -= 1;
                }
            }
            if line == home {
                return;
            }
            line = line.wrapping_sub(1) & mask;
        }
    }

    /// Whether a key was pushed past a line of the current table: it lies behind, its home doesn't.
    fn is_passed<W: SharedWords>(&self, words: &W, line: u64) -> bool {
        let (table, mask) = (self.current, self.current.lines - 1);
        for distance in 1..PROBE_LINES.min(table.lines) {
            let at = (line + distance) & mask;
            let entries = words.line(table.line_offset(at));
            let passes = |e: &u64| {
                let pushed = at.wrapping_sub(table.home(entry_tag(*e))) & mask;
                entry_reference(*e) > REF_MOVED && pushed >= distance
            };
            if entries.iter().any(passes) {
                return true;
            }
            if entries.contains(&0) {
                return false;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::LINE_ENTRIES;
    use crate::format::words::HeapWords;
    use crate::index::{EntryPlace, Table};

    const SHIFT: u32 = 17;
    const LINES: u64 = 512;

    /// Lines that a search for a key that isn't there looks at.
    fn search(index: &Index, words: &HeapWords, hash: u32) -> u64 {
        let mut lines = 0;
        for at in index.current.probe(hash) {
            lines += 1;
            if words.line(at).contains(&0) {
                break;
            }
        }
        lines
    }

    #[test]
    fn a_deleted_entry_is_freed_once_no_key_lies_behind_it() {
        // Twenty keys of one hash take their home line, the next one, and half of a third, at the
        // table's end too.
        for hash in 0..8 {
            let words = HeapWords::new(2 << SHIFT);
            let mut index = Index::new(Table::new(1, 8, SHIFT));
            index.install(&words);
            let mut keys: Vec<EntryPlace> = (0..20)
                .map(|n| {
                    let (room, reference) = (index.room(&words, hash).unwrap(), REF_MOVED + 1 + n);
                    index.insert(&words, room, hash, reference);
                    EntryPlace { at: room.0, reference, in_old: false }
                })
                .collect();
            let mut counts = |gone: std::ops::Range<usize>| {
                keys.drain(gone).for_each(|place| index.remove(&words, &place));
                (index.load(), index.live(), search(&index, &words, hash))
            };
            // In the home line and in the second they only are DELETED: keys lie behind.
            assert_eq!(counts(0..2), (20, 18, 3), "hash {hash}");
            assert_eq!(counts(6..9), (20, 15, 3), "hash {hash}");
            // The third line, which isn't full, gets empty, but for one. With that one nothing lies
            // behind the second.
            assert_eq!(counts(11..14), (17, 12, 3), "hash {hash}");
            assert_eq!(counts(11..12), (13, 11, 2), "hash {hash}");
            // The same for the second line, and the home line gets two EMPTY entries with its last
            // key.
            assert_eq!(counts(6..10), (9, 7, 2), "hash {hash}");
            assert_eq!(counts(6..7), (6, 6, 1), "hash {hash}");
        }
    }

    #[test]
    fn keys_that_come_and_go_leave_searches_short() {
        // Half of a table is taken. Fifty times as many keys as it holds come, each in place of
        // another. (Once, each line had been full after that, and a search looked at sixteen.)
        let words = HeapWords::new(2 << SHIFT);
        let mut index = Index::new(Table::new(1, LINES, SHIFT));
        index.install(&words);
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 32) as u32
        };
        let mut there: Vec<(u64, u32)> = Vec::new();
        let keys = u32::try_from(LINES * LINE_ENTRIES).expect("few");
        for n in 0..50 * keys {
            if index.live() >= u64::from(keys / 2) {
                let gone = next() as usize % there.len();
                let (at, reference) = there.swap_remove(gone);
                index.remove(&words, &EntryPlace { at, reference, in_old: false });
            }
            let (hash, reference) = (next(), REF_MOVED + 1 + n);
            let room = index.room(&words, hash).expect("half is free");
            index.insert(&words, room, hash, reference);
            there.push((room.0, reference));
        }
        let dead = index.load() - index.live();
        assert!(dead * 10 < index.live(), "{dead} deleted entries beside {}", index.live());
        let looked: u64 = (0..10_000).map(|_| search(&index, &words, next())).sum();
        assert!(looked < 15_000, "{looked} lines for 10,000 searches");
        // What is there is still found: no search ends before it.
        for (at, reference) in there {
            let word = words.load64(at, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(entry_reference(word), reference);
            let line = at & !(LINE_BYTES - 1);
            let mut before = index.current.probe(entry_tag(word)).take_while(|&l| l != line);
            assert!(before.all(|l| !words.line(l).contains(&0)));
        }
    }
}
