//! Reading an arena from another process, which nobody waits for.
//!
//! ```text
//! one key:      incarnation ─ clock ─ look ─ intent is 0 ─ incarnation again
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
mod foreign_view;
mod read_check;

pub use self::copier::ForeignRecord;
#[cfg(test)]
pub(crate) use self::copier::guarded;
pub use self::foreign_view::View;

use self::copier::{Copier, LOOKS_MAX, Look, ScanStep, Wanted};
use self::foreign_view::KEYS_AHEAD;
use self::read_check::{ReadCheck, Shut};
use crate::error::ArenaError;
use crate::error::io;
use crate::format::header_info::HeaderInfo;
use crate::format::header_info::header_of_file;
use crate::format::layout::header;
use crate::format::words::{MappedWords, SharedWords};
use crate::index::moment::TooNew;
use crate::memory::file_mapping::{FileIdentity, FileMapping};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;

/// Attempts at one moment before a reader gives up: each ends only if the owner has reused memory,
/// removed one of the keys or been in one commit meanwhile.
const ATTEMPTS_MAX: u32 = 16;

/// Reads the keys of one arena by copying them out.
#[expect(private_bounds, reason = "words are sealed: crate::words says why")]
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

impl ForeignReader {
    /// Opens an arena read-only. One descriptor stays open as long as the reader.
    ///
    /// # Errors
    /// If the file can't be read or is no arena.
    pub fn open(path: &Path) -> Result<ForeignReader, ArenaError> {
        let failed =
            |source| ArenaError::Io { path: path.to_path_buf(), doing: "opening the file", source };
        // Whatever has the name: opening it neither waits nor follows.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty());
        let file = File::from(file.map_err(|e| failed(e.into()))?);
        let stat = file.metadata().map_err(failed)?;
        if !stat.is_file() {
            return Err(failed(Errno::INVAL.into()));
        }
        let info = header_of_file(&file, path)?;
        let len = usize::try_from(info.g.address_bytes)
            .map_err(|_| io(path, "mapping the file", Errno::NOMEM))?;
        let mapping =
            FileMapping::guarded(&file, len).map_err(|e| io(path, "mapping the file", e))?;
        let identity = (stat.dev(), stat.ino());
        let copier = Copier::new(mapping.words(), info.g, file);
        Ok(ForeignReader { copier, info, identity, path: path.to_path_buf(), _mapping: mapping })
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

    /// Whether the arena's path still names the file that was opened. Else nobody writes to it any
    /// more, though it may be read.
    #[must_use]
    pub fn has_its_name(&self) -> bool {
        let named = self.path.symlink_metadata();
        named.is_ok_and(|it| (it.dev(), it.ino()) == self.identity)
    }
}

#[expect(private_bounds, reason = "words are sealed: crate::words says why")]
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
    /// is damaged; [`ArenaError::Adopting`], [`ArenaError::Over`] and [`ArenaError::Cut`]; while
    /// several keys are being committed, those of [`Self::view`].
    pub fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<u64>, ArenaError> {
        let found = self.find(key, true, out);
        if !matches!(found, Ok(Some(_))) {
            out.clear();
        }
        found
    }

    /// The same without the value: the expiry of a key, or `None` if there is no such key.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn expiry(&self, key: &[u8]) -> Result<Option<u64>, ArenaError> {
        self.find(key, false, &mut Vec::new())
    }

    fn find(
        &self,
        key: &[u8],
        with_value: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<u64>, ArenaError> {
        let hash = crate::format::hash::hash(self.info.seed, key);
        let words = &self.copier.words;
        for _ in 0..LOOKS_MAX {
            let watch = self.watch()?;
            // The time comes first: by a later one its owner may have found the key over, and told
            // so.
            let clock_ms = words.load64(header::CLOCK, Acquire);
            let wanted = Wanted { hash, key, lsn: u64::MAX, clock_ms, with_value };
            let look = self.copier.look(&wanted, out);
            // SYNC(intent): an entry of a commit of several was stored behind it.
            words.fence(Acquire);
            if words.load32(header::INTENT, Acquire) != 0 {
                return self.view(|view| view.find(key, with_value, out));
            }
            if !watch.has_same_writer(words) {
                continue;
            }
            match look {
                Look::Hit(head) if wanted.wants(&head) => return Ok(Some(head.expiry_ms)),
                Look::Hit(_) | Look::Miss => return Ok(None),
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
    /// [`ArenaError::Adopting`], [`ArenaError::Over`] and [`ArenaError::Cut`].
    pub fn view<R>(
        &self,
        mut read: impl FnMut(&mut View<'_, W>) -> Result<R, TooNew>,
    ) -> Result<R, ArenaError> {
        for _ in 0..ATTEMPTS_MAX {
            let watch = self.watch()?;
            let Some(mut view) = View::begin(&self.copier, self.info.seed, watch) else {
                // One commit took longer than the owner needs if it runs.
                std::thread::yield_now();
                continue;
            };
            if let Ok(result) = read(&mut view)
                && !view.is_over()
            {
                return Ok(result);
            }
        }
        // Whether it is the writer that has gone.
        self.watch()?;
        Err(ArenaError::TooNew { path: self.path.clone(), attempts: ATTEMPTS_MAX })
    }

    /// The values that keys had at one moment, in the keys' order; `None` for one that wasn't
    /// there.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<ForeignValue>>, ArenaError> {
        self.view(|view| {
            let mut found = Vec::with_capacity(keys.len());
            for keys in keys.chunks(KEYS_AHEAD) {
                view.prefetch(keys);
                for key in keys {
                    let mut value = Vec::new();
                    let expiry = view.get(key, &mut value)?;
                    found.push(expiry.map(|expiry_ms| ForeignValue { value, expiry_ms }));
                }
            }
            Ok(found)
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
        for _ in 0..LOOKS_MAX {
            let watch = self.watch()?;
            let clock_ms = self.copier.words.load64(header::CLOCK, Acquire);
            let record = ForeignRecord::default();
            let mut step = ScanStep { prefix, clock_ms, watch, record };
            let next = self.copier.scan_step(cursor, &mut step, found);
            if let Some(next) = next.filter(|_| watch.has_same_writer(&self.copier.words)) {
                return Ok(next);
            }
        }
        Err(ArenaError::Busy { path: self.path.clone(), tries: LOOKS_MAX })
    }

    /// The time by which the arena's owner judges expiry, Unix milliseconds.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.copier.words.load64(header::CLOCK, Acquire)
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
