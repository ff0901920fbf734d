//! The reads of an attached client: from mapped memory, or by asking the server.
//!
//! ```text
//! copy out ── same writer? ── on disk, if replies wait for that? ── over by this clock only? ──> Is
//!                └ no: Over         └ no: Ask                          └ yes: Ask
//! ```
//!
//! 1. A read that isn't sure asks. The server answers as for any client: behind the sync, by its
//!    own clock.
//! 2. Reads don't go back. What a read has seen was published before; the next one loads later.
//! 3. An arena that another writer has is over: its server is another one, and attaching anew tells
//!    which.
//!
//! Any thread: it is read only.

use std::time::Duration;

use nigh_shm::layout::is_over;
use nigh_shm::{
    ArenaError, ForeignArenas, ForeignInPlace, ForeignReader, ForeignRecord, ForeignValues,
    ForeignVersion,
};
use rustix::time::{ClockId, clock_gettime};

/// What a look at the memory says.
pub(crate) enum Seen<T> {
    /// The answer.
    Is(T),
    /// The server knows.
    Ask,
    /// The memory isn't the server's any more; why not.
    Over(String),
    /// This process has no memory for so many bytes of a value.
    NoRoom(usize),
}

/// How long a key stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLife {
    /// It has no expiry.
    Forever,
    /// Its time is over then.
    Left(Duration),
}

impl<T> Seen<T> {
    /// What the answer means.
    #[inline]
    pub(crate) fn map<U>(self, meaning: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Seen::Is(answer) => Seen::Is(meaning(answer)),
            Seen::Ask => Seen::Ask,
            Seen::Over(why) => Seen::Over(why),
            Seen::NoRoom(bytes) => Seen::NoRoom(bytes),
        }
    }
}

/// The memory that a server has handed over.
pub(crate) struct LocalSide {
    arenas: ForeignArenas,
    /// Show what isn't on disk yet, also where replies wait for that.
    reads_unsynced: bool,
}

impl LocalSide {
    pub(crate) fn new(arenas: ForeignArenas, reads_unsynced: bool) -> LocalSide {
        LocalSide { arenas, reads_unsynced }
    }

    pub(crate) fn arenas(&self) -> &ForeignArenas {
        &self.arenas
    }

    /// Asks for the memory of a key that the server is about to look up.
    pub(crate) fn prefetch(&self, key: &[u8]) {
        self.arenas.arena(self.arenas.partition(key)).prefetch(key);
    }

