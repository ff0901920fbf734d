//! The databases that are open, found by the number that is their handle.
//!
//! ```text
//! handle = number << 8 | slot        SLOTS[slot] ── stripe of this thread ── read lock ── Db
//! close: write lock of each stripe in turn ── the last has the Db
//! ```
//!
//! 1. No number comes twice, so a call with the handle of a closed database finds another number,
//!    or none.
//! 2. A database ends when all calls that use it have returned; a call that comes later finds it
//!    closed.
//! 3. Threads that read share no cache line for that: each takes the lock of its own stripe, which
//!    nobody else wants but one thread in `STRIPES`, and a close.
//!
//! Any thread.

use crate::c_types::nigh_db;
use crate::fault::{Fault, nigh_status};
use nigh::{Db, Options};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// Databases that a process has open at once: more than it has memory for.
const OPEN_MOST: usize = 256;
/// Bits of a handle that name the slot.
const SLOT_BITS: u32 = OPEN_MOST.trailing_zeros();
/// Locks of a slot: as many as cores that read one database, so that two seldom meet.
const STRIPES: usize = 32;

/// One of a slot's locks, with a cache line (and the one that is fetched with it) of its own.
#[repr(align(128))]
#[derive(Default)]
struct Stripe(RwLock<Option<OpenDb>>);

struct OpenDb {
    handle: nigh_db,
    db: Arc<Db>,
}

type Slot = OnceLock<Box<[Stripe; STRIPES]>>;

static SLOTS: [Slot; OPEN_MOST] = [const { OnceLock::new() }; OPEN_MOST];

/// Which slots are taken, and the number of the next handle.
static TAKEN: Mutex<Taken> = Mutex::new(Taken { slots: [false; OPEN_MOST], number: 0 });

struct Taken {
    slots: [bool; OPEN_MOST],
    number: u64,
}

/// A slot that is taken; dropped, it is free.
struct TakenSlot(usize);

impl TakenSlot {
    fn take() -> Result<(TakenSlot, nigh_db), Fault> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = taken.slots.iter().position(|is_taken| !is_taken) else {
            let message = format!("{OPEN_MOST} databases are open, and no more may be: close one");
            return Err(Fault::new(nigh_status::NIGH_CANNOT_OPEN, message));
        };
        taken.slots[slot] = true;
        taken.number += 1;
        Ok((TakenSlot(slot), nigh_db { id: taken.number << SLOT_BITS | slot as u64 }))
    }
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).slots[self.0] = false;
    }
}

/// Opens a database. Returns its handle.
pub(crate) fn open(path: &Path, options: &Options) -> Result<nigh_db, Fault> {
    let (slot, handle) = TakenSlot::take()?;
    let db = Arc::new(Db::open(path, options)?);
    let stripes = SLOTS[slot.0].get_or_init(Box::default);
    for Stripe(stripe) in stripes.iter() {
        let own = OpenDb { handle, db: Arc::clone(&db) };
        *stripe.write().unwrap_or_else(PoisonError::into_inner) = Some(own);
    }
    std::mem::forget(slot); // until it is closed
    Ok(handle)
}

/// Passes a handle's database to `call`. It isn't closed meanwhile.
#[inline]
pub(crate) fn with<R>(
    handle: nigh_db,
    call: impl FnOnce(&Db) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let Stripe(stripe) = &stripes(handle)?[own_stripe()];
    let open = stripe.read().unwrap_or_else(PoisonError::into_inner);
    match &*open {
        Some(open) if open.handle == handle => call(&open.db),
        _ => Err(closed()),
    }
}

/// Closes a handle's database, after the calls that use it.
pub(crate) fn close(handle: nigh_db) -> Result<(), Fault> {
    let mut last = None;
    for Stripe(stripe) in stripes(handle)? {
        let mut open = stripe.write().unwrap_or_else(PoisonError::into_inner);
        match open.take_if(|open| open.handle == handle) {
            Some(open) => last = Some(open.db),
            // Only the first stripe can say that: two that close meet there.
            None => return Err(closed()),
        }
    }
    let _slot = TakenSlot(slot_of(handle)); // free at the end
    let db = last.and_then(Arc::into_inner).ok_or_else(closed)?;
    Ok(db.close()?)
}

fn slot_of(handle: nigh_db) -> usize {
    usize::try_from(handle.id).unwrap_or_default() % OPEN_MOST
}

#[inline]
fn stripes(handle: nigh_db) -> Result<&'static [Stripe; STRIPES], Fault> {
    SLOTS[slot_of(handle)].get().map(|stripes| &**stripes).ok_or_else(closed)
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

#[cold]
fn closed() -> Fault {
    let message = "the handle names no open database: it is closed, or nigh_open hasn't opened it";
    Fault::new(nigh_status::NIGH_CLOSED, message)
}
