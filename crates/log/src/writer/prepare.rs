//! Preparing files, ahead of need.
//!
//! ```text
//! a spare file ── renamed to .new, folder synced ─┐
//! none: .new is made, its space is set aside ─────┼─> making ... making
//! what another process set aside: taken over ──────┘
//! the first one ── zeros, 1 MiB at a time, if they pay ── head, synced ──> renamed, folder synced
//! ```
//!
//! 1. A name without `.new` always stands for a whole head that is on disk.
//! 2. Only a file whose head has its name's number, with one link, is taken; others are removed.
//! 3. Whatever fails, the log isn't broken: what was being made is removed, and the next step
//!    begins anew, with another number once the name was given.
//! 4. Where nothing was written yet, a sync takes longer: the file system notes with each what is
//!    written by now. So zeros pay where syncs are many and somebody waits for them, but not at a
//!    start. Whether a file that is taken over has them, isn't known: it gets them anew.
//! 5. One file is ready. The others ahead of need are space that is set aside, as much as
//!    [`crate::writer::kept_room`] says. They get their numbers with their heads; the number in a
//!    `.new` name says nothing.
//!
//! The log's thread, in bounded steps.

use crate::error::LogError;
use crate::format::head::Head;
use crate::format::layout::BLOCK_BYTES;
use crate::format::names::{FileName, NEW};
use crate::format::sum::SumKey;
use crate::reader::log_file::{ChainKey, ReadFile};
use crate::storage::aligned::AlignedBytes;
use crate::storage::{Storage, StoredFile, World, write_all_at};
use crate::writer::begun_file::BegunFile;
use crate::writer::spare_files::{SpareFile, SpareFiles};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Zeros of one step: a bounded wait for a sync meanwhile.
const ZEROS_BYTES: usize = 1 << 20;

/// Makes files.
#[derive(Debug)]
pub(super) struct FilePreparer<S: Storage> {
    world: World<S>,
    key: ChainKey,
    /// The highest number of any name that was ever given.
    highest: u64,
    /// Files whose space is set aside. The first is made ready next.
    making: VecDeque<Making<S::File>>,
    /// The prepared file: nothing is written behind its head.
    ready: Option<BegunFile<S::File>>,
    spare: SpareFiles,
    /// Whether a new file gets its zeros before it is used: see 4.
    writes_zeros: bool,
}

/// A file that is being made.
#[derive(Debug)]
struct Making<F> {
    file: F,
    /// Its present name is this one with `.new`.
    name: FileName,
    bytes: u64,
    /// What the next step does.
    next: Stage,
    /// It is new: its length has to become durable too.
    fresh: bool,
    /// The file system has set its space aside, or it has all its zeros.
    has_space: bool,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Zeros from this offset on.
    Zeros(u64),
    Head,
    /// This name, with this salt in the head.
    Name(FileName, u64),
}

/// What is to be there ahead of need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead {
    /// Bytes of a file.
    pub(super) file_bytes: u64,
    /// Of these, what changes can't have.
    pub(super) overhead: u64,
    /// Bytes that changes can have in all files. One file is there in any case.
    pub(super) room: u64,
}

/// Which call failed, and how.
struct Failed {
    doing: &'static str,
    source: io::Error,
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> Failed {
    move |source| Failed { doing, source }
}

impl<S: Storage> FilePreparer<S> {
    /// Goes on behind the highest number, with files that don't count.
    pub(super) fn new(
        world: &World<S>,
        key: ChainKey,
        highest: u64,
        spare: &[FileName],
    ) -> FilePreparer<S> {
        let sized = |name: &FileName| {
            let bytes = world.storage.open(&name.to_string()).ok()??.len().ok()?;
            Some(SpareFile { number: name.number, bytes, begun: true })
        };
        let spare = SpareFiles::new(spare.iter().filter_map(sized).collect());
        FilePreparer {
            world: world.clone(),
            key,
            highest,
            making: VecDeque::new(),
            ready: None,
            spare,
            writes_zeros: true,
        }
    }

    /// The prepared file's bytes; 0: there is none.
    pub(super) fn ready_bytes(&self) -> u64 {
        self.ready.as_ref().map_or(0, |file| file.file_bytes)
    }

