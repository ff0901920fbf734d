//! Cleaning: live records of poor segments move together, so that whole segments can be reused.
//!
//! ```text
//! victim     | dead | LIVE | dead | BAD | LIVE | expired |    walked from its start to its tail
//!                      │             │     │        └─ deleted
//!                      │             └─ stays, and the segment with it
//! cold head  | ... | LIVE | LIVE |       copied whole, then the entry is stored again (Release)
//! victim     retired ── grace period ──> reused
//! ```
//!
//! 1. A record is alive exactly if the index names its very place.
//! 2. The cleaner runs between writes, never within one: what a write has located stays where it
//!    is.
//! 3. Each step is bounded in bytes and records, so in time; what is owed beyond waits for the
//!    next.
//! 4. Moving a record changes none of its fields (LSN, expiry, flags, its run).
//! 5. A live record whose checksum is wrong is neither moved nor dropped, and told once. Its
//!    segment is no victim any more, so it is walked once by each writer; it dies when clients have
//!    overwritten or deleted what is left in it.
//!
//! The arena's writer only; moving a record is generic over the shared words.

use crate::error::WriteError;
use crate::format::format_fault::FormatFault;
use crate::format::head::Head;
use crate::format::layout::{is_over, record as r};
use crate::format::record::reference_of;
use crate::format::words::SharedWords;
use crate::region::kept::Kept;
use crate::space::{Need, Victim};
use crate::write::cleaner::{locate, move_record};
use crate::write::writer::Writer;

/// Records whose index lines are asked for together: more than a core fetches at once, few enough
/// that the first line is still cached when its turn comes.
const BATCH_RECORDS: usize = 32;
/// Records that a step looks at most, live or dead: some 200 microseconds when memory is cold.
const STEP_RECORDS: u64 = 2048;
/// Bytes of a victim that a step walks over at most: copying as many takes some 400 microseconds.
pub(crate) const STEP_BYTES: u64 = 1 << 20;
/// Appended bytes after which they are paid for: few, so that no write pays for many others, enough
/// to fill batches.
const PAY_EVERY_BYTES: u64 = 4 << 10;
/// Payments of a segment's appends in which nothing is to be paid: how late shortness may be
/// noticed.
const LOOKS_PER_SEGMENT: u64 = 16;
/// Index lines that a turn's upkeep searches for expired keys if memory is short and no segment is
/// worth its cleaning: some 50 microseconds.
const EXPIRE_LINES: u32 = 64;
/// Time without an append after which segments are packed that nobody needs yet. A busy shard has
/// turns without writes of its own, such as those in which it takes answers.
const IDLE_MS: u64 = 50;
/// Bytes that a turn's upkeep walks over while segments are sparse and writes go on: what those
/// don't pay for, such as the rest of a large delete. Some 15 microseconds.
const SPARSE_TURN_BYTES: u64 = 16 << 10;
/// Most bytes that are owed: what could not be paid in a few steps is the upkeep's.
const OWED_BYTES_MAX: u64 = 8 * STEP_BYTES;

/// The outcome for a record that the cleaner met.
enum Fate {
    Done,
    /// There is no room for it.
    Stuck,
}

