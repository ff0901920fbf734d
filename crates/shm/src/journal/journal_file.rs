//! The file of a journal: making it, opening one that another process left, and its header's words.
//!
//! ```text
//! journal.S.new ── fallocate ── header, magic last ── rename ──> journal.S
//! ```
//!
//! 1. All of its memory is taken when it is made or opened: no store to it can fail for want of
//!    some.
//! 2. A file is believed only after its header is checked; nothing is changed before.
//! 3. Each word of the header belongs to one side: the log's thread stores generation, newest file
//!    and broken, the shard's thread stores tail and head.
//! 4. A file that is only looked at is mapped read-only, and has no writer and no reader.
//!
//! Making and opening: the start. Its words: as said above. Loads: any thread.

use super::journal_error::{JournalError, system};
use super::layout::{
    JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, MAGIC, POSITION_END, VERSION_HOLDS, VERSION_NAMES, entry,
    header,
};
use crate::format::format_fault::{FormatFault, ensure};
use crate::format::regular_file::open_regular;
use crate::format::words::{MappedWords, SharedWords};
use crate::memory::file_mapping::FileMapping;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::ProtFlags;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

const WRITABLE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
/// Bytes of an id.
const ID_BYTES: usize = 16;

/// Which journal, and how large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSpec {
    /// The shard that it belongs to.
    pub shard: u32,
    /// Bytes of its ring: a power of two from [`JOURNAL_BYTES_MIN`] to [`JOURNAL_BYTES_MAX`].
    pub ring_bytes: u64,
    /// Id of the log.
    pub log_id: [u8; 16],
    /// Id of the machine's boot.
    pub boot_id: [u8; 16],
    /// Entries hold values that lie in runs, rather than to name them: the arenas end with the
    /// process.
    pub holds_values: bool,
}

/// What a journal's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalInfo {
    /// The shard that it belongs to.
    pub shard: u32,
    /// Bytes of its ring.
    pub ring_bytes: u64,
    /// Id of the log.
    pub log_id: [u8; 16],
    /// Id of the machine's boot.
    pub boot_id: [u8; 16],
    /// Generation of the chain that counts for the shard.
    pub generation: u64,
    /// Number of the newest log file whose BEGIN is on disk.
    pub newest_file: u64,
    /// The highest generation that broke, or 0.
    pub broken: u64,
    /// Bytes ever published.
    pub tail: u64,
    /// Bytes ever given back.
    pub head: u64,
}

/// A journal's file in this process's address space.
pub struct JournalFile {
    mapping: FileMapping,
    path: PathBuf,
    shard: u32,
    shape: RingShape,
    is_writable: bool,
    /// Position up to which all is in the log's file, in the page cache at least. Stored by the
    /// log's thread, for the shard's.
    written: AtomicU64,
    /// Position up to which entries may be published, however much room the ring has: what the log
    /// has room for. Stored and looked at as `written`.
    limit: AtomicU64,
    has_writer: AtomicBool,
    has_reader: AtomicBool,
}

/// What of a journal's header stays as it is made.
#[derive(Debug, Clone, Copy)]
struct RingShape {
    ring_bytes: u64,
    holds_values: bool,
}

/// The name of a shard's journal.
#[must_use]
pub fn journal_path(folder: &Path, shard: u32) -> PathBuf {
    folder.join(format!("journal.{shard}"))
}

