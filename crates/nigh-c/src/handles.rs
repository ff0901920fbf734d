//! What is open, found by the number that is its handle.
//!
//! ```text
//! handle = number << 8 | slot
//! slots[slot] ── not a fork's child? ── stripe of this thread ── read lock ── Db
//! remove: write lock of each stripe in turn ── the last has the Db
//! ```
//!
//! 1. No number comes twice, so a call with the handle of a closed thing finds another number, or
//!    none.
//! 2. A thing is removed when all calls that use it have returned; a call that comes later finds it
//!    closed.
//! 3. Threads that read share no cache line for that: each takes the lock of its own stripe, which
//!    nobody else wants but one thread in `STRIPES`, and a close.
//! 4. A fork's child takes no lock of a slot that its parent has used: a thread that isn't there
//!    may have it for ever. The slot's mark is looked at before. Such slots stay unused in the
//!    child.
//! 5. What a call within `with` says of its error has the name of the thing: a database's folder, a
//!    server's address.
//!
//! Any thread.

use crate::fault::{Fault, nigh_status};
use crate::snapshot_steps::SnapshotSteps;
use nigh::{Db, DbReader, ForkMark, Watch};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Things of a kind that a process has open at once: of databases more than it has memory for.
const OPEN_MOST: usize = 256;
/// Bits of a handle that name the slot.
const SLOT_BITS: u32 = OPEN_MOST.trailing_zeros();
/// Locks of a slot: as many as cores that read one database, so that two seldom meet.
const STRIPES: usize = 32;

/// Databases.
pub(crate) static DBS: Handles<Db> = Handles::new("database", "nigh_open");
/// Snapshots, each for one thread at a time.
pub(crate) static SNAPSHOTS: Handles<Mutex<SnapshotSteps>> =
    Handles::new("snapshot", "nigh_snapshot_begin");
/// Watches.
pub(crate) static WATCHES: Handles<Watch> = Handles::new("watch", "nigh_watch_begin");
/// Readers.
pub(crate) static READERS: Handles<DbReader> = Handles::new("reader", "nigh_reader_open");

/// One of a slot's locks, with a cache line (and the one that is fetched with it) of its own.
#[repr(align(128))]
struct Stripe<T>(RwLock<Option<OpenThing<T>>>);

struct OpenThing<T> {
    id: u64,
    /// A database's folder, or a server's address.
    name: Arc<str>,
    thing: Arc<T>,
}

/// What is made when a slot is used for the first time.
struct Slot<T> {
    /// Of the process that uses it.
    fork_mark: ForkMark,
    stripes: [Stripe<T>; STRIPES],
}