impl Writer {
    /// Tells whether segments wait for the end of this turn while appends are about to need them:
    /// announce a quiescent state soon, rather than go on with more writes.
    #[must_use]
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.cleaner.wants_turn
    }

    /// Whether memory is on its way back, or on its way from the system.
    #[must_use]
    pub fn is_reclaiming(&self) -> bool {
        self.space.busy()
    }

    /// Whether memory comes back, or could by cleaning.
    #[must_use]
    pub fn is_gaining(&self) -> bool {
        self.is_reclaiming() || self.index.growing() || self.space.has_victim(Need::Pressure)
    }

    /// A clock in nanoseconds with which the steps of cleaning are measured.
    pub fn measure_steps(&mut self, clock: fn() -> u64) {
        self.cleaner.clock = Some(clock);
    }

    /// Leaves dead records where they lie as long as memory isn't short: what cleaning costs is
    /// measured beside that.
    pub fn leave_sparse(&mut self) {
        self.cleaner.leaves_sparse = true;
    }

    /// The need that a write has to pay for, if there is one.
    fn need(&self) -> Option<Need> {
        let need = match self.space.is_short() {
            true => Need::Pressure,
            false if self.space.is_sparse() && !self.cleaner.leaves_sparse => Need::Packing,
            false => return None,
        };
        self.space.has_victim(need).then_some(need)
    }

    /// Pays for what was appended.
    #[cold]
    pub(crate) fn pay(&mut self) {
        let appended = self.appended - self.cleaner.paid;
        self.cleaner.paid = self.appended;
        let slot_bytes = self.space.geometry().slot_bytes();
        let Some(need) = self.need() else {
            self.cleaner.owed = 0;
            self.cleaner.due = self.appended + slot_bytes / LOOKS_PER_SEGMENT;
            self.note_turn();
            return;
        };
        let (gain, whole) = self.space.gain();
        let owed = self.cleaner.owed + appended.saturating_mul(whole) / gain.max(1);
        let walked = self.clean(owed.min(STEP_BYTES), need);
        self.cleaner.owed = owed.saturating_sub(walked).min(OWED_BYTES_MAX);
        self.cleaner.due = self.appended + PAY_EVERY_BYTES;
        self.note_turn();
    }

    fn note_turn(&mut self) {
        self.cleaner.wants_turn |= self.space.waits_for_turn();
    }

    /// Whether nothing has been appended for a while, as far as the upkeep tells the time.
    fn is_idle(&mut self) -> bool {
        let cleaner = &mut self.cleaner;
        if cleaner.seen != self.appended {
            (cleaner.seen, cleaner.seen_ms) = (self.appended, cleaner.now_ms);
            return false;
        }
        cleaner.now_ms == 0 || cleaner.now_ms.abs_diff(cleaner.seen_ms) >= IDLE_MS
    }

    /// A turn's share: more if memory is short, packing if nothing was written lately, a little if
    /// segments are sparse. Returns whether there is more to do at once.
    pub(crate) fn clean_in_turn(&mut self, bytes: u64) -> bool {
        let idle = self.is_idle();
        self.cleaner.wants_turn = false;
        self.space.calm();
        let need = match self.space.is_short() {
            true => Need::Pressure,
            false if idle => Need::Packing,
            false => {
                if self.need().is_some() {
                    self.clean(bytes.min(SPARSE_TURN_BYTES), Need::Packing);
                }
                return false;
            }
        };
        if !self.space.has_victim(need) {
            // Segments are full of what the index names; some of that may be over.
            let expired = self.expire_lines(self.cleaner.now_ms, EXPIRE_LINES);
            self.cleaner.expired += expired;
            self.cleaner.stats.expired_keys += u64::from(expired);
            return false;
        }
        let bytes = if self.space.hungers() { bytes.max(STEP_BYTES) } else { bytes };
        let walked = self.clean(bytes, need);
        self.cleaner.owed = self.cleaner.owed.saturating_sub(walked);
        let wanted = need == Need::Packing || self.space.is_short();
        walked > 0 && wanted && self.space.has_victim(need)
    }

    /// Why a write was refused: for good, or until memory has come back. It is for good only if
    /// nothing is under way, and no cleaning can be begun, that would bring some.
    #[cold]
    pub(crate) fn refused(&mut self, error: WriteError) -> WriteError {
        if !matches!(error, WriteError::Oom | WriteError::Denied(_)) {
            return error;
        }
        self.cleaner.due = self.appended;
        // The old table comes back when the growth ends.
        let grows = self.index.growing() && !self.index.stuck();
        if self.space.has_hope(grows, self.cleaner.stuck) {
            self.cleaner.wants_turn = true;
            return WriteError::Busy;
        }
        error
    }

    /// Walks over so many bytes of victims. Returns how many it did.
    pub(crate) fn clean(&mut self, bytes: u64, need: Need) -> u64 {
        let began = self.cleaner.clock.map(|clock| (clock, clock()));
        let (mut walked, mut records) = (0, 0);
        while walked < bytes
            && records < STEP_RECORDS
            && let Some(victim) = self.space.take_victim(need)
        {
            let (bytes, n) = self.clean_batch(victim);
            self.cleaner.stuck = n == 0;
            if self.cleaner.stuck {
                break;
            }
            walked += bytes;
            records += n;
        }
        let stats = &mut self.cleaner.stats;
        stats.steps += 1;
        stats.longest_step_bytes = stats.longest_step_bytes.max(walked);
        if let Some((clock, began)) = began {
            stats.longest_step_ns = stats.longest_step_ns.max(clock().saturating_sub(began));
        }
        walked
    }

    /// Looks at the next records of a victim. Returns bytes and records; none if there is no room
    /// for what is alive.
    fn clean_batch(&mut self, victim: Victim) -> (u64, u64) {
        let mut batch = [(0u64, 0u32, Head::EMPTY); BATCH_RECORDS];
        let (count, end, whole) = self.read_ahead(&victim, &mut batch);
        if victim.at == self.space.geometry().slot_offset(victim.slot) {
            self.cleaner.bad.clear();
        }
        for (n, (offset, hash, head)) in (0u64..).zip(&batch[..count]) {
            if let Fate::Stuck = self.meet(*offset, *hash, head) {
                self.space.advance_victim(victim.slot, *offset);
                return (offset - victim.at, n);
            }
            if !self.space.is_victim(victim.slot) {
                // Nothing of it is alive any more.
                self.cleaner.stats.segments += 1;
                return (offset + head.bytes() - victim.at, n + 1);
            }
        }
        self.space.advance_victim(victim.slot, end);
        if !whole || end >= victim.end {
            self.keep_victim(end);
            return (end - victim.at, count.max(1) as u64);
        }
        (end - victim.at, count as u64)
    }

    /// Reads the headers of the next records, hashes their keys and asks for their index lines.
    /// Returns how many, where they end, and whether all was whole.
    fn read_ahead(
        &self,
        victim: &Victim,
        batch: &mut [(u64, u32, Head); BATCH_RECORDS],
    ) -> (usize, u64, bool) {
        let g = self.space.geometry();
        let (mut count, mut at) = (0, victim.at);
        while count < BATCH_RECORDS && at + r::HEADER_BYTES <= victim.end {
            let head = Head::load(&self.words, at);
            if head.fault(g, at).is_some() {
                return (count, at, false);
            }
            // SAFETY: these bytes lie in a segment of this arena, as `fault` has found; its writer
            // alone stores to it.
            let key = unsafe { self.words.bytes(at + r::KEY, head.key_len.into()) };
            let hash = self.hash(key);
            for table in [Some(self.index.current()), self.index.old()].into_iter().flatten() {
                self.words.prefetch(table.line_offset(table.home(hash)));
            }
            batch[count] = (at, hash, head);
            count += 1;
            at += head.bytes();
        }
        // A rest in which no header fits is no record.
        (count, at, count == BATCH_RECORDS || at >= victim.end)
    }

    /// Leaves a segment alone in which something is alive that could not be moved.
    #[cold]
    fn keep_victim(&mut self, walked_to: u64) {
        // Clients may have overwritten some of the bad ones since they were met.
        let is_there = |&(hash, reference): &(u32, u32)| {
            locate(&self.words, &self.index, hash, reference).is_some()
        };
        let bad = self.cleaner.bad.iter().filter(|&it| is_there(it)).count() as u64;
        let unmet = u64::from(self.space.give_up_victim()).saturating_sub(bad);
        if unmet > 0 {
            let what = "number of live records that cleaning the segment didn't meet";
            let finding = (&FormatFault::new(walked_to, what, 0, unmet)).into();
            self.region.note_kept(Kept { key: None, finding });
        }
    }

    /// Moves a record if it is alive, deletes it if its time is over and the journal has room for
    /// that, leaves it if its checksum is wrong.
    #[inline]
    fn meet(&mut self, offset: u64, hash: u32, head: &Head) -> Fate {
        let Some(place) = locate(&self.words, &self.index, hash, reference_of(offset)) else {
            self.cleaner.stats.dead_records += 1;
            return Fate::Done;
        };
        let sum = self.sum_of(offset, head);
        if sum != head.checksum {
            self.note_wrong_sum(offset, head, sum);
            self.cleaner.bad.push((hash, reference_of(offset)));
            return Fate::Done;
        }
        if is_over(head.expiry_ms, self.cleaner.now_ms) && self.may_remove(head.key_len.into()) {
            self.remove_at(&place, hash);
            self.cleaner.stats.expired_keys += 1;
            self.cleaner.expired += 1;
            return Fate::Done;
        }
        let Some(to) = self.space.reserve_cold(head.bytes()) else { return Fate::Stuck };
        let space = &self.space;
        let place = (&place, hash);
        move_record(&self.words, &mut self.index, place, head, to, || space.store_cold_tail());
        // The copy first: a run that both name must not lose its last name in between.
        self.space.charge(to, head);
        self.space.discharge(offset, head);
        self.cleaner.stats.relocated_records += 1;
        self.cleaner.stats.relocated_bytes += head.bytes();
        Fate::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::layout::inline_record_bytes;
    use crate::format::record;
    use crate::memory::provision::Backing;
    use crate::tests::{Arena, directory, spec};

    #[test]
    fn a_walk_ends_where_no_header_fits_any_more() {
        // The last slot of the address space ends in 16 bytes that are no record: the file was
        // damaged where nothing is alive. The walk looked for a header there, of which half lies
        // behind the arena's end.
        let dir = directory();
        let a = Arena::create(&spec(dir.path().join("a"), 4 << 20));
        let (words, g) = (a.writer.words, *a.writer.space.geometry());
        let (slot, end) = (g.slots - 1, g.address_bytes);
        a.writer.region.back(g.slot_offset(slot), g.slot_bytes()).unwrap();
        let bytes = inline_record_bytes(3, 0);
        let head = Head { lsn: 1, key_len: 3, kind: r::KIND_STRING, ..Head::EMPTY };
        let at = end - r::UNIT - bytes;
        record::write(&words, at, &head, b"key", &[]);
        let mut batch = [(0, 0, Head::EMPTY); BATCH_RECORDS];
        let read = a.writer.read_ahead(&Victim { slot, at, end }, &mut batch);
        let written = (at, a.writer.hash(b"key"), Head::load(&words, at));
        assert_eq!((read, batch[0]), ((1, end - r::UNIT, false), written));
    }
}
