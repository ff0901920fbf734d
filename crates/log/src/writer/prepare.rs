//! Preparing files, ahead of need.
//!
//! ```text
//! a spare file ── renamed to .new, folder synced ───┐
//! none: .new is made ── zeros, 1 MiB at a time ─────┼─> head, synced ──> renamed, folder synced
//! none, and zeros don't pay: .new is made ──────────┘
//! ```
//!
//! 1. A name without `.new` always stands for a whole head that is on disk.
//! 2. Only a file whose head has its name's number, with one link, is taken; others are removed.
//! 3. Whatever fails, the log isn't broken: what was being made is removed, and the next step
//!    begins anew, with another number once the name was given.
//! 4. A file whose space is set aside reads as zeros before they are written. Its syncs take
//!    longer, since the file system notes with each what is written by now. So zeros pay where
//!    syncs are many and somebody waits for them, but not at a start.
//!
//! The log's thread, in bounded steps.

use crate::error::LogError;
use crate::format::head::Head;
use crate::format::layout::BLOCK_BYTES;
use crate::format::names::FileName;
use crate::format::sum::SumKey;
use crate::reader::log_file::{ChainKey, ReadFile};
use crate::storage::aligned::AlignedBytes;
use crate::storage::{Storage, StoredFile, World, write_all_at};
use crate::writer::begun_file::BegunFile;
use crate::writer::spare_files::{SpareFile, SpareFiles};
use std::io;
use std::sync::Arc;

/// Zeros of one step: a bounded wait for whoever syncs meanwhile.
const ZEROS_BYTES: usize = 1 << 20;

/// Makes files.
#[derive(Debug)]
pub(super) struct FilePreparer<S: Storage> {
    world: World<S>,
    key: ChainKey,
    /// The highest number of any name that was ever given.
    highest: u64,
    making: Option<Making<S::File>>,
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
    name: FileName,
    bytes: u64,
    /// What the next step does.
    next: Stage,
    /// It is new: its length has to become durable too.
    fresh: bool,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Zeros from this offset on.
    Zeros(u64),
    Head,
    /// The name, with this salt in the head.
    Name(u64),
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
            making: None,
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
        let making = self.making.as_ref().map_or(0, |making| making.bytes);
        self.ready_bytes() + making + self.spare.bytes()
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
            match self.ready.take_if(|ready| ready.file_bytes >= least) {
                Some(file) => return Ok(file),
                None => self.step(least.max(wanted))?,
            };
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

    /// One step towards a prepared file of so many bytes; `true`: it is there, and nothing is left
    /// to be removed.
    ///
    /// # Errors
    /// `Full`, or another error; a later step tries again.
    pub(super) fn step(&mut self, wanted: u64) -> Result<bool, LogError> {
        if let Some(small) = self.ready.take_if(|ready| ready.file_bytes < wanted) {
            let (number, bytes) = (small.name.number, small.file_bytes);
            self.spare.push(SpareFile { number, bytes, begun: false });
        }
        if self.ready.is_some() {
            return self.remove_surplus(wanted);
        }
        // What is too small is given up: the next one takes its place, since it gets the same name.
        drop(self.making.take_if(|making| making.bytes < wanted));
        let (name, done) = match self.making.take() {
            Some(making) => (making.name, self.go_on(making)),
            None => (self.key.name(self.highest + 1), self.begin(wanted)),
        };
        if let Err(error) = done {
            // If they can't be removed, the next start does it.
            let _ = self.world.storage.remove(&name.new_name());
            let _ = self.world.storage.remove(&name.to_string());
            self.without_room(&name, error)?;
        }
        Ok(false)
    }

    /// Begins to make a file, from a spare one if there is one.
    fn begin(&mut self, wanted: u64) -> Result<(), Failed> {
        let name = self.key.name(self.highest + 1);
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
            self.making = Some(Making { file, name, bytes, next, fresh: false });
            return Ok(());
        }
        let file = storage.create(&name.new_name()).map_err(failed("making a file"))?;
        let is_ours = file.allocate(wanted).map_err(failed("setting space aside"))?;
        let next = if self.writes_zeros || !is_ours { Stage::Zeros(0) } else { Stage::Head };
        self.making = Some(Making { file, name, bytes: wanted, next, fresh: true });
        Ok(())
    }

    /// The file of a spare name, if it may be taken.
    fn sound(&self, number: u64) -> Option<S::File> {
        let read = ReadFile::open(&*self.world.storage, &self.key, number).ok()??;
        (read.file.links().ok()? == 1).then_some(read.file)
    }

    /// The next stage of what is being made.
    fn go_on(&mut self, mut making: Making<S::File>) -> Result<(), Failed> {
        match making.next {
            Stage::Zeros(from) => {
                let rest = usize::try_from(making.bytes - from).unwrap_or(usize::MAX);
                let zeros = AlignedBytes::zeros(rest.min(ZEROS_BYTES));
                write_all_at(&making.file, from, &zeros).map_err(failed("writing zeros"))?;
                making.file.sync_data().map_err(failed("syncing zeros"))?;
                let next = from + zeros.len() as u64;
                let done = next == making.bytes;
                making.next = if done { Stage::Head } else { Stage::Zeros(next) };
            }
            Stage::Head => {
                let salt = self.world.chance.word();
                let head = Head {
                    log_id: self.key.log_id,
                    chain: self.key.chain,
                    number: making.name.number,
                    file_bytes: making.bytes,
                    salt,
                };
                let block = head.encode(&self.key.secret);
                write_all_at(&making.file, 0, &block).map_err(failed("writing a head"))?;
                let synced =
                    if making.fresh { making.file.sync_all() } else { making.file.sync_data() };
                synced.map_err(failed("syncing a head"))?;
                making.next = Stage::Name(salt);
            }
            Stage::Name(salt) => {
                self.highest = making.name.number;
                let (from, to) = (making.name.new_name(), making.name.to_string());
                self.world.storage.rename(&from, &to).map_err(failed("renaming"))?;
                self.world.storage.sync_folder().map_err(failed("syncing the folder"))?;
                self.ready = Some(BegunFile {
                    file: Arc::new(making.file),
                    name: making.name,
                    file_bytes: making.bytes,
                    key: SumKey { secret: self.key.secret, salt },
                    position: BLOCK_BYTES,
                    last_sum: 0,
                });
                return Ok(());
            }
        }
        self.making = Some(making);
        Ok(())
    }

    /// Removes a spare file if there are too many; `true`: there aren't.
    fn remove_surplus(&mut self, wanted: u64) -> Result<bool, LogError> {
        let Some(surplus) = self.spare.take_surplus(wanted) else { return Ok(true) };
        self.remove(surplus)?;
        Ok(false)
    }

    /// A step failed. If that was for want of room and a spare file can go, it goes.
    fn without_room(&mut self, name: &FileName, failed: Failed) -> Result<(), LogError> {
        let Failed { doing, source } = failed;
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let spare = self.spare.take_any().ok_or(LogError::Full { source })?;
                self.remove(spare)
            }
            _ => Err(LogError::io(&name.to_string(), 0, doing, source)),
        }
    }

    fn remove(&self, spare: SpareFile) -> Result<(), LogError> {
        let name = self.key.name(spare.number).to_string();
        let removed = self.world.storage.remove(&name);
        removed.map_err(|source| LogError::io(&name, 0, "removing", source))
    }
}
