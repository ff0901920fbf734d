//! Real files, in a folder that one process has.
//!
//! 1. The folder is opened once; every file is opened below its descriptor. So a folder that is
//!    renamed or mounted over while it is open stays the same one.
//! 2. The file `lock` is held with `flock` as long as the [`RealFolder`] lives. Its text is only
//!    for the message of [`LogError::InUse`]. Its process gives it back in words, since a child
//!    that this one is just starting has the same descriptor until its exec. A folder that is
//!    opened to read takes no lock, and nothing in it can be changed.
//! 3. Folders that are made have mode 0700, files 0600.
//! 4. What is long and lies on blocks, in the file and in memory, goes to the disk past the page
//!    cache: a MiB that the cache has no pages for costs up to 1.6 ms of this thread's time there,
//!    and 0.08 ms here. Where that can't be done, it goes through the cache.
//!
//! Any thread.

use crate::error::LogError;
use crate::format::layout::BLOCK_BYTES;
use crate::format::names::LOCK;
use crate::storage::aligned::ALIGN;
#[cfg(feature = "simulation")]
use crate::storage::simulated::wait_while_held;
use crate::storage::{Chance, Clock, Storage, StoredFile, write_all_at};
use rustix::fs::{Access, AtFlags, CWD, Dir, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::fs::{
    Advice, accessat, fadvise, fallocate, fdatasync, flock, fstat, fstatfs, fsync, ftruncate,
};
use rustix::fs::{fcntl_getfl, open, openat, renameat, unlinkat};
use rustix::io::{Errno, pread, pwrite};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where the kernel tells the id of the machine's boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The folder itself, in errors.
const HERE: &str = ".";
/// Mode of files that are made.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// From so many bytes on, the way past the page cache is the cheaper one.
const DIRECT_BYTES: usize = 256 << 10;
/// Most bytes of the lock's text that are read: a process id.
const LOCK_BYTES_MOST: usize = 20;

/// A folder of real files.
#[derive(Debug)]
pub struct RealFolder {
    folder: OwnedFd,
    /// `None`: opened to read.
    lock: Option<RealFile>,
    /// The process that took the lock: a fork of it must leave it alone.
    pid: u32,
}

/// A real file.
#[derive(Debug)]
pub struct RealFile {
    file: OwnedFd,
    /// The same file, past the page cache; `None` if that can't be had. Opened when it is needed.
    direct: OnceLock<Option<OwnedFd>>,
}

impl RealFile {
    fn new(file: OwnedFd) -> RealFile {
        RealFile { file, direct: OnceLock::new() }
    }

    /// The file past the page cache, for bytes that go or come that way.
    fn direct_for(&self, position: u64, memory: &[u8]) -> Option<&OwnedFd> {
        let is_on_block =
            position.is_multiple_of(BLOCK_BYTES) && memory.as_ptr().addr().is_multiple_of(ALIGN);
        if memory.len() < DIRECT_BYTES || !is_on_block {
            return None;
        }
        let direct = self.direct.get_or_init(|| {
            let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let rights = fcntl_getfl(&self.file).ok()? & OFlags::RWMODE;
            open(same, rights | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()
        });
        direct.as_ref()
    }
}

/// So many bytes without those behind the last whole block.
fn whole_blocks(bytes: usize) -> usize {
    bytes / ALIGN * ALIGN
}

/// On what a folder lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemKind {
    /// A file system of this machine.
    Local,
    /// Memory: what is in it doesn't survive the machine.
    Memory,
    /// Another machine's, or one of a program: there `flock` is no promise.
    Remote,
}

impl RealFolder {
    /// Opens a folder and takes it for this process; makes it if `create` says so.
    ///
    /// # Errors
    /// `InUse`; `Io` if it isn't there, or can't be written.
    pub fn open(path: &Path, create: bool) -> Result<RealFolder, LogError> {
        if create && !path.is_dir() {
            make(path)?;
        }
        let folder = open_folder(path)?;
        let rights = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
        accessat(&folder, HERE, rights, AtFlags::EACCESS)
            .or_else(|error| if error == Errno::NOSYS { Ok(()) } else { Err(error) })
            .map_err(|error| LogError::io(HERE, 0, "opening the folder to write", error.into()))?;
        let lock = take_lock(&folder)?;
        Ok(RealFolder { folder, lock: Some(lock), pid: std::process::id() })
    }

    /// Opens a folder to read, in any process: it takes no lock, and changes nothing.
    ///
    /// # Errors
    /// `Io` if it isn't there, or can't be read.
    pub fn open_to_read(path: &Path) -> Result<RealFolder, LogError> {
        Ok(RealFolder { folder: open_folder(path)?, lock: None, pid: std::process::id() })
    }

    /// The same folder to read, wherever it was renamed to: it doesn't keep this one's lock.
    ///
    /// # Errors
    /// `Io`: this process may have no more descriptors.
    pub fn to_read(&self) -> Result<RealFolder, LogError> {
        let folder = self.folder.try_clone();
        let folder = folder.map_err(|error| LogError::io(HERE, 0, "opening the folder", error))?;
        Ok(RealFolder { folder, lock: None, pid: self.pid })
    }

    /// On what it lies.
    ///
    /// # Errors
    /// As the system says.
    pub fn file_system(&self) -> Result<FileSystemKind, LogError> {
        let stated = fstatfs(&self.folder);
        let stated = stated
            .map_err(|error| LogError::io(HERE, 0, "asking for the file system", error.into()))?;
        Ok(kind_of(stated.f_type & 0xFFFF_FFFF))
    }

    /// Which file system it lies on: two folders with one number are on the same.
    ///
    /// # Errors
    /// As the system says.
    pub fn device(&self) -> Result<u64, LogError> {
        let stated = fstat(&self.folder);
        stated
            .map(|s| s.st_dev)
            .map_err(|error| LogError::io(HERE, 0, "asking for the file system", error.into()))
    }

    fn refuse_if_read_only(&self) -> io::Result<()> {
        if self.lock.is_some() { Ok(()) } else { Err(Errno::ROFS.into()) }
    }
}

impl Drop for RealFolder {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.as_ref().filter(|_| self.pid == std::process::id()) {
            // Closing does the same, when no child has the descriptor.
            let _ = flock(&lock.file, FlockOperation::Unlock);
        }
    }
}

