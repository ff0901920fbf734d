//! `nigh convert` copies the data of a stopped server into new arenas: with other partitions, more
//! memory, or today's format.
//!
//! ```text
//! DIR           lock, arenas ──copy──┐        DIR           lock, new arenas
//! DIR.convert   lock, new arenas <───┘  swap  DIR.convert   lock, old arenas ──> removed
//!                     └──> chains of a new generation ──> meta names them, before the swap
//! ```
//!
//! Invariants:
//! 1. The program holds the locks of both folders, as a server does, from the first change to the
//!    end.
//! 2. At every moment one whole set of arenas lies at DIR. One system call swaps the folders, and
//!    the program removes files only after it. So a DIR.convert that is left over holds nothing
//!    needed. The next conversion or the next server removes it (see `nigh_server::leftover`).
//! 3. With a log, its `meta` decides which data counts, by one renaming (`nigh_store::Conversion`).
//!    Arenas of the other data don't fit it: a start builds from the log what isn't there.

mod copy_folder;
mod stopped_log;

use crate::interrupt::Interrupt;
use crate::output::{say, tell, whole_text};
use crate::render::thousands;
use crate::size::bytes_of;
use anyhow::{Context, Result, bail, ensure};
use copy_folder::{CopyFolder, beside, hold, to_take_along};
use indicatif::{ProgressBar, ProgressStyle};
use nigh_server::leftover;
use nigh_shm::layout::VERSION;
use nigh_shm::{Domain, MOST_PARTITIONS, Participant, WriteError};
use nigh_store::{
    Copied, CopyError, Copying, DEFAULT_TENANT, Edition, Keyspace, Left, OldKeyspace, Refused,
    Source, StoreError, StoreOptions, copy_bytes, left_in, list_others,
};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stopped_log::StoppedLog;

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
    /// Folder of the log, if the data has one: the --dir of the server [default: nigh-data]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
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
    let log = stopped_log::find(args.dir.as_deref(), &args.shm_dir, &args.tenant)?;
    let log = log.map(|dir| StoppedLog::take(&dir, &args.shm_dir)).transpose()?;
    if log.as_ref().is_some_and(StoppedLog::counts) {
        // A reboot takes the folder. What isn't one is refused below.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(&args.shm_dir);
    }
    let dir = whole_path(&args.shm_dir)?;
    let name = dir.display();
    let nothing =
        || format!("{name} holds no arenas of tenant {}: nothing to convert", args.tenant);
    let look = || -> Result<(Edition, Left)> {
        let edition = edition_of(&dir, &args.tenant)?;
        let left = match &log {
            Some(log) if edition == Edition::Living => log.left(&dir, &args.tenant)?,
            Some(_) => bail!("the arenas in {name} are older than logs: leave --dir out"),
            None => left_in(&dir, &args.tenant, edition)?,
        };
        Ok((edition, left.with_context(nothing)?))
    };
    // It looks before it locks, so that it leaves no lock file where no server was.
    look()?;
    let _held = hold(&dir)?;
    let beside = beside(&dir)?;
    leftover::remove_leftover(&dir)?;
    let (edition, left) = look()?;
    let is_old = edition == Edition::One;
    ensure!(
        is_old || args.partitions.is_some() || memory_bytes.is_some(),
        "nothing to do: say with --partitions or --maxmemory what the data is to have"
    );
    let wanted = wanted(left, args.partitions, memory_bytes)?;
    // The present limit of the arenas says nothing about the memory that they were made for.
    if wanted.partitions == left.partitions && memory_bytes.is_none() && !is_old {
        say!("{name}: nothing to do, the data has {} partition(s) already", left.partitions);
        return Ok(());
    }
    ensure!(
        wanted.capacity_bytes > 0,
        "no arena in {name} tells how much memory the data was made for: say it with --maxmemory"
    );
    let options = options_of(&left, &dir, &args.tenant, wanted.capacity_bytes);
    let copied = match &log {
        Some(log) => convert_logged(log, &options, &beside, &wanted)?,
        None => convert(&options, &beside, edition, &wanted)?,
    };
    if is_old {
        say!("{name}: version 1 of the format before, {VERSION} now");
    }
    say!("{name}: {} partition(s) before, {} now", left.partitions, wanted.partitions);
    tell(&copied, memory_bytes);
    say!("{:<12} {:>15.2}", "seconds", begin.elapsed().as_secs_f64());
    Ok(())
}

/// The folder of the arenas, from the root on.
fn whole_path(dir: &Path) -> Result<PathBuf> {
    match dir.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no folder {}: nothing to convert", dir.display())
        }
        whole => whole.with_context(|| format!("can't use {}", dir.display())),
    }
}

/// What the data is to have: what is asked for, and all else as it is.
fn wanted(left: Left, partitions: Option<usize>, memory_bytes: Option<u64>) -> Result<Left> {
    let mut wanted = left;
    wanted.partitions = partitions.unwrap_or(left.partitions);
    wanted.capacity_bytes = memory_bytes.unwrap_or(left.capacity_bytes);
    let least = LEAST_PARTITION_BYTES * wanted.partitions as u64;
    ensure!(
        memory_bytes.is_none_or(|bytes| bytes >= least),
        "--maxmemory is too little for {} partition(s): the least is 8mb for each",
        wanted.partitions
    );
    Ok(wanted)
}

