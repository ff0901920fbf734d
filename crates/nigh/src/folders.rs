//! Where a database lies: its folder on disk, and its folder in memory.
//!
//! ```text
//! the database's folder   the log, and `lock`
//! the memory folder       the journals, `lock`, and the arenas, whose names go when the database is
//!                         open, unless it is shared: /dev/shm/nigh-ID-DEVICE-INODE
//! ```
//!
//! 1. Both are locked before anything in them is looked at, and as long as the database is open.
//! 2. The memory folder is named after the log's id and the database's folder itself, not after its
//!    path: a folder that was moved finds its memory; a copy doesn't, nor a new database in the
//!    place of one that was removed. So a new log gets its id first.
//! 3. A lock counts only while its file has its name: what is removed with its folder was locked
//!    before.
//! 4. The memory folder that a database has by default says in `database` where that lies, so that
//!    others find out that it was removed (`leftovers.rs`).
//! 5. The memory folder is this user's, with mode 0700: others can't put anything into it. A folder
//!    that has other files, and the tmpfs itself, is never made one; the mode changes only behind
//!    the lock.
//!
//! The thread that opens or closes.

use crate::error::OpenError;
use crate::options::{LogRoom, Options};
use nigh_log::{
    LogError, Meta, MetaFault, RealChance, RealClock, RealFolder, Secret, World, list, need_meta,
    read_meta, save_meta,
};
use nigh_shm::{HeaderInfo, MOST_PARTITIONS, header_of, journal_path};
use nigh_store::{TMPFS, is_tmpfs, partitions_of};
use rustix::fs::{OFlags, statvfs};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata, Permissions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The file that is locked in the memory folder; a server locks the same.
pub(crate) const LOCK: &str = "lock";
/// The file in the memory folder that has the path of the database's folder.
pub(crate) const RECORD: &str = "database";
/// The file in it that is as old as the finding that the database is gone.
pub(crate) const GONE: &str = "gone";
/// What the names of memory folders begin with.
pub(crate) const NAME: &str = "nigh-";
/// Longest wait for a lock: another process that looks whether the folder is a leftover has it for
/// less.
const LOCK_WAIT: Duration = Duration::from_millis(200);
/// Between two tries.
const LOCK_STEP: Duration = Duration::from_millis(2);
/// Where the kernel tells how much memory is free.
const MEMINFO: &str = "/proc/meminfo";
/// Free memory if the kernel doesn't tell: enough for a small database.
const FREE_BYTES: u64 = 1 << 30;

/// The folders of a database that this process holds.
pub(crate) struct DbFolders {
    pub(crate) path: PathBuf,
    pub(crate) memory: PathBuf,
    pub(crate) world: World<RealFolder>,
    lock: MemoryLock,
}

/// The lock of a memory folder. Closing its file doesn't give it back while a fork's child has the
/// file, too; so it is given back in words, unless this is that child.
struct MemoryLock {
    file: File,
    pid: u32,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            let _ = self.file.unlock();
        }
    }
}

impl DbFolders {
    /// Makes the folders that aren't there, and takes them.
    pub(crate) fn take(path: &Path, options: &Options) -> Result<DbFolders, OpenError> {
        let told = |doing| {
            let path = path.to_owned();
            move |source| OpenError::Folder { path, doing, source }
        };
        if path.as_os_str().is_empty() {
            return Err(OpenError::NoPath);
        }
        let path = std::path::absolute(path).map_err(told("finding it"))?;
        if path.exists() && !path.is_dir() {
            return Err(OpenError::NotAFolder { path });
        }
        let real = RealFolder::open(&path, true);
        let real = real.map_err(|error| OpenError::of_log(path.clone(), error))?;
        let world = World {
            storage: Arc::new(real),
            clock: Arc::new(RealClock::new()),
            chance: Arc::new(RealChance),
        };
        let memory = match &options.memory_dir {
            Some(dir) => std::path::absolute(dir).map_err(told("finding its memory folder"))?,
            None => {
                let id = log_id(&world);
                let id = id.map_err(|error| OpenError::of_log(path.clone(), error))?;
                let it = path.metadata().map_err(told("looking at it"))?;
                memory_folder(&id, &it)
            }
        };
        let lock = take_memory(&memory)?;
        if options.memory_dir.is_none() {
            let real = path.canonicalize();
            real.and_then(|real| record(&memory, &real)).map_err(|source| {
                let path = memory.clone();
                OpenError::Folder { path, doing: "noting whose it is", source }
            })?;
        }
        Ok(DbFolders { path, memory, world, lock })
    }

