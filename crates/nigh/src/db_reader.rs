//! Reading a database that another process has open.
//!
//! ```text
//! read ── attached? ── yes ── its name, ten times a second ── copy out ── the same owner? ──> value
//!             │                        └ another file ┐             └ it is over ┐
//!             └── no: at most one try in each pause <─┴──────────────────────────┘
//! ```
//!
//! 1. Nothing is written, no lock of the owner is taken, and nobody waits for a reader.
//! 2. What is copied counts only if the same owner has the memory behind the copy as before it.
//! 3. Only memory that is shared has a name. Of a private one, its journal says that it is.
//! 4. Memory that was left by a killed owner, or by one that keeps it, is read as it is. The next
//!    owner takes that same memory over, or says that it is over before it serves another.
//! 5. A key's time is judged by the owner's clock. Where that stands still, it is over a second
//!    late, and stays so.
//! 6. A call that can't read says so at once; it doesn't wait. Tries to attach again come after
//!    pauses that double up to a bound.
//! 7. A fork's child is refused before it takes the lock: another thread may have had that.
//!
//! Any thread. Threads that share a reader share a few words; a clone has its own.

use crate::copies::{add_copy, copy_of};
use crate::folders::memory_folder;
use crate::options::unix_ms;
use crate::reader_error::ReaderError;
use nigh_log::{Meta, RealFolder, look_at_meta};
use nigh_shm::layout::is_over;
use nigh_shm::{
    ArenaError, ForeignArenas, ForeignReader, ForeignValues, ForkMark, JournalFile, LastLook,
    MOST_PARTITIONS,
};
use nigh_store::{DEFAULT_TENANT, arena_path, partitions_of};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

/// Between two looks at the name of the file that is read: for files that were removed by hand.
const LOOK_MS: u64 = 100;
/// Between two tries to attach: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_millis(100);
/// Between two looks of [`DbReader::wait`].
const WAIT_STEP: Duration = Duration::from_millis(2);
/// Attachments that may be over, one after the other, within one call.
const ATTACHES_MOST: u32 = 3;
/// How far the owner's clock may be behind this process's before that counts: it goes on ten times
/// a second.
const CLOCK_LATE_MS: u64 = 1000;

/// How long a key stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeToLive {
    /// It has no expiry.
    Forever,
    /// Its time is over then.
    Left(Duration),
}

impl TimeToLive {
    /// Of a key whose time is over at `expiry_ms`, or never if that is 0.
    pub(crate) fn of(expiry_ms: u64, now_ms: u64) -> TimeToLive {
        match expiry_ms {
            0 => TimeToLive::Forever,
            _ => TimeToLive::Left(Duration::from_millis(expiry_ms.saturating_sub(now_ms))),
        }
    }
}

/// A database that another process has open with [`Options::shared`](crate::Options::shared), or
/// has left in memory: it can be read here, while that one writes.
///
/// Each value is copied out. Keys of a partition that are read together are read at one moment, so
/// a batch is seen whole or not at all. When its owner closes the database or opens it again, the
/// reader notices by itself: calls fail meanwhile ([`ReaderError::is_passing`]), and succeed again
/// later. A killed owner leaves its memory: it is read as it is. A child of a fork opens a reader
/// of its own: its parent's gives [`ReaderError::Forked`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # let db = nigh::Db::open(&path, &nigh::Options::new().shared(true))?;
/// # db.put(b"greeting", b"hello")?;
/// let reader = nigh::Db::open_reader(&path)?; // in another process than `Db::open`
/// assert_eq!(reader.get(b"greeting")?.as_deref(), Some(&b"hello"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DbReader {
    path: PathBuf,
    memory_dir: Option<PathBuf>,
    state: RwLock<ReaderState>,
    /// The latest time by which this reader judged, Unix ms.
    judged_ms: AtomicU64,
    /// Knows the process that opened it.
    fork_mark: Arc<ForkMark>,
}

const _: () = {
    const fn is_for_any_thread<T: Send + Sync>() {}
    is_for_any_thread::<DbReader>();
};

/// Memory that is read.
struct AttachedArenas {
    arenas: Arc<ForeignArenas>,
    memory: PathBuf,
    /// At its name.
    looked: LastLook,
}