/// The kind of a file system by its magic number (`statfs(2)`, `linux/magic.h`).
fn kind_of(magic: i64) -> FileSystemKind {
    match magic {
        // tmpfs, ramfs.
        0x0102_1994 | 0x8584_58F6 => FileSystemKind::Memory,
        // NFS, SMB, CIFS, SMB2, Ceph, AFS and its kernel's, Coda, 9P, FUSE, OCFS2, GFS2, Lustre,
        // GPFS, VirtualBox.
        0x6969 | 0x517B | 0xFF53_4D42 | 0xFE53_4D42 | 0x00C3_6400 | 0x5346_414F | 0x6B41_4653
        | 0x7375_7245 | 0x0102_1997 | 0x6573_5546 | 0x7461_636F | 0x0116_1970 | 0x0BD0_0BD0
        | 0x4750_4653 | 0x786F_4256 => FileSystemKind::Remote,
        _ => FileSystemKind::Local,
    }
}

/// Makes a folder, and those above it that aren't there, and their names durable.
fn make(path: &Path) -> Result<(), LogError> {
    let made = make_names(path).and_then(|above| {
        above.iter().try_for_each(|it| {
            Ok(fsync(openat(CWD, it.as_path(), folder_flags(), Mode::empty())?)?)
        })
    });
    made.map_err(|error| LogError::io(HERE, 0, "making the folder", error))
}

/// The same without the last part: returns the folders that have got a name, the deepest first.
fn make_names(path: &Path) -> io::Result<Vec<PathBuf>> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find(|above| above.is_dir()).unwrap_or(&path).canonicalize()?;
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&path)?;
    let whole = path.canonicalize()?;
    let above = whole.ancestors().skip(1).enumerate();
    let changed = above.take_while(|(n, it)| *n == 0 || it.starts_with(&there));
    Ok(changed.map(|(_, it)| it.to_owned()).collect())
}

const fn folder_flags() -> OFlags {
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC)
}

fn open_folder(path: &Path) -> Result<OwnedFd, LogError> {
    openat(CWD, path, folder_flags(), Mode::empty())
        .map_err(|error| LogError::io(HERE, 0, "opening the folder", error.into()))
}

