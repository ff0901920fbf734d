//! The folder of the arenas: where it is, its lock, and how much may lie in it.
//!
//! 1. A server holds an exclusive lock on the file `lock` in its folder for as long as it runs, so
//!    a second one on the same folder is refused. The lock dies with the process.
//! 2. The folder has mode 0700. One that has other files, such as `/tmp`, and the tmpfs itself, is
//!    never made such a folder; the mode changes only behind the lock.
//! 3. A start that is refused before it has made a file leaves no folder that wasn't there.
//!
//! Called by the thread that starts the server.

use crate::config::Config;
use crate::error::ServeError;
use crate::folder::cgroup::MemoryLimit;
use crate::folder::leftover::{self, LOCK_FILE, LeftoverError, is_same, lock, remove_leftover};
use crate::folder::log_folder::refuse_other_users;
use crate::folder::room::{Needs, look_at_file_system, look_at_limit};
use crate::folder::starts::Skips;
use crate::folder::verify::arenas_in;
use nigh_log::{FileSystemKind, RealFolder};
use nigh_shm::layout::CAPACITY_MAX;
use nigh_store::{arena_of_name, is_tmpfs};
use std::fs::{DirBuilder, DirEntry, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Least memory of a data arena: segments of 128 KiB, two in reserve, and an index.
const LEAST_CAPACITY_BYTES: u64 = 8 << 20;
/// Most memory of a data arena, as its format says.
const MOST_CAPACITY_BYTES: u64 = CAPACITY_MAX;

/// A folder that this process holds.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    lock: File,
    /// Whether it wasn't there before.
    is_made: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_made {
            self.remove_empty();
        }
    }
}