/// What a reader reads, or why it doesn't.
struct ReaderState {
    attached: Option<Arc<AttachedArenas>>,
    refused: Option<ReaderError>,
    next_try: Instant,
    pause: Duration,
}

impl Clone for DbReader {
    /// Reads the same memory, for another thread.
    fn clone(&self) -> DbReader {
        let again = |it: Arc<AttachedArenas>| {
            let (arenas, memory) = (Arc::clone(&it.arenas), it.memory.clone());
            Arc::new(AttachedArenas { arenas, memory, looked: LastLook::default() })
        };
        let state = ReaderState {
            // In a fork's child there is nothing to read.
            attached: self.attached().ok().flatten().map(again),
            refused: None,
            next_try: Instant::now(),
            pause: Duration::ZERO,
        };
        DbReader {
            path: self.path.clone(),
            memory_dir: self.memory_dir.clone(),
            state: RwLock::new(state),
            judged_ms: AtomicU64::new(self.judged_ms.load(Ordering::Relaxed)),
            fork_mark: Arc::clone(&self.fork_mark),
        }
    }
}

impl DbReader {
    pub(crate) fn open(path: &Path, memory_dir: Option<&Path>) -> Result<DbReader, ReaderError> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|e| ReaderError::io(path, "finding it", &e))
        };
        let state = ReaderState {
            attached: None,
            refused: None,
            next_try: Instant::now(),
            pause: Duration::ZERO,
        };
        let mark = ForkMark::new();
        let mark = mark.map_err(|e| ReaderError::io(path, "taking a page of memory", &e))?;
        let reader = DbReader {
            path: absolute(path)?,
            memory_dir: memory_dir.map(absolute).transpose()?,
            state: RwLock::new(state),
            judged_ms: AtomicU64::new(0),
            fork_mark: Arc::new(mark),
        };
        reader.attach(None)?;
        Ok(reader)
    }

    /// The value of a key; `None` if there is none.
    ///
    /// # Errors
    /// Nothing can be read now; the error says why, and what to do.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReaderError> {
        let mut value = Vec::new();
        Ok(self.copy(key, &mut value)?.then_some(value))
    }

    /// Adds the bytes of a key's value to those of `into`. False, and nothing is added, if the key
    /// isn't there.
    ///
    /// # Errors
    /// As [`DbReader::get`]; nothing is added then.
    pub fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, ReaderError> {
        if into.is_empty() {
            return self.copy(key, into);
        }
        let mut value = Vec::new();
        let is_there = self.copy(key, &mut value)?;
        add_copy(into, &value).map_err(|_| self.no_memory(value.len()))?;
        Ok(is_there)
    }

    /// Copies a key's value to `into`, which is empty, and stays so if there is none.
    fn copy(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, ReaderError> {
        let expiry_ms = self.read(&mut |it| it.of(key).get(key, into))?;
        let is_live = expiry_ms.is_some_and(|it| !self.is_over(it, &mut None));
        if !is_live {
            into.clear();
        }
        Ok(is_live)
    }

    /// The values of several keys, those of a partition all of one moment: a batch is seen whole or
    /// not at all.
    ///
    /// # Errors
    /// As [`DbReader::get`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, ReaderError> {
        let mut values = ForeignValues::new();
        self.read(&mut |it| it.arenas.multi_get_into(keys, &mut values, &mut |_, _| {}))?;
        let mut judge = None;
        let live = (0..keys.len()).map(|key| {
            let version = values.version(key)?;
            let is_over = self.is_over(version.expiry_ms, &mut judge);
            let value = values.get(key).filter(|_| !is_over)?;
            Some(copy_of(value).map_err(|_| self.no_memory(value.len())))
        });
        live.map(Option::transpose).collect()
    }

    #[cold]
    fn no_memory(&self, bytes: usize) -> ReaderError {
        ReaderError::NoMemory { path: self.path.clone(), bytes }
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`DbReader::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool, ReaderError> {
        Ok(self.ttl(key)?.is_some())
    }

    /// How long a key stays; `None` if it isn't there.
    ///
    /// # Errors
    /// As [`DbReader::get`].
    pub fn ttl(&self, key: &[u8]) -> Result<Option<TimeToLive>, ReaderError> {
        let found = self.read(&mut |it| {
            let arena = it.of(key);
            Ok((arena.expiry(key)?, arena.clock_ms()))
        })?;
        Ok(match found {
            (None, _) => None,
            (Some(expiry_ms), _) if expiry_ms != 0 && self.is_over(expiry_ms, &mut None) => None,
            (Some(expiry_ms), clock_ms) => {
                Some(TimeToLive::of(expiry_ms, clock_ms.max(unix_ms(SystemTime::now()))))
            }
        })
    }

    /// A step of a walk over the keys that begin with `prefix`, as [`crate::Db::scan`]: passes
    /// about `count` of them, with their values, to `found`. The first step has the cursor 0.
    /// Returns the cursor of the next one; 0 at the end. A walk goes on with the same cursor when
    /// an error has passed, also behind another opening of the database.
    ///
    /// # Errors
    /// As [`DbReader::get`]. What was passed before is right, and may come again.
    pub fn scan(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, ReaderError> {
        let mut judge = None;
        self.read(&mut |it| {
            it.arenas.scan(prefix, cursor, count, &mut |record| {
                let is_live = !self.is_over(record.expiry_ms, &mut judge);
                if is_live {
                    found(&record.key, &record.value);
                }
                is_live
            })
        })
    }

    /// Waits until the database can be read, for so long at most.
    ///
    /// # Errors
    /// It can't be read by then, or the cause doesn't pass by itself.
    pub fn wait(&self, most: Duration) -> Result<(), ReaderError> {
        let begin = Instant::now();
        loop {
            match self.read(&mut |it| it.arenas.check()) {
                Err(error) if error.is_passing() && begin.elapsed() < most => {
                    std::thread::sleep(WAIT_STEP);
                }
                answer => return answer,
            }
        }
    }

    /// Reads from the memory that is attached; attaches again if that is over.
    fn read<R>(
        &self,
        read: &mut dyn FnMut(&AttachedArenas) -> Result<R, ArenaError>,
    ) -> Result<R, ReaderError> {
        let mut attached = self.attached()?;
        for _ in 0..ATTACHES_MOST {
            let it = match attached.filter(|it| it.is_in_place()) {
                Some(it) => it,
                None => self.attach(None)?,
            };
            match read(&it) {
                Ok(result) => return Ok(result),
                Err(ArenaError::Over { .. } | ArenaError::Cut { .. }) => {
                    attached = Some(self.attach(Some(&it))?);
                }
                Err(error) => return Err(ReaderError::of_arena(&self.path, &it.memory, error)),
            }
        }
        Err(ReaderError::Opening { path: self.path.clone() })
    }

    /// What is attached. An error in a fork's child.
    fn attached(&self) -> Result<Option<Arc<AttachedArenas>>, ReaderError> {
        if self.fork_mark.is_in_child() {
            return Err(ReaderError::Forked { path: self.path.clone() });
        }
        Ok(self.state.read().unwrap_or_else(PoisonError::into_inner).attached.clone())
    }

    /// Attaches to the memory that the database has now, if it is time for a try. `over` is what
    /// this thread has read, and isn't to be read any more.
    #[cold]
    fn attach(
        &self,
        over: Option<&Arc<AttachedArenas>>,
    ) -> Result<Arc<AttachedArenas>, ReaderError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(it) = &state.attached {
            // Another thread may have been here.
            if over.is_none_or(|over| !Arc::ptr_eq(over, it)) && it.arenas.have_their_names() {
                return Ok(Arc::clone(it));
            }
            state.attached = None;
        }
        if let Some(refused) = state.refused.as_ref().filter(|_| Instant::now() < state.next_try) {
            return Err(refused.clone());
        }
        match self.find() {
            Ok(it) => {
                (state.refused, state.pause) = (None, Duration::ZERO);
                Ok(Arc::clone(state.attached.insert(Arc::new(it))))
            }
            Err(error) => {
                state.pause = (state.pause * 2).clamp(PAUSE, PAUSE_MOST);
                state.next_try = Instant::now() + state.pause;
                state.refused = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Finds and maps the memory of the database.
    fn find(&self) -> Result<AttachedArenas, ReaderError> {
        let path = &self.path;
        let folder = match path.metadata() {
            Ok(it) if it.is_dir() => it,
            Ok(_) => return Err(ReaderError::NotAFolder { path: path.clone() }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(ReaderError::NoDatabase { path: path.clone() });
            }
            Err(error) => return Err(ReaderError::io(path, "looking at it", &error)),
        };
        let meta = RealFolder::open_to_read(path).and_then(|folder| look_at_meta(&folder));
        let meta = meta.map_err(|error| ReaderError::of_log(path, &error))?;
        let Some(meta) = meta else { return Err(ReaderError::NoDatabase { path: path.clone() }) };
        let memory = self.memory_dir.clone();
        let memory = memory.unwrap_or_else(|| memory_folder(&meta.id, &folder));
        // Before the first chain counts, its tenant isn't noted.
        let partitions = partitions_of(&meta);
        let Some(partitions) = partitions.filter(|it| (1..=MOST_PARTITIONS).contains(it)) else {
            return Err(ReaderError::Opening { path: path.clone() });
        };
        let arenas = (0..partitions).map(|it| self.find_arena(&meta, &memory, (it, partitions)));
        let arenas = Arc::new(ForeignArenas::new(arenas.collect::<Result<_, _>>()?));
        Ok(AttachedArenas { arenas, memory, looked: LastLook::now() })
    }

    /// Maps the memory of a partition, of so many.
    fn find_arena(
        &self,
        meta: &Meta,
        memory: &Path,
        (partition, partitions): (usize, usize),
    ) -> Result<ForeignReader, ReaderError> {
        let path = &self.path;
        let told = |error| ReaderError::of_arena(path, memory, error);
        let arena = ForeignReader::open(&arena_path(memory, DEFAULT_TENANT, partition));
        let arena = match arena {
            Err(error) if is_absent(&error) && is_private(memory) => {
                return Err(ReaderError::Private { path: path.clone() });
            }
            arena => arena.map_err(told)?,
        };
        let info = arena.info();
        if info.log_id == [0; 16] {
            // It was made a moment ago.
            return Err(ReaderError::Opening { path: path.clone() });
        }
        let number = |count| u32::try_from(count).expect("at most 64");
        let (partition, partitions) = (number(partition), number(partitions));
        let is_its = info.check_owner(memory, DEFAULT_TENANT, partition, partitions).is_ok();
        if info.log_id != meta.id || !is_its {
            return Err(ReaderError::OtherMemory { path: path.clone(), memory: memory.to_owned() });
        }
        match arena.check() {
            Ok(()) | Err(ArenaError::Adopting { .. }) => Ok(arena),
            Err(error) => Err(told(error)),
        }
    }

    /// Whether a key's time is over by this process's clock, though not by the owner's. `judge` is
    /// the time of one call.
    #[inline]
    fn is_over(&self, expiry_ms: u64, judge: &mut Option<u64>) -> bool {
        expiry_ms != 0 && is_over(expiry_ms, *judge.get_or_insert_with(|| self.judge()))
    }

    /// The time to judge by: it never goes back.
    fn judge(&self) -> u64 {
        let now_ms = unix_ms(SystemTime::now()).saturating_sub(CLOCK_LATE_MS);
        now_ms.max(self.judged_ms.fetch_max(now_ms, Ordering::Relaxed))
    }
}

impl AttachedArenas {
    /// The arena of a key.
    #[inline]
    fn of(&self, key: &[u8]) -> &ForeignReader {
        self.arenas.arena(self.arenas.partition(key))
    }

    /// Whether the files still have their names; looked at now and then.
    fn is_in_place(&self) -> bool {
        !self.looked.is_due(LOOK_MS) || self.arenas.have_their_names()
    }
}

fn is_absent(error: &ArenaError) -> bool {
    matches!(error, ArenaError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// Whether a memory folder is of a database whose arenas end with their process: its journal holds
/// all values.
fn is_private(memory: &Path) -> bool {
    JournalFile::look(memory, 0).is_ok_and(|it| it.is_some_and(|it| it.holds_values()))
}
