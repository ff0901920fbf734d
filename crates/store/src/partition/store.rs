//! The state of one shard, and the few primitives that all commands are made of.
//!
//! ```text
//!   apply ──> find ──> transaction? ──> arena      put / remove / set_expiry ──> arena
//!                      (staged first)                        └─> staged, if in a transaction
//! ```
//!
//! 1. A key whose time is over is as missing for everybody; who meets it deletes it.
//! 2. A command writes its reply after its writes; a command that fails has changed nothing.
//! 3. Every write touches the key's watchers, also one that stores what was there; one of a
//!    transaction when it is committed.
//! 4. Time and randomness come with the turn: the same turns give the same state and replies.
//! 5. A store is the owner's, or a *view*: another shard's eyes on the same arenas, which runs only
//!    what [`Op::only_reads`] says. What it finds expired only the owner can delete: it says so,
//!    and the command is applied again there, lest a key be missing for GET and counted by the
//!    DBSIZE after it.
//!
//! Thread: the shard that owns the store, or the view.

use std::sync::Arc;

use nigh_shm::{Journal, Moment, Pin, Reader, Record, Region, UpkeepBudget, WriteError};

use crate::commit::transactions::Transaction;
use crate::eviction::candidates::Eviction;
use crate::eviction::hits::{HitLog, Inbox, NewRings};
use crate::keyspace::PartitionNumber;
use crate::open::opening::Files;
use crate::partition::halves::{Libraries, WriterHalf};
use crate::partition::store_stats::{Maintenance, StoreStats};
use crate::partition::sweep::Sweep;
use crate::partition::watches::Watches;

pub(crate) use nigh_shm::layout::is_over;

/// One turn of the shard's loop: what time it is, and what keeps records alive.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// Unix time, ms; the same for all that happens in the turn.
    pub now_ms: u64,
    /// Records that the store hands out live as long as this.
    pub pin: &'a Pin<'a>,
    /// Seed of the turn's random choices.
    pub random: u64,
}

/// One shard's state: the arena of a tenant's data and the arena of its libraries.
///
/// One thread makes all of them, and gets memory for them in a row. Aligned so that two shards'
/// share no line, nor the pair of lines that cores fetch.
#[repr(align(128))]
pub struct Store {
    pub(crate) data: WriterHalf,
    pub(crate) reader: Reader,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) watches: Watches,
    pub(crate) counters: Counters,
    pub(crate) sweep: Sweep,
    /// Somebody wants to know when keys are used.
    pub(crate) tracks: bool,
    /// And that they are read: not while a client's commands run that doesn't want to make them
    /// young.
    pub(crate) tracks_reads: bool,
    /// A view's, while a command runs that reads several keys.
    pub(crate) moment: Option<Moment>,
    /// The owner's, if a policy evicts.
    pub(crate) eviction: Option<Box<Eviction>>,
    /// A view's, once the owner has wanted to know.
    pub(crate) hit_log: Option<Box<HitLog>>,
    /// The owner's ends of the views' logs, which outlast a policy as those do.
    pub(crate) inbox: Inbox,
    pub(crate) new_rings: Arc<NewRings>,
    pub(crate) libraries: Libraries,
    pub(crate) files: Option<Files>,
    /// Where it stands in its keyspace.
    pub(crate) place: PartitionNumber,
}

// A shard is made on one thread and runs on another.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Store>();
};

/// What INFO counts.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    /// A command was refused for want of memory that comes back after this turn.
    pub(crate) busy: bool,
    /// A view has met something that it can't tell.
    pub(crate) lacks: Lack,
}

/// What a view, which reads what another thread writes, can't tell of the keys that it has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lack {
    /// Nothing: its answer is right.
    #[default]
    Nothing,
    /// What a key was at the moment at which the others were read: the same again, at another
    /// moment, may tell.
    Moment,
    /// Whether a key is there, as its time seems to be over: the owner tells, and deletes it.
    Clock,
}