    /// The database can't be opened: a memory folder in which nothing is goes.
    pub(crate) fn undo(self) {
        self.remove_unborn();
        let there = self.memory.read_dir().into_iter().flatten().flatten();
        let mut others = there.filter(|it| it.file_name() != LOCK && it.file_name() != RECORD);
        if others.next().is_none() {
            remove_folder(&self.memory);
        }
        drop(self.lock);
    }

    /// What journals and log files may take.
    pub(crate) fn log_room(&self) -> LogRoom {
        let shards = 0..u32::try_from(MOST_PARTITIONS).unwrap_or(0);
        let journals = shards.map(|shard| journal_path(&self.memory, shard));
        let files = self.path.read_dir().into_iter().flatten().flatten().map(|it| it.path());
        let files = files.filter(|it| it.to_string_lossy().contains(".log"));
        LogRoom {
            memory_bytes: room_for(&self.memory, journals),
            disk_bytes: room_for(&self.path, files),
        }
    }

    /// The number of partitions that the database has; `None` if it is new.
    pub(crate) fn partitions(&self) -> Result<Option<usize>, OpenError> {
        let meta = read_meta(&*self.world.storage);
        let meta = meta.map_err(|error| OpenError::of_log(self.path.clone(), error))?;
        Ok(meta.as_ref().and_then(partitions_of))
    }

    /// Removes the arenas of an open that would have made the database, and didn't come to its end:
    /// nothing was ever written to them, and the next one may want another number of partitions.
    pub(crate) fn remove_unborn(&self) {
        let Ok(Some(meta)) = read_meta(&*self.world.storage) else { return };
        if partitions_of(&meta).is_some() {
            return;
        }
        let there = self.memory.read_dir().into_iter().flatten().flatten().map(|it| it.path());
        let is_arena = |it: &PathBuf| it.extension() == Some(OsStr::new("arena"));
        let arenas: Vec<PathBuf> = there.filter(is_arena).collect();
        let is_unborn =
            |it: &HeaderInfo| it.begun_lsn == 0 && [[0; 16], meta.id].contains(&it.log_id);
        if arenas.iter().all(|it| header_of(it).is_ok_and(|it| is_unborn(&it))) {
            // One that stays refuses the open, and is named.
            arenas.iter().for_each(|it| _ = std::fs::remove_file(it));
        }
    }

    /// Gives the memory back, but for the arenas, which are gone. The log has all that was there.
    pub(crate) fn remove_memory(self, partitions: u32) {
        for partition in 0..partitions {
            // What can't be removed is taken over, or replaced, by the next open.
            let _ = std::fs::remove_file(journal_path(&self.memory, partition));
        }
        remove_folder(&self.memory);
        drop(self.lock);
    }
}

/// The memory folder of a database whose options name none.
pub(crate) fn memory_folder(id: &[u8; 16], folder: &Metadata) -> PathBuf {
    let (id, device, inode) = (u128::from_be_bytes(*id), folder.dev(), folder.ino());
    Path::new(TMPFS).join(format!("{NAME}{id:032x}-{device:x}-{inode:x}"))
}

/// Removes a memory folder that is locked here, and in which nothing else is.
pub(crate) fn remove_folder(memory: &Path) {
    // The lock last: until then nobody else looks at the folder.
    for name in [GONE, RECORD, LOCK] {
        let _ = std::fs::remove_file(memory.join(name));
    }
    let _ = std::fs::remove_dir(memory);
}

/// Notes in the memory folder where its database lies.
fn record(memory: &Path, path: &Path) -> io::Result<()> {
    let _ = std::fs::remove_file(memory.join(GONE));
    let (file, bytes) = (memory.join(RECORD), path.as_os_str().as_bytes());
    if std::fs::read(&file).is_ok_and(|it| it == bytes) {
        return Ok(());
    }
    std::fs::write(file, bytes)
}

/// The id of the folder's log. One that isn't there gets it now, and counts only later.
fn log_id(world: &World<RealFolder>) -> Result<[u8; 16], LogError> {
    let storage = &*world.storage;
    if let Some(meta) = read_meta(storage)? {
        return Ok(meta.id);
    }
    need_meta(&list(storage)?, None)?;
    let random = || {
        let (a, b) = (world.chance.word(), world.chance.word());
        (u128::from(a) | u128::from(b) << 64).to_le_bytes()
    };
    let meta = Meta::new(random(), Secret(random()));
    save_meta(storage, &meta).map_err(|fault| match fault {
        MetaFault::Unchanged(error) | MetaFault::InDoubt(error) => error,
    })?;
    Ok(meta.id)
}