/// How the data is opened that is `left` in a folder; if nothing tells its memory, with so many
/// bytes.
fn options_of(left: &Left, dir: &Path, tenant: &str, bytes: u64) -> StoreOptions {
    let mut options = StoreOptions::new(dir, left.capacity_bytes);
    if left.capacity_bytes == 0 {
        options.capacity_bytes = bytes.max(LEAST_PARTITION_BYTES * left.partitions as u64);
    }
    tenant.clone_into(&mut options.tenant);
    options.partitions = left.partitions;
    options
}

/// Says what was copied, and the bytes of memory that were asked for.
fn tell(copied: &Copied, memory_bytes: Option<u64>) {
    let line = |what: &str, count: u64| say!("{what:<12} {:>15}", thousands(count as f64));
    line("keys", copied.keys);
    if copied.expired > 0 {
        line("expired", copied.expired);
    }
    line("libraries", copied.libraries);
    if let Some(bytes) = memory_bytes {
        line("memory", bytes);
    }
}

/// Copies the data of this edition that `options` say into the folder `beside`, and swaps the two.
fn convert(
    options: &StoreOptions,
    beside: &Path,
    edition: Edition,
    wanted: &Left,
) -> Result<Copied> {
    let dir = &*options.dir;
    let links = to_take_along(dir, &options.tenant)?;
    let stop = Interrupt::catch();
    let copy = match edition {
        Edition::Living => {
            let domain = Domain::new(1);
            let (from, _) = Keyspace::open(options, &domain)?;
            copy_to(beside, options, (&from).into(), wanted, (&domain, &stop))?
        }
        Edition::One => {
            let from = OldKeyspace::open(dir, &options.tenant)?;
            copy_to(beside, options, (&from).into(), wanted, (&Domain::new(1), &stop))?
        }
    };
    let Copy { mut folder, keyspace, copied, .. } = copy;
    drop(keyspace);
    list_others(dir, beside)?;
    folder.make_like(dir, &links)?;
    folder.swap_with(dir)?;
    remove(folder);
    Ok(copied)
}

/// The same of data that has a log: see `nigh_store::Conversion`.
fn convert_logged(
    log: &StoppedLog,
    options: &StoreOptions,
    beside: &Path,
    wanted: &Left,
) -> Result<Copied> {
    let (dir, domain) = (&*options.dir, Domain::new(1));
    let (from, opened, settings) = log.open(options, &domain)?;
    // Opening may have made journals anew.
    let links = to_take_along(dir, &options.tenant)?;
    let stop = Interrupt::catch();
    let copy = copy_to(beside, options, (&from).into(), wanted, (&domain, &stop))?;
    let Copy { mut folder, mut keyspace, copied, now_ms } = copy;
    let bar = bar_of(copied.keys + copied.libraries, "writing the log");
    let goes_on = || {
        bar.inc(1);
        !stop.is_wanted()
    };
    let mut conversion = log.write((opened, &settings), &mut keyspace, now_ms, &goes_on)?;
    bar.finish_and_clear();
    drop((from, keyspace));
    list_others(dir, beside)?;
    folder.make_like(dir, &links)?;
    log.name_chains(&mut conversion)?;
    match folder.swap_with(dir) {
        Ok(()) => remove(folder),
        Err(error) => tell!(
            "nigh: the data is converted, but its arenas may not be in place, so that the next server builds them \
             from the log: {}",
            whole_text(&error)
        ),
    }
    if let Some(error) = conversion.remove_old() {
        tell!("nigh: the data is converted, but the log that it had is still there: {error}");
    }
    Ok(copied)
}

/// Removes what the data was before.
fn remove(folder: CopyFolder<'_>) {
    if let Err(error) = folder.remove() {
        let error = whole_text(&error);
        tell!("nigh: the data is converted, but what it was before is still there: {error}");
    }
}

/// A copy that is whole, and isn't in its place yet.
struct Copy<'a> {
    folder: CopyFolder<'a>,
    keyspace: Keyspace,
    copied: Copied,
    /// The time by which it has judged expiry, Unix ms.
    now_ms: u64,
}

/// Copies all of `from`, which `options` opened, into a new folder `beside`.
fn copy_to<'a>(
    beside: &'a Path,
    options: &'a StoreOptions,
    from: Source<'_>,
    wanted: &Left,
    (domain, stop): (&Arc<Domain>, &Interrupt),
) -> Result<Copy<'a>> {
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
    let folder = CopyFolder::make(beside, dir)?;
    beside.clone_into(&mut options.dir);
    let (mut keyspace, _) = Keyspace::open(&options, domain)?;
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let copying = Copying::new(from, &mut keyspace, u64::try_from(unix_ms)?);
    let now_ms = copying.now_ms();
    match copy_all(copying, &mut domain.join(), from.keys(), stop) {
        Ok(copied) => Ok(Copy { folder, keyspace, copied, now_ms }),
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

/// Shows how far something is.
fn bar_of(all: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(all).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:24} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    bar
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
    stop: &Interrupt,
) -> Result<Copied, Stopped> {
    let bar = bar_of(keys, "copying keys");
    let mut moved = Instant::now();
    loop {
        let before = copying.copied();
        let outcome = copying.step(&participant.pin());
        participant.quiescent();
        let copied = copying.copied();
        bar.set_position(copied.keys + copied.expired);
        if stop.is_wanted() {
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

/// Bytes that the file system of a folder has left.
fn free_bytes(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path)
        .with_context(|| format!("can't ask for the free space of {}", path.display()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

#[cfg(test)]
mod tests;
