//! The mapping of an arena's file: address space first, memory as it is needed.
//!
//! ```text
//! base                      end of file                        address bytes
//! | file, shared, writable  | anonymous, readable, never backed |
//! ```
//!
//! 1. Address space is reserved once (PROT_READ, no reserve); the file is mapped over its beginning
//!    and the border only moves up. So a stray read behind the border sees zeros, never SIGBUS.
//! 2. Memory is taken by `fallocate` before it is touched: ENOSPC is an error, never a fault.
//! 3. No descriptor stays open: the file is opened by its path for each step, and must still be the
//!    same file. A private arena's file has no name any more: it stays open, and ends with the
//!    process.
//! 4. One process maps a file for writing at most once at a time, and unmaps it only after every
//!    participant of the domain announced. So nobody's `&[u8]` is left dangling or rewritten.
//!
//! Any thread.

pub(crate) mod durable;
pub(crate) mod kept;

use crate::error::{ArenaError, Denial, io};
use crate::format::generation::next_generation;
use crate::format::layout::{Geometry, INCARNATION_OVER, LINE_BYTES, PAGE_BYTES, header, round_up};
use crate::format::words::{MappedWords, SharedWords};
use crate::memory::file_mapping::{FileIdentity, FileMapping};
use crate::memory::hugepages::{self, HUGE_PAGE_BYTES};
use crate::memory::provision::Backing;
use crate::qsbr::Domain;
use crate::region::kept::{Kept, Untold};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{Advice, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Numbers the regions of this process.
static REGIONS: AtomicU32 = AtomicU32::new(1);

const WRITABLE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An arena's file in this process's address space. It stays mapped while an `Arc` of it lives, and
/// after that until every participant of its domain has announced.
pub struct Region {
    mapping: Option<FileMapping>,
    path: PathBuf,
    /// Where the file is until it is whole, and whether it is.
    temporary: Option<PathBuf>,
    named: AtomicBool,
    /// The file of a private arena.
    held: OnceLock<OwnedFd>,
    identity: FileIdentity,
    number: u32,
    domain: Arc<Domain>,
    geometry: Geometry,
    /// End of the file and of its mapping, bytes.
    end: Mutex<u64>,
    /// The system gives huge pages to files like this one.
    has_huge_pages: bool,
    /// Refusals of the system since somebody asked last: one of a kind, so a few at most.
    denied: Mutex<Vec<Denied>>,
    /// Records that its writer has met and left alone since somebody asked last.
    kept: Mutex<Untold>,
    /// The file isn't the arena any more.
    is_over: AtomicBool,
}

/// Something that the system refused of an arena's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denied {
    /// What was being done.
    pub doing: &'static str,
    /// The number of the system's error.
    pub errno: i32,
    /// What that means.
    pub denial: Denial,
    /// How often.
    pub times: u64,
}

