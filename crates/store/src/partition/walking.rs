//! Walks over all keys, a few lines of the index at a time.
//!
//! Inside a transaction a walk sees the overlay: it shows a key of the arena as it is staged, or
//! leaves it out if it is deleted. Keys that the arena doesn't have are shown at the beginning, so
//! that every walk from 0 on meets them.
//!
//! Thread: the shard that owns the store, or the view.

use nigh_shm::Record;
use nigh_shm::layout::is_over;

use crate::partition::store::Store;
use crate::text::glob::Glob;
use crate::turn::Turn;

/// Lines that a step visits at most for each key it aims at, so that it ends soon in an empty index
/// (Redis: `maxiterations`).
pub(crate) const LINES_PER_KEY: u64 = 10;
/// Lines per step of a walk over many keys.
pub(crate) const LINES_PER_STEP: u32 = 64;

impl Store {
    /// Adds the live keys that match a pattern, or all, each once.
    pub(crate) fn collect_keys<'p>(
        &self,
        pattern: Option<&Glob>,
        turn: &Turn<'p>,
        keys: &mut Vec<&'p [u8]>,
    ) {
        let (before, epoch) = (keys.len(), self.reader.index_epoch());
        self.walk_all(turn, &mut |record| {
            if pattern.is_none_or(|pattern| pattern.matches(record.key())) {
                keys.push(record.key());
            }
        });
        // While a view walks, the owner may move a key to the other table. The walk meets it twice.
        let stands = epoch.is_multiple_of(2) && self.reader.index_epoch() == epoch;
        if !self.is_owner() && !stands {
            let mut found = keys.split_off(before);
            found.sort_unstable();
            found.dedup();
            keys.append(&mut found);
        }
    }

    /// A step of the walk by prefix that functions have (`db.scan`): passes about `count` keys to
    /// `found`. The first step has the cursor 0. Returns the cursor of the next step, 0 at the end.
    /// SCAN's guarantee holds.
    pub fn scan_keys(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        turn: &Turn<'_>,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        let mut cursor = self.number.inward(cursor);
        let mut met = 0;
        let mut lines = u64::from(count.max(1)) * LINES_PER_KEY;
        loop {
            cursor = self.walk(cursor, 1, turn, &mut |record| {
                met += 1;
                if !is_over(record.expiry_ms(), turn.now_ms) && record.key().starts_with(prefix) {
                    found(record.key());
                }
            });
            lines -= 1;
            if cursor == 0 || lines == 0 || met >= count {
                return self.number.outward(cursor);
            }
        }
    }

    /// All live keys, each once. A view meets some twice while keys move between tables.
    pub(crate) fn walk_all<'p>(&self, turn: &Turn<'p>, found: &mut dyn FnMut(Record<'p>)) {
        let mut cursor = 0;
        loop {
            cursor = self.walk(cursor, LINES_PER_STEP, turn, &mut |record| {
                if !is_over(record.expiry_ms(), turn.now_ms) {
                    found(record);
                }
            });
            if cursor == 0 {
                return;
            }
        }
    }

    /// One step of a walk: the keys of some home lines, dead ones too.
    pub(crate) fn walk<'p>(
        &self,
        cursor: u64,
        lines: u32,
        turn: &Turn<'p>,
        found: &mut dyn FnMut(Record<'p>),
    ) -> u64 {
        let Some(overlay) = &self.overlay else {
            return self.reader.scan(turn.pin, cursor, lines, found);
        };
        let staged = |reference| self.reader.record(turn.pin, reference);
        if cursor == 0 {
            overlay.only_staged().filter_map(staged).for_each(&mut *found);
        }
        if overlay.is_cleared() {
            return 0;
        }
        self.reader.scan(turn.pin, cursor, lines, &mut |record| match overlay.get(record.key()) {
            None => found(record),
            Some(reference) => {
                if let Some(record) = reference.and_then(staged) {
                    found(record);
                }
            }
        })
    }
}