impl Folder {
    /// Makes the folder if it is missing, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, ServeError> {
        let folder_error = |cause| ServeError::folder(path, cause);
        if leftover::has_its_name(path) {
            return Err(ServeError::ConversionName { path: path.to_owned() });
        }
        let is_made = !path.exists();
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(folder_error)?;
        refuse_other_users(path, |name| arena_of_name(name).is_some(), "--shm-dir")?;
        if is_tmpfs(path) {
            return Err(ServeError::WholeTmpfs { path: path.to_owned() });
        }
        if has_others_files(path).map_err(folder_error)? {
            return Err(ServeError::OtherFiles { path: path.to_owned() });
        }
        let file = path.join(LOCK_FILE);
        let folder = match lock(path) {
            // `nigh convert` may have put another folder here since the file was opened.
            Ok(lock) if is_file_at(&lock, &file) => Self { path: path.to_owned(), lock, is_made },
            Err(LeftoverError::System { cause, .. }) => return Err(folder_error(cause)),
            Ok(_) | Err(_) => return Err(ServeError::FolderInUse { path: path.to_owned() }),
        };
        if let Err(cause) = std::fs::set_permissions(path, Permissions::from_mode(0o700)) {
            // It is another user's, and gets no file of ours.
            let _ = std::fs::remove_file(file);
            return Err(folder_error(cause));
        }
        Ok(folder)
    }

    /// Notes where the arenas' log lies, for the message of a start that doesn't find it.
    pub(crate) fn note_log(&self, dir: &Path) {
        // Without it, that message is shorter.
        let noted = self.lock.set_len(0);
        let _ = noted.and_then(|()| self.lock.write_all_at(dir.as_os_str().as_bytes(), 0));
    }

    /// Removes what a conversion left beside it that was cut off: as much memory as the data. What
    /// can't go is told, and keeps nobody from serving.
    pub(crate) fn remove_leftover(&self) {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        match remove_leftover(&path) {
            Ok(false) => {}
            Ok(true) => tracing::info!(
                "removed what a conversion left beside {} when it was cut off",
                path.display()
            ),
            Err(error) => tracing::warn!(%error, "what a conversion left takes memory"),
        }
    }

    /// Says in the log what it means that the folder is in no tmpfs.
    pub(crate) fn warn_if_on_disk(&self) {
        if self.is_in_memory() == Some(false) {
            tracing::warn!(
                dir = %self.path.display(),
                "the arenas are on a disk, not in a tmpfs: writing them back costs speed; they survive \
                 the end of the server as ever, but a crash of the machine may leave them torn; \
                 --shm-dir chooses a folder in /dev/shm"
            );
        }
    }

    /// Whether the folder's file system lives in memory alone; `None` if the system doesn't tell.
    fn is_in_memory(&self) -> Option<bool> {
        let folder = RealFolder::open_to_read(&self.path).ok()?;
        Some(folder.file_system().ok()? == FileSystemKind::Memory)
    }

    /// Removes the lock file and the folder, if nothing else is in it.
    pub(crate) fn remove(mut self) {
        // Once it is gone, another server may make it.
        self.is_made = false;
        if let Ok(skips) = Skips::open(&self.path) {
            skips.forget_all();
        }
        let _ = std::fs::remove_file(self.path.join(LOCK_FILE));
        let _ = std::fs::remove_dir(&self.path);
    }

    /// The same if there is only the lock file.
    fn remove_empty(&self) {
        let Ok(there) = self.path.read_dir() else { return };
        let is_lock = |it: io::Result<DirEntry>| it.is_ok_and(|it| it.file_name() == LOCK_FILE);
        if there.into_iter().all(is_lock) {
            let _ = std::fs::remove_file(self.path.join(LOCK_FILE));
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// Bytes that the arenas may use: the setting, or half of the available memory; at most
    /// [`MOST_CAPACITY_BYTES`] for each partition. New arenas may use no more than the file system
    /// and the limit of the control groups have, beside journals and process; those that an earlier
    /// server left are adopted with what they hold, whatever is free beside.
    pub(crate) fn capacity_bytes(
        &self,
        config: &Config,
        needs: Needs,
        limit: Option<&MemoryLimit>,
    ) -> Result<u64, ServeError> {
        let stat = rustix::fs::statvfs(&self.path)
            .map_err(|error| ServeError::folder(&self.path, error.into()))?;
        let partitions = config.unsigned("partitions");
        let held = self.held_bytes();
        let free = stat.f_bavail * stat.f_frsize + held;
        let usable = free.saturating_sub(needs.beside_arenas());
        let (least, most) = (LEAST_CAPACITY_BYTES * partitions, MOST_CAPACITY_BYTES * partitions);
        let is_automatic = config.unsigned("maxmemory") == 0;
        let wanted = match config.unsigned("maxmemory") {
            0 => {
                let available = meminfo_bytes("MemAvailable").unwrap_or(free) + held;
                let limited = limit.map_or(u64::MAX, |limit| limit.bytes);
                let under_limit = limited.saturating_sub(needs.beside_arenas() + needs.process);
                (available.min(limited) / 2).min(under_limit).min(usable).min(most)
            }
            bytes if bytes < least => {
                return Err(ServeError::Setting(format!(
                    "maxmemory must be at least {}mb, or 0 for half of what is available",
                    least >> 20
                )));
            }
            bytes if bytes > most => {
                return Err(ServeError::Setting(format!(
                    "maxmemory may be {}gb at most, with {partitions} partition(s) of at most {}gb: \
                     lower it, or raise --partitions",
                    most >> 30,
                    MOST_CAPACITY_BYTES >> 30
                )));
            }
            bytes => bytes,
        };
        let is_left = arenas_in(&self.path).is_ok_and(|arenas| !arenas.is_empty());
        let is_left = is_left && !config.flag("fresh");
        let wanted = if is_left && is_automatic { wanted.max(held) } else { wanted };
        let wanted = wanted.max(least);
        let in_files = look_at_file_system(&self.path, wanted, needs, free);
        let in_limit = look_at_limit(wanted, needs, limit);
        if !is_left {
            in_files?;
            if let Some(warning) = in_limit? {
                tracing::warn!("{warning}");
            }
            return Ok(wanted);
        }
        if in_files.is_err() {
            tracing::warn!(
                maxmemory = wanted,
                free = usable.saturating_sub(held),
                "the file system of {} has less free than the arenas may still take: what they hold is served, \
                 and what finds no memory will be refused; free some, or enlarge it",
                self.path.display()
            );
        }
        match in_limit {
            Ok(Some(warning)) => tracing::warn!("{warning}"),
            Err(warning) => tracing::warn!("{warning}"),
            Ok(None) => {}
        }
        Ok(wanted)
    }

    /// Bytes that files of the folder take already.
    fn held_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
    }
}

/// Whether an open file is still the one at a path.
fn is_file_at(file: &File, path: &Path) -> bool {
    let there = path.symlink_metadata();
    file.metadata().is_ok_and(|held| there.is_ok_and(|there| is_same(&held, &there)))
}

