//! A disk in memory that tears, drops and fails by a seed: so that tests drive the shipped code
//! through power cuts, kills and failures.
//!
//! ```text
//! writes, renames ──> what reads see ── sync ──> what is on the disk
//!                                └─ power cut: each sector and name kept, lost or ruined
//! ```
//!
//! 1. A power cut and a kill give another disk; what still uses the old one doesn't touch it.
//! 2. The same seed and the same calls give the same disk.
//!
//! Any thread; one call at a time.

mod ambient;
mod calls;
mod content;
mod held_syncs;
mod names;

pub use ambient::{SimChance, SimClock, below, once_in};
pub use calls::SimFault;
pub use held_syncs::HeldSyncs;

pub(super) use held_syncs::wait_while_held;

use crate::storage::{Chance, Storage, StoredFile};
use calls::{CallFate, CallPlan};
use content::{CutLuck, FileContent, copy};
use names::FolderNames;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// A folder on the simulated disk. A clone is the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
}

/// A file of the simulated disk.
#[derive(Debug)]
pub struct SimFile {
    state: Arc<Mutex<DiskState>>,
    number: u64,
    name: String,
    _open: Arc<()>,
}

#[derive(Debug)]
struct DiskState {
    chance: SimChance,
    names: FolderNames,
    files: BTreeMap<u64, DiskFile>,
    next_file: u64,
    capacity_bytes: u64,
    calls: CallPlan,
}

#[derive(Debug, Default)]
struct DiskFile {
    content: FileContent,
    /// Shared with all that have it open.
    open: Arc<()>,
}

fn locked(state: &Mutex<DiskState>) -> MutexGuard<'_, DiskState> {
    state.lock().expect("no call panics")
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a simulated file fits memory")
}

impl SimDisk {
    /// An empty disk whose failures go by a seed.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with(DiskState {
            chance: SimChance::new(seed),
            names: FolderNames::default(),
            files: BTreeMap::new(),
            next_file: 1,
            capacity_bytes: u64::MAX,
            calls: CallPlan::default(),
        })
    }

    fn with(state: DiskState) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        locked(&self.state)
    }

    /// The disk when power comes back after a cut now: what wasn't synced is kept, lost or ruined,
    /// each sector and each name by itself. Nothing fails on it.
    #[must_use]
    pub fn power_cut(&self, chance: &dyn Chance) -> SimDisk {
        let luck = CutLuck::choose(chance);
        let state = self.state();
        let names = state.names.power_cut(&luck, chance);
        let cut = |content: &FileContent| content.power_cut(&luck, chance);
        SimDisk::with(state.next(names, cut))
    }

    /// The disk after the process was killed: all that reads saw is there, and what wasn't synced
    /// still isn't. Nothing fails on it.
    #[must_use]
    pub fn kill(&self) -> SimDisk {
        let state = self.state();
        SimDisk::with(state.next(state.names.clone(), FileContent::clone))
    }

    /// Reads see the disk from now on, but for what a sync would still move there: what a failed
    /// sync left behind is gone.
    pub fn forget_cache(&self) {
        self.state().files.values_mut().for_each(|file| file.content.forget());
    }

    /// Makes one call fail, once; the first one made on a new disk has the number 1.
    pub fn fail(&self, call: u64, fault: SimFault) {
        self.state().calls.fault = Some((call, fault));
    }

    /// Which call has failed; `None`: none yet.
    #[must_use]
    pub fn failed_call(&self) -> Option<String> {
        self.state().calls.hit.clone()
    }

    /// This call is cut off in its midst, and all that come behind it fail and do nothing.
    pub fn stop_at(&self, call: u64) {
        self.state().calls.stop_at = Some(call);
    }

    /// How many calls were made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls.made
    }

    /// All files together have at most so many bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// Bytes of all files that are named or open.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// A file's bytes, as reads see them; it is no call.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let number = state.names.seen().get(name)?;
        state.files.get(number).map(|file| file.content.bytes().to_vec())
    }

    /// Gives a file these bytes, on the disk; it is no call. Makes it if there is none.
    pub fn set_contents(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let number = state.names.seen().get(name).copied();
        let number = number.unwrap_or_else(|| state.new_file());
        state.names.make_synced(name, number);
        if let Some(file) = state.files.get_mut(&number) {
            file.content = FileContent::synced(bytes);
        }
    }
}