    /// Copies a key's value to `into`, whose content is replaced. Whether there is one.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], into: &mut Vec<u8>) -> Seen<bool> {
        let partition = self.arenas.partition(key);
        let found = self.arenas.arena(partition).get_version(key, into);
        self.judge(partition, found, |version| version.is_some())
    }

    /// The expiry of a key: Unix ms, 0 for never, `None` if there is no such key.
    pub(crate) fn expiry(&self, key: &[u8]) -> Seen<Option<u64>> {
        let partition = self.arenas.partition(key);
        let found = self.arenas.arena(partition).version(key);
        self.judge(partition, found, |version| version.map(|it| it.expiry_ms))
    }

    /// How long a key stays, if there is such a key.
    pub(crate) fn life(&self, key: &[u8]) -> Seen<Option<KeyLife>> {
        match self.expiry(key) {
            Seen::Is(None) => Seen::Is(None),
            Seen::Is(Some(0)) => Seen::Is(Some(KeyLife::Forever)),
            Seen::Is(Some(expiry_ms)) => {
                let left = expiry_ms.saturating_sub(self.now_ms(key));
                Seen::Is(Some(KeyLife::Left(Duration::from_millis(left))))
            }
            Seen::Ask => Seen::Ask,
            Seen::Over(why) => Seen::Over(why),
            Seen::NoRoom(bytes) => Seen::NoRoom(bytes),
        }
    }

    /// The value of a key, to be read in parts.
    pub(crate) fn in_place(&self, key: &[u8]) -> Seen<Option<ForeignInPlace<'_>>> {
        let partition = self.arenas.partition(key);
        match self.arenas.arena(partition).in_place(key) {
            Ok(found) => {
                let version = found.as_ref().map(ForeignInPlace::version);
                self.judge(partition, Ok(version), |_| found)
            }
            Err(error) => of_error(&error),
        }
    }

    #[inline]
    fn judge<T>(
        &self,
        partition: usize,
        found: Result<Option<ForeignVersion>, ArenaError>,
        answer: impl FnOnce(Option<ForeignVersion>) -> T,
    ) -> Seen<T> {
        let found = match found {
            Ok(found) => found,
            Err(error) => return of_error(&error),
        };
        if !self.arenas.has_its_writer(partition) {
            return Seen::Over(OTHER_WRITER.to_owned());
        }
        let is_sure = self.is_on_disk(partition, found.map(|it| it.lsn))
            && found.is_none_or(|it| !is_over_here(it.expiry_ms));
        if is_sure { Seen::Is(answer(found)) } else { Seen::Ask }
    }

    /// Whether a change may be shown; `None`: whatever was seen before.
    #[inline]
    pub(crate) fn is_on_disk(&self, partition: usize, lsn: Option<u64>) -> bool {
        let arena = self.arenas.arena(partition);
        if self.reads_unsynced || !arena.replies_wait() {
            return true;
        }
        let seen = lsn.unwrap_or_else(|| arena.begun_lsn());
        arena.durable_lsn() >= seen
    }

    /// Whether all may be shown that is in memory.
    pub(crate) fn shows_all(&self) -> bool {
        let partitions = 0..self.arenas.partitions();
        self.reads_unsynced
            || partitions.into_iter().all(|it| !self.arenas.arena(it).replies_wait())
    }

    /// The values of several keys.
    pub(crate) fn multi_get(&self, keys: &[&[u8]], values: &mut ForeignValues) -> Seen<()> {
        let mut is_sure = true;
        let mut is_over = false;
        let read = self.arenas.multi_get_into(keys, values, &mut |partition, lsn| {
            is_over |= !self.arenas.has_its_writer(partition);
            is_sure &= self.is_on_disk(partition, Some(lsn));
        });
        if let Err(error) = read {
            return of_error(&error);
        }
        if is_over {
            return Seen::Over(OTHER_WRITER.to_owned());
        }
        is_sure &= (0..values.len())
            .filter_map(|key| values.version(key))
            .all(|it| !is_over_here(it.expiry_ms));
        if is_sure { Seen::Is(()) } else { Seen::Ask }
    }

    /// A step of a scan. Keys that are over by this process's clock only are left out: with SCAN's
    /// promise, a key that expires meanwhile may come or not.
    pub(crate) fn scan(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&ForeignRecord),
    ) -> Seen<u64> {
        let next = self.arenas.scan(prefix, cursor, count, &mut |record| {
            let is_live = !is_over_here(record.expiry_ms);
            if is_live {
                found(record);
            }
            is_live
        });
        match next {
            Ok(next) => Seen::Is(next),
            Err(error) => of_error(&error),
        }
    }

    /// Whether each partition has the writer that handed it over.
    pub(crate) fn has_its_writers(&self) -> bool {
        (0..self.arenas.partitions()).all(|it| self.arenas.has_its_writer(it))
    }

    /// The owner's time for a key's partition, Unix ms, or this process's, if that is later.
    pub(crate) fn now_ms(&self, key: &[u8]) -> u64 {
        let arena: &ForeignReader = self.arenas.arena(self.arenas.partition(key));
        arena.clock_ms().max(here_ms())
    }
}

pub(crate) const OTHER_WRITER: &str =
    "its memory isn't the server's any more: it was cut off, or another server has taken it over";

/// What an arena's error means for a read.
fn of_error<T>(error: &ArenaError) -> Seen<T> {
    match error {
        ArenaError::NoRoom { bytes, .. } => Seen::NoRoom(*bytes),
        error => why_over(error).map_or(Seen::Ask, Seen::Over),
    }
}

/// Why an arena with this error isn't the server's any more; `None` if it still is.
pub(crate) fn why_over(error: &ArenaError) -> Option<String> {
    match error {
        ArenaError::Busy { .. } | ArenaError::TooNew { .. } | ArenaError::NoRoom { .. } => None,
        error => Some(error.to_string()),
    }
}

/// Whether a key's time is over by this process's clock, which the owner hasn't said yet.
#[inline]
pub(crate) fn is_over_here(expiry_ms: u64) -> bool {
    expiry_ms != 0 && is_over(expiry_ms, here_ms())
}

/// This process's time, Unix ms: a read of memory, some milliseconds late at most.
fn here_ms() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let ms = now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}