    /// Bytes of all that is prepared, being made, or spare.
    pub(super) fn bytes(&self) -> u64 {
        let making: u64 = self.making.iter().map(|making| making.bytes).sum();
        self.ready_bytes() + making + self.spare.bytes()
    }

    /// Bytes that changes can have in files whose space is set aside; in each, so many they can't.
    pub(super) fn room(&self, overhead: u64) -> u64 {
        let making = self.making.iter().filter(|making| making.has_space);
        let making: u64 = making.map(|it| it.bytes.saturating_sub(overhead)).sum();
        self.ready_bytes().saturating_sub(overhead) + making
    }

    /// Whether space has to be set aside.
    pub(super) fn lacks(&self, ahead: Ahead) -> bool {
        self.is_short(ahead) || self.making.iter().any(|making| !making.has_space)
    }

    /// Whether another file has to be begun.
    fn is_short(&self, ahead: Ahead) -> bool {
        let is_none = self.ready.is_none() && self.making.is_empty();
        let to_come = self.making.iter().filter(|making| !making.has_space);
        let to_come: u64 = to_come.map(|it| it.bytes.saturating_sub(ahead.overhead)).sum();
        is_none || self.room(ahead.overhead) + to_come < ahead.room
    }

    /// Takes over the files of so many bytes that a process has set aside which has ended: a full
    /// disk may have no room for others, and another log may take theirs first. What else it was
    /// making goes. The folder was synced: a name that was given up doesn't come back.
    pub(super) fn take_left(&mut self, wanted: u64) {
        for name in self.world.storage.names().unwrap_or_default() {
            let Some(made) = name.strip_suffix(NEW).and_then(FileName::parse) else { continue };
            if !made.is_of(&self.key.chain) {
                continue;
            }
            match self.set_aside(&name, wanted) {
                Some(file) => {
                    let (next, bytes) = (Stage::Zeros(0), wanted);
                    let (fresh, has_space) = (true, true);
                    let making = Making { file, name: made, bytes, next, fresh, has_space };
                    self.making.push_back(making);
                }
                // What can't be removed takes room, and does no other harm.
                None => _ = self.world.storage.remove(&name),
            }
        }
    }

    /// The file of this name, if it has so many bytes, and their space.
    fn set_aside(&self, name: &str, wanted: u64) -> Option<S::File> {
        let file = self.world.storage.open(name).ok()??;
        let is_whole = file.len().ok()? == wanted && file.links().ok()? == 1;
        // It has its space already, as far as its maker came.
        (is_whole && file.allocate(wanted).ok()?).then_some(file)
    }

    /// A file that no longer counts.
    pub(super) fn add_spare(&mut self, number: u64, bytes: u64) {
        self.spare.push(SpareFile { number, bytes, begun: true });
    }

    /// Bytes of spare files that are held.
    pub(super) fn held_bytes(&self) -> u64 {
        self.spare.held_bytes()
    }

    /// Begun files from this number on are neither prepared again nor removed.
    pub(super) fn hold(&mut self, from: Option<u64>) {
        self.spare.hold(from);
    }

    /// The prepared file of at least so many bytes; makes it if there is none.
    ///
    /// # Errors
    /// `Full`, or another error; there is no such file then.
    pub(super) fn take(&mut self, least: u64, wanted: u64) -> Result<BegunFile<S::File>, LogError> {
        loop {
            if let Some(file) = self.ready.take_if(|ready| ready.file_bytes >= least) {
                return Ok(file);
            }
            self.give_up_ready();
            let is_long = self.making.front().is_none_or(|making| making.bytes < least);
            let done = match is_long {
                true => self.begin(least.max(wanted)).map(|making| self.making.push_front(making)),
                false => self.go_on(0),
            };
            if let Err((name, failed)) = done {
                self.without_room(&name, failed, true)?;
            }
        }
    }

    /// The same for a start, which holds everybody up: a file that has to be made gets no zeros.
    ///
    /// # Errors
    /// As for `take`.
    pub(super) fn take_soon(
        &mut self,
        least: u64,
        wanted: u64,
    ) -> Result<BegunFile<S::File>, LogError> {
        let usual = std::mem::replace(&mut self.writes_zeros, false);
        let taken = self.take(least, wanted);
        self.writes_zeros = usual;
        taken
    }

    /// Whether new files get zeros: they save each sync some time, and cost a write of each byte.
    pub(super) fn write_zeros(&mut self, yes: bool) {
        self.writes_zeros = yes;
    }

