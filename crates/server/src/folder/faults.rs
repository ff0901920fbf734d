//! What the system does to the arenas while they are served, and what is left of them at the end.
//!
//! 1. What the log says of the arenas' files was looked at when it was said.
//! 2. Each kind of fault is one line a second at most, however many arenas and requests meet it; a
//!    bad record is one line for each writer that meets it.
//!
//! [`Arenas`]: any thread. [`FaultWatch`]: the thread of the first shard, at its ticks.

use crate::folder::verify::shown_key;
use nigh_shm::Denied;
use nigh_store::Keyspace;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the same fault is kept to oneself.
const SILENCE: Duration = Duration::from_secs(1);
/// Between two looks whether the arenas' files are there: noticed within a second, and a few
/// microseconds each.
const LOOK: Duration = Duration::from_millis(400);
/// After so long it is said again that one is gone.
const REMINDER: Duration = Duration::from_secs(60);
/// Missing files that are named.
const MOST_NAMED: usize = 3;

/// Device and inode.
type Identity = (u64, u64);

/// The files of the arenas that a server serves.
#[derive(Debug)]
pub(crate) struct Arenas {
    folder: PathBuf,
    files: Vec<(PathBuf, Identity)>,
}

impl Arenas {
    /// Those of all tenants' keyspaces, which lie in `folder`.
    pub(crate) fn of(keyspaces: &[Keyspace], folder: &Path) -> io::Result<Self> {
        let file = |path: &Path| Ok((path.to_owned(), identity(path)?));
        let regions = keyspaces.iter().flat_map(Keyspace::regions);
        let files: io::Result<Vec<_>> = regions.map(|region| file(region.path())).collect();
        Ok(Self { folder: folder.to_owned(), files: files? })
    }

    /// Opens one of them anew, for reading only.
    pub(crate) fn open_read_only(&self, path: &Path) -> io::Result<OwnedFd> {
        let (_, expected) = self
            .files
            .iter()
            .find(|(known, _)| known == path)
            .ok_or_else(|| io::Error::other("it is no arena of this server"))?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        if (found.st_dev, found.st_ino) != *expected {
            return Err(io::Error::other("another file lies in its place"));
        }
        Ok(file)
    }

    /// The files that aren't where they were.
    pub(crate) fn gone(&self) -> Vec<&Path> {
        let is_gone = |it: &&(PathBuf, Identity)| {
            // What can't be asked isn't known to be gone.
            identity(&it.0).map_or_else(|error| is_absence(&error), |found| found != it.1)
        };
        self.files.iter().filter(is_gone).map(|file| file.0.as_path()).collect()
    }

    /// What is left of the arenas, in one sentence: true if all of them.
    pub(crate) fn left(&self) -> (bool, String) {
        let (folder, gone) = (self.folder.display(), self.gone());
        if gone.is_empty() {
            return (true, format!("the arenas stay in {folder}, for the next server"));
        }
        let count = format!("{} of {}", gone.len(), self.files.len());
        (false, format!("{count} arenas are lost, since somebody removed them: {}", named(&gone)))
    }

    /// What is left of arenas that were to go.
    pub(crate) fn removed(&self) -> (bool, String) {
        let gone = self.gone().len();
        let (folder, all) = (self.folder.display(), self.files.len());
        match all - gone {
            0 => (true, format!("the arenas in {folder} are removed, as asked")),
            left => (false, format!("{left} of {all} arenas stay in {folder}, and were to go")),
        }
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    path.symlink_metadata().map(|found| (found.dev(), found.ino()))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The first of some files, and how many more there are.
fn named(files: &[&Path]) -> String {
    let first = files.iter().take(MOST_NAMED).map(|path| path.display().to_string());
    let first = first.collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(MOST_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Tells which records and segments the arenas' writers have left alone. Each is told once.
fn tell_kept(keyspace: &Keyspace) {
    for region in keyspace.regions() {
        let (all_kept, more) = region.take_kept();
        let arena = region.path().display();
        for kept in &all_kept {
            let (at, what) = (kept.finding.offset, &kept.finding.what);
            match kept.key.as_deref().map(shown_key) {
                Some(key) => tracing::warn!(
                    "key \"{key}\" in {arena} at {at:#x}: {what}: the record stays where it is and is served; \
                     write it anew or delete it; `nigh check` lists all that are bad"
                ),
                None => tracing::warn!(
                    "{arena} at {at:#x}: {what}: the segment stays as it is; `nigh check` lists what is bad there"
                ),
            }
        }
        if more > 0 {
            tracing::warn!("{more} more records of {arena} are bad; `nigh check` lists them");
        }
    }
}

/// A fault by what was being done and the number of the system's error.
type FaultKind = (&'static str, i32);

/// Requests that met a fault, and an arena that it befell.
struct Met {
    denied: Denied,
    arena: PathBuf,
}

/// Looks after the arenas, and tells the log.
#[derive(Default)]
pub(crate) struct FaultWatch {
    /// What was not yet told.
    met: BTreeMap<FaultKind, Met>,
    /// When it was told last.
    told: BTreeMap<FaultKind, Instant>,
    looked: Option<Instant>,
    /// How many files were gone then, and when that was said.
    gone: usize,
    said_gone: Option<Instant>,
}

impl FaultWatch {
    /// A look at some keyspaces, at a tick.
    pub(crate) fn look<'a>(
        &mut self,
        keyspaces: impl Iterator<Item = &'a Keyspace>,
        arenas: &Arenas,
        now: Instant,
    ) {
        for keyspace in keyspaces {
            self.note_denied(keyspace);
            tell_kept(keyspace);
        }
        self.tell_denied(now);
        if self.looked.is_none_or(|then| now.duration_since(then) >= LOOK) {
            self.looked = Some(now);
            self.tell_gone(arenas, now);
        }
    }

    fn note_denied(&mut self, keyspace: &Keyspace) {
        for region in keyspace.regions() {
            for denied in region.take_denied() {
                let kind = (denied.doing, denied.errno);
                let arena = region.path().to_owned();
                match self.met.get_mut(&kind) {
                    Some(known) => known.denied.times += denied.times,
                    None => _ = self.met.insert(kind, Met { denied, arena }),
                }
            }
        }
    }

    fn tell_denied(&mut self, now: Instant) {
        let told = &mut self.told;
        self.met.retain(|kind, Met { denied, arena }| {
            if told.get(kind).is_some_and(|then| now.duration_since(*then) < SILENCE) {
                return true;
            }
            told.insert(*kind, now);
            let Denied { doing, errno, denial, times, .. } = denied;
            let error = io::Error::from_raw_os_error(*errno);
            let arena = arena.display();
            tracing::error!(%arena, errno, times, "{doing} failed: {error}: {denial}");
            false
        });
    }

    fn tell_gone(&mut self, arenas: &Arenas, now: Instant) {
        let gone = arenas.gone();
        let is_news = gone.len() != self.gone;
        self.gone = gone.len();
        if gone.is_empty() {
            if is_news {
                let folder = arenas.folder.display();
                tracing::warn!(%folder, "the arenas are where they were again");
            }
            return;
        }
        let is_time = self.said_gone.is_none_or(|then| now.duration_since(then) >= REMINDER);
        if is_news || is_time {
            self.said_gone = Some(now);
            tracing::error!(
                gone = gone.len(),
                of = arenas.files.len(),
                "ARENAS WERE REMOVED OR REPLACED: {}: what they hold is in this server's memory \
                 alone and is lost when it ends; copy the data to another server (SCAN, GET) before you stop this one",
                named(&gone)
            );
        }
    }
}
