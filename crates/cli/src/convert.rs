//! `nigh convert` copies the data of a stopped server into new arenas: with other partitions, more
//! memory, or today's format.
//!
//! ```text
//! DIR           lock, arenas ──copy──┐        DIR           lock, new arenas
//! DIR.convert   lock, new arenas <───┘  swap  DIR.convert   lock, old arenas ──> removed
//! ```
//!
//! Invariants:
//! 1. The program holds the locks of both folders, as a server does, from the first change to the
//!    end.
//! 2. At every moment one whole set of arenas lies at DIR. One system call swaps the folders, and
//!    the program removes files only after it. So a DIR.convert that is left over holds nothing
//!    needed. The next conversion or the next server removes it (see `nigh_server::leftover`).

use crate::render::thousands;
use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nigh_server::leftover::{self, LOCK_FILE, is_same};
use nigh_shm::layout::VERSION;
use nigh_shm::{Domain, Participant, WriteError};
use nigh_store::{
    Copied, CopyError, Copying, DEFAULT_TENANT, Edition, Keyspace, Left, MANIFEST, MOST_PARTITIONS,
    NEW_MANIFEST, OldKeyspace, Refused, Source, StoreError, StoreOptions, copy_bytes, left_in,
    list_others, log_of,
};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use std::fs::{DirBuilder, DirEntry, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The end of an arena's file name.
const ARENA: &str = ".arena";
/// The end of the name of an arena that is still being made.
const UNMADE: &str = ".arena.new";
/// The file of the libraries, which all tenants share.
const SYSTEM: &str = "_system.0.arena";
/// Least memory of a partition: a server refuses less.
const LEAST_PARTITION_BYTES: u64 = 8 << 20;
/// Longest wait for memory that is on its way. It usually comes within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries while memory is on its way.
const PAUSE: Duration = Duration::from_micros(200);
/// A file system with less than this left is full: a partition asks for up to 64 slots of 1 MiB
/// ahead.
const FULL_BYTES: u64 = 8 << 20;

/// Options of `nigh convert`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of the arenas: the --shm-dir of the server, which is stopped
    #[arg(long, value_name = "DIR")]
    shm_dir: PathBuf,
    /// Partitions of the new arenas, 1 to 64 [default: as many as now]
    #[arg(long, value_name = "N")]
    partitions: Option<usize>,
    /// Memory that the new arenas are made for, such as 4gb [default: as much as now]. A server may
    /// use up to twice as much
    #[arg(long, value_name = "SIZE")]
    maxmemory: Option<String>,
    /// Tenant whose data is converted
    #[arg(long, default_value = DEFAULT_TENANT, value_name = "NAME")]
    tenant: String,
}

/// Converts.
pub(crate) fn run(args: &Args) -> Result<()> {
    run_by(args, Edition::of)
}

