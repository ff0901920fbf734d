//! A simulated disk that notes what is done to log files, and in which order.

use crate::format::names::{FileName, NEW};
use crate::storage::simulated::{SimDisk, SimFile};
use crate::storage::{Storage, StoredFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

/// A name of a log file: its number, and whether it is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) number: u64,
    pub(super) new: bool,
}

/// The finished file of a number.
pub(super) const fn file(number: u64) -> Named {
    Named { number, new: false }
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Create(Named),
    Write { to: Named, from: u64, end: u64 },
    Sync(Named),
    Rename(Named, Named),
    Remove(Named),
    SyncFolder,
}

#[derive(Debug, Default)]
struct SeenEvents {
    events: Vec<Event>,
    /// The name that each open file has now.
    names: BTreeMap<String, Arc<Mutex<String>>>,
}

/// The disk.
#[derive(Debug, Clone)]
pub(super) struct WatchedDisk {
    pub(super) disk: SimDisk,
    seen: Arc<Mutex<SeenEvents>>,
}

/// A file of it.
#[derive(Debug)]
pub(super) struct WatchedFile {
    file: SimFile,
    name: Arc<Mutex<String>>,
    seen: Arc<Mutex<SeenEvents>>,
}

fn named(name: &str) -> Named {
    let plain = name.strip_suffix(NEW).unwrap_or(name);
    let number = FileName::parse(plain).expect("a log file").number;
    Named { number, new: plain != name }
}

impl WatchedDisk {
    pub(super) fn new(disk: SimDisk) -> WatchedDisk {
        WatchedDisk { disk, seen: Arc::default() }
    }

    /// What was done since the last call.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.seen.lock().unwrap().events)
    }

    fn note(&self, event: Event) {
        self.seen.lock().unwrap().events.push(event);
    }

    fn watched(&self, file: SimFile, name: &str) -> WatchedFile {
        let mut seen = self.seen.lock().unwrap();
        let known =
            seen.names.entry(name.into()).or_insert_with(|| Arc::new(Mutex::new(name.into())));
        WatchedFile { file, name: Arc::clone(known), seen: Arc::clone(&self.seen) }
    }
}

impl Storage for WatchedDisk {
    type File = WatchedFile;

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn open(&self, name: &str) -> io::Result<Option<WatchedFile>> {
        Ok(self.disk.open(name)?.map(|file| self.watched(file, name)))
    }

    fn create(&self, name: &str) -> io::Result<WatchedFile> {
        self.note(Event::Create(named(name)));
        self.seen.lock().unwrap().names.remove(name);
        Ok(self.watched(self.disk.create(name)?, name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(Event::Rename(named(from), named(to)));
        self.disk.rename(from, to)?;
        let mut seen = self.seen.lock().unwrap();
        if let Some(name) = seen.names.remove(from) {
            *name.lock().unwrap() = to.into();
            seen.names.insert(to.into(), name);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.note(Event::Remove(named(name)));
        self.seen.lock().unwrap().names.remove(name);
        self.disk.remove(name)
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.disk.sync_folder()?;
        self.note(Event::SyncFolder);
        Ok(())
    }
}

impl WatchedFile {
    fn note(&self, event: impl FnOnce(Named) -> Event) {
        let name = named(&self.name.lock().unwrap());
        self.seen.lock().unwrap().events.push(event(name));
    }
}

impl StoredFile for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn links(&self) -> io::Result<u64> {
        self.file.links()
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(position, into)
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        let end = position + bytes.len() as u64;
        self.note(|to| Event::Write { to, from: position, end });
        self.file.write_at(position, bytes)
    }

    fn forget_cached(&self) {
        self.file.forget_cached();
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        self.file.allocate(bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.note(Event::Sync);
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()?;
        self.note(Event::Sync);
        Ok(())
    }
}