impl Store {
    /// The arena's readable half.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Hash of a key, as [`Store::apply_hashed`] and the prefetches take it.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u32 {
        self.reader.hash(key)
    }

    /// First pass over a pipeline: asks for the key's line of the index.
    #[inline]
    pub fn prefetch_line(&self, hash: u32) {
        self.reader.prefetch_line(hash);
    }

    /// Second pass over a pipeline: asks for the record that the line names.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "as a call, a core works on fewer of these misses at once"
    )]
    pub fn prefetch_record(&self, hash: u32) {
        self.reader.prefetch_record(hash);
        if self.tracks {
            self.prefetch_recency(hash);
        }
    }

    /// The key's record, if it has one whose time isn't over.
    #[inline]
    pub(crate) fn find<'p>(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'p>,
    ) -> Option<Record<'p>> {
        if !self.data.is_here() {
            return self.find_in_view(hash, key, turn);
        }
        let record = self.look(hash, key, turn)?;
        if is_over(record.expiry_ms(), turn.now_ms) {
            self.drop_expired(hash, key, turn);
            return None;
        }
        Some(record)
    }

    /// At the beginning of a turn: the owner judges expiry by this time, and says so to those who
    /// read elsewhere.
    #[inline]
    pub fn begin_turn(&mut self, turn: &Turn<'_>) {
        if self.data.is_here() {
            self.data.note_time(turn.now_ms);
        }
    }

    /// The latest time by which the owner has judged expiry, Unix ms.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.reader.clock_ms()
    }

    /// [`Store::peek`] for commands that use the value, which makes the key young.
    #[inline]
    pub(crate) fn read<'p>(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'p>,
    ) -> Option<Record<'p>> {
        let record = self.peek(hash, key, turn);
        if record.is_some() {
            self.touch_read(hash);
        }
        record
    }

    /// [`Store::find`] for commands that read: counts hits and misses.
    #[inline]
    pub(crate) fn peek<'p>(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'p>,
    ) -> Option<Record<'p>> {
        let record = self.find(hash, key, turn);
        if record.is_some() {
            self.counters.hits += 1;
        } else if self.counters.lacks == Lack::Nothing {
            self.counters.misses += 1;
        }
        record
    }

    /// The key's record, dead or alive; what the transaction has staged comes first.
    #[inline]
    pub(crate) fn look<'p>(&self, hash: u32, key: &[u8], turn: &Turn<'p>) -> Option<Record<'p>> {
        if let Some(transaction) = &self.transaction {
            if let Some(reference) = transaction.get(key) {
                return self.reader.record(turn.pin, reference?);
            }
            if transaction.is_cleared() {
                return None;
            }
        }
        self.reader.get(turn.pin, hash, key)
    }

    /// Length of the key's value, 0 if it has none. Nobody has used it then.
    pub(crate) fn value_bytes(&self, hash: u32, key: &[u8], turn: &Turn<'_>) -> usize {
        self.look(hash, key, turn).map_or(0, |record| record.value_len() as usize)
    }

    #[cold]
    fn drop_expired(&mut self, hash: u32, key: &[u8], turn: &Turn<'_>) {
        // A staged record stays until the transaction ends; it is as missing anyway.
        let staged = self.transaction.as_ref().is_some_and(|staged| staged.get(key).is_some());
        if !staged && self.data.expire(turn.pin, hash, key) {
            self.counters.expired += 1;
            self.watches.touch(key);
        }
    }

    /// Stores `parts`, one after the other, as the key's value.
    #[inline]
    pub(crate) fn put(
        &mut self,
        hash: u32,
        key: &[u8],
        parts: &[&[u8]],
        expiry_ms: u64,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        if self.transaction.is_none() {
            self.data.put(turn.pin, hash, key, parts, expiry_ms)?;
        } else {
            let reference = self.data.stage(hash, key, parts, expiry_ms)?;
            self.install(hash, key, Some(reference), turn);
        }
        self.touch(hash);
        self.touch_watchers(key);
        Ok(())
    }

    /// Writes `parts` behind the value of the key, which has `record`.
    pub(crate) fn extend(
        &mut self,
        hash: u32,
        record: Record<'_>,
        parts: &[&[u8]],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let (pin, from) = (turn.pin, record.reference());
        let (key, expiry_ms) = (record.key(), record.expiry_ms());
        if self.transaction.is_none() {
            self.data.extend(pin, from, (hash, key), parts, expiry_ms)?;
        } else {
            let staged = self.data.stage_extended(pin, from, (hash, key), parts, expiry_ms)?;
            self.install(hash, key, Some(staged), turn);
        }
        self.touch(hash);
        self.touch_watchers(key);
        Ok(())
    }

    /// A key was written, or will be when the transaction is committed.
    #[inline]
    pub(crate) fn touch_watchers(&mut self, key: &[u8]) {
        if self.transaction.is_none() {
            self.watches.touch(key);
        }
    }

    /// Gives the key, which has `record`, another expiry; 0 is none.
    pub(crate) fn set_expiry(
        &mut self,
        record: Record<'_>,
        expiry_ms: u64,
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        let (hash, key) = (record.hash(), record.key());
        if self.transaction.is_none() {
            self.data.set_expiry(turn.pin, hash, key, expiry_ms)?;
        } else {
            let from = record.reference();
            let reference = self.data.stage_expiry(turn.pin, from, hash, key, expiry_ms)?;
            self.install(hash, key, Some(reference), turn);
        }
        self.touch(hash);
        self.touch_watchers(key);
        Ok(())
    }

    /// Deletes a key that is there. Needs no memory.
    pub(crate) fn remove(&mut self, hash: u32, key: &[u8], turn: &Turn<'_>) {
        if self.transaction.is_none() {
            self.data.delete(turn.pin, hash, key);
        } else {
            self.install(hash, key, None, turn);
        }
        self.touch_watchers(key);
    }

    /// Empties the keyspace. Needs no memory.
    pub(crate) fn flush(&mut self, turn: &Turn<'_>) {
        if let Some(transaction) = &mut self.transaction {
            return transaction.clear(&mut self.data);
        }
        let existing = self.watched_and_there(turn);
        existing.iter().for_each(|key| self.watches.touch(key));
        self.data.clear();
    }

    /// The watched keys that the arena has.
    pub(crate) fn watched_and_there(&self, turn: &Turn<'_>) -> Vec<Arc<[u8]>> {
        let is_there =
            |key: &&Arc<[u8]>| self.reader.get(turn.pin, self.reader.hash(key), key).is_some();
        self.watches.keys().filter(is_there).cloned().collect()
    }

    /// Keys, including those whose time is over but which nobody met since.
    pub(crate) fn keys(&self) -> u64 {
        match &self.transaction {
            Some(transaction) => transaction.keys(self.data.keys()),
            None => self.data.keys(),
        }
    }

    /// Once per turn, outside of transactions: the arenas' upkeep and a step of active expiry,
    /// both bounded.
    ///
    /// # Panics
    ///
    /// In a transaction.
    pub fn maintain(&mut self, turn: &Turn<'_>) -> Maintenance {
        assert!(self.transaction.is_none(), "upkeep inside a transaction");
        let behind_keys = self.maintain_recency(turn);
        if !self.data.is_here() {
            return Maintenance::default();
        }
        let data =
            self.data.maintain(UpkeepBudget { now_ms: turn.now_ms, ..UpkeepBudget::default() });
        self.counters.expired += u64::from(data.expired);
        let system = match self.libraries.writer.is_here() {
            true => self.libraries.writer.maintain(UpkeepBudget::default()),
            false => nigh_shm::Upkeep::default(),
        };
        let mut expired = 0;
        if self.data.expires() != 0 {
            let lines = self.sweep.step(turn.now_ms, self.data.stats().index_lines);
            if lines > 0 {
                expired = self.data.expire_step(turn.pin, turn.now_ms, lines);
                self.counters.expired += u64::from(expired);
            }
        }
        let behind = self.data.expires() != 0 && self.sweep.is_behind();
        Maintenance {
            more: data.more || system.more || behind || behind_keys,
            waiting: data.waiting || system.waiting,
            expired,
        }
    }

    /// Whether writes are about to find no memory before this turn's end gives some back: then the
    /// other commands are better left for the next turn.
    #[inline]
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.data.is_here() && self.data.wants_turn()
    }

    /// Remembers that a write was refused for want of memory: whether it is only that some is still
    /// to come back, and that the transaction which it was a part of has failed.
    #[cold]
    pub(crate) fn note_refused(&mut self, error: &WriteError) {
        self.counters.busy |= *error == WriteError::Busy;
        if let Some(transaction) = &mut self.transaction {
            transaction.note_refused(*error);
        }
    }

    /// Whether memory comes back, or could by cleaning: if not, what is refused now is refused for
    /// good.
    #[must_use]
    pub fn is_gaining(&self) -> bool {
        self.data.is_here() && self.data.is_gaining()
    }

    /// What [`Store::take_busy`] would say.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.counters.busy
    }

    /// Whether a command since the last call was refused only because memory comes back after this
    /// turn: it has changed nothing, and is to be applied again in the next turn. Its reply says
    /// [`crate::BUSY`].
    #[inline]
    pub fn take_busy(&mut self) -> bool {
        std::mem::take(&mut self.counters.busy)
    }

    /// Counters and sizes. Of a view only what it has counted itself.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let counted = StoreStats {
            keyspace_hits: self.counters.hits,
            keyspace_misses: self.counters.misses,
            expired_keys: self.counters.expired,
            evicted_keys: self.counters.evicted,
            ..StoreStats::default()
        };
        if !self.data.is_here() {
            return counted;
        }
        StoreStats {
            keys: self.data.keys(),
            expires: self.data.expires(),
            watched_keys: self.watches.len(),
            recency_bytes: self.recency_bytes(),
            data: self.data.stats(),
            ..self.libraries.count(counted)
        }
    }

    /// Sets the counters to 0 (CONFIG RESETSTAT).
    pub fn reset_stats(&mut self) {
        self.counters = Counters::default();
    }

    /// Bytes of memory that the data may use.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.reader.capacity_bytes()
    }

    /// The mapping of the data arena, for the function runtime.
    #[must_use]
    pub fn data_region(&self) -> &Arc<Region> {
        self.reader.region()
    }

    /// Has every commit of the owner told to a journal, from now on.
    pub fn set_journal(&mut self, journal: Box<dyn Journal>) {
        self.data.set_journal(journal);
    }

    /// Whether this shard is the owner: it alone writes.
    #[inline]
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.data.is_here()
    }
}
