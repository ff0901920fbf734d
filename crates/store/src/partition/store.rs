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

use nigh_shm::{Journal, Moment, Reader, Region};

use crate::eviction::candidates::Eviction;
use crate::eviction::hits::{HitLog, Inbox, NewRings};
use crate::partition::arena_files::Files;
use crate::partition::counters::Counters;
use crate::partition::halves::{Libraries, WriterHalf};
use crate::partition::overlay::Transaction;
use crate::partition::store_stats::StoreStats;
use crate::partition::sweep::Sweep;
use crate::partition::watches::Watches;
use crate::partitioning::PartitionNumber;
use crate::turn::Turn;

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

/// What a view of a store is made from, on whatever thread.
#[derive(Clone)]
pub struct Views {
    pub(crate) data: Reader,
    pub(crate) system: Reader,
    pub(crate) new_rings: Arc<NewRings>,
    pub(crate) place: PartitionNumber,
}

// A shard is made on one thread and runs on another.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Store>();
};

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

    /// What views of this store are made from.
    #[must_use]
    pub fn views(&self) -> Views {
        Views {
            data: self.reader.clone(),
            system: self.libraries.reader.clone(),
            new_rings: Arc::clone(&self.new_rings),
            place: self.place,
        }
    }

    /// A store that reads what another shard owns.
    #[must_use]
    pub fn view(views: Views) -> Store {
        Store {
            data: WriterHalf::elsewhere(),
            reader: views.data,
            transaction: None,
            watches: Watches::default(),
            counters: Counters::default(),
            sweep: Sweep::default(),
            tracks: false,
            tracks_reads: false,
            moment: None,
            eviction: None,
            hit_log: None,
            inbox: Inbox::new(Arc::clone(&views.new_rings)),
            new_rings: views.new_rings,
            libraries: Libraries { writer: WriterHalf::elsewhere(), reader: views.system },
            files: None,
            place: views.place,
        }
    }
}
