//! How full an arena is, and what is in it: what an owner that evicts looks at.
//!
//! 1. What the index tables, the runs, the reserve and the cleaner's stock take is no room for records; neither is what the
//!    file system doesn't give.
//!
//! [`Writer::fill`]: the arena's writer only. The reader's part: any thread.

use crate::format::layout::{
    PAGE_BYTES, REF_MOVED, entry_reference, entry_tag, inline_record_bytes, round_up,
    run_record_bytes,
};
use crate::format::record::Record;
use crate::format::words::Words;
use crate::qsbr::Pin;
use crate::read::reader::Reader;
use crate::space::RESERVE_SEGMENTS;
use crate::write::writer::Writer;
use std::sync::atomic::Ordering::Acquire;

/// Segments that records can't count on: the reserve, and what the cleaner keeps clean at least.
const KEPT_SEGMENTS: u64 = RESERVE_SEGMENTS as u64 + 2;

/// How full an arena is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Fill {
    /// Bytes of live records, without values that lie in runs.
    pub record_bytes: u64,
    /// Bytes of live values that lie in runs.
    pub run_bytes: u64,
    /// Bytes of all segments and of what may become one, but for what is kept free.
    pub room_bytes: u64,
    /// Keys.
    pub keys: u64,
    /// Entries of the index's current table, if there is no memory for a larger one; else `u64::MAX`.
    pub entries: u64,
    /// Bytes of the index's current table.
    pub index_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

impl Writer {
    /// How full the arena is now.
    #[must_use]
    #[inline]
    pub fn fill(&self) -> Fill {
        let (space, table) = (&self.space, self.index.current());
        let segment_bytes = space.geometry().slot_bytes();
        let room = space.segment_bytes() + space.available_bytes();
        Fill {
            record_bytes: space.live_segment_bytes(),
            run_bytes: space.live_bytes().saturating_sub(space.live_segment_bytes()),
            room_bytes: room.saturating_sub(KEPT_SEGMENTS * segment_bytes),
            keys: self.index.live(),
            entries: if self.cannot_grow() { table.entries() } else { u64::MAX },
            index_bytes: table.bytes(),
            segment_bytes,
        }
    }
}

impl Reader {
    /// Visits the entries of a line of the index that `random` chooses: the hash of each.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn visit_line(&self, pin: &Pin<'_>, random: u64, visit: &mut dyn FnMut(u32)) {
        self.check_pin(pin);
        let entries = self.words.line(self.any_line(random));
        for entry in entries.into_iter().filter(|&entry| entry_reference(entry) > REF_MOVED) {
            visit(entry_tag(entry));
        }
    }

    /// Asks for the line that [`Reader::visit_line`] will visit for this number.
    pub fn prefetch_any_line(&self, random: u64) {
        self.words.prefetch(self.any_line(random));
    }

    /// Where the line of the index lies that `random` chooses.
    fn any_line(&self, random: u64) -> u64 {
        let (current, old) = self.tables();
        let line = random % (current.lines + old.map_or(0, |table| table.lines));
        match old {
            Some(old) if line >= current.lines => old.line_offset(line - current.lines),
            _ => current.line_offset(line),
        }
    }

    /// Visits the entries among which a key of this hash would find its place: the hash of each.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn visit_probe(&self, pin: &Pin<'_>, hash: u32, visit: &mut dyn FnMut(u32)) {
        self.check_pin(pin);
        for at in self.current().probe(hash) {
            let entries = self.words.line(at);
            for entry in entries.into_iter().filter(|&entry| entry_reference(entry) > REF_MOVED) {
                visit(entry_tag(entry));
            }
        }
    }

    /// Some record whose key has this hash. Few keys share one, and this doesn't tell which of them it is.
    ///
    /// # Panics
    /// If the pin is another domain's.
    #[must_use]
    pub fn any_of_hash<'p>(&self, pin: &'p Pin<'_>, hash: u32) -> Option<Record<'p>> {
        self.check_pin(pin);
        let (current, old) = self.tables();
        for table in [old, Some(current)].into_iter().flatten() {
            for at in table.probe(hash) {
                let line = self.words.line(at);
                let named = |entry: &&u64| {
                    entry_tag(**entry) == hash && entry_reference(**entry) > REF_MOVED
                };
                if let Some(&entry) = line.iter().find(named) {
                    // SYNC(index-publish)
                    self.words.fence(Acquire);
                    return Some(self.lend(pin, entry_reference(entry)));
                }
                if line.contains(&0) {
                    break;
                }
            }
        }
        None
    }

    /// Bytes of memory that a record takes, with its value's run if it has one, and that the index's current
    /// table takes.
    #[must_use]
    pub fn footprint(&self, record: &Record<'_>) -> (u64, u64) {
        let (key, value) = (record.key().len(), u64::from(record.value_len()));
        let own = match record.has_run() {
            true => run_record_bytes(key) + round_up(value, PAGE_BYTES),
            false => inline_record_bytes(key, record.value_len() as usize),
        };
        (own, self.current().bytes())
    }
}
