//! The writer's upkeep between requests, and its statistics.
//!
//! 1. Each call is bounded by its budget.
//!
//! The arena's writer only.

use crate::format::head::Head;
use crate::format::layout::{REF_MOVED, entry_reference, entry_tag, header, is_over, record as r};
use crate::format::words::SharedWords;
use crate::index::Table;
use crate::index::growth::Rebuilds;
use crate::qsbr::Pin;
use crate::write::clean::STEP_BYTES;
use crate::write::cleaner::CleanerStats;
use crate::write::writer::Writer;
use std::sync::atomic::Ordering::Relaxed;

/// The bounds of one call of [`Writer::maintain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpkeepBudget {
    /// Index lines to move at most. A line takes about a microsecond when memory is cold.
    pub lines: u32,
    /// Retired segments and runs to reclaim at most.
    pub reclaim: u32,
    /// Bytes of segments that the cleaner may walk over, if memory is short or nothing was written.
    pub clean_bytes: u64,
    /// The time in Unix milliseconds, by which the cleaner tells expired records from now on, and
    /// freed memory that may soon be wanted again from what goes back to the system; 0 for none.
    pub now_ms: u64,
}

impl Default for UpkeepBudget {
    fn default() -> Self {
        // 128 KiB: some 100 microseconds.
        UpkeepBudget { lines: 64, reclaim: 16, clean_bytes: 128 << 10, now_ms: 0 }
    }
}

/// The work that one call of [`Writer::maintain`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Upkeep {
    /// Whether more work can be done right away.
    pub more: bool,
    /// Whether something waits for a grace period or for memory: call again soon.
    pub waiting: bool,
    /// Segments and runs reclaimed.
    pub reclaimed: u32,
    /// Index lines moved.
    pub migrated_lines: u32,
    /// Expired keys that the cleaner has met and deleted since the last call.
    pub expired: u32,
}

/// Counts of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ArenaStats {
    /// Bytes of memory that the arena may use.
    pub capacity_bytes: u64,
    /// Bytes of live records and of their runs.
    pub used_bytes: u64,
    /// Bytes backed by memory.
    pub backed_bytes: u64,
    /// Bytes of segments that hold no live record (dead, or not yet written).
    pub dead_bytes: u64,
    /// Bytes appended by this writer and those before it.
    pub appended_bytes: u64,
    /// Segments in use.
    pub segments: u32,
    /// Runs that hold values.
    pub runs: u32,
    /// Segments and runs that wait for their grace period.
    pub retired: u32,
    /// Keys.
    pub keys: u64,
    /// Keys with an expiry.
    pub expires: u64,
    /// How long those still last, in the mean, milliseconds: by the last round of active expiry.
    pub mean_left_ms: u64,
    /// Lines of the current index table.
    pub index_lines: u64,
    /// Whether the index grows.
    pub growing: bool,
    /// The newest log sequence number.
    pub lsn: u64,
    /// Number of the writer.
    pub incarnation: u64,
    /// Bytes that are free for appends, or will be after a grace period; the reserve is among them.
    pub available_bytes: u64,
    /// How often the index moved to another table.
    pub rebuilds: Rebuilds,
    /// The cleaner's counts.
    pub cleaner: CleanerStats,
}

impl ArenaStats {
    /// Adds another arena's: sums, but the latest of the log sequence numbers and incarnations.
    pub fn add(&mut self, other: &ArenaStats) {
        self.capacity_bytes += other.capacity_bytes;
        self.used_bytes += other.used_bytes;
        self.backed_bytes += other.backed_bytes;
        self.dead_bytes += other.dead_bytes;
        self.appended_bytes += other.appended_bytes;
        self.segments += other.segments;
        self.runs += other.runs;
        self.retired += other.retired;
        self.keys += other.keys;
        let (ours, theirs) = (u128::from(self.expires), u128::from(other.expires));
        let sum = u128::from(self.mean_left_ms) * ours + u128::from(other.mean_left_ms) * theirs;
        let mean = sum.checked_div(ours + theirs).unwrap_or(0);
        self.mean_left_ms = u64::try_from(mean).unwrap_or(u64::MAX);
        self.expires += other.expires;
        self.index_lines += other.index_lines;
        self.growing |= other.growing;
        self.lsn = self.lsn.max(other.lsn);
        self.incarnation = self.incarnation.max(other.incarnation);
        self.available_bytes += other.available_bytes;
        self.rebuilds.larger += other.rebuilds.larger;
        self.rebuilds.same += other.rebuilds.same;
        self.rebuilds.smaller += other.rebuilds.smaller;
        self.cleaner.add(&other.cleaner);
    }
}

impl Writer {
    /// The upkeep, once per loop turn: moves index lines, reclaims what nobody reads any
    /// more, cleans, gives memory back that is not wanted, and asks for memory ahead of need.
    pub fn maintain(&mut self, budget: UpkeepBudget) -> Upkeep {
        let mut done = Upkeep::default();
        self.cleaner.now_ms = budget.now_ms;
        self.space.tell_time(budget.now_ms);
        if let Some(part) = &self.journal {
            self.space.journal_left(part.ring.left());
        }
        self.let_values_go();
        if !self.index.stuck() {
            done.migrated_lines = self.advance_growth(budget.lines);
        }
        done.reclaimed = self.space.collect(budget.reclaim);
        let cleans = self.clean_in_turn(budget.clean_bytes);
        let gives = self.space.give_back();
        self.space.provision();
        self.prepare_table_in_turn();
        self.shrink_table();
        self.store_counters();
        done.expired = std::mem::take(&mut self.cleaner.expired);
        let growing = self.index.growing() && !self.index.stuck();
        done.more =
            growing || cleans || gives || done.reclaimed == budget.reclaim && budget.reclaim > 0;
        done.waiting = self.space.busy();
        done
    }

