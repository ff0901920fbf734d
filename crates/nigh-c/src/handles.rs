//! What is open, found by the number that is its handle.
//!
//! ```text
//! handle = number << 8 | slot        slots[slot] ── stripe of this thread ── read lock ── Db
//! remove: write lock of each stripe in turn ── the last has the Db
//! ```
//!
//! 1. No number comes twice, so a call with the handle of a closed thing finds another number, or
//!    none.
//! 2. A thing is removed when all calls that use it have returned; a call that comes later finds it
//!    closed.
//! 3. Threads that read share no cache line for that: each takes the lock of its own stripe, which
//!    nobody else wants but one thread in `STRIPES`, and a close.
//!
//! Any thread.

use crate::fault::{Fault, nigh_status};
use crate::snapshot_steps::SnapshotSteps;
use nigh::{Db, DbReader, Watch};
use std::sync::atomic::{AtomicUsize, Ordering};
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
    thing: Arc<T>,
}

type Slot<T> = OnceLock<Box<[Stripe<T>; STRIPES]>>;

/// What is open of one kind.
pub(crate) struct Handles<T> {
    kind: &'static str,
    opener: &'static str,
    slots: [Slot<T>; OPEN_MOST],
    taken: Mutex<Taken>,
}

/// Which slots are taken, and the number of the next handle.
struct Taken {
    slots: [bool; OPEN_MOST],
    number: u64,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: &'static str, opener: &'static str) -> Handles<T> {
        let taken = Taken { slots: [false; OPEN_MOST], number: 0 };
        let slots = [const { OnceLock::new() }; OPEN_MOST];
        Handles { kind, opener, slots, taken: Mutex::new(taken) }
    }

    /// Opens a thing. Returns its handle.
    pub(crate) fn add(&self, open: impl FnOnce() -> Result<T, Fault>) -> Result<u64, Fault> {
        let id = self.take()?;
        let slot = slot_of(id);
        let thing = match open() {
            Ok(thing) => Arc::new(thing),
            Err(fault) => {
                self.give_back(slot);
                return Err(fault);
            }
        };
        let new = || Box::new([const { Stripe(RwLock::new(None)) }; STRIPES]);
        for Stripe(stripe) in self.slots[slot].get_or_init(new).iter() {
            let own = OpenThing { id, thing: Arc::clone(&thing) };
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
        self.find(id, |thing| call(thing))
    }

    /// What a handle names; it may be removed meanwhile.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<T>, Fault> {
        self.find(id, |thing| Ok(Arc::clone(thing)))
    }

    #[inline]
    fn find<R>(&self, id: u64, call: impl FnOnce(&Arc<T>) -> Result<R, Fault>) -> Result<R, Fault> {
        let Stripe(stripe) = &self.stripes(id)?[own_stripe()];
        let open = stripe.read().unwrap_or_else(PoisonError::into_inner);
        match &*open {
            Some(open) if open.id == id => call(&open.thing),
            _ => Err(self.closed()),
        }
    }

    /// Takes away what a handle names, when no call is within `with`.
    pub(crate) fn remove(&self, id: u64) -> Result<Arc<T>, Fault> {
        let mut last = None;
        for Stripe(stripe) in self.stripes(id)? {
            let mut open = stripe.write().unwrap_or_else(PoisonError::into_inner);
            match open.take_if(|open| open.id == id) {
                Some(open) => last = Some(open.thing),
                // Only the first stripe can say that: two that remove meet there.
                None => return Err(self.closed()),
            }
        }
        self.give_back(slot_of(id));
        last.ok_or_else(|| self.closed())
    }

    /// A slot and a number that are free; returns both as a handle.
    fn take(&self) -> Result<u64, Fault> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = taken.slots.iter().position(|is_taken| !is_taken) else {
            let kind = self.kind;
            let message = format!("{OPEN_MOST} {kind}s are open, and no more may be: close one");
            return Err(Fault::new(nigh_status::NIGH_CANNOT_OPEN, message));
        };
        taken.slots[slot] = true;
        taken.number += 1;
        Ok(taken.number << SLOT_BITS | slot as u64)
    }

    fn give_back(&self, slot: usize) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).slots[slot] = false;
    }

    #[inline]
    fn stripes(&self, id: u64) -> Result<&[Stripe<T>; STRIPES], Fault> {
        self.slots[slot_of(id)].get().map(|stripes| &**stripes).ok_or_else(|| self.closed())
    }

    #[cold]
    fn closed(&self) -> Fault {
        let Handles { kind, opener, .. } = self;
        let message =
            format!("the handle names no open {kind}: it is closed, or {opener} hasn't opened it");
        Fault::new(nigh_status::NIGH_CLOSED, message)
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