/// Converts; `edition_of` tells the edition of the folder's arenas.
fn run_by(args: &Args, edition_of: fn(&Path, &str) -> Result<Edition, StoreError>) -> Result<()> {
    let begin = Instant::now();
    if let Some(wanted) = args.partitions.filter(|n| !(1..=MOST_PARTITIONS).contains(n)) {
        return Err(StoreError::PartitionCount { wanted }.into());
    }
    let memory_bytes = args.maxmemory.as_deref().map(bytes_of).transpose()?;
    let dir = match args.shm_dir.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no folder {}: nothing to convert", args.shm_dir.display())
        }
        dir => dir.with_context(|| format!("can't use {}", args.shm_dir.display()))?,
    };
    let name = dir.display();
    let nothing =
        || format!("{name} holds no arenas of tenant {}: nothing to convert", args.tenant);
    let look = || -> Result<(Edition, Left)> {
        let edition = edition_of(&dir, &args.tenant)?;
        Ok((edition, left_in(&dir, &args.tenant, edition)?.with_context(nothing)?))
    };
    // It looks before it locks, so that it leaves no lock file where no server was.
    look()?;
    ensure!(
        log_of(&dir)?.is_none(),
        "the arenas in {name} have a log: start once with --appendonly no, which retires it, then \
         convert, then start with --appendonly yes"
    );
    let _held = hold(&dir)?;
    let beside = beside(&dir)?;
    leftover::remove_leftover(&dir)?;
    let (edition, left) = look()?;
    let is_old = edition == Edition::One;
    ensure!(
        is_old || args.partitions.is_some() || memory_bytes.is_some(),
        "nothing to do: say with --partitions or --maxmemory what the data is to have"
    );
    let mut wanted = left;
    wanted.partitions = args.partitions.unwrap_or(left.partitions);
    wanted.capacity_bytes = memory_bytes.unwrap_or(left.capacity_bytes);
    let least = LEAST_PARTITION_BYTES * wanted.partitions as u64;
    ensure!(
        memory_bytes.is_none_or(|bytes| bytes >= least),
        "--maxmemory is too little for {} partition(s): the least is 8mb for each",
        wanted.partitions
    );
    // The present limit of the arenas says nothing about the memory that they were made for.
    if wanted.partitions == left.partitions && memory_bytes.is_none() && !is_old {
        println!("{name}: nothing to do, the data has {} partition(s) already", left.partitions);
        return Ok(());
    }
    let copied = convert(&args.tenant, &dir, &beside, edition, [&left, &wanted])?;
    if is_old {
        println!("{name}: version 1 of the format before, {VERSION} now");
    }
    println!("{name}: {} partition(s) before, {} now", left.partitions, wanted.partitions);
    let line = |what: &str, count: u64| println!("{what:<12} {:>15}", thousands(count as f64));
    line("keys", copied.keys);
    if copied.expired > 0 {
        line("expired", copied.expired);
    }
    line("libraries", copied.libraries);
    if let Some(bytes) = memory_bytes {
        line("memory", bytes);
    }
    println!("{:<12} {:>15.2}", "seconds", begin.elapsed().as_secs_f64());
    Ok(())
}

/// The bytes of a size, which is written as for the server's setting.
fn bytes_of(text: &str) -> Result<u64> {
    let mut config = nigh_server::Config::default();
    config.set("maxmemory", text)?;
    Ok(config.unsigned("maxmemory"))
}

/// Copies the data of `dir`, of this edition, into the folder `beside`, and swaps the two.
fn convert(
    tenant: &str,
    dir: &Path,
    beside: &Path,
    edition: Edition,
    [left, wanted]: [&Left; 2],
) -> Result<Copied> {
    let mut options = StoreOptions::new(dir, left.capacity_bytes);
    tenant.clone_into(&mut options.tenant);
    options.partitions = left.partitions;
    let links = to_take_along(dir, tenant)?;
    let (copy, copied) = match edition {
        Edition::Living => {
            let domain = Domain::new(1);
            let (from, _) = Keyspace::open(&options, &domain)?;
            copy_to(beside, &options, (&from).into(), wanted, &domain)?
        }
        Edition::One => {
            let from = OldKeyspace::open(dir, tenant)?;
            copy_to(beside, &options, (&from).into(), wanted, &Domain::new(1))?
        }
    };
    list_others(dir, beside)?;
    copy.make_like(dir, &links)?;
    copy.swap_with(dir)?;
    if let Err(error) = copy.remove() {
        eprintln!("nigh: the data is converted, but what it was before is still there: {error:#}");
    }
    Ok(copied)
}

/// Copies all of `from`, which `options` opened, into a new folder `beside`.
fn copy_to<'a>(
    beside: &'a Path,
    options: &'a StoreOptions,
    from: Source<'_>,
    wanted: &Left,
    domain: &Arc<Domain>,
) -> Result<(CopyFolder<'a>, Copied)> {
    let (dir, mut options) = (&*options.dir, options.clone());
    options.partitions = wanted.partitions;
    options.capacity_bytes =
        wanted.capacity_bytes.max(LEAST_PARTITION_BYTES * wanted.partitions as u64);
    let needed = copy_bytes(from, options.partitions, options.capacity_bytes);
    let free = free_bytes(dir)?;
    ensure!(
        free >= needed,
        "the copy needs about {needed} bytes beside the data, but {} has only {free} free: enlarge the \
         file system, or delete keys first",
        dir.display()
    );
    let copy = CopyFolder::make(beside, dir)?;
    beside.clone_into(&mut options.dir);
    let (mut to, _) = Keyspace::open(&options, domain)?;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let copying = Copying::new(from, &mut to, u64::try_from(now_ms)?);
    match copy_all(copying, &mut domain.join(), from.keys()) {
        Ok(copied) => Ok((copy, copied)),
        Err(Stopped::Interrupted) => bail!("interrupted; {} is as it was", dir.display()),
        Err(Stopped::Copy(CopyError::Unreadable(error))) => {
            bail!("{error}; {} is as it was", dir.display())
        }
        Err(Stopped::Copy(CopyError::Refused(refused))) => {
            let free = free_bytes(beside)?;
            bail!("{}; {} is as it was", why(refused, needed, free, &options), dir.display())
        }
    }
}