/// Makes the memory folder if it isn't there, and locks it.
fn take_memory(path: &Path) -> Result<MemoryLock, OpenError> {
    let begin = Instant::now();
    loop {
        if let Some(lock) = try_take_memory(path)? {
            return Ok(lock);
        }
        if begin.elapsed() >= LOCK_WAIT {
            return Err(OpenError::MemoryInUse { path: path.to_owned() });
        }
        std::thread::sleep(LOCK_STEP);
    }
}

/// The same; `None` if somebody else has it, or has just removed it.
fn try_take_memory(path: &Path) -> Result<Option<MemoryLock>, OpenError> {
    let told = |doing| move |source| OpenError::Folder { path: path.to_owned(), doing, source };
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(OpenError::NotAFolder { path: path.to_owned() });
        }
        made => made.map_err(told("making it"))?,
    }
    let there = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        there => there.map_err(told("looking at it"))?,
    };
    let own = rustix::process::geteuid().as_raw();
    if there.uid() != own {
        return Err(OpenError::OtherUser { path: path.to_owned(), owner: there.uid(), own });
    }
    if is_tmpfs(path) {
        return Err(OpenError::WholeTmpfs { path: path.to_owned() });
    }
    if has_others_files(path).map_err(told("looking into it"))? {
        return Err(OpenError::OtherFiles { path: path.to_owned() });
    }
    let file = path.join(LOCK);
    // The folder may still be open to others: a link or a pipe of theirs is none.
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = match rustix::fs::open(&file, flags, 0o600.into()).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lock => File::from(lock.map_err(told("opening its lock"))?),
    };
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(source)) => return Err(told("locking it")(source)),
    }
    let lock = MemoryLock { file: lock, pid: std::process::id() };
    if !has_name(&lock.file, &file) {
        return Ok(None);
    }
    if there.mode() & 0o077 != 0 {
        let mode = Permissions::from_mode(0o700);
        std::fs::set_permissions(path, mode).map_err(told("closing it to others"))?;
    }
    Ok(Some(lock))
}

/// Whether a folder has files, and neither lock nor arena: it is somebody's, `/tmp` for example,
/// and must not be closed to others. A memory folder has its lock before anything else, and longer.
fn has_others_files(folder: &Path) -> io::Result<bool> {
    let mut has_any = false;
    for entry in folder.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let has_name = name == LOCK || Path::new(&name).extension() == Some(OsStr::new("arena"));
        if has_name && entry.file_type()?.is_file() {
            return Ok(false);
        }
        has_any = true;
    }
    Ok(has_any)
}

/// Whether a path names the file that is open.
pub(crate) fn has_name(file: &File, path: &Path) -> bool {
    let identity = |it: Metadata| (it.dev(), it.ino());
    let (open, named) = (file.metadata().map(identity), path.symlink_metadata().map(identity));
    open.is_ok_and(|open| named.is_ok_and(|named| named == open))
}

/// What is free where a folder lies, and what these files of it have already.
fn room_for(folder: &Path, files: impl Iterator<Item = PathBuf>) -> u64 {
    // Some file systems don't tell.
    let told = statvfs(folder).ok().filter(|it| it.f_blocks > 0);
    let free = told.map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize));
    free.saturating_add(files.filter_map(|it| it.metadata().ok()).map(|it| it.len()).sum())
}

/// Bytes of memory that are free in this machine.
pub(crate) fn free_bytes() -> u64 {
    let text = std::fs::read_to_string(MEMINFO).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.map_or(FREE_BYTES, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody names `/run`, as root, which has a folder `lock`. It passed for a memory folder's
    /// lock: `/run` was closed to all other users before the open was refused.
    #[test]
    fn a_folder_named_lock_is_no_lock() {
        let dir = tempfile::tempdir().expect("a folder");
        let theirs = dir.path().join("run");
        std::fs::create_dir_all(theirs.join(LOCK)).expect("folders");
        std::fs::set_permissions(&theirs, Permissions::from_mode(0o755)).expect("it is ours");
        let error = take_memory(&theirs).err().expect("it is refused");
        assert!(matches!(error, OpenError::OtherFiles { .. }), "{error}");
        assert_eq!(theirs.metadata().expect("it is there").mode() & 0o777, 0o755);
    }
}