/// A line of /proc/meminfo, in bytes.
pub(crate) fn meminfo_bytes(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// Whether a folder has files, and neither the lock of a server, a journal nor an arena: it is
/// somebody's.
fn has_others_files(folder: &Path) -> io::Result<bool> {
    let mut has_any = false;
    for entry in folder.read_dir()? {
        let entry = entry?;
        let is_ours = |name: &str| {
            name == LOCK_FILE || name.starts_with("journal.") || arena_of_name(name).is_some()
        };
        if entry.file_name().to_str().is_some_and(is_ours) && entry.file_type()?.is_file() {
            return Ok(false);
        }
        has_any = true;
    }
    Ok(has_any)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LOG: Needs = Needs { journals: 0, process: 0 };

    fn path(name: &str) -> PathBuf {
        PathBuf::from(format!("/dev/shm/nigh-test-folder-{name}-{}", std::process::id()))
    }

    fn folder(name: &str) -> Folder {
        Folder::open(&path(name)).expect("the folder is free")
    }

    /// Somebody names `/tmp`, as root. It was closed to all other users, whose programs then
    /// failed.
    #[test]
    fn a_folder_of_others_stays_as_it_is() {
        let path = path("others");
        std::fs::create_dir(&path).expect("a folder");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        std::fs::write(path.join("notes"), b"text").expect("a file");
        let error = Folder::open(&path).expect_err("it is refused");
        assert!(matches!(error, ServeError::OtherFiles { .. }), "{error}");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o755);
        assert!(!path.join(LOCK_FILE).exists());
        std::fs::remove_file(path.join("notes")).expect("it is there");
        let taken = Folder::open(&path).expect("an empty one will do");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o700);
        taken.remove();
    }

    /// Somebody names `/run`, as root, which has a folder `lock`. It passed for a server's lock:
    /// `/run` was closed to all other users before the start was refused.
    #[test]
    fn a_folder_named_lock_is_no_lock() {
        let path = path("named-lock");
        std::fs::create_dir_all(path.join(LOCK_FILE)).expect("folders");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        let error = Folder::open(&path).expect_err("it is refused");
        let mode = path.metadata().expect("there").permissions().mode() & 0o777;
        std::fs::remove_dir_all(&path).expect("it is ours");
        assert!(matches!(error, ServeError::OtherFiles { .. }), "{error}");
        assert_eq!(mode, 0o755);
    }

    /// A server on `X.convert` lost its arenas to the next one on `X`, which took them for what a
    /// conversion had left.
    #[test]
    fn what_the_next_start_would_remove_isnt_served() {
        let path = path("name.convert").with_extension("convert");
        for path in [path.clone(), path.join("")] {
            let error = Folder::open(&path).expect_err("it is refused");
            assert!(matches!(error, ServeError::ConversionName { .. }), "{error}");
        }
        assert!(!path.exists());
    }

    /// A limit below what an arena needs is a wrong setting, whatever the tmpfs has.
    #[test]
    fn too_low_a_limit_is_refused_with_the_least() {
        let folder = folder("least");
        let mut config = Config::default();
        config.set("maxmemory", "1mb").expect("a size");
        let error =
            folder.capacity_bytes(&config, NO_LOG, None).expect_err("too little").to_string();
        assert!(error.starts_with("maxmemory must be at least 8mb"), "{error}");
        config.set("maxmemory", "8mb").expect("a size");
        let enough = folder.capacity_bytes(&config, NO_LOG, None).expect("enough");
        assert_eq!(enough, LEAST_CAPACITY_BYTES);
        folder.remove();
    }

    /// An arena reaches 64 GiB, and each partition has one. All together were held to that.
    #[test]
    fn a_limit_above_what_the_partitions_reach_is_refused() {
        let folder = folder("most");
        let mut config = Config::default();
        config.set("maxmemory", "100gb").expect("for two partitions");
        let error = folder.capacity_bytes(&config, NO_LOG, None).expect_err("one doesn't reach it");
        assert!(matches!(error, ServeError::Setting(_)), "{error}");
        for part in ["64gb at most", "1 partition(s)", "--partitions"] {
            assert!(error.to_string().contains(part), "{error}: {part}");
        }
        config.set("partitions", "2").expect("a number");
        let error = folder.capacity_bytes(&config, NO_LOG, None).expect_err("no machine has it");
        assert!(matches!(error, ServeError::TooLittleMemory { .. }), "{error}");
        config.set("maxmemory", "5000gb").expect_err("no partitions reach that");
        folder.remove();
    }

    /// Without a limit of one's own the arenas leave room for journals and process under that of
    /// the control group; an own one that can't fit is refused, if no data is there yet.
    #[test]
    fn the_limit_of_the_control_group_bounds_the_arenas() {
        let folder = folder("group");
        let needs = Needs { journals: 100 << 20, process: 100 << 20 };
        let limit = MemoryLimit { bytes: 256 << 20, file: "/x/memory.max".into() };
        let mut config = Config::default();
        let bytes = folder.capacity_bytes(&config, needs, Some(&limit)).expect("it fits");
        assert_eq!(bytes, 52 << 20, "less than half of the limit");
        config.set("maxmemory", "200mb").expect("a size");
        let error = folder.capacity_bytes(&config, needs, Some(&limit)).expect_err("it can't fit");
        assert!(error.to_string().contains("/x/memory.max"), "{error}");
        std::fs::write(folder.path.join("default.0.arena"), b"left").expect("a file");
        let bytes = folder.capacity_bytes(&config, needs, Some(&limit)).expect("it is served");
        assert_eq!(bytes, 200 << 20);
        let _ = std::fs::remove_file(folder.path.join("default.0.arena"));
        folder.remove();
    }

    /// Arenas outside of memory are served but warned about, so the two must be told apart.
    #[test]
    fn a_tmpfs_is_told_from_other_file_systems() {
        let path = path("tmpfs");
        let mut folder = Folder::open(&path).expect("the folder is free");
        assert_eq!(folder.is_in_memory(), Some(true));
        folder.path = PathBuf::from("/proc/self");
        assert_eq!(folder.is_in_memory(), Some(false));
        folder.path = path;
        folder.remove();
    }
}
