//! The log's folder: may it be one, and whose is it? Asked before anything in it is changed.
//!
//! 1. A folder that is refused is as it was, but for the text of the file `lock`; one that wasn't
//!    there isn't there afterwards.
//! 2. A refusal is one sentence that names the folder, and the settings that help. It speaks of
//!    `--appendonly no` only where no log is given up by that.
//!
//! Called by the thread that starts the server.

use crate::config::Config;
use crate::error::ServeError;
use crate::folder::leftover::LOCK_FILE;
use nigh_log::{FileSystemKind, LogError, RealFolder};
use nigh_store::{StoreError, log_of};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that says that a folder has a log.
const META: &str = "meta";
/// What helps if there is no log yet.
const OTHER_FOLDER: &str = "name another folder with --dir, or serve without a log by \
                            --appendonly no (then a reboot loses all data)";

/// A log's folder that this process holds.
#[derive(Debug)]
pub(crate) struct LogFolder {
    /// From the root on.
    pub(crate) path: PathBuf,
    pub(crate) real: RealFolder,
    /// What [`LogFolder::undo`] is to be given.
    pub(crate) is_made: bool,
}

impl LogFolder {
    /// Opens the folder that the setting `dir` names; makes it if arenas in `arenas` have no log.
    pub(crate) fn open(config: &Config, arenas: &Path) -> Result<Self, ServeError> {
        let path = path_of(config)?;
        let is_there = path.try_exists().unwrap_or(true);
        let log = log_of(arenas).map_err(|error| ServeError::Store(error.to_string()))?;
        let advice = if log.is_some() || path.join(META).exists() {
            "name the log's folder with --dir"
        } else {
            OTHER_FOLDER
        };
        if let Some(id) = log.filter(|_| !is_there) {
            let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
            let missing = StoreError::LogMissing { path: arenas.to_owned(), id };
            let (shown, was) = (path.display(), last_place(arenas, &path));
            return Err(ServeError::Store(format!(
                "{missing} ({shown}, by --dir, isn't there{was})"
            )));
        }
        // Both have a file `lock`, which this process holds already.
        if matches!((path.canonicalize(), arenas.canonicalize()), (Ok(a), Ok(b)) if a == b) {
            return Err(ServeError::Setting(format!(
                "the log and the arenas can't share the folder {}: name another with --dir or --shm-dir",
                path.display()
            )));
        }
        refuse_other_users(&path, |name| name == META, "--dir")?;
        refuse_file_system(config, &path, advice)?;
        let real = RealFolder::open(&path, true).map_err(|error| refused(&path, &error, advice))?;
        Ok(Self { path, real, is_made: !is_there })
    }

    /// Removes a folder that was made for a start which is refused then.
    pub(crate) fn undo(path: &Path, is_made: bool) {
        let entries = || std::fs::read_dir(path).into_iter().flatten().flatten();
        if is_made && entries().all(|entry| entry.file_name() == LOCK_FILE) {
            let _ = std::fs::remove_file(path.join(LOCK_FILE));
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// Where the log of arenas lay when a server had it last, as the end of a message; empty if that is
/// `dir`, or isn't known.
pub(crate) fn last_place(arenas: &Path, dir: &Path) -> String {
    let noted = std::fs::read(arenas.join(LOCK_FILE)).unwrap_or_default();
    let noted = Path::new(OsStr::from_bytes(&noted));
    if noted.is_absolute() && noted != dir {
        format!("; a server had it in {}", noted.display())
    } else {
        String::new()
    }
}

/// The folder of the setting `dir`, from the root on.
pub(crate) fn path_of(config: &Config) -> Result<PathBuf, ServeError> {
    let dir = config.text("dir");
    std::path::absolute(&dir)
        .map_err(|cause| ServeError::Setting(format!("the setting `dir` is {dir:?}: {cause}")))
}

/// Refuses a file system on which a log is no promise.
fn refuse_file_system(config: &Config, path: &Path, advice: &str) -> Result<(), ServeError> {
    // What isn't there will be on the file system of what it is made in.
    let Some(above) = path.ancestors().find(|above| above.is_dir()) else { return Ok(()) };
    let kind = RealFolder::open_to_read(above).and_then(|folder| folder.file_system());
    let (what, setting) = match kind.map_err(|error| refused(path, &error, advice))? {
        FileSystemKind::Memory => {
            ("it is in a tmpfs, which the end of the machine takes", "log-on-tmpfs")
        }
        FileSystemKind::Remote => (
            "it is in a file system that isn't of this machine, where two servers may get the \
             same folder",
            "log-any-filesystem",
        ),
        FileSystemKind::Local => return Ok(()),
    };
    if config.flag(setting) {
        return Ok(());
    }
    let path = path.display();
    Err(ServeError::Setting(format!(
        "the log can't be kept in {path}: {what}: {advice}; --{setting} yes allows it"
    )))
}

/// Refuses a folder with files of another user that `is_ours` knows by name: this process's new
/// files would keep that user's server from starting.
pub(crate) fn refuse_other_users(
    path: &Path,
    is_ours: impl Fn(&str) -> bool,
    flag: &str,
) -> Result<(), ServeError> {
    let own = rustix::process::geteuid().as_raw();
    let owner_of = |file: PathBuf| Some((file.symlink_metadata().ok()?.uid(), file));
    let mut owners = match std::fs::read_dir(path) {
        Ok(entries) => {
            let names = entries.flatten().map(|entry| entry.file_name());
            let ours = names.filter(|name| name.to_str().is_some_and(&is_ours));
            ours.filter_map(|name| owner_of(path.join(name))).collect()
        }
        // A folder that only its owner may look into.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Vec::from_iter(owner_of(path.to_owned()))
        }
        Err(_) => Vec::new(),
    };
    owners.retain(|(owner, _)| *owner != own);
    let Some((owner, file)) = owners.pop() else { return Ok(()) };
    let file = file.display();
    Err(ServeError::Setting(format!(
        "{file} belongs to user {owner}, and this server runs as user {own}: start it as user \
         {owner}, give all of the folder to user {own} (chown -R), or name another folder with \
         {flag}"
    )))
}

fn refused(path: &Path, error: &LogError, advice: &str) -> ServeError {
    let path = path.display();
    ServeError::Setting(match error {
        LogError::InUse { pid } => format!(
            "another server, process {pid}, has the log's folder {path}: stop it, or name another \
             folder with --dir"
        ),
        LogError::Io { doing, source, .. } => {
            format!("the log can't be kept in {path}: {doing} failed: {source}: {advice}")
        }
        error => format!("the log can't be kept in {path}: {error}"),
    })
}
