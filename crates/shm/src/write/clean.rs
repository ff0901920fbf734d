//! Cleaning: live records of poor segments move together, so that whole segments can be reused.
//!
//! ```text
//! victim     | dead | LIVE | dead | BAD | LIVE | expired |    by its marks, from live to live
//!                      │             │     │        └─ deleted
//!                      │             └─ stays, and the segment with it
//! cold head  | ... | LIVE | LIVE |       copied whole, then the entry is stored again (Release)
//! victim     retired ── grace period ──> reused
//! ```
//!
//! 1. A record is alive exactly if the index names its very place, and then it has a mark (see
//!    `marks`). What is dead costs nothing, and no length is believed to find what lies behind it.
//! 2. The cleaner runs between writes, never within one: what a write has located stays where it
//!    is.
//! 3. Each step is bounded in bytes and records, so in time; what is owed beyond waits for the
//!    next.
//! 4. Moving a record changes none of its fields (LSN, expiry, flags, its run).
//! 5. A live record whose checksum is wrong is neither moved nor dropped, and told once. Its
//!    segment is no victim any more, so it is gone through once by each writer; it dies when
//!    clients have overwritten or deleted what is left in it.
//!
//! The arena's writer only; moving a record is generic over the shared words.

use crate::error::WriteError;
use crate::format::format_fault::FormatFault;
use crate::format::head::Head;
use crate::format::layout::{LINE_BYTES, is_over, record as r};
use crate::format::record::reference_of;
use crate::format::words::SharedWords;
use crate::region::kept::Kept;
use crate::space::{Need, Victim};
use crate::write::cleaner::{locate, move_record};
use crate::write::writer::Writer;

/// Live records whose memory is asked for together: more than a core fetches at once, few enough
/// that the first is still cached when its turn comes.
const BATCH_RECORDS: usize = 32;
/// Cache lines of a record that are asked for: most records have no more, and the rest of a long
/// one comes by itself.
const RECORD_LINES: u64 = 3;
/// Live records that a step meets at most: some 200 microseconds when memory is cold.
const STEP_RECORDS: u64 = 2048;
/// Bytes of a victim that a step walks over at most: copying as many takes some 400 microseconds.
pub(crate) const STEP_BYTES: u64 = 1 << 20;
/// Appended bytes of a turn after which they are paid for: few, so that no write pays for many
/// others, enough to fill batches.
pub(crate) const PAY_EVERY_BYTES: u64 = 8 << 10;
/// The same at the end of a turn. Where each turn has one write, of 150 bytes, one in seven moves
/// some three records then.
pub(crate) const TURN_PAYS_BYTES: u64 = 1 << 10;
/// Payments of a segment's appends in which nothing is to be paid: how late shortness may be
/// noticed.
const LOOKS_PER_SEGMENT: u64 = 16;
/// Index lines that a turn's upkeep searches for expired keys if memory is short and no segment is
/// worth its cleaning: some 50 microseconds.
const EXPIRE_LINES: u32 = 64;
/// Time without an append after which segments are packed that nobody needs yet. A busy shard has
/// turns without writes of its own, such as those in which it takes answers.
const IDLE_MS: u64 = 50;
/// Bytes that the upkeep walks over in a millisecond while segments are sparse and writes go on:
/// what those don't pay for, such as the rest of a large delete. Some 15 microseconds.
const SPARSE_MS_BYTES: u64 = 16 << 10;
/// Most bytes that are owed: what could not be paid in a few steps is the upkeep's.
const OWED_BYTES_MAX: u64 = 8 * STEP_BYTES;

/// A live record that the cleaner is about to meet.
#[derive(Clone, Copy)]
struct LiveRecord {
    offset: u64,
    hash: u32,
    head: Head,
}

impl LiveRecord {
    const NONE: LiveRecord = LiveRecord { offset: 0, hash: 0, head: Head::EMPTY };
}

