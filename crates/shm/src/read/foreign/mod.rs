//! Reading an arena from another process, which nobody waits for.
//!
//! ```text
//! one key:      incarnation ─ look ─ intent is 0 ─ incarnation again      (an expiry? clock first, and again)
//! several keys: incarnation ─ reuses ─ moment ─┬─ look ─ back along prev ─ both again ─┐
//!                                              └──────────── the next key ─────────────┘
//! ```
//!
//! 1. No reference to mapped bytes is ever formed: words are copied out and then validated.
//! 2. A read counts only if the same writer has the arena behind it as before it.
//! 3. A version that was current at a moment keeps its bytes until `reuses` changes: a slot is
//!    counted in `reuses` before its first byte is another's, and `reuses` is loaded before the
//!    moment. So each answer of a [`View`] is right when it is given, and all answers of one
//!    attempt are of one moment.
//! 4. Each loop is bounded: looks at a key, steps back, attempts.
//!
//! The owner never shrinks the file. If somebody else does, the mapping reads as zeros, and each
//! read says so. Any thread, any process that may read the file.

mod copier;
mod foreign_arenas;
mod foreign_values;
mod foreign_view;
mod in_place;
mod last_look;
mod read_check;
mod room;

#[cfg(test)]
pub(crate) use self::copier::guarded;
pub use self::copier::{ForeignRecord, ForeignVersion};
pub use self::foreign_arenas::ForeignArenas;
pub use self::foreign_values::ForeignValues;
pub use self::foreign_view::{RestingView, View};
pub use self::in_place::ForeignInPlace;
pub use self::last_look::LastLook;

use self::copier::{Copier, LOOKS_MAX, Look, ScanStep, Wanted};
use self::foreign_view::version_of;
use self::read_check::{ReadCheck, Shut};
use self::room::Room;
use crate::error::ArenaError;
use crate::error::io;
use crate::format::header_info::HeaderInfo;
use crate::format::header_info::header_of_file;
use crate::format::layout::{PROMISE_SYNCED, header};
use crate::format::words::{MappedWords, SharedWords};
use crate::index::moment::TooNew;
use crate::memory::file_mapping::{FileIdentity, FileMapping};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Attempts at one moment before a reader gives up: each ends only if the owner has reused memory,
/// removed one of the keys or been in one commit meanwhile.
const ATTEMPTS_MAX: u32 = 16;

/// Reads the keys of one arena by copying them out.
#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
pub struct ForeignReader<W: SharedWords = MappedWords> {
    copier: Copier<W>,
    info: HeaderInfo,
    identity: FileIdentity,
    path: PathBuf,
    _mapping: FileMapping,
}

/// A value that was copied out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignValue {
    /// Its bytes.
    pub value: Vec<u8>,
    /// When it expires, Unix milliseconds; 0 if never.
    pub expiry_ms: u64,
}

/// What an arena's owner counts. Each number is of some moment of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForeignCounters {
    /// Keys.
    pub keys: u64,
    /// Keys with an expiry.
    pub expires: u64,
    /// Bytes of live records and of their runs.
    pub live_bytes: u64,
    /// Bytes appended since the arena was made.
    pub appended_bytes: u64,
    /// Bytes backed by memory.
    pub backed_bytes: u64,
    /// The number of the last change.
    pub committed_lsn: u64,
    /// The last change that is on disk for certain; 0 without a log.
    pub durable_lsn: u64,
}

impl ForeignReader {
    /// Opens an arena read-only. One descriptor stays open as long as the reader.
    ///
    /// # Errors
    /// If the file can't be read or is no arena.
    pub fn open(path: &Path) -> Result<ForeignReader, ArenaError> {
        // Whatever has the name: opening it neither waits nor follows.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty());
        ForeignReader::of_file(File::from(file.map_err(|e| io(path, "opening the file", e))?), path)
    }

    /// The same of a file that somebody has opened and handed over. Errors call it `name`.
    ///
    /// # Errors
    /// If the file can't be read or is no arena.
    pub fn of_file(file: File, name: &Path) -> Result<ForeignReader, ArenaError> {
        let failed =
            |source| ArenaError::Io { path: name.to_path_buf(), doing: "opening the file", source };
        let stat = file.metadata().map_err(failed)?;
        if !stat.is_file() {
            return Err(failed(Errno::INVAL.into()));
        }
        let info = header_of_file(&file, name)?;
        let len = usize::try_from(info.g.address_bytes)
            .map_err(|_| io(name, "mapping the file", Errno::NOMEM))?;
        let mapping =
            FileMapping::guarded(&file, len).map_err(|e| io(name, "mapping the file", e))?;
        let identity = (stat.dev(), stat.ino());
        let copier = Copier::new(mapping.words(), info.g, file);
        Ok(ForeignReader { copier, info, identity, path: name.to_path_buf(), _mapping: mapping })
    }