    pub(crate) fn store_counters(&self) {
        let s = &self.space;
        let (keys, live) = (self.index.live(), s.live_bytes());
        let counters = [
            (header::KEYS, keys),
            (header::EXPIRES, self.expires),
            (header::LIVE_BYTES, live),
            (header::APPENDED_BYTES, self.appended),
            (header::BACKED_BYTES, s.backed_bytes()),
            (header::RELOCATED_BYTES, self.cleaner.stats.relocated_bytes),
            (header::CLEANED_SEGMENTS, self.cleaner.stats.segments),
        ];
        for (at, value) in counters {
            if self.words.load64(at, Relaxed) != value {
                self.words.store64(at, value, Relaxed);
            }
        }
    }

    /// Active expiry: looks at the next lines of the index and deletes what has expired. Returns
    /// how many keys, and at how many lines it has looked: it ends early behind long records.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn expire_step(&mut self, pin: &Pin<'_>, now_ms: u64, lines: u32) -> (u32, u32) {
        self.check_pin(pin);
        self.expire_lines(now_ms, lines)
    }

    /// Deletes a key whose time is over, unless its record's checksum is wrong: its expiry may be;
    /// or the journal has no room for it. Returns whether it did. The caller treats the key as gone
    /// either way.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn expire(&mut self, pin: &Pin<'_>, hash: u32, key: &[u8]) -> bool {
        self.check_pin(pin);
        let Some(place) = self.index.locate(&self.words, hash, key).found else { return false };
        let at = u64::from(place.reference) * r::UNIT;
        let head = Head::load(&self.words, at);
        let expires = self.is_whole(at, &head) && self.may_remove(key.len());
        if expires {
            self.remove_at(&place, hash);
        }
        expires
    }

    pub(crate) fn expire_lines(&mut self, now_ms: u64, lines: u32) -> (u32, u32) {
        let (mut deleted, mut looked, mut summed) = (0, 0, 0);
        while looked < lines && self.expires != 0 && summed <= STEP_BYTES {
            let table = self.index.current();
            let line = self.expire_line & (table.lines - 1);
            self.expire_line = line + 1;
            let (keys, bytes) = self.expire_line_of(table, line, now_ms);
            deleted += keys;
            looked += 1;
            summed += bytes;
            if self.expire_line == table.lines {
                self.lasting.round_ends();
            }
        }
        (deleted, looked)
    }

    /// Deletes what is over of a line, but for what has a wrong checksum: its expiry may be; and
    /// for what the journal has no room for.
    /// Returns how many keys, and bytes of records that were looked at.
    fn expire_line_of(&mut self, table: Table, line: u64, now_ms: u64) -> (u32, u64) {
        let entries = self.words.line(table.line_offset(line));
        let live = || entries.into_iter().filter(|&e| entry_reference(e) > REF_MOVED);
        let offset = |e| u64::from(entry_reference(e)) * r::UNIT;
        live().for_each(|e| self.words.prefetch(offset(e)));
        let (mut deleted, mut summed) = (0, 0);
        for e in live() {
            let at = offset(e);
            let expiry = self.words.load64(at + r::EXPIRY, Relaxed);
            if !is_over(expiry, now_ms) {
                if expiry != 0 {
                    self.lasting.met(expiry - now_ms);
                }
                continue;
            }
            let head = Head::load(&self.words, at);
            summed += head.bytes();
            if !self.is_whole(at, &head) || !self.may_remove(head.key_len.into()) {
                continue;
            }
            // SAFETY: a published record of this arena; nothing is reclaimed before this call ends.
            let key = unsafe { self.words.bytes(at + r::KEY, head.key_len.into()) };
            deleted += u32::from(self.remove(entry_tag(e), key));
        }
        (deleted, summed)
    }

    /// Bytes of memory that this writer has given up so far: a pin that began when they were fewer
    /// keeps the difference from being used again.
    #[must_use]
    #[inline]
    pub fn given_up_bytes(&self) -> u64 {
        self.space.given_up_bytes()
    }

    /// Counts, exact at this moment.
    #[must_use]
    pub fn stats(&self) -> ArenaStats {
        let s = &self.space;
        ArenaStats {
            capacity_bytes: s.geometry().capacity_bytes,
            used_bytes: s.live_bytes(),
            backed_bytes: s.backed_bytes(),
            dead_bytes: s.segment_bytes().saturating_sub(s.live_segment_bytes()),
            appended_bytes: self.appended,
            segments: s.segments(),
            runs: s.runs(),
            retired: s.retired(),
            keys: self.keys(),
            expires: self.expires,
            mean_left_ms: if self.expires == 0 { 0 } else { self.lasting.mean_ms() },
            index_lines: self.index.current().lines,
            growing: self.index.growing(),
            lsn: self.lsn,
            incarnation: self.incarnation,
            available_bytes: s.available_bytes(),
            rebuilds: self.rebuilds,
            cleaner: self.cleaner.stats,
        }
    }
}
