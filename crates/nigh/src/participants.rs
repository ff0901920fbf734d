//! How threads read without a lock: each is a participant of the database, and says whether it
//! holds records.
//!
//! ```text
//! get: the thread's participant ── online ──> find ──> value, a hold ── dropped ──> offline
//! ```
//!
//! 1. A participant is online while somebody holds it, and offline otherwise: so a thread that does
//!    nothing keeps no memory from being used again.
//! 2. Its state changes only where nobody holds it: `Rc::get_mut` proves that no value borrows from
//!    it.
//! 3. A thread leaves when it ends; or, if the database has ended before, when it takes part in
//!    another one.
//! 4. In a child of a fork nothing is held, and nobody leaves.
//! 5. A snapshot has a participant of its own, which goes when the snapshot ends.
//!
//! Any thread; a participant belongs to one.

use crate::error::DbError;
use nigh_shm::{Domain, ForkMark, Participant, Pin};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Numbers the databases of this process.
static DATABASES: AtomicU64 = AtomicU64::new(0);

/// Most snapshots at a time: each has a cache line that owners look at, and an owner looks at
/// all of them when one holds back too much.
pub(crate) const SNAPSHOTS_MOST: usize = 16;

thread_local! {
    static OWN: RefCell<Vec<OwnParticipant>> = const { RefCell::new(Vec::new()) };
}

/// This thread's part in one database.
struct OwnParticipant {
    database: u64,
    is_open: Weak<()>,
    participant: Rc<Participant>,
    fork_mark: Arc<ForkMark>,
}

impl Drop for OwnParticipant {
    fn drop(&mut self) {
        if self.fork_mark.is_in_child() {
            // To leave takes a lock, which a thread may have had that isn't here.
            std::mem::forget(Rc::clone(&self.participant));
        }
    }
}

/// All that takes part in one database.
pub(crate) struct Participants {
    domain: Arc<Domain>,
    database: u64,
    is_open: Arc<()>,
    /// Seats of the domain: the owners', then one for each thread that reads, then the snapshots'.
    owners: usize,
    most: usize,
    fork_mark: Arc<ForkMark>,
}

impl Participants {
    /// A domain for so many owners, so many threads that read, and snapshots.
    pub(crate) fn domain(owners: usize, most: usize) -> Arc<Domain> {
        Domain::new(owners + most + SNAPSHOTS_MOST)
    }

    /// So many threads at most, in such a domain, which the owners have joined.
    pub(crate) fn new(
        domain: &Arc<Domain>,
        owners: usize,
        most: usize,
        fork_mark: &Arc<ForkMark>,
    ) -> Participants {
        Participants {
            domain: Arc::clone(domain),
            database: DATABASES.fetch_add(1, Ordering::Relaxed),
            is_open: Arc::default(),
            owners,
            most,
            fork_mark: Arc::clone(fork_mark),
        }
    }

    /// Holds this thread's participant: what is read from now on stays as long as it is held.
    #[inline]
    pub(crate) fn hold(&self) -> Result<Hold, DbError> {
        if self.fork_mark.is_in_child() {
            return Err(DbError::Forked);
        }
        let database = self.database;
        let participant = OWN.try_with(|all| {
            let mut all = all.borrow_mut();
            match all.iter_mut().find(|it| it.database == database) {
                Some(own) => {
                    if let Some(alone) = Rc::get_mut(&mut own.participant) {
                        alone.online();
                    }
                    Ok(Rc::clone(&own.participant))
                }
                None => self.take_part(&mut all),
            }
        });
        // In a thread that ends, each read takes part for itself.
        let participant = participant.unwrap_or_else(|_| self.join())?;
        Ok(Hold { participant: Some(participant), database })
    }

    #[cold]
    fn take_part(&self, all: &mut Vec<OwnParticipant>) -> Result<Rc<Participant>, DbError> {
        all.retain(|it| it.is_open.strong_count() > 0);
        let participant = self.join()?;
        let is_open = Arc::downgrade(&self.is_open);
        all.push(OwnParticipant {
            database: self.database,
            is_open,
            participant: Rc::clone(&participant),
            fork_mark: Arc::clone(&self.fork_mark),
        });
        Ok(participant)
    }

    fn join(&self) -> Result<Rc<Participant>, DbError> {
        let joined = self.domain.try_join_in(self.owners..self.owners + self.most);
        joined.map(Rc::new).ok_or(DbError::TooManyThreads { most: self.most })
    }

    /// A participant for a snapshot: online, so all stays from now on that is there.
    pub(crate) fn join_for_snapshot(&self) -> Result<Participant, DbError> {
        let joined = self.domain.try_join_in(self.owners + self.most..usize::MAX);
        joined.ok_or(DbError::TooManySnapshots { most: SNAPSHOTS_MOST })
    }
}

/// A participant that is held.
pub(crate) struct Hold {
    /// `None` only while it is dropped.
    participant: Option<Rc<Participant>>,
    database: u64,
}

impl Hold {
    /// The pin of the thread that holds it.
    #[inline]
    pub(crate) fn pin(&self) -> Pin<'_> {
        self.participant.as_ref().expect("a hold that lives").pin()
    }

    /// Holds it once more.
    pub(crate) fn again(&self) -> Hold {
        Hold { participant: self.participant.clone(), database: self.database }
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        drop(self.participant.take());
        // In a thread that ends, the participant has left with its last hold.
        let _ = OWN.try_with(|all| {
            let mut all = all.borrow_mut();
            let own = all.iter_mut().find(|it| it.database == self.database);
            if let Some(alone) = own.and_then(|own| Rc::get_mut(&mut own.participant)) {
                alone.offline();
            }
        });
    }
}