    /// The header as it was when the arena was opened.
    #[must_use]
    pub fn info(&self) -> &HeaderInfo {
        &self.info
    }

    /// The hash of a key, or of its tag, as its owner has it.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u32 {
        crate::format::hash::hash(self.info.seed, key)
    }

    /// Asks for the memory of a key that its owner is about to look up.
    pub fn prefetch(&self, key: &[u8]) {
        self.copier.prefetch(&[self.hash(key)]);
    }

    /// Whether the arena's path still names the file that was opened. Else nobody writes to it any
    /// more, though it may be read.
    #[must_use]
    pub fn has_its_name(&self) -> bool {
        let named = self.path.symlink_metadata();
        named.is_ok_and(|it| (it.dev(), it.ino()) == self.identity)
    }
}

#[expect(private_bounds, reason = "words are sealed: crate::format::words says why")]
impl<W: SharedWords> ForeignReader<W> {
    #[cfg(test)]
    pub(crate) fn words(&self) -> &W {
        &self.copier.words
    }

    /// The same reader over other words.
    #[cfg(test)]
    pub(crate) fn over<V: SharedWords>(self, wrap: impl FnOnce(W) -> V) -> ForeignReader<V> {
        let ForeignReader { copier, info, identity, path, _mapping } = self;
        ForeignReader { copier: copier.over(wrap), info, identity, path, _mapping }
    }

    /// Copies a key's value to `out`, whose content is replaced. Returns its expiry (Unix
    /// milliseconds, 0: none), or `None` if there is no such key, or its time is over by the
    /// arena's clock. A caller that finds it over by a clock of its own only asks the owner.
    ///
    /// # Errors
    /// [`ArenaError::Busy`] if the owner reused the memory under each of many looks, or the arena
    /// is damaged; [`ArenaError::NoRoom`], [`ArenaError::Adopting`], [`ArenaError::Over`] and
    /// [`ArenaError::Cut`]; while several keys are being committed, those of [`Self::view`].
    pub fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<u64>, ArenaError> {
        Ok(self.get_version(key, out)?.map(|it| it.expiry_ms))
    }

    /// The same, with the number of the change that set the key.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_version(
        &self,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<ForeignVersion>, ArenaError> {
        let found = self.find(key, true, out);
        if !matches!(found, Ok(Some(_))) {
            out.clear();
        }
        found
    }