impl Region {
    /// Makes the file under a temporary name; its header's page and the first slots' table pages
    /// are backed. To be told [`Self::set_named`] when it was renamed to `path`.
    pub(crate) fn create(
        temporary: &Path,
        path: &Path,
        g: Geometry,
        domain: &Arc<Domain>,
    ) -> Result<Region, ArenaError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(temporary, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| io(path, "creating the file", e))?;
        let mut region = Region::over(path, g, domain, &file, 0)?;
        region.temporary = Some(temporary.to_path_buf());
        region.grow_to(g.slot_offset(g.first_slot)).map_err(|e| io(path, "taking memory", e))?;
        Ok(region)
    }

    /// Maps an existing file, whose geometry the caller has validated.
    pub(crate) fn open(
        path: &Path,
        g: Geometry,
        domain: &Arc<Domain>,
    ) -> Result<Region, ArenaError> {
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| io(path, "opening the file", e))?;
        let len = rustix::fs::fstat(&file).map_err(|e| io(path, "asking its size", e))?.st_size;
        let len = u64::try_from(len).unwrap_or(0);
        let end = len.min(g.address_bytes) & !(g.slot_bytes() - 1);
        if end > 0 {
            // They are backed, unless something else made the file longer: then a page that nobody
            // can give would be a fault.
            back_tables(&file, &g, 0, end).map_err(|e| io(path, "taking memory", e))?;
        }
        Region::over(path, g, domain, &file, end)
    }

    fn over(
        path: &Path,
        geometry: Geometry,
        domain: &Arc<Domain>,
        file: &OwnedFd,
        end: u64,
    ) -> Result<Region, ArenaError> {
        domain.sweep();
        let stat = rustix::fs::fstat(file).map_err(|e| io(path, "asking its identity", e))?;
        let identity = (stat.st_dev, stat.st_ino);
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let len = usize::try_from(geometry.address_bytes)
            .map_err(|_| io(path, "reserving addresses", Errno::NOMEM))?;
        let mut mapping =
            FileMapping::reserve(len).map_err(|e| io(path, "reserving addresses", e))?;
        if !mapping.claim(identity) {
            return Err(ArenaError::InUse { path: path.to_path_buf() });
        }
        if end > 0 {
            mapping.map(file, 0, end, WRITABLE).map_err(|e| io(path, "mapping the file", e))?;
        }
        Ok(Region {
            mapping: Some(mapping),
            path: absolute,
            temporary: None,
            named: AtomicBool::new(false),
            held: OnceLock::new(),
            identity,
            number: REGIONS.fetch_add(1, Ordering::Relaxed),
            domain: Arc::clone(domain),
            geometry,
            end: Mutex::new(end),
            has_huge_pages: hugepages::are_given(identity.0),
            denied: Mutex::default(),
            kept: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    fn mapping(&self) -> &FileMapping {
        self.mapping.as_ref().expect("a region has its mapping until it is dropped")
    }

    /// Where the arena is mapped; offset 0.
    #[must_use]
    pub fn base(&self) -> *const u8 {
        self.mapping().base()
    }

    /// Bytes of address space from [`Self::base`] that stay readable as long as the region lives.
    #[must_use]
    pub fn address_bytes(&self) -> usize {
        self.mapping().len()
    }

    /// The arena's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the system gives the arena's file huge pages, and they are mapped as such.
    #[must_use]
    pub fn has_huge_pages(&self) -> bool {
        self.has_huge_pages
    }

    pub(crate) fn words(&self) -> MappedWords {
        self.mapping().words()
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The region's number in this process.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// End of the file, bytes.
    pub(crate) fn end(&self) -> u64 {
        *lock(&self.end)
    }

    /// The file has its name now.
    pub(crate) fn set_named(&self) {
        self.named.store(true, Ordering::Release);
    }

    /// The name of a file that hasn't its own yet: the arena is being built, and nobody reads it.
    pub(crate) fn temporary(&self) -> Option<&Path> {
        let temporary = self.temporary.as_deref();
        temporary.filter(|_| !self.named.load(Ordering::Acquire))
    }

    /// The file was removed: tells its readers in other processes so. Its memory goes back when
    /// nobody reads it here any more, though another process may have it mapped.
    pub fn set_over(&self) {
        // SYNC(incarnation)
        self.words().store64(header::INCARNATION, INCARNATION_OVER, Ordering::Release);
        self.is_over.store(true, Ordering::Release);
    }

    /// Takes the file's name away: from now on no other process can open it, and its memory goes
    /// back when this one ends, however that is. For a file that has its name.
    ///
    /// # Errors
    /// The file isn't there any more, or the folder can't be changed.
    pub fn make_private(&self) -> Result<(), ArenaError> {
        let file = self.reopen().map_err(|e| io(&self.path, "opening the file", e))?;
        rustix::fs::unlink(&self.path).map_err(|e| io(&self.path, "removing its name", e))?;
        let _ = self.held.set(file);
        // Readers that found it before look elsewhere.
        // SYNC(incarnation)
        self.words().store64(header::INCARNATION, INCARNATION_OVER, Ordering::Release);
        Ok(())
    }

    /// Whether the file has no name, and ends with this process.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.held.get().is_some()
    }

    fn file(&self) -> Result<OpenFile<'_>, Errno> {
        match self.held.get() {
            Some(file) => Ok(OpenFile::Held(file.as_fd())),
            None => self.reopen().map(OpenFile::Opened),
        }
    }

    fn reopen(&self) -> Result<OwnedFd, Errno> {
        let path = self.temporary().unwrap_or(&self.path);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        let stat = rustix::fs::fstat(&file)?;
        if (stat.st_dev, stat.st_ino) == self.identity { Ok(file) } else { Err(Errno::NOENT) }
    }

    /// Makes file and mapping reach `end` at least, and backs the tables' pages of the new slots. A
    /// huge page is mapped as one only if it is mapped in one piece.
    pub(crate) fn grow_to(&self, end: u64) -> Result<(), Errno> {
        let g = &self.geometry;
        let mut current = lock(&self.end);
        if end <= *current {
            return Ok(());
        }
        assert!(end <= g.address_bytes, "{end} is behind the arena's addresses");
        let step = if self.has_huge_pages { HUGE_PAGE_BYTES } else { 0 };
        let end = round_up(end, step.max(g.slot_bytes())).min(g.address_bytes);
        let file = self.file()?;
        back_tables(&file, g, *current, end)?;
        if *current > 0 {
            self.make_even(g.slot_of(*current)..g.slot_of(end));
        }
        // Only now: a process that maps the file counts slots by its length.
        rustix::fs::ftruncate(&file, end)?;
        self.mapping().map(&file, *current, end, WRITABLE)?;
        *current = end;
        Ok(())
    }

    /// Makes the generations of slots even that the file didn't have before: an earlier server left
    /// some odd there, and nobody else would ever end that.
    fn make_even(&self, slots: std::ops::Range<u32>) {
        let words = self.words();
        let generations = slots.map(|slot| self.geometry.generation_offset(slot));
        generations.for_each(|at| next_generation(&words, at, 0));
    }

    /// Notes what the system refused, for [`Self::take_denied`].
    #[cold]
    fn note_denied(&self, doing: &'static str, errno: Errno) -> Denial {
        let (denial, errno) = (Denial::from(errno), errno.raw_os_error());
        let mut denied = lock(&self.denied);
        match denied.iter_mut().find(|known| known.doing == doing && known.errno == errno) {
            Some(known) => known.times += 1,
            None => denied.push(Denied { doing, errno, denial, times: 1 }),
        }
        denial
    }

    /// What the system refused since the last call, each kind once.
    #[must_use]
    pub fn take_denied(&self) -> Vec<Denied> {
        std::mem::take(&mut *lock(&self.denied))
    }

    /// Notes what the writer leaves alone, for [`Self::take_kept`].
    #[cold]
    pub(crate) fn note_kept(&self, kept: Kept) {
        lock(&self.kept).note(kept);
    }

    /// What the writer has met since the last call and neither moves nor drops, since its bytes are
    /// wrong: some of it, and how much more there was. Each record is told once.
    #[must_use]
    pub fn take_kept(&self) -> (Vec<Kept>, u64) {
        lock(&self.kept).take()
    }

    /// [`Backing::back`], with the system's own answer, which is noted nowhere.
    pub(crate) fn try_back(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.grow_to(offset + len)?;
        let file = self.file()?;
        fallocate(&file, offset, len)?;
        drop(file);
        // Page tables now rather than at the first touch. A refusal costs only those faults.
        let _ = self.mapping().advise(offset, len, Advice::LinuxPopulateWrite);
        Ok(())
    }

    /// [`Backing::punch`], likewise.
    pub(crate) fn try_punch(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.mapping().advise(offset, len, Advice::LinuxRemove)
    }
}

impl Backing for Region {
    fn back(&self, offset: u64, len: u64) -> Result<(), Denial> {
        self.try_back(offset, len).map_err(|errno| self.note_denied("taking memory", errno))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<(), Denial> {
        self.try_punch(offset, len).map_err(|errno| self.note_denied("giving memory back", errno))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(mut mapping) = self.mapping.take() {
            if self.is_over.load(Ordering::Acquire) {
                // The header's page says that it is over.
                mapping.set_over(PAGE_BYTES, self.end());
            }
            self.domain.bury(mapping);
        }
    }
}

/// A region's file, for a step.
enum OpenFile<'a> {
    Held(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for OpenFile<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            OpenFile::Held(file) => *file,
            OpenFile::Opened(file) => file.as_fd(),
        }
    }
}

/// Takes memory for header and stamps and for the tables' pages of the slots between two ends of
/// the file.
fn back_tables(file: &impl AsFd, g: &Geometry, from: u64, to: u64) -> Result<(), Errno> {
    if from == 0 {
        fallocate(file, 0, g.generations)?;
    }
    let (had, slots) = (from >> g.slot_shift, u64::from(g.slot_of(to - 1)) + 1);
    for table in [g.generations, g.tails] {
        let from = (table + had * 4) & !(PAGE_BYTES - 1);
        let to = round_up(table + round_up(slots * 4, LINE_BYTES), PAGE_BYTES);
        fallocate(file, from, to - from)?;
    }
    Ok(())
}

/// Takes memory. A signal may interrupt it, which is no refusal.
fn fallocate(file: &impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
    retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len))
}