/// Takes the lock, and writes this process's id into it.
fn take_lock(folder: &OwnedFd) -> Result<RealFile, LogError> {
    let io = |doing| move |error: io::Error| LogError::io(LOCK, 0, doing, error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(folder, LOCK, flags, FILE_MODE);
    let lock = RealFile::new(opened.map_err(|e| io("opening the lock")(e.into()))?);
    match flock(&lock.file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(LogError::InUse { pid: holder(&lock) }),
        Err(error) => return Err(io("taking the lock")(error.into())),
    }
    // A start that was refused may have removed the file since it was opened, and the folder too.
    if lock.links().map_err(io("taking the lock"))? == 0 {
        return Err(LogError::InUse { pid: holder(&lock) });
    }
    ftruncate(&lock.file, 0).map_err(|e| io("writing the lock")(e.into()))?;
    let pid = format!("{}\n", std::process::id());
    write_all_at(&lock, 0, pid.as_bytes()).map_err(io("writing the lock"))?;
    Ok(lock)
}

/// The process id in a lock's text: whatever else stands there isn't repeated.
fn holder(lock: &RealFile) -> String {
    let mut text = [0; LOCK_BYTES_MOST];
    let read = lock.read_at(0, &mut text).unwrap_or(0);
    let digits: String = text
        .iter()
        .take(read)
        .take_while(|byte| byte.is_ascii_digit())
        .map(|&byte| char::from(byte))
        .collect();
    if digits.is_empty() { "unknown".into() } else { digits }
}

impl Storage for RealFolder {
    type File = RealFile;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder)? {
            let entry = entry?;
            // A name that isn't UTF-8 is none of ours; shown as it can be.
            let name = entry.file_name().to_string_lossy();
            if name != HERE && name != ".." {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Option<RealFile>> {
        // A look doesn't wait at a pipe that somebody has given the name.
        let look = OFlags::RDONLY | OFlags::NONBLOCK;
        let rights = if self.lock.is_some() { OFlags::RDWR } else { look };
        let flags = rights | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(RealFile::new(file))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Another name of the file that was there keeps its bytes.
    fn create(&self, name: &str) -> io::Result<RealFile> {
        self.remove(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(RealFile::new(openat(&self.folder, name, flags, FILE_MODE)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.refuse_if_read_only()?;
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.refuse_if_read_only()?;
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_folder(&self) -> io::Result<()> {
        Ok(fsync(&self.folder)?)
    }
}

impl StoredFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        let bytes = fstat(&self.file)?.st_size;
        u64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    #[allow(clippy::useless_conversion, reason = "its width is the machine's")]
    fn links(&self) -> io::Result<u64> {
        Ok(u64::from(fstat(&self.file)?.st_nlink))
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        if let Some(direct) = self.direct_for(position, into) {
            let whole = whole_blocks(into.len());
            match pread(direct, into.get_mut(..whole).unwrap_or_default(), position) {
                // The disk wants more than blocks; or what is behind the last whole one.
                Err(Errno::INVAL) | Ok(0) => {}
                done => return Ok(done?),
            }
        }
        Ok(pread(&self.file, into, position)?)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        if let Some(direct) = self.direct_for(position, bytes) {
            let whole = bytes.get(..whole_blocks(bytes.len())).unwrap_or_default();
            match pwrite(direct, whole, position) {
                // The disk wants more than blocks.
                Err(Errno::INVAL) => {}
                done => return Ok(done?),
            }
        }
        Ok(pwrite(&self.file, bytes, position)?)
    }

    /// A file that is longer stays so. Where the file system can't set space aside, only the
    /// length is set.
    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        loop {
            match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) if self.len()? < bytes => {
                    ftruncate(&self.file, bytes)?;
                    return Ok(false);
                }
                Err(Errno::OPNOTSUPP) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn forget_cached(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn sync_data(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        wait_while_held(&self.file);
        Ok(fdatasync(&self.file)?)
    }

    fn sync_all(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        wait_while_held(&self.file);
        Ok(fsync(&self.file)?)
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct RealClock {
    begun: Instant,
}

impl RealClock {
    /// Its rising time begins now.
    #[must_use]
    pub fn new() -> RealClock {
        RealClock { begun: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> RealClock {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn unix_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn rising_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// The id of the machine's boot: what lies in a tmpfs is of this boot, or it isn't there any more.
///
/// # Errors
/// The system doesn't tell it.
pub fn boot_id() -> io::Result<[u8; 16]> {
    let told = |error: io::Error| io::Error::new(error.kind(), format!("{BOOT_ID}: {error}"));
    let text = std::fs::read_to_string(BOOT_ID).map_err(told)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).map(u128::to_be_bytes);
    id.map_err(|_| told(io::Error::other(format!("no id of the boot: {text:?}"))))
}

/// The system's random bits.
#[derive(Debug, Default)]
pub struct RealChance;

impl Chance for RealChance {
    /// # Panics
    /// If the system has no `getrandom`: then no secret can be chosen.
    fn word(&self) -> u64 {
        let mut bytes = [0; 8];
        loop {
            // The system gives up to 256 bytes whole, or is interrupted before the first.
            match getrandom(&mut bytes, GetRandomFlags::empty()) {
                Ok(8) => return u64::from_le_bytes(bytes),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("the system has no random bits: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_free_once_it_is_closed_though_a_child_has_its_descriptors_yet() {
        // Between fork and exec, a child that another thread started held the lock: a database that
        // was closed and opened again was said to be open elsewhere.
        let dir = tempfile::tempdir().expect("a folder");
        let folder = RealFolder::open(dir.path(), true).expect("it is free");
        let lock = folder.lock.as_ref().expect("a lock");
        let childs = lock.file.try_clone().expect("a descriptor");
        assert!(matches!(RealFolder::open(dir.path(), true), Err(LogError::InUse { .. })));
        drop(folder);
        drop(RealFolder::open(dir.path(), true).expect("it is free again"));
        drop(childs);
    }

    #[test]
    fn each_folder_that_is_made_has_its_name_synced() {
        // Of `new/some/log` only `some` was synced, which has the name `log`. A power cut could
        // take the name `new`, and a log whose strong writes were answered.
        let dir = tempfile::tempdir().expect("a folder");
        let above = dir.path().canonicalize().expect("it is there");
        let made = make_names(&dir.path().join("new/some/log")).expect("it can be made");
        assert_eq!(made, [above.join("new/some"), above.join("new"), above.clone()]);
        let made = make_names(&dir.path().join("new/other")).expect("it can be made");
        assert_eq!(made, [above.join("new")]);
        let made = make_names(&dir.path().join("new/gone/../../beside")).expect("it can be made");
        assert_eq!(made, [above]);
    }
}