impl JournalFile {
    /// Makes a shard's journal, in place of one that is there.
    ///
    /// # Errors
    /// If the size is none, there is no memory, or the system refuses.
    pub fn create(folder: &Path, spec: &JournalSpec) -> Result<JournalFile, JournalError> {
        let path = journal_path(folder, spec.shard);
        let (bytes, least, most) = (spec.ring_bytes, JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX);
        if !is_ring_size(bytes) {
            return Err(JournalError::Size { path, bytes, least, most });
        }
        let mut temporary = path.clone().into_os_string();
        temporary.push(".new");
        let temporary = PathBuf::from(temporary);
        let _ = std::fs::remove_file(&temporary);
        let made = JournalFile::make(&temporary, path, spec).and_then(|file| {
            rustix::fs::rename(&temporary, &file.path)
                .map_err(|e| system(&file.path, "naming the file", e))?;
            Ok(file)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        made
    }

    fn make(
        temporary: &Path,
        path: PathBuf,
        spec: &JournalSpec,
    ) -> Result<JournalFile, JournalError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(temporary, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| system(&path, "creating the file", e))?;
        let shape = RingShape { ring_bytes: spec.ring_bytes, holds_values: spec.holds_values };
        let journal = JournalFile::map(&File::from(file), path, spec.shard, shape)?;
        let words = journal.words();
        let version = if spec.holds_values { VERSION_HOLDS } else { VERSION_NAMES };
        words.store32(header::VERSION, version, Relaxed);
        words.store32(header::SHARD, spec.shard, Relaxed);
        words.store64(header::RING_BYTES, spec.ring_bytes, Relaxed);
        store_id(&words, header::LOG_ID, &spec.log_id);
        store_id(&words, header::BOOT_ID, &spec.boot_id);
        // SYNC(journal-magic): stored last, so that a file with the magic is whole.
        words.store64(header::MAGIC, MAGIC, Release);
        Ok(journal)
    }

    /// Opens the journal that an earlier process left, if there is one.
    ///
    /// # Errors
    /// If it is no journal, newer than this server, damaged, in use, or the system refuses. Nothing
    /// has changed then.
    pub fn open(folder: &Path, shard: u32) -> Result<Option<JournalFile>, JournalError> {
        let path = journal_path(folder, shard);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = match retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty())) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(system(&path, "opening the file", e)),
        };
        let shape = read_header(&file, &path, shard)?;
        JournalFile::map(&file, path, shard, shape).map(Some)
    }

    /// Opens a journal to look at it only: `nigh check`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn look(folder: &Path, shard: u32) -> Result<Option<JournalFile>, JournalError> {
        let path = journal_path(folder, shard);
        let file = match open_regular(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(JournalError::Io { path, doing: "opening it", source }),
        };
        let shape = read_header(&file, &path, shard)?;
        let failed = |e| system(&path, "mapping the file", e);
        let len = usize::try_from(file_bytes(shape.ring_bytes));
        let len = len.map_err(|_| failed(Errno::NOMEM))?;
        let mapping = FileMapping::read_only(&file, len).map_err(failed)?;
        Ok(Some(JournalFile::over(mapping, path, shard, shape, false)))
    }

    /// Takes all of the file's memory, and maps it.
    fn map(
        file: &File,
        path: PathBuf,
        shard: u32,
        shape: RingShape,
    ) -> Result<JournalFile, JournalError> {
        let bytes = file_bytes(shape.ring_bytes);
        let failed = |doing| {
            let path = path.clone();
            move |e| system(&path, doing, e)
        };
        let len = usize::try_from(bytes).map_err(|_| failed("mapping the file")(Errno::NOMEM))?;
        let stat = rustix::fs::fstat(file).map_err(failed("asking its identity"))?;
        let mut mapping = FileMapping::reserve(len).map_err(failed("reserving addresses"))?;
        if !mapping.claim((stat.st_dev, stat.st_ino)) {
            return Err(JournalError::InUse { path });
        }
        retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes))
            .map_err(|e| no_memory(&path, bytes, e))?;
        mapping.map(file, 0, bytes, WRITABLE).map_err(failed("mapping the file"))?;
        // No page tables ahead: a start would wait for all of them, and a page's first touch costs
        // a microsecond for some twenty changes.
        Ok(JournalFile::over(mapping, path, shard, shape, true))
    }

    fn over(
        mapping: FileMapping,
        path: PathBuf,
        shard: u32,
        shape: RingShape,
        is_writable: bool,
    ) -> JournalFile {
        let head = mapping.words().load64(header::HEAD, Acquire);
        JournalFile {
            mapping,
            path,
            shard,
            shape,
            is_writable,
            written: AtomicU64::new(head),
            limit: AtomicU64::new(u64::MAX),
            has_writer: AtomicBool::new(false),
            has_reader: AtomicBool::new(false),
        }
    }

    /// The words of the file, as long as this value lives.
    pub(super) fn words(&self) -> MappedWords {
        self.mapping.words()
    }

    /// The journal's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The shard that it belongs to.
    #[must_use]
    pub fn shard(&self) -> u32 {
        self.shard
    }

    /// Bytes of its ring.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.shape.ring_bytes
    }

    /// Whether its entries hold values that lie in runs, rather than to name them.
    #[must_use]
    pub fn holds_values(&self) -> bool {
        self.shape.holds_values
    }

    /// What the header says now.
    #[must_use]
    pub fn info(&self) -> JournalInfo {
        let words = self.words();
        let id = |at| {
            let mut id = [0; ID_BYTES];
            words.copy_out(at, &mut id);
            id
        };
        let word = |at| words.load64(at, Acquire);
        JournalInfo {
            shard: self.shard,
            ring_bytes: self.shape.ring_bytes,
            log_id: id(header::LOG_ID),
            boot_id: id(header::BOOT_ID),
            generation: word(header::GENERATION),
            newest_file: word(header::NEWEST_FILE),
            broken: word(header::BROKEN),
            tail: word(header::TAIL),
            head: word(header::HEAD),
        }
    }

    fn store(&self, at: u64, value: u64) {
        assert!(self.is_writable, "a journal that is only looked at isn't changed");
        self.words().store64(at, value, Release);
    }

    /// A log file's BEGIN is on disk. The log's thread; or the start.
    pub fn set_newest_file(&self, file: u64) {
        self.store(header::NEWEST_FILE, file);
    }

    /// A chain of this generation counts for the shard; its newest file was told before. The log's
    /// thread; or the start.
    pub fn set_generation(&self, generation: u64) {
        self.store(header::GENERATION, generation);
    }

    /// A chain of this generation broke: to be called before anybody is told. The log's thread; or
    /// the start.
    pub fn set_broken(&self, generation: u64) {
        if generation > self.words().load64(header::BROKEN, Relaxed) {
            self.store(header::BROKEN, generation);
        }
    }

    /// The start has ended in this boot of the machine.
    pub fn set_boot_id(&self, boot_id: &[u8; 16]) {
        assert!(self.is_writable, "a journal that is only looked at isn't changed");
        store_id(&self.words(), header::BOOT_ID, boot_id);
    }

    /// Gives all entries back: they are in the log, and the arenas have them. The start.
    ///
    /// # Panics
    /// If the journal has a writer or a reader already.
    pub fn drop_entries(&self) {
        let taken = self.has_writer.load(Acquire) || self.has_reader.load(Acquire);
        assert!(!taken, "entries are dropped before anybody has the ring");
        let tail = self.words().load64(header::TAIL, Acquire);
        self.store(header::HEAD, tail);
        self.written.store(tail, Release);
    }

    pub(super) fn take_writer(&self) {
        assert!(self.is_writable, "a journal that is only looked at has no writer");
        assert!(!self.has_writer.swap(true, Acquire), "a journal has one writer");
    }

    pub(super) fn take_reader(&self) {
        assert!(self.is_writable, "a journal that is only looked at has no reader");
        assert!(!self.has_reader.swap(true, Acquire), "a journal has one reader");
    }

    pub(super) fn give_reader_back(&self) {
        self.has_reader.store(false, Release);
    }

    pub(super) fn has_no_writer(&self) {
        assert!(!self.has_writer.load(Acquire), "entries that are left are read before more come");
    }

    /// The position up to which the log's thread has written all.
    #[inline]
    pub(super) fn written(&self) -> u64 {
        // SYNC(journal-written): that thread looks no more at what is before it.
        self.written.load(Acquire)
    }

    /// Entries may be published up to this position, by what the log's thread said last.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// The log's thread: the log has room for entries up to this position, and for no more that
    /// come behind the shard's next [`super::JournalWriter::leave`].
    pub fn set_limit(&self, position: u64) {
        self.limit.store(position, Relaxed);
    }

    pub(super) fn set_written(&self, position: u64) {
        // SYNC(journal-written)
        self.written.store(position, Release);
    }
}