    /// One step towards what is to be there ahead of need; `true`: it is there, and nothing is left
    /// to be removed. Space is set aside first.
    ///
    /// # Errors
    /// `Full`, or another error; a later step tries again.
    pub(super) fn step(&mut self, ahead: Ahead) -> Result<bool, LogError> {
        let wanted = ahead.file_bytes;
        if self.ready_bytes() < wanted {
            self.give_up_ready();
        }
        let without = self.making.iter().position(|making| !making.has_space);
        let done = if self.is_short(ahead) {
            self.begin(wanted).map(|making| self.making.push_back(making))
        } else if let Some(next) = without.or(self.ready.is_none().then_some(0)) {
            self.go_on(next)
        } else {
            return self.remove_surplus(ahead);
        };
        let Err((name, failed)) = done else { return Ok(false) };
        let full = self.without_room(&name, failed, false);
        if full.is_err() {
            self.make_ready()?;
        }
        full.map(|()| false)
    }

    /// No more space can be set aside. What there is has to be ready all the same: the log may wait
    /// for the next file, to say in it which one has left.
    fn make_ready(&mut self) -> Result<(), LogError> {
        while self.ready.is_none() {
            let Some(first) = self.making.front_mut() else { return Ok(()) };
            if first.has_space && matches!(first.next, Stage::Zeros(_)) {
                first.next = Stage::Head;
            }
            if let Err((name, failed)) = self.go_on(0) {
                return self.without_room(&name, failed, false);
            }
        }
        Ok(())
    }

    /// The prepared file is too short: a longer one comes before it, so it needs another number.
    fn give_up_ready(&mut self) {
        if let Some(BegunFile { name, file_bytes: bytes, .. }) = self.ready.take() {
            self.spare.push(SpareFile { number: name.number, bytes, begun: false });
        }
    }

    /// Begins to make a file, from a spare one if there is one.
    fn begin(&mut self, wanted: u64) -> Result<Making<S::File>, (FileName, Failed)> {
        let made = self.making.iter().map(|making| making.name.number);
        let name = self.key.name(made.fold(self.highest, u64::max) + 1);
        self.begin_as(name, wanted).map_err(|failed| {
            // If it can't be removed, the next start does it.
            let _ = self.world.storage.remove(&name.new_name());
            (name, failed)
        })
    }

    fn begin_as(&mut self, name: FileName, wanted: u64) -> Result<Making<S::File>, Failed> {
        let storage = &self.world.storage;
        while let Some(spare) = self.spare.take(wanted) {
            let old = self.key.name(spare.number).to_string();
            let Some(file) = self.sound(spare.number) else {
                storage.remove(&old).map_err(failed("removing a spare file"))?;
                continue;
            };
            if let Err(source) = storage.rename(&old, &name.new_name()) {
                self.spare.push(spare);
                return Err(Failed { doing: "renaming", source });
            }
            // Else the old name could come back, with a head that isn't its own.
            storage.sync_folder().map_err(failed("syncing the folder"))?;
            let (bytes, next) = (spare.bytes / BLOCK_BYTES * BLOCK_BYTES, Stage::Head);
            return Ok(Making { file, name, bytes, next, fresh: false, has_space: true });
        }
        let file = storage.create(&name.new_name()).map_err(failed("making a file"))?;
        let has_space = file.allocate(wanted).map_err(failed("setting space aside"))?;
        let next = if self.writes_zeros || !has_space { Stage::Zeros(0) } else { Stage::Head };
        Ok(Making { file, name, bytes: wanted, next, fresh: true, has_space })
    }

    /// The file of a spare name, if it may be taken.
    fn sound(&self, number: u64) -> Option<S::File> {
        let read = ReadFile::open(&*self.world.storage, &self.key, number).ok()??;
        (read.file.links().ok()? == 1).then_some(read.file)
    }