impl DiskState {
    /// Another disk with these names, and contents made from these.
    fn next(&self, names: FolderNames, content: impl Fn(&FileContent) -> FileContent) -> DiskState {
        let named = names.may_be_named();
        let named = self.files.iter().filter(|(number, _)| named.contains(number));
        let files = named.map(|(&number, file)| {
            (number, DiskFile { content: content(&file.content), open: Arc::default() })
        });
        DiskState {
            files: files.collect(),
            names,
            chance: SimChance::new(self.chance.word()),
            next_file: self.next_file,
            capacity_bytes: self.capacity_bytes,
            calls: CallPlan::default(),
        }
    }

    fn new_file(&mut self) -> u64 {
        let number = self.next_file;
        self.next_file += 1;
        self.files.insert(number, DiskFile::default());
        number
    }

    /// Drops files that have no name and that nobody has open.
    fn drop_unnamed(&mut self) {
        let named = self.names.may_be_named();
        self.files
            .retain(|number, file| named.contains(number) || Arc::strong_count(&file.open) > 1);
    }

    fn used_bytes(&self) -> u64 {
        let named: BTreeSet<u64> = self.names.seen().values().copied().collect();
        let counts = |&(number, file): &(&u64, &DiskFile)| {
            named.contains(number) || Arc::strong_count(&file.open) > 1
        };
        let counted = self.files.iter().filter(counts);
        counted.map(|(_, file)| file.content.bytes().len() as u64).sum()
    }

    fn file(&mut self, number: u64) -> &mut DiskFile {
        self.files.get_mut(&number).expect("an open file is kept")
    }

    /// How long a file may become that should have so many bytes.
    fn room_for(&self, number: u64, wanted: usize) -> usize {
        let has = self.files.get(&number).map_or(0, |file| file.content.bytes().len());
        if wanted <= has || self.capacity_bytes == u64::MAX {
            return wanted;
        }
        let free = self.capacity_bytes.saturating_sub(self.used_bytes());
        wanted.min(has.saturating_add(usize::try_from(free).unwrap_or(usize::MAX)))
    }

    /// A call that changes names: it works, fails with or without effect, or is cut off.
    fn change_names(
        &mut self,
        what: &str,
        name: &str,
        change: impl FnOnce(&mut DiskState) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.calls.next(what, name) {
            CallFate::Works | CallFate::Short => change(self),
            CallFate::Stopped(error) => Err(error),
            CallFate::Fails(error) | CallFate::Stops(error) => {
                if once_in(&self.chance, 2) {
                    change(self)?;
                }
                Err(error)
            }
        }
    }

    fn make(&mut self, name: &str) -> u64 {
        let number = self.new_file();
        self.names.remove(name);
        self.names.make(name, number);
        number
    }

    fn write(&mut self, number: u64, at: u64, bytes: &[u8], fate: CallFate) -> io::Result<usize> {
        let at = size(at);
        let some = size(below(&self.chance, bytes.len() as u64 + 1));
        let (wanted, error) = match fate {
            CallFate::Works => (bytes.len(), None),
            CallFate::Short => (bytes.len().div_ceil(2), None),
            CallFate::Fails(error) if error.kind() == io::ErrorKind::StorageFull => {
                (0, Some(error))
            }
            CallFate::Fails(error) | CallFate::Stops(error) => (some, Some(error)),
            CallFate::Stopped(error) => (0, Some(error)),
        };
        let room = self.room_for(number, at + wanted).saturating_sub(at);
        let written = bytes.get(..wanted.min(room)).unwrap_or_default();
        self.file(number).content.write(at, written);
        match error {
            Some(error) => Err(error),
            None if written.is_empty() && !bytes.is_empty() => Err(Errno::NOSPC.into()),
            None => Ok(written.len()),
        }
    }

