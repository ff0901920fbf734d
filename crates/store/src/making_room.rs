//! Making room: which keys go when memory is full, and how full it gets.
//!
//! ```text
//! write ── more than HIGH_WATER_PERCENT alive? ── sample some keys ──> pool of the best ──> delete the best
//!     ├── its lines of the index are full: the best of the keys that stand there goes
//!     └── refused all the same: more at once, and again
//! ```
//!
//! 1. Nothing is evicted inside a transaction, so it sees one keyspace; room for all of it is made
//!    before it begins. If it turns out to want more, that goes when it has ended, and it begins
//!    again.
//! 2. Keys go in batches, for some writes ahead. What is too much goes a little faster than writes
//!    bring new data, never all at once; so many keys at most go before a write, then it is tried
//!    as it is. If it finds no room, more go, once in a turn, and it is tried again in the next; it
//!    is refused when nothing is left that may go. None goes for a write for which there would be
//!    no room if all went.
//! 3. An evicted key is deleted like any other: watchers are told, its memory is the cleaner's.
//! 4. What is counted is what lives. Overwritten records are no reason to evict: the cleaner wins
//!    them back.
//!
//! Thread: the shard that owns the store; a view only knows whether hits are wanted.

use std::ops::Range;

use nigh_shm::layout::is_over;
use nigh_shm::{Record, WriteError};

use crate::error::WriteFault;
use crate::eviction::candidates::BATCH_KEYS;
use crate::eviction::policy::Policy;
use crate::partition::counters::Scarce;
use crate::partition::store::Store;
use crate::turn::Turn;

/// Share of the room for records that may be alive, per cent. The rest is the cleaner's play: at 90
/// % it copies 1.1 bytes for each that is appended (new keys of 100 bytes, 64 MiB). By design 6
/// that grows with 1 / (1 - share), while 5 % more keys are hardly one hit more in a hundred.
const HIGH_WATER_PERCENT: u64 = 90;
/// Share of the index's entries that may be taken when it can't move to a larger table, per cent: a
/// search for a key that isn't there looks at some six lines then, at ten from 80 % on.
const INDEX_HIGH_WATER_PERCENT: u64 = 75;
/// Keys that a write evicts before it, at most: some 10 µs.
const EVICTIONS_PER_WRITE: u32 = 32;
/// Keys that go when a write was refused, at most, once in a turn: some 100 µs.
const EVICTIONS_WHEN_FULL: u32 = 256;
/// Lines of the index in which keys are looked for when chance has found none, once in a turn: some
/// 300 µs.
const LINES_WHEN_FULL: u32 = 256;
/// Writes that room is made for ahead: a batch of the size that samples best.
const WRITES_AHEAD: u64 = BATCH_KEYS as u64;
/// Room that is made ahead is at most one part of so many of all room.
const AHEAD_SHARE: u64 = 1024;
/// Bytes that go for each that is written, as long as too much is there: a keyspace that has to
/// shrink, since the index or large values want its room, does so within some thousand writes, and
/// each pays for it alike.
const CATCH_UP: u64 = 4;
/// Keys that a turn's upkeep evicts, at most: some 100 µs. It catches up with writes of large
/// values.
const EVICTIONS_PER_TURN: u32 = 64;
/// Bytes of a record beside key and value, about.
const RECORD_OVERHEAD_BYTES: u64 = 64;

impl Store {
    /// Sets what happens when memory is full, and how many keys are sampled for each that goes. At
    /// a view: whether it logs hits for the owner.
    pub fn set_eviction(&mut self, policy: Policy, samples: u32) {
        match self.is_owner() {
            true => self.usage.set_policy(policy, samples),
            false => self.usage.set_view_policy(policy),
        }
    }