    /// The next stage of one that is being made. If it fails, that one is removed.
    fn go_on(&mut self, at: usize) -> Result<(), (FileName, Failed)> {
        let Some(mut making) = self.making.remove(at) else { return Ok(()) };
        let (name, stage) = (making.name, making.next);
        match self.next_stage(&mut making) {
            Ok(()) => match making.next {
                Stage::Name(name, salt) if matches!(stage, Stage::Name(..)) => {
                    self.ready = Some(BegunFile {
                        file: Arc::new(making.file),
                        name,
                        file_bytes: making.bytes,
                        key: SumKey { secret: self.key.secret, salt },
                        position: BLOCK_BYTES,
                        last_sum: 0,
                    });
                }
                _ => self.making.insert(at, making),
            },
            Err(failed) => {
                // If they can't be removed, the next start does it.
                let _ = self.world.storage.remove(&name.new_name());
                if let Stage::Name(named, _) = stage {
                    let _ = self.world.storage.remove(&named.to_string());
                }
                return Err((name, failed));
            }
        }
        Ok(())
    }

    fn next_stage(&mut self, making: &mut Making<S::File>) -> Result<(), Failed> {
        match making.next {
            Stage::Zeros(_) if making.has_space && !self.writes_zeros => making.next = Stage::Head,
            Stage::Zeros(from) => {
                let rest = usize::try_from(making.bytes - from).unwrap_or(usize::MAX);
                let zeros = AlignedBytes::zeros(rest.min(ZEROS_BYTES));
                write_all_at(&making.file, from, &zeros).map_err(failed("writing zeros"))?;
                making.file.sync_data().map_err(failed("syncing zeros"))?;
                let next = from + zeros.len() as u64;
                let done = next == making.bytes;
                making.has_space |= done;
                making.next = if done { Stage::Head } else { Stage::Zeros(next) };
            }
            Stage::Head => {
                let (salt, name) = (self.world.chance.word(), self.key.name(self.highest + 1));
                let head = Head {
                    log_id: self.key.log_id,
                    chain: self.key.chain,
                    number: name.number,
                    file_bytes: making.bytes,
                    salt,
                };
                let block = head.encode(&self.key.secret);
                write_all_at(&making.file, 0, &block).map_err(failed("writing a head"))?;
                let synced =
                    if making.fresh { making.file.sync_all() } else { making.file.sync_data() };
                synced.map_err(failed("syncing a head"))?;
                making.next = Stage::Name(name, salt);
            }
            // A longer file came before it, and has the number.
            Stage::Name(name, _) if name.number <= self.highest => making.next = Stage::Head,
            Stage::Name(name, _) => {
                self.highest = name.number;
                let (from, to) = (making.name.new_name(), name.to_string());
                self.world.storage.rename(&from, &to).map_err(failed("renaming"))?;
                self.world.storage.sync_folder().map_err(failed("syncing the folder"))?;
            }
        }
        Ok(())
    }

    /// Removes a file that is too much: a spare one, or one whose space is set aside beyond what is
    /// kept, as by a process that kept more. `true`: there is none.
    fn remove_surplus(&mut self, ahead: Ahead) -> Result<bool, LogError> {
        if let Some(surplus) = self.spare.take_surplus(ahead.file_bytes) {
            self.remove(surplus)?;
            return Ok(false);
        }
        let last = self.making.back().map_or(0, |last| last.bytes.saturating_sub(ahead.overhead));
        if self.room(ahead.overhead) - last < ahead.room {
            return Ok(true);
        }
        let Some(last) = self.making.pop_back() else { return Ok(true) };
        self.remove_making(last).map(|()| false)
    }

    /// A step failed. If that was for want of room and a spare file can go, it goes; if the file is
    /// needed now, one that was set aside too.
    fn without_room(
        &mut self,
        name: &FileName,
        failed: Failed,
        is_needed: bool,
    ) -> Result<(), LogError> {
        let Failed { doing, source } = failed;
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                if let Some(spare) = self.spare.take_any() {
                    return self.remove(spare);
                }
                let last = if is_needed { self.making.pop_back() } else { None };
                self.remove_making(last.ok_or(LogError::Full { source })?)
            }
            _ => Err(LogError::io(&name.to_string(), 0, doing, source)),
        }
    }

    fn remove_making(&self, making: Making<S::File>) -> Result<(), LogError> {
        let name = making.name.new_name();
        let removed = self.world.storage.remove(&name);
        removed.map_err(|source| LogError::io(&name, 0, "removing", source))
    }

    fn remove(&self, spare: SpareFile) -> Result<(), LogError> {
        let name = self.key.name(spare.number).to_string();
        let removed = self.world.storage.remove(&name);
        removed.map_err(|source| LogError::io(&name, 0, "removing", source))
    }
}