/// What a batch has gone by.
struct Passed {
    bytes: u64,
    records: u64,
    /// There is no room for the next one.
    is_stuck: bool,
}

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
                if self.appended - self.cleaner.paid >= TURN_PAYS_BYTES {
                    self.pay();
                }
                let is_due = self.cleaner.now_ms != self.cleaner.sparse_ms;
                if is_due && self.need().is_some() {
                    self.cleaner.sparse_ms = self.cleaner.now_ms;
                    self.clean(bytes.min(SPARSE_MS_BYTES), Need::Packing);
                }
                return false;
            }
        };
        if !self.space.has_victim(need) {
            // Segments are full of what the index names; some of that may be over.
            let (expired, _) = self.expire_lines(self.cleaner.now_ms, EXPIRE_LINES);
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

    /// Goes by so many bytes of victims. Returns how many it did.
    pub(crate) fn clean(&mut self, bytes: u64, need: Need) -> u64 {
        let began = self.cleaner.clock.map(|clock| (clock, clock()));
        let (mut walked, mut records) = (0, 0);
        while walked < bytes
            && records < STEP_RECORDS
            && let Some(victim) = self.space.take_victim(need)
        {
            let passed = self.clean_batch(victim, bytes - walked);
            walked += passed.bytes;
            records += passed.records;
            self.cleaner.stuck = passed.is_stuck;
            if passed.is_stuck {
                break;
            }
        }
        let stats = &mut self.cleaner.stats;
        stats.steps += 1;
        stats.longest_step_bytes = stats.longest_step_bytes.max(walked);
        if let Some((clock, began)) = began {
            stats.longest_step_ns = stats.longest_step_ns.max(clock().saturating_sub(began));
        }
        walked
    }

    /// Meets the next live records of a victim, which begin within so many bytes, but one at least.
    fn clean_batch(&mut self, victim: Victim, bytes: u64) -> Passed {
        let mut batch = [LiveRecord::NONE; BATCH_RECORDS];
        self.space.forget_dead();
        let (count, mut end) = self.read_ahead(&victim, bytes, &mut batch);
        let (mut records, mut is_stuck) = (0, false);
        for live in &batch[..count] {
            is_stuck = matches!(self.meet(live), Fate::Stuck);
            if is_stuck {
                end = live.offset;
                break;
            }
            records += 1;
        }
        if !self.space.is_victim(victim.slot) {
            // Nothing of it is alive any more.
            self.cleaner.stats.segments += 1;
        } else if end >= victim.end {
            self.keep_victim(end);
        } else {
            self.space.advance_victim(end);
        }
        Passed { bytes: end - victim.at, records, is_stuck }
    }

    /// Finds the next live records by their marks, asks for them, hashes their keys and asks for
    /// their index lines. Returns how many, and where the victim goes on behind them.
    fn read_ahead(
        &self,
        victim: &Victim,
        bytes: u64,
        batch: &mut [LiveRecord; BATCH_RECORDS],
    ) -> (usize, u64) {
        let (mut count, mut at) = (0, victim.at);
        while let Some(offset) = self.space.next_live(victim, at)
            && count < BATCH_RECORDS
            && (count == 0 || offset - victim.at < bytes)
        {
            for line in 0..RECORD_LINES {
                self.words.prefetch(offset + line * LINE_BYTES);
            }
            batch[count].offset = offset;
            count += 1;
            at = offset + r::UNIT;
        }
        for live in &mut batch[..count] {
            live.head = Head::load(&self.words, live.offset);
            if live.head.fault(self.space.geometry(), live.offset).is_some() {
                continue;
            }
            // SAFETY: these bytes lie in a segment of this arena, as `fault` has found; its writer
            // alone stores to it.
            let key = unsafe { self.words.bytes(live.offset + r::KEY, live.head.key_len.into()) };
            live.hash = self.hash(key);
            for table in [Some(self.index.current()), self.index.old()].into_iter().flatten() {
                self.words.prefetch(table.line_offset(table.home(live.hash)));
            }
        }
        (count, self.space.next_live(victim, at).unwrap_or(victim.end))
    }

    /// Leaves a segment alone in which something is alive that could not be moved.
    #[cold]
    fn keep_victim(&mut self, end: u64) {
        let unmarked = self.space.give_up_victim();
        if unmarked > 0 {
            let what = "number of live records that cleaning the segment didn't meet";
            let finding = (&FormatFault::new(end, what, 0, unmarked)).into();
            self.region.note_kept(Kept { key: None, finding });
        }
    }

    /// Moves a live record, deletes it if its time is over and the journal has room for that,
    /// leaves it if its bytes are not those that were written.
    #[inline]
    fn meet(&mut self, live: &LiveRecord) -> Fate {
        let LiveRecord { offset, hash, ref head } = *live;
        if !self.is_whole(offset, head) {
            return Fate::Done;
        }
        let Some(place) = locate(&self.words, &self.index, hash, reference_of(offset)) else {
            self.note_unnamed(offset, head);
            return Fate::Done;
        };
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