    /// What happens when memory is full.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.usage.policy()
    }

    /// Whether reads leave keys as old as they are from now on. Writes and TOUCH never do.
    pub fn keep_ages(&mut self, keep: bool) {
        self.usage.keep_ages(keep);
    }

    /// Whether so many bytes more would be too many.
    #[inline]
    fn is_short(&self, bytes: u64) -> bool {
        let fill = self.data.fill();
        let room = fill.room_bytes.saturating_sub(bytes);
        let index_is_full =
            fill.entries != u64::MAX && fill.keys * 100 >= fill.entries * INDEX_HIGH_WATER_PERCENT;
        (fill.record_bytes * 100 >= room * HIGH_WATER_PERCENT || index_is_full) && fill.keys > 0
    }

    /// Before a write of about so many bytes: evicts what is too much.
    #[inline]
    pub(crate) fn make_room(&mut self, bytes: usize, turn: &Turn<'_>) {
        let Some(eviction) = &mut self.usage.eviction else { return };
        let takes = bytes as u64 + RECORD_OVERHEAD_BYTES;
        match eviction.slack.checked_sub(takes) {
            Some(left) => eviction.slack = left,
            None => self.look_for_room(takes, turn),
        }
    }

    #[cold]
    fn look_for_room(&mut self, takes: u64, turn: &Turn<'_>) {
        let ahead = (takes * WRITES_AHEAD).min(self.data.fill().room_bytes / AHEAD_SHARE);
        let mut gone = 0;
        if self.overlay.is_none() && self.is_short(takes) && self.may_fit(takes) {
            let most_bytes = CATCH_UP * (takes + ahead);
            gone = self.evict(takes + ahead, 0..most_bytes, EVICTIONS_PER_WRITE, turn).bytes;
        }
        self.note_slack(gone);
    }

    /// Notes how much may be written unseen: half of what is free, since the index may take of it
    /// too; what was made free just now; or a part of it, if there is too much all the same. No
    /// more than new keys that the index may take.
    fn note_slack(&mut self, gone: u64) {
        let is_short = self.is_short(0);
        let fill = self.data.fill();
        let mark = fill.room_bytes / 100 * HIGH_WATER_PERCENT;
        if let Some(eviction) = &mut self.usage.eviction {
            let free = mark.saturating_sub(fill.record_bytes);
            let unseen = if is_short { gone / CATCH_UP } else { (free / 2).max(free.min(gone)) };
            let entries = (fill.entries / 100).saturating_mul(INDEX_HIGH_WATER_PERCENT);
            let keys = entries.saturating_sub(fill.keys).max(WRITES_AHEAD);
            eviction.slack = unseen.min(keys.saturating_mul(RECORD_OVERHEAD_BYTES));
        }
    }

    /// Before a transaction that writes so many bytes at most: makes room if a policy says so.
    /// False if there isn't enough, but something went: the transaction is to begin in the next
    /// turn. So it is if it begins `again`, as memory was coming back, until none is: what it took
    /// back itself would else be what it finds on its way the next time.
    pub fn prepare_writes(&mut self, bytes: usize, again: bool, turn: &Turn<'_>) -> bool {
        if again && self.data.is_here() && self.data.is_reclaiming() {
            self.counters.busy = Some(Scarce::Memory);
            return false;
        }
        self.make_room(bytes, turn);
        let bytes_wanted = bytes as u64;
        let is_large = self.usage.evicts() && bytes_wanted > self.data.fill().segment_bytes;
        let waits = is_large
            && self.is_short(bytes_wanted)
            && self.make_room_after(bytes, &WriteError::Oom, turn) == Ok(true);
        if waits {
            self.counters.busy = Some(Scarce::Memory);
        }
        !waits
    }

    /// After a transaction failed for good that wanted so many bytes at least: makes room if a
    /// policy says so. True if something went, or only the journal keeps it: the transaction is to
    /// begin again in the next turn.
    pub fn prepare_again(&mut self, bytes: usize, turn: &Turn<'_>) -> bool {
        let made = self.make_room_after(bytes, &WriteError::Oom, turn);
        let goes = matches!(made, Ok(true) | Err(WriteError::JournalFull));
        if goes {
            self.counters.busy = Some(Scarce::Memory);
        }
        goes
    }

    /// Whether there would be room for so many bytes if no key was left; else none has to go for
    /// them.
    fn may_fit(&self, bytes: u64) -> bool {
        let fill = self.data.fill();
        bytes <= fill.room_bytes + fill.run_bytes + fill.index_bytes
    }

    /// A write of about so many bytes, `attempt`, with room made before it, and again if it was
    /// refused. If that wasn't enough, but something went, its memory comes back: the write is to
    /// be tried again in the next turn. If the journal has no room for that, the write is refused
    /// for the journal.
    pub(crate) fn with_room<E: WriteFault + From<WriteError>>(
        &mut self,
        bytes: usize,
        turn: &Turn<'_>,
        mut attempt: impl FnMut(&mut Store) -> Result<(), E>,
    ) -> Result<(), E> {
        self.make_room(bytes, turn);
        if self.usage.evicts() {
            self.data.forget_crowded();
        }
        match attempt(self) {
            Err(error) if error.lacks_room() => {
                if self.make_room_after(bytes, &error, turn)? {
                    return attempt(self).map_err(WriteFault::try_again);
                }
                Err(error)
            }
            outcome => outcome,
        }
    }

    /// After a write was refused: true if something went, so that another attempt may find room, if
    /// not now.
    ///
    /// # Errors
    /// A key is to go, and the journal has no room for that.
    #[cold]
    fn make_room_after(
        &mut self,
        bytes: usize,
        error: &impl WriteFault,
        turn: &Turn<'_>,
    ) -> Result<bool, WriteError> {
        let crowded = if self.usage.evicts() { self.data.take_crowded() } else { None };
        if let Some(overlay) = &mut self.overlay {
            overlay.note_wanted(bytes);
            return Ok(false);
        }
        let may_go = self.may_fit(bytes as u64);
        let Some(eviction) = self.usage.eviction.as_mut().filter(|_| may_go) else {
            return Ok(false);
        };
        if let Some(hash) = crowded {
            eviction.sample_probe(hash, &self.reader, turn);
            let Some(record) = eviction.take_best(&self.reader, turn) else { return Ok(false) };
            self.data.check_removal(std::iter::once(record.key().len()))?;
            self.delete_evicted(&record, turn);
            return Ok(true);
        }
        if !error.is_oom() || eviction.has_gone {
            return Ok(error.is_oom());
        }
        // Below the mark, memory is there, but in pieces: as much as is wanted goes, and more the
        // next time.
        let least = self.data.fill().segment_bytes.max(bytes as u64);
        let gone = self.evict(bytes as u64, least..u64::MAX, EVICTIONS_WHEN_FULL, turn);
        if let (0, Some(error)) = (gone.keys, gone.kept_by) {
            return Err(error);
        }
        let goes = gone.keys > 0 || self.evict_rare(bytes as u64, least, turn);
        self.usage.eviction.iter_mut().for_each(|eviction| eviction.has_gone = goes);
        Ok(goes)
    }

    /// If chance has found none of the keys that may go: looks for them in a part of the index,
    /// another in each turn. False if there are none.
    fn evict_rare(&mut self, room_bytes: u64, least_bytes: u64, turn: &Turn<'_>) -> bool {
        let Some(eviction) = &mut self.usage.eviction else { return false };
        if self.data.expires() == 0 {
            return false;
        }
        eviction.walk(LINES_WHEN_FULL, &self.reader, turn);
        self.evict(room_bytes, least_bytes..u64::MAX, EVICTIONS_WHEN_FULL, turn);
        true
    }

    /// Evicts keys until there is room for `room_bytes` below the mark and the least of `bytes` is
    /// gone, or the most, or `most` keys.
    #[cold]
    fn evict(&mut self, room_bytes: u64, bytes: Range<u64>, most: u32, turn: &Turn<'_>) -> Evicted {
        let mut gone = Evicted::default();
        let mut batch = 0;
        while gone.keys < most
            && gone.bytes < bytes.end
            && (gone.bytes < bytes.start || self.is_short(room_bytes))
        {
            let least_bytes = bytes.start.saturating_sub(gone.bytes);
            let wanted = if batch == 0 { self.batch_for(room_bytes, least_bytes) } else { 0 };
            let Some(eviction) = &mut self.usage.eviction else { break };
            if eviction.policy() != Policy::AllKeysLru && self.data.expires() == 0 {
                break;
            }
            if batch == 0 {
                batch = wanted;
                eviction.sample(batch, &self.reader, turn);
                eviction.prefetch_best(batch, &self.reader);
            }
            batch -= 1;
            let Some(record) = eviction.choose(&self.reader, turn) else { break };
            gone.kept_by = self.data.check_removal(std::iter::once(record.key().len())).err();
            if gone.kept_by.is_some() {
                break; // the next turn goes on, when the journal has room
            }
            gone.keys += 1;
            gone.bytes += self.reader.footprint(&record).0;
            self.delete_evicted(&record, turn);
        }
        gone
    }

    /// How many keys of average size have to go for so much room, or at least so many bytes: one at
    /// least, a batch at most.
    fn batch_for(&self, room_bytes: u64, least_bytes: u64) -> u32 {
        let fill = self.data.fill();
        let mark = fill.room_bytes.saturating_sub(room_bytes) / 100 * HIGH_WATER_PERCENT;
        let excess = fill.record_bytes.saturating_sub(mark).max(least_bytes);
        let key_bytes = (fill.record_bytes / fill.keys.max(1)).max(1);
        let keys = (excess / key_bytes + 1).min(u64::from(BATCH_KEYS));
        u32::try_from(keys).unwrap_or(BATCH_KEYS)
    }

    /// Deletes a key that was chosen. One whose time is over counts as expired.
    fn delete_evicted(&mut self, record: &Record<'_>, turn: &Turn<'_>) {
        self.usage.forget(record.hash());
        self.data.delete(turn.pin, record.hash(), record.key());
        if is_over(record.expiry_ms(), turn.now_ms) {
            self.counters.expired += 1;
        } else {
            self.counters.evicted += 1;
        }
    }

    /// Once per turn: the clocks of keys, the hits of views, and the keys that writes have left to
    /// evict. Returns whether the clocks have more to do.
    pub(crate) fn maintain_usage(&mut self, turn: &Turn<'_>) -> bool {
        self.usage.send_hits();
        if !self.usage.evicts() {
            return false;
        }
        let more = self.usage.maintain(turn.now_ms, self.data.keys());
        self.usage.eviction.iter_mut().for_each(|eviction| eviction.has_gone = false);
        self.evict(0, 0..u64::MAX, EVICTIONS_PER_TURN, turn);
        self.note_slack(0);
        more
    }
}

/// What was evicted.
#[derive(Default)]
struct Evicted {
    keys: u32,
    bytes: u64,
    /// Why the last one that was chosen didn't go.
    kept_by: Option<WriteError>,
}

#[cfg(test)]
mod tests;