/// The reason why a copy ended early.
enum Stopped {
    Interrupted,
    Copy(CopyError),
}

/// Copies step by step, and shows the progress.
fn copy_all(
    mut copying: Copying<'_>,
    participant: &mut Participant,
    keys: u64,
) -> Result<Copied, Stopped> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without this a signal would end the process: no data is lost, but the copy is left over.
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    let bar = ProgressBar::new(keys);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  copying keys")
    {
        bar.set_style(style);
    }
    let mut moved = Instant::now();
    loop {
        let before = copying.copied();
        let outcome = copying.step(&participant.pin());
        participant.quiescent();
        let copied = copying.copied();
        bar.set_position(copied.keys + copied.expired);
        if interrupted.load(Ordering::Relaxed) {
            return Err(Stopped::Interrupted);
        }
        if outcome.is_ok() || copied != before {
            moved = Instant::now();
        }
        match outcome {
            Ok(false) => {}
            Ok(true) => {
                bar.finish_and_clear();
                return Ok(copied);
            }
            Err(CopyError::Refused(Refused { error: WriteError::Busy, .. }))
                if moved.elapsed() < PATIENCE =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(Stopped::Copy(error)),
        }
    }
}

/// A refusal in words, with a remedy.
fn why(refused: Refused, needed: u64, free: u64, options: &StoreOptions) -> String {
    let Refused { partition, error } = refused;
    let is_full = matches!(error, WriteError::Denied(denial) if denial.is_full());
    if is_full || matches!(error, WriteError::Oom | WriteError::Busy) && free < FULL_BYTES {
        return format!(
            "no memory for the copy: it needs about {needed} bytes beside the data, and of its file system \
             only {free} are left: enlarge that, or delete keys first"
        );
    }
    let capacity = options.capacity_bytes / options.partitions as u64;
    match (partition, error) {
        // Busy: the cleaner could still gain memory, but too little.
        (Some(partition), WriteError::Oom | WriteError::Busy) => format!(
            "partition {partition} of {} has no room for its keys with {capacity} bytes, its share ({free} bytes \
             of the file system are free): give more with --maxmemory",
            options.partitions
        ),
        (Some(partition), error) => {
            format!("a key can't be copied to partition {partition}: {error}")
        }
        (None, error) => {
            format!("a library can't be copied ({free} bytes of the file system are free): {error}")
        }
    }
}

/// The copy's folder: it lies beside the data's, since the two are swapped.
fn beside(dir: &Path) -> Result<PathBuf> {
    let (Some(parent), Some(beside)) = (dir.parent(), leftover::beside(dir)) else {
        bail!("{} can't be converted: it has no parent folder for the copy", dir.display());
    };
    ensure!(
        dir.metadata()?.dev() == parent.metadata()?.dev(),
        "{} is a mount point, and a copy can't be swapped in for it: convert it by another path, whose parent \
         folder is on the same file system (for a container's volume, from outside)",
        dir.display()
    );
    Ok(beside)
}

/// Locks a folder as a server does.
fn hold(path: &Path) -> Result<File> {
    let file = path.join(LOCK_FILE);
    let failed = || format!("can't lock {}", file.display());
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = File::from(rustix::fs::open(&file, flags, 0o600.into()).with_context(failed)?);
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("a server, or another nigh convert, uses {}: stop it first", path.display())
        }
        Err(error) => return Err(error).with_context(failed),
    }
    // Another conversion that held it before may have put another folder in its place.
    ensure!(
        is_same(&lock.metadata()?, &file.metadata().with_context(failed)?),
        "{} was replaced just now: try again",
        path.display()
    );
    Ok(lock)
}