    /// [`Self::get_version`] without the value.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn version(&self, key: &[u8]) -> Result<Option<ForeignVersion>, ArenaError> {
        self.find(key, false, &mut Vec::new())
    }

    /// The expiry of a key, or `None` if there is no such key.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn expiry(&self, key: &[u8]) -> Result<Option<u64>, ArenaError> {
        Ok(self.version(key)?.map(|it| it.expiry_ms))
    }

    fn find(
        &self,
        key: &[u8],
        with_value: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<ForeignVersion>, ArenaError> {
        let hash = crate::format::hash::hash(self.info.seed, key);
        let words = &self.copier.words;
        let mut room = Room::of(out);
        // Only a key with an expiry needs the time. Its line changes with each write of the owner.
        let mut needs_clock = false;
        for _ in 0..LOOKS_MAX.min(W::TRIES_MAX) {
            let watch = self.watch()?;
            // The time comes first: by a later one its owner may have found the key over, and told
            // so.
            let clock_ms = if needs_clock { self.clock_ms() } else { 0 };
            let wanted = Wanted { hash, key, lsn: u64::MAX, clock_ms, with_value };
            let look = self.copier.look(&wanted, &mut room);
            // SYNC(intent): an entry of a commit of several was stored behind it.
            words.fence(Acquire);
            if words.load32(header::INTENT, Acquire) != 0 {
                return self.view(|view| view.find(hash, key, with_value, out));
            }
            if !watch.has_same_writer(words) {
                continue;
            }
            match look {
                Look::Hit(head, _) if head.expiry_ms != 0 && !needs_clock => needs_clock = true,
                Look::Hit(head, _) if wanted.wants(&head) => return Ok(Some(version_of(&head))),
                Look::Hit(..) | Look::Miss => return Ok(None),
                Look::Again => std::hint::spin_loop(),
            }
        }
        Err(self.busy(room.denied()))
    }

    /// Why a key wasn't read: for want of memory for its value, or since the owner reused its
    /// memory.
    #[cold]
    fn busy(&self, denied: Option<usize>) -> ArenaError {
        let path = self.path.clone();
        match denied {
            Some(bytes) => ArenaError::NoRoom { path, bytes },
            None => ArenaError::Busy { path, tries: LOOKS_MAX },
        }
    }

    /// Finds the value of a key, to be read in parts where it lies: for large values of which
    /// little is wanted. `None` as for [`Self::get`].
    ///
    /// # Errors
    /// As [`Self::get`]; [`ArenaError::Busy`] also while several keys are being committed for too
    /// long.
    pub fn in_place(&self, key: &[u8]) -> Result<Option<ForeignInPlace<'_, W>>, ArenaError> {
        let hash = crate::format::hash::hash(self.info.seed, key);
        let words = &self.copier.words;
        for _ in 0..LOOKS_MAX.min(W::TRIES_MAX) {
            let watch = self.watch()?;
            let clock_ms = self.clock_ms();
            let wanted = Wanted { hash, key, lsn: u64::MAX, clock_ms, with_value: false };
            let look = self.copier.look(&wanted, &mut Room::of(&mut Vec::new()));
            // SYNC(intent): an entry of a commit of several was stored behind it.
            words.fence(Acquire);
            let in_commit = words.load32(header::INTENT, Acquire) != 0;
            match look {
                _ if in_commit || !watch.has_same_writer(words) => std::hint::spin_loop(),
                Look::Hit(head, place) if wanted.wants(&head) => {
                    let found = ForeignInPlace::of(&self.copier, watch, (&head, place));
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Look::Hit(..) | Look::Miss => return Ok(None),
                Look::Again => std::hint::spin_loop(),
            }
        }
        Err(ArenaError::Busy { path: self.path.clone(), tries: LOOKS_MAX })
    }

    /// Reads several keys at one moment: `read` gets them from the view, one after another, and may
    /// decide by one value which key is next. What it returns is of that moment. When the owner has
    /// changed too much meanwhile, the attempt is over: the view says so, `read` returns that, and
    /// is called again for another moment.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), nigh_shm::ArenaError> {
    /// let reader = nigh_shm::ForeignReader::open("/dev/shm/nigh-6379/default.0.arena".as_ref())?;
    /// let address = reader.view(|view| {
    ///     let (mut id, mut address) = (Vec::new(), Vec::new());
    ///     let there = view.get(b"user:of:session", &mut id)?.is_some();
    ///     Ok((there && view.get(&id, &mut address)?.is_some()).then_some(address))
    /// })?;
    /// # drop(address);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ArenaError::TooNew`] if each of some attempts ended so, or the arena is damaged;
    /// [`ArenaError::NoRoom`], [`ArenaError::Adopting`], [`ArenaError::Over`] and
    /// [`ArenaError::Cut`].
    pub fn view<R>(
        &self,
        mut read: impl FnMut(&mut View<'_, W>) -> Result<R, TooNew>,
    ) -> Result<R, ArenaError> {
        for _ in 0..ATTEMPTS_MAX.min(W::TRIES_MAX) {
            let Some(mut view) = self.begin_view()? else {
                // One commit took longer than the owner needs if it runs.
                std::thread::yield_now();
                continue;
            };
            if let Ok(result) = read(&mut view)
                && !view.is_over()
            {
                return Ok(result);
            }
            if let Some(bytes) = view.denied() {
                return Err(ArenaError::NoRoom { path: self.path.clone(), bytes });
            }
        }
        // Whether it is the writer that has gone.
        self.watch()?;
        Err(ArenaError::TooNew { path: self.path.clone(), attempts: ATTEMPTS_MAX })
    }

    /// Begins one attempt to read several keys at one moment, for a caller that reads several
    /// arenas and tries again itself; [`Self::view`] does both. `None` if a commit is under way for
    /// too long. What was read counts if the view isn't over then.
    ///
    /// # Errors
    /// [`ArenaError::Adopting`], [`ArenaError::Over`] and [`ArenaError::Cut`].
    pub fn begin_view(&self) -> Result<Option<View<'_, W>>, ArenaError> {
        let watch = self.watch()?;
        Ok(View::begin(&self.copier, self.info.seed, watch))
    }

    /// Goes on with an attempt that this reader began.
    #[must_use]
    pub fn resume_view(&self, resting: RestingView) -> View<'_, W> {
        View::resume(&self.copier, self.info.seed, resting)
    }

    /// The values that keys had at one moment, in the keys' order; `None` for one that wasn't
    /// there.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<ForeignValue>>, ArenaError> {
        let (mut values, numbers) = (ForeignValues::new(), (0..keys.len()).collect::<Vec<_>>());
        values.reset(keys.len());
        self.multi_get_into(keys, &numbers, &mut values)?;
        let value_of = |key| {
            let (value, version) = (values.get(key)?.to_vec(), values.version(key)?);
            Some(ForeignValue { value, expiry_ms: version.expiry_ms })
        };
        Ok(numbers.into_iter().map(value_of).collect())
    }

    /// The same of the keys with these numbers, into memory that is used again. Returns the number
    /// of the moment: that of the last change that is seen.
    ///
    /// # Errors
    /// As [`Self::view`].
    ///
    /// # Panics
    /// If `values` was reset for fewer keys, or a number is beyond.
    pub fn multi_get_into(
        &self,
        keys: &[&[u8]],
        numbers: &[usize],
        values: &mut ForeignValues,
    ) -> Result<u64, ArenaError> {
        let mark = values.mark();
        self.view(|view| {
            values.back_to(mark);
            values.read(view, keys, numbers).map(|()| view.lsn())
        })
    }

    /// A step of a walk over all keys, with the guarantee of [`crate::Reader::scan`]: passes some
    /// records whose keys begin with `prefix` to `found`, each as it was at some moment. Returns
    /// the next cursor, 0 when all were visited. Start with 0. A key whose time is over by the
    /// arena's clock isn't passed.
    ///
    /// # Errors
    /// As [`Self::get`]. Records that were passed before are right, and come again with the same
    /// cursor.
    pub fn scan(
        &self,
        cursor: u64,
        prefix: &[u8],
        found: &mut dyn FnMut(&ForeignRecord),
    ) -> Result<u64, ArenaError> {
        let mut denied = None;
        for _ in 0..LOOKS_MAX.min(W::TRIES_MAX) {
            let watch = self.watch()?;
            let clock_ms = self.copier.words.load64(header::CLOCK, Acquire);
            let record = ForeignRecord::default();
            let mut step = ScanStep { prefix, clock_ms, watch, record, denied: None };
            let next = self.copier.scan_step(cursor, &mut step, found);
            if let Some(next) = next.filter(|_| watch.has_same_writer(&self.copier.words)) {
                return Ok(next);
            }
            denied = step.denied;
        }
        Err(self.busy(denied))
    }

    /// The time by which the arena's owner judges expiry, Unix milliseconds.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.copier.words.load64(header::CLOCK, Acquire)
    }

    /// Up to which change the log on disk has all, for certain.
    #[must_use]
    pub fn durable_lsn(&self) -> u64 {
        // SYNC(durable)
        self.copier.words.load64(header::DURABLE_LSN, Acquire)
    }

    /// Up to which change the owner has begun. What was read before came with one of these.
    #[must_use]
    pub fn begun_lsn(&self) -> u64 {
        self.copier.words.fence(Acquire);
        self.copier.words.load64(header::BEGUN_LSN, Acquire)
    }

    /// What the owner counts, for observers.
    #[must_use]
    pub fn counters(&self) -> ForeignCounters {
        let count = |at| self.copier.words.load64(at, Relaxed);
        ForeignCounters {
            keys: count(header::KEYS),
            expires: count(header::EXPIRES),
            live_bytes: count(header::LIVE_BYTES),
            appended_bytes: count(header::APPENDED_BYTES),
            backed_bytes: count(header::BACKED_BYTES),
            committed_lsn: count(header::COMMITTED_LSN),
            durable_lsn: count(header::DURABLE_LSN),
        }
    }

    /// Whether the owner replies only when its changes are on disk.
    #[must_use]
    pub fn replies_wait(&self) -> bool {
        self.copier.words.load32(header::PROMISE, Acquire) == PROMISE_SYNCED
    }

    /// The number of the writer that has the arena.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        // SYNC(incarnation)
        self.copier.words.load64(header::INCARNATION, Acquire)
    }

    /// Whether a writer has the arena, or had it last; else why nothing can be read.
    ///
    /// # Errors
    /// [`ArenaError::Adopting`], [`ArenaError::Over`] and [`ArenaError::Cut`].
    pub fn check(&self) -> Result<(), ArenaError> {
        self.watch().map(drop)
    }

    /// Begins a read, if a writer has the arena.
    fn watch(&self) -> Result<ReadCheck, ArenaError> {
        // The tables before the slots are looked at without asking again; a file that is cut off
        // there has no keys.
        if !self.copier.has_tables() {
            return Err(ArenaError::Busy { path: self.path.clone(), tries: 1 });
        }
        ReadCheck::begin(&self.copier.words).map_err(|shut| match shut {
            Shut::Adopting => ArenaError::Adopting { path: self.path.clone() },
            Shut::Over => ArenaError::Over { path: self.path.clone() },
            Shut::Cut => ArenaError::Cut { path: self.path.clone() },
        })
    }
}