/// What is open of one kind.
pub(crate) struct Handles<T> {
    kind: &'static str,
    opener: &'static str,
    slots: [OnceLock<Box<Slot<T>>>; OPEN_MOST],
    taken: [AtomicBool; OPEN_MOST],
    /// The number of the latest handle.
    number: AtomicU64,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: &'static str, opener: &'static str) -> Handles<T> {
        let slots = [const { OnceLock::new() }; OPEN_MOST];
        let taken = [const { AtomicBool::new(false) }; OPEN_MOST];
        Handles { kind, opener, slots, taken, number: AtomicU64::new(0) }
    }

    /// Opens a thing of this name. Returns its handle.
    pub(crate) fn add(
        &self,
        name: &Arc<str>,
        open: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<u64, Fault> {
        let at = self.take()?;
        let opened = self.slot_to_use(at).and_then(|slot| Ok((slot, Arc::new(open()?))));
        let (slot, thing) = opened.map_err(|fault| {
            self.give_back(at);
            fault.of(name)
        })?;
        let id = (self.number.fetch_add(1, Ordering::Relaxed) + 1) << SLOT_BITS | at as u64;
        for Stripe(stripe) in &slot.stripes {
            let own = OpenThing { id, name: Arc::clone(name), thing: Arc::clone(&thing) };
            *stripe.write().unwrap_or_else(PoisonError::into_inner) = Some(own);
        }
        Ok(id)
    }

    /// Passes what a handle names to `call`. It isn't removed meanwhile.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        id: u64,
        call: impl FnOnce(&T) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        self.with_named(id, |thing, _| call(thing))
    }

    /// The same with its name.
    #[inline]
    pub(crate) fn with_named<R>(
        &self,
        id: u64,
        call: impl FnOnce(&T, &Arc<str>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        self.find(id, |open| call(&open.thing, &open.name))
    }

    /// What a handle names, and its name; it may be removed meanwhile.
    pub(crate) fn get(&self, id: u64) -> Result<(Arc<T>, Arc<str>), Fault> {
        self.find(id, |open| Ok((Arc::clone(&open.thing), Arc::clone(&open.name))))
    }

    #[inline]
    fn find<R>(
        &self,
        id: u64,
        call: impl FnOnce(&OpenThing<T>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let Stripe(stripe) = &self.slot(id)?.stripes[own_stripe()];
        let open = stripe.read().unwrap_or_else(PoisonError::into_inner);
        match &*open {
            Some(open) if open.id == id => call(open).map_err(|fault| fault.of(&open.name)),
            _ => Err(self.closed()),
        }
    }

    /// Takes away what a handle names, and its name, when no call is within `with`.
    pub(crate) fn remove(&self, id: u64) -> Result<(Arc<T>, Arc<str>), Fault> {
        let mut last = None;
        for Stripe(stripe) in &self.slot(id)?.stripes {
            let mut open = stripe.write().unwrap_or_else(PoisonError::into_inner);
            match open.take_if(|open| open.id == id) {
                Some(open) => last = Some((open.thing, open.name)),
                // Only the first stripe can say that: two that remove meet there.
                None => return Err(self.closed()),
            }
        }
        self.give_back(slot_of(id));
        last.ok_or_else(|| self.closed())
    }

    /// A slot that is free, and that no parent of this process has used.
    fn take(&self) -> Result<usize, Fault> {
        let is_own = |at: &usize| self.slots[*at].get().is_none_or(|slot| !slot.is_a_parents());
        let mut own = (0..OPEN_MOST).filter(is_own);
        own.find(|&at| !self.taken[at].swap(true, Ordering::Acquire)).ok_or_else(|| {
            let kind = self.kind;
            let message = format!("{OPEN_MOST} {kind}s are open, and no more may be: close one");
            Fault::new(nigh_status::NIGH_TOO_MANY, message)
        })
    }

    fn give_back(&self, at: usize) {
        self.taken[at].store(false, Ordering::Release);
    }

    /// A slot that was taken.
    fn slot_to_use(&self, at: usize) -> Result<&Slot<T>, Fault> {
        if self.slots[at].get().is_none() {
            let fork_mark = ForkMark::new().map_err(|error| {
                let message = format!("the system gives no page of memory: {error}");
                Fault::new(nigh_status::NIGH_NO_MEMORY, message)
            })?;
            let stripes = [const { Stripe(RwLock::new(None)) }; STRIPES];
            // Nobody else has it, so it isn't made twice.
            let _ = self.slots[at].set(Box::new(Slot { fork_mark, stripes }));
        }
        self.slots[at].get().map(|slot| &**slot).ok_or_else(|| self.closed())
    }

    /// The slot of a handle, if this process may use it.
    #[inline]
    fn slot(&self, id: u64) -> Result<&Slot<T>, Fault> {
        let slot = self.slots[slot_of(id)].get().ok_or_else(|| self.closed())?;
        if slot.is_a_parents() { Err(self.forked()) } else { Ok(slot) }
    }

    #[cold]
    fn forked(&self) -> Fault {
        let Handles { kind, opener, .. } = self;
        let message = format!(
            "the {kind} is of the process from which this one was forked: only that one may use \
             it; {opener} gives another one here"
        );
        Fault::new(nigh_status::NIGH_REFUSED, message)
    }

    #[cold]
    fn closed(&self) -> Fault {
        let Handles { kind, opener, .. } = self;
        let message =
            format!("the handle names no open {kind}: it is closed, or {opener} hasn't opened it");
        Fault::new(nigh_status::NIGH_CLOSED, message)
    }
}

impl<T> Slot<T> {
    /// Whether this process is a fork's child, and its parent has used the slot.
    #[inline]
    fn is_a_parents(&self) -> bool {
        self.fork_mark.is_in_child()
    }
}

fn slot_of(id: u64) -> usize {
    usize::try_from(id).unwrap_or_default() % OPEN_MOST
}

/// The stripe of this thread.
#[inline]
fn own_stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    // A thread that ends has any.
    OWN.try_with(|own| *own).unwrap_or_default()
}