/// Bytes that the file system of a folder has left.
fn free_bytes(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)
        .with_context(|| format!("can't ask for the free space of {}", path.display()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn entries(path: &Path) -> Result<Vec<DirEntry>> {
    let read = std::fs::read_dir(path).and_then(Iterator::collect);
    read.with_context(|| format!("can't look into {}", path.display()))
}

/// The files at `dir` that are linked instead of copied, so that they are there after the swap.
fn to_take_along(dir: &Path, tenant: &str) -> Result<Vec<PathBuf>> {
    let mut links = Vec::new();
    for entry in entries(dir)? {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let number = name.strip_prefix(tenant).and_then(|rest| rest.strip_prefix('.'));
        let number = number.and_then(|rest| rest.strip_suffix(ARENA));
        let is_copied = number.is_some_and(|text| text.parse::<usize>().is_ok())
            || name == SYSTEM
            || [LOCK_FILE, MANIFEST, NEW_MANIFEST].contains(&&*name)
            || name.ends_with(UNMADE);
        if is_copied {
            continue;
        }
        ensure!(
            !entry.file_type()?.is_dir(),
            "{} is a folder and can't be taken along: move it elsewhere first",
            entry.path().display()
        );
        links.push(entry.path());
    }
    Ok(links)
}

/// The folder at `path`, beside the data's: the copy, and after the swap the old data. Dropping
/// this removes the folder.
struct CopyFolder<'a> {
    path: &'a Path,
    /// The data's folder.
    dir: &'a Path,
    _lock: File,
    is_gone: bool,
}

impl<'a> CopyFolder<'a> {
    fn make(path: &'a Path, dir: &'a Path) -> Result<CopyFolder<'a>> {
        DirBuilder::new()
            .mode(0o700)
            .create(path)
            .with_context(|| format!("can't make the copy's folder {}", path.display()))?;
        Ok(CopyFolder { path, dir, _lock: hold(path)?, is_gone: false })
    }

    fn remove(mut self) -> Result<()> {
        self.is_gone = true;
        Ok(leftover::remove(self.path, self.dir)?)
    }

    /// Gives the copy the mode and owner of the data's folder, links the files that weren't copied,
    /// and syncs all of it.
    fn make_like(&self, dir: &Path, links: &[PathBuf]) -> Result<()> {
        let failed = || format!("can't make {} like {}", self.path.display(), dir.display());
        let owner = dir.metadata()?;
        std::fs::set_permissions(self.path, Permissions::from_mode(0o700)).with_context(failed)?;
        let own: Result<Vec<_>> = Ok(entries(self.path)?.iter().map(DirEntry::path).collect());
        for path in own?.iter().map(PathBuf::as_path).chain([self.path]) {
            let found = path.metadata()?;
            if (found.uid(), found.gid()) != (owner.uid(), owner.gid()) {
                chown(path, Some(owner.uid()), Some(owner.gid())).with_context(failed)?;
            }
            File::open(path)?.sync_all().with_context(failed)?;
        }
        for link in links {
            let name = link.file_name().unwrap_or_default();
            std::fs::hard_link(link, self.path.join(name))
                .with_context(|| format!("can't take {} along", link.display()))?;
        }
        Ok(())
    }

    fn swap_with(&self, dir: &Path) -> Result<()> {
        renameat_with(CWD, self.path, CWD, dir, RenameFlags::EXCHANGE).with_context(|| {
            let (copy, dir) = (self.path.display(), dir.display());
            format!("can't swap {copy} and {dir}, which is as it was")
        })?;
        // The swap must be on disk before the old data is removed. On a tmpfs this does nothing.
        let parent = dir.parent().context("a folder that was swapped has a parent")?;
        File::open(parent)?.sync_all().context("the data is converted, but not yet on disk")
    }
}

impl Drop for CopyFolder<'_> {
    fn drop(&mut self) {
        if !self.is_gone {
            // The next conversion or the next server removes the rest.
            let _ = leftover::remove(self.path, self.dir);
        }
    }
}

#[cfg(test)]
mod tests;
