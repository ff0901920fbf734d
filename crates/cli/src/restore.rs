//! `nigh restore`: makes a log of a backup, in an empty folder, for a server without arenas.
//!
//! 1. The backup is only read, and locked meanwhile. It is verified before anything is written.
//! 2. The log gets a new id: arenas of the log that was backed up refuse it.
//! 3. If it fails or is interrupted, it leaves nothing of its own.

use crate::interrupt::Interrupt;
use crate::output::say;
use crate::render::thousands;
use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nigh_log::{
    BackupPhase, BackupProgress, RealChance, RealClock, RealFolder, World, restore_backup,
};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirEntry, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that is held locked in a log's folder.
const LOCK: &str = "lock";

/// Options of `nigh restore`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the backup
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Folder for the log, which is made or is empty: the --dir of a server that has no arenas yet
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Restores.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (from, to) = (args.backup.display(), args.dir.display());
    ensure!(args.backup.is_dir(), "there is no folder {from}: name that of a backup");
    let backup = RealFolder::open_to_read(&args.backup).with_context(|| from.to_string())?;
    let _held = hold(&args.backup)?;
    refuse_full(&args.dir)?;
    let stop = Interrupt::catch();
    let missing = missing_folders(&args.dir)?;
    let into = RealFolder::open(&args.dir, true);
    let into = into.inspect_err(|_| remove(&missing)).with_context(|| to.to_string())?;
    let world = World {
        storage: Arc::new(backup),
        clock: Arc::new(RealClock::new()),
        chance: Arc::new(RealChance),
    };
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{msg} {bytes} of {total_bytes}")?);
    let mut watch = |progress: &BackupProgress, _| {
        let is_copying = progress.phase == BackupPhase::Copying;
        bar.set_message(if is_copying { "copying" } else { "verifying" });
        bar.set_length(progress.all_bytes);
        bar.set_position(progress.done_bytes);
        !stop.is_wanted()
    };
    let restored = restore_backup(&world, &Arc::new(into), &mut watch);
    bar.finish_and_clear();
    let report = match restored {
        Ok(report) => report,
        Err(error) => {
            // The lock is all that is left; the maker of the folder removes it.
            let _ = std::fs::remove_file(args.dir.join(LOCK));
            remove(&missing);
            return Err(error).with_context(|| format!("{from}, into {to}"));
        }
    };
    say!("{to}: the log {:032x}", u128::from_be_bytes(report.id));
    let line = |what: &str, count: u64| say!("{what:<12} {:>15}", thousands(count as f64));
    line("files", report.files);
    line("bytes", report.bytes);
    Ok(())
}

/// The folder and those above it that aren't there, the deepest first.
fn missing_folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let whole = std::path::absolute(dir).with_context(|| dir.display().to_string())?;
    let missing = whole.ancestors().take_while(|it| !it.is_dir());
    Ok(missing.map(Path::to_owned).collect())
}

/// Removes folders that were made, unless somebody has put something there.
fn remove(folders: &[PathBuf]) {
    folders.iter().for_each(|it| _ = std::fs::remove_dir(it));
}

/// Refuses a folder with anything in it before a lock is made there. A lock alone is what a restore
/// leaves that was killed as it began.
fn refuse_full(dir: &Path) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return match dir.exists() {
            true => bail!("{} is no folder that can be read", dir.display()),
            false => Ok(()),
        };
    };
    let is_lock = |entry: &DirEntry| entry.file_name() == LOCK;
    match entries.into_iter().find(|entry| !entry.as_ref().is_ok_and(is_lock)) {
        None => Ok(()),
        Some(entry) => bail!(
            "{} isn't empty: it has {}; name a new folder",
            dir.display(),
            entry?.file_name().display()
        ),
    }
}

/// Holds a backup, so that none takes its place meanwhile; others may read it too.
fn hold(backup: &Path) -> Result<Option<File>> {
    let Ok(lock) = File::open(backup.join(LOCK)) else { return Ok(None) };
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!(
                "{} is in use: a backup into it is under way, or a server has it",
                backup.display()
            )
        }
        Err(error) => Err(error).with_context(|| format!("can't lock {}", backup.display())),
    }
}
