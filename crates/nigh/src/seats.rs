//! How threads read without a lock: each has a seat in the database, which says whether it holds
//! records.
//!
//! ```text
//! get: the thread's seat ── online ──> find ──> value, which holds the seat ── dropped ──> offline
//! ```
//!
//! 1. A seat is online while somebody holds it, and offline otherwise: so a thread that does
//!    nothing keeps no memory from being used again.
//! 2. Only who is alone with a seat changes its state: `Rc::get_mut` proves that no value borrows
//!    from it.
//! 3. A thread leaves when it ends, and when it takes a seat in another database behind the end of
//!    this one.
//!
//! Any thread; a seat belongs to one.

use crate::error::DbError;
use nigh_shm::{Domain, Participant, Pin};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Numbers the databases of this process.
static DATABASES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SEATS: RefCell<Vec<TakenSeat>> = const { RefCell::new(Vec::new()) };
}

/// This thread's seat in one database.
struct TakenSeat {
    database: u64,
    is_open: Weak<()>,
    seat: Rc<Participant>,
}

/// The seats of one database.
pub(crate) struct Seats {
    domain: Arc<Domain>,
    database: u64,
    is_open: Arc<()>,
    most: usize,
}

impl Seats {
    /// So many at most, in a domain that has room for them.
    pub(crate) fn new(domain: &Arc<Domain>, most: usize) -> Seats {
        let database = DATABASES.fetch_add(1, Ordering::Relaxed);
        Seats { domain: Arc::clone(domain), database, is_open: Arc::default(), most }
    }

    /// This thread's seat: what is read from now on stays as long as somebody holds it.
    #[inline]
    pub(crate) fn hold(&self) -> Result<Hold, DbError> {
        let database = self.database;
        let seat = SEATS.try_with(|seats| {
            let mut seats = seats.borrow_mut();
            match seats.iter_mut().find(|it| it.database == database) {
                Some(taken) => {
                    if let Some(alone) = Rc::get_mut(&mut taken.seat) {
                        alone.online();
                    }
                    Ok(Rc::clone(&taken.seat))
                }
                None => self.sit_down(&mut seats),
            }
        });
        // In a thread that ends, each read has a seat of its own.
        let seat = seat.unwrap_or_else(|_| self.join())?;
        Ok(Hold { seat: Some(seat), database })
    }

    #[cold]
    fn sit_down(&self, seats: &mut Vec<TakenSeat>) -> Result<Rc<Participant>, DbError> {
        seats.retain(|it| it.is_open.strong_count() > 0);
        let seat = self.join()?;
        let is_open = Arc::downgrade(&self.is_open);
        seats.push(TakenSeat { database: self.database, is_open, seat: Rc::clone(&seat) });
        Ok(seat)
    }

    fn join(&self) -> Result<Rc<Participant>, DbError> {
        let joined = self.domain.try_join();
        joined.map(Rc::new).ok_or(DbError::TooManyThreads { most: self.most })
    }
}

/// A seat that is held.
pub(crate) struct Hold {
    /// `None` only while it is dropped.
    seat: Option<Rc<Participant>>,
    database: u64,
}

impl Hold {
    /// The pin of whoever holds the seat.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        self.seat.as_ref().expect("a hold that lives").pin()
    }

    /// Holds it once more.
    pub(crate) fn again(&self) -> Hold {
        Hold { seat: self.seat.clone(), database: self.database }
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        drop(self.seat.take());
        // In a thread that ends, the seat has left with its last holder.
        let _ = SEATS.try_with(|seats| {
            let mut seats = seats.borrow_mut();
            let taken = seats.iter_mut().find(|it| it.database == self.database);
            if let Some(alone) = taken.and_then(|taken| Rc::get_mut(&mut taken.seat)) {
                alone.offline();
            }
        });
    }
}