    fn sync(&mut self, number: u64, all: bool, fate: CallFate) -> io::Result<()> {
        let file = self.files.get_mut(&number).expect("an open file is kept");
        match fate {
            CallFate::Works | CallFate::Short => {
                file.content.sync(all);
                Ok(())
            }
            CallFate::Fails(error) => {
                file.content.fail_sync(all, &self.chance);
                Err(error)
            }
            CallFate::Stops(error) | CallFate::Stopped(error) => Err(error),
        }
    }
}

/// The error of a call that has no effect of its own.
fn plain(fate: CallFate) -> io::Result<()> {
    match fate {
        CallFate::Works | CallFate::Short => Ok(()),
        CallFate::Fails(error) | CallFate::Stops(error) | CallFate::Stopped(error) => Err(error),
    }
}

impl Storage for SimDisk {
    type File = SimFile;

    fn names(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        plain(state.calls.next("names", "."))?;
        Ok(state.names.seen().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Option<SimFile>> {
        let mut state = self.state();
        plain(state.calls.next("open", name))?;
        let Some(&number) = state.names.seen().get(name) else {
            return Ok(None);
        };
        Ok(Some(self.opened(&mut state, number, name)))
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        let mut number = 0;
        state.change_names("create", name, |state| {
            number = state.make(name);
            Ok(())
        })?;
        Ok(self.opened(&mut state, number, name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state().change_names("rename", to, |state| {
            let renamed = state.names.rename(from, to);
            if renamed { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state().change_names("remove", name, |state| {
            state.names.remove(name);
            Ok(())
        })
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        match state.calls.next("sync_folder", ".") {
            CallFate::Works | CallFate::Short => {
                state.names.sync();
                state.drop_unnamed();
                Ok(())
            }
            CallFate::Fails(error) => {
                state.names.fail_sync(&state.chance);
                Err(error)
            }
            CallFate::Stops(error) | CallFate::Stopped(error) => Err(error),
        }
    }
}

impl SimDisk {
    fn opened(&self, state: &mut DiskState, number: u64, name: &str) -> SimFile {
        let open = Arc::clone(&state.file(number).open);
        SimFile { state: Arc::clone(&self.state), number, name: name.into(), _open: open }
    }
}

impl SimFile {
    fn called(&self, what: &str) -> (MutexGuard<'_, DiskState>, CallFate) {
        let mut state = locked(&self.state);
        let fate = state.calls.next(what, &self.name);
        (state, fate)
    }
}

impl StoredFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let (mut state, fate) = self.called("len");
        plain(fate)?;
        Ok(state.file(self.number).content.bytes().len() as u64)
    }

    fn links(&self) -> io::Result<u64> {
        let (state, fate) = self.called("links");
        plain(fate)?;
        let names = state.names.seen().values();
        Ok(names.filter(|&&number| number == self.number).count() as u64)
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let (mut state, fate) = self.called("read_at");
        let short = matches!(fate, CallFate::Short);
        plain(fate)?;
        let bytes = state.file(self.number).content.bytes();
        let from = bytes.get(size(position)..).unwrap_or_default();
        let most = if short { into.len().div_ceil(2) } else { into.len() };
        Ok(copy(into.get_mut(..most).unwrap_or_default(), from))
    }

    fn write_at(&self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        let (mut state, fate) = self.called("write_at");
        state.write(self.number, position, bytes, fate)
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        let (mut state, fate) = self.called("allocate");
        plain(fate)?;
        let wanted = size(bytes);
        if state.room_for(self.number, wanted) < wanted {
            return Err(Errno::NOSPC.into());
        }
        state.file(self.number).content.extend(wanted);
        Ok(true)
    }

    fn forget_cached(&self) {
        locked(&self.state).file(self.number).content.forget();
    }

    fn sync_data(&self) -> io::Result<()> {
        let (mut state, fate) = self.called("sync_data");
        state.sync(self.number, false, fate)
    }

    fn sync_all(&self) -> io::Result<()> {
        let (mut state, fate) = self.called("sync_all");
        state.sync(self.number, true, fate)
    }
}