const fn file_bytes(ring_bytes: u64) -> u64 {
    header::BYTES + ring_bytes
}

const fn is_ring_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= JOURNAL_BYTES_MIN && bytes <= JOURNAL_BYTES_MAX
}

fn store_id(words: &MappedWords, at: u64, id: &[u8; ID_BYTES]) {
    let (halves, _) = id.as_chunks();
    words.store_words(at, halves);
}

fn no_memory(path: &Path, bytes: u64, errno: Errno) -> JournalError {
    let is_full = matches!(errno, Errno::NOSPC | Errno::NOMEM | Errno::DQUOT | Errno::FBIG);
    if !is_full {
        return system(path, "taking memory", errno);
    }
    let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
    JournalError::NoMemory { path: path.to_path_buf(), folder, bytes, source: errno.into() }
}

/// A contradiction in a journal's file.
pub(super) fn damaged(path: &Path, fault: FormatFault) -> JournalError {
    let FormatFault { offset, what, expected, found } = fault;
    JournalError::Damaged { path: path.to_path_buf(), offset, what, expected, found }
}

/// Reads and checks a header.
fn read_header(file: &File, path: &Path, shard: u32) -> Result<RingShape, JournalError> {
    let failed =
        |source| JournalError::Io { path: path.to_path_buf(), doing: "reading the header", source };
    let len = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    file.take(header::BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let Ok(bytes) = <[u8; 4096]>::try_from(bytes) else {
        let fault = FormatFault::new(0, "length of the file", "at least 4096", len);
        return Err(damaged(path, fault));
    };
    let eight = |at: u64| {
        let words = bytes.as_chunks::<8>().0;
        let word = usize::try_from(at / 8).ok().and_then(|i| words.get(i));
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    let magic = eight(header::MAGIC);
    if magic != MAGIC {
        let found = String::from_utf8_lossy(&magic.to_le_bytes()).escape_default().to_string();
        return Err(JournalError::NotAJournal { path: path.to_path_buf(), found });
    }
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    let (version, found_shard) =
        (eight(header::VERSION) as u32, (eight(header::VERSION) >> 32) as u32);
    if version > VERSION_HOLDS {
        let path = path.to_path_buf();
        return Err(JournalError::NewerVersion { path, found: version, most: VERSION_HOLDS });
    }
    let ring_bytes = eight(header::RING_BYTES);
    check(version, (shard, found_shard), (ring_bytes, len))
        .and_then(|()| check_positions(eight(header::TAIL), eight(header::HEAD), ring_bytes))
        .map_err(|fault| damaged(path, fault))?;
    Ok(RingShape { ring_bytes, holds_values: version == VERSION_HOLDS })
}

fn check(
    version: u32,
    (shard, found_shard): (u32, u32),
    (ring_bytes, len): (u64, u64),
) -> Result<(), FormatFault> {
    let fault =
        |at, what, expected: String, found: u64| FormatFault::new(at, what, expected, found);
    ensure((VERSION_NAMES..=VERSION_HOLDS).contains(&version), || {
        fault(header::VERSION, "format version", "1 or 2".to_owned(), version.into())
    })?;
    ensure(found_shard == shard, || {
        fault(header::SHARD, "number of the shard", shard.to_string(), found_shard.into())
    })?;
    ensure(is_ring_size(ring_bytes), || {
        let expected = "a power of two, 1 MiB to 4 GiB".to_string();
        fault(header::RING_BYTES, "bytes of the ring", expected, ring_bytes)
    })?;
    ensure(len == file_bytes(ring_bytes), || {
        fault(0, "length of the file", file_bytes(ring_bytes).to_string(), len)
    })
}

fn check_positions(tail: u64, head: u64, ring_bytes: u64) -> Result<(), FormatFault> {
    let is_position = |p: u64| p < POSITION_END && p.is_multiple_of(entry::ALIGN);
    let expected = "a multiple of 32 below 2^62";
    ensure(is_position(head), || FormatFault::new(header::HEAD, "head", expected, head))?;
    ensure(is_position(tail), || FormatFault::new(header::TAIL, "tail", expected, tail))?;
    ensure(head <= tail && tail - head <= ring_bytes, || {
        let expected = format!("{head} to {}", head + ring_bytes);
        FormatFault::new(header::TAIL, "tail", expected, tail)
    })
}
