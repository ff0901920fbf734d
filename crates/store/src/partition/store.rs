//! The state of one partition at one shard.
//!
//! 1. A key whose time is over is missing for every command. The command that meets it deletes it.
//! 2. A command writes its reply after its writes. A command that fails has changed nothing.
//! 3. Every write touches the key's watchers, even if it stores the same value again. The writes of
//!    a transaction touch them at the commit.
//! 4. Time and randomness come with the turn: the same turns give the same state and replies.
//! 5. A store is the owner's, or a *view* of another shard on the same arenas. A view runs only
//!    commands of [`crate::Op::only_reads`]. If it can't answer, it notes a [`crate::Lack`], and
//!    the owner runs the command. So GET never misses a key that the next DBSIZE still counts.
//!
//! Thread: the shard that owns the store, or the view.

use std::sync::Arc;

use nigh_shm::{JournalWriter, Moment, Reader, Region, Writer};

use crate::eviction::hits::NewRings;
use crate::eviction::usage::Usage;
use crate::partition::arena_files::ArenaFiles;
use crate::partition::counters::{Counters, Scarce};
use crate::partition::overlay::Overlay;
use crate::partition::store_stats::StoreStats;
use crate::partition::sweep::Sweep;
use crate::partition::system_arena::SystemArena;
use crate::partition::watches::Watches;
use crate::partition::writer_half::WriterHalf;
use crate::turn::Turn;
use nigh_shm::PartitionNumber;

/// One partition at one shard: the arena of its data, and the arena of the tenant's libraries.
///
/// One thread makes the stores of all shards in a row. The alignment keeps the stores of two shards
/// from sharing a cache line, or the pair of lines that cores fetch together.
#[repr(align(128))]
pub struct Store {
    pub(crate) data: WriterHalf,
    pub(crate) reader: Reader,
    /// The running transaction's, if one runs.
    pub(crate) overlay: Option<Box<Overlay>>,
    pub(crate) watches: Watches,
    pub(crate) counters: Counters,
    pub(crate) sweep: Sweep,
    pub(crate) usage: Usage,
    /// A view's, while a command runs that reads several keys.
    pub(crate) moment: Option<Moment>,
    pub(crate) libraries: SystemArena,
    pub(crate) files: Option<ArenaFiles>,
    pub(crate) number: PartitionNumber,
}

/// The parts from which any thread makes a view of a store.
#[derive(Clone)]
pub struct Views {
    data: Reader,
    system: Reader,
    new_rings: Arc<NewRings>,
    number: PartitionNumber,
}

// A store is made on one thread and used on another.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Store>();
};

impl Store {
    /// The owner's store.
    pub(crate) fn owner(
        data: Writer,
        libraries: SystemArena,
        files: ArenaFiles,
        number: PartitionNumber,
    ) -> Store {
        let reader = data.reader();
        let (data, usage) = (WriterHalf::here(data), Usage::new(Arc::default()));
        Store { files: Some(files), ..Store::new(data, reader, libraries, usage, number) }
    }

    /// A store that reads a partition that another shard owns.
    #[must_use]
    pub fn view(views: Views) -> Store {
        let Views { data, system, new_rings, number } = views;
        let libraries = SystemArena { writer: WriterHalf::elsewhere(), reader: system };
        Store::new(WriterHalf::elsewhere(), data, libraries, Usage::new(new_rings), number)
    }

    fn new(
        data: WriterHalf,
        reader: Reader,
        libraries: SystemArena,
        usage: Usage,
        number: PartitionNumber,
    ) -> Store {
        Store {
            data,
            reader,
            overlay: None,
            watches: Watches::default(),
            counters: Counters::default(),
            sweep: Sweep::default(),
            usage,
            moment: None,
            libraries,
            files: None,
            number,
        }
    }

    /// The parts from which views of this store are made.
    #[must_use]
    pub fn views(&self) -> Views {
        Views {
            data: self.reader.clone(),
            system: self.libraries.reader.clone(),
            new_rings: self.usage.new_rings(),
            number: self.number,
        }
    }

    /// Whether this shard is the owner. The owner alone writes.
    #[inline]
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.data.is_here()
    }

    /// The arena's readable half.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// The readable half of the arena of the tenant's libraries.
    #[must_use]
    pub fn library_reader(&self) -> &Reader {
        &self.libraries.reader
    }

    /// Hash of a key, for [`Store::apply_hashed`] and the prefetches.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u32 {
        self.reader.hash(key)
    }

    /// Asks for what the commands that are about to come will look at, in any partitions.
    #[inline]
    pub fn prefetch<'a>(looks: impl Iterator<Item = (&'a Store, u32)> + Clone) {
        Reader::prefetch(looks.clone().map(|(store, hash)| (&store.reader, hash)));
        looks.for_each(|(store, hash)| store.usage.prefetch(hash));
    }

    /// Counts a key as used now. The server calls it for reads that go past the store, such as a
    /// function's.
    #[inline]
    pub fn touch(&mut self, hash: u32) {
        self.usage.touch(hash);
    }

    /// Begins a turn. The owner judges expiry by the turn's time from now on, and publishes it for
    /// the views.
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

    /// Whether a command was refused, since the last [`Store::take_busy`], only because something
    /// is still to come back.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.counters.busy.is_some()
    }

    /// What [`Store::take_busy`] would say.
    #[must_use]
    pub fn busy(&self) -> Option<Scarce> {
        self.counters.busy
    }

    /// For what the last refused command waits, and forgets it. That command has changed nothing,
    /// and its reply is [`crate::BUSY`] or [`crate::JOURNAL_FULL`]. The server applies it again in
    /// the next turn.
    #[inline]
    pub fn take_busy(&mut self) -> Option<Scarce> {
        self.counters.busy.take()
    }

    /// Counters and sizes; of a view only its own counters.
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
            recency_bytes: self.usage.recency_bytes(),
            data: self.data.stats(),
            ..self.libraries.count(counted)
        }
    }

    /// The owner's: see [`nigh_shm::Writer::given_up_bytes`].
    #[must_use]
    #[inline]
    pub fn given_up_bytes(&self) -> u64 {
        self.data.given_up_bytes()
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

    /// Has every later commit of the owner told to the journal of its shard, as changes of a
    /// stream.
    pub fn set_journal(&mut self, journal: &JournalWriter, stream: u32) {
        self.data.set_journal(journal, stream);
    }
}
