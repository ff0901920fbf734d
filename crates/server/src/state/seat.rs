//! A shard's place in what all shards share: what comes to it, and what it shows.
//!
//! The order of its locks is told in [`crate::state::shared`].
//!
//! Any thread.

use crate::engine::{Reason, Remote, Running};
use crate::net::client::client_row;
use crate::net::connection::Connection;
use crate::net::listener::Accepted;
use crate::observe::snapshot::{ClientRow, Snapshot};
use crate::state::libraries::ChangedLibraries;
use crate::sync::lock;
use crate::tenant::TenantId;
use nigh_shm::JournalWriter;
use nigh_store::{AttachedShard, LogBerth, LogStatuses, ShardCompaction};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

/// A connection that comes to a shard.
pub(crate) enum Arrival {
    /// Accepted by another shard.
    Accepted(Accepted),
    /// Moved here by another shard, because its data is here.
    Moved(Box<Connection>),
}

/// What the others leave for one shard.
pub(crate) struct Seat {
    waker: Arc<mio::Waker>,
    /// Counts notes; the shard compares it with what it saw last.
    notes: AtomicU64,
    arrivals: Mutex<Vec<Arrival>>,
    pub(super) kills: Mutex<Vec<u64>>,
    /// Which libraries have changed, by tenant.
    pub(super) libraries: Mutex<BTreeMap<TenantId, ChangedLibraries>>,
    pub(super) snapshot: Mutex<Snapshot>,
    /// The newest ticket that the snapshot is as new as.
    pub(super) refreshed: AtomicU64,
    /// Connections of this shard wait for other shards' snapshots.
    pub(super) waits: AtomicBool,
    /// It sleeps, and some of its connections wait for changes to be on disk.
    pub(super) awaits_sync: AtomicBool,
    /// They tell which function runs there, and end it.
    engines: OnceLock<Vec<Remote>>,
    /// What the log's keeper asks of the shard.
    log_asks: Mutex<Vec<LogAsk>>,
}

/// What the log's keeper asks of a shard.
pub(crate) enum LogAsk {
    /// To begin a base: all changes are told to its journal from now on.
    Attach(Box<NewSide>),
    /// To leave the log, and say so.
    Detach(SyncSender<()>),
}

/// What a shard gets for a base.
pub(crate) struct NewSide {
    pub(crate) berth: LogBerth,
    /// Its journal, if it has none.
    pub(crate) journal: Option<JournalWriter>,
    /// Of all shards.
    pub(crate) statuses: LogStatuses,
    pub(crate) compaction: ShardCompaction,
    /// The keeper takes from it what the shard has then.
    pub(crate) done: SyncSender<AttachedShard>,
}

impl Seat {
    /// A seat whose shard `waker` wakes.
    pub(crate) fn new(waker: Arc<mio::Waker>) -> Self {
        Self {
            waker,
            notes: AtomicU64::new(0),
            arrivals: Mutex::default(),
            kills: Mutex::default(),
            libraries: Mutex::default(),
            snapshot: Mutex::default(),
            refreshed: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            awaits_sync: AtomicBool::new(false),
            engines: OnceLock::new(),
            log_asks: Mutex::default(),
        }
    }

    /// Shows others what runs in the shard's engines.
    pub(crate) fn show_engines(&self, engines: Vec<Remote>) {
        assert!(self.engines.set(engines).is_ok(), "a shard makes its engines once");
    }

    /// The function that runs there.
    pub(crate) fn running(&self) -> Option<Running> {
        self.engines.get()?.iter().find_map(|engine| engine(None))
    }

    /// Ends the function that runs there, if one does.
    pub(crate) fn terminate(&self, reason: Reason) -> Option<Running> {
        self.engines.get()?.iter().map(|engine| engine(Some(reason))).fold(None, Option::or)
    }

    /// Wakes the shard, if it sleeps.
    pub(crate) fn wake(&self) {
        // An eventfd's write fails only when its reader is gone.
        let _ = self.waker.wake();
    }

    /// The shard sleeps, and waits for changes to be on disk, or no longer does.
    pub(crate) fn await_sync(&self, awaits: bool) {
        // SYNC(synced): either this is seen by a log's thread, or what that counted is seen here.
        self.awaits_sync.store(awaits, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn notes(&self) -> u64 {
        // SYNC(seat-note)
        self.notes.load(Ordering::Acquire)
    }

    pub(super) fn note(&self) {
        // SYNC(seat-note)
        self.notes.fetch_add(1, Ordering::Release);
        self.wake();
    }

    pub(crate) fn arrive(&self, arrival: Arrival) {
        lock(&self.arrivals).push(arrival);
        self.note();
    }

    /// The connections that came. A client that was moved here is in the snapshot from now on.
    pub(crate) fn take_arrivals(&self) -> Vec<Arrival> {
        let mut arrivals = lock(&self.arrivals);
        lock(&self.snapshot).clients.extend(moved(&arrivals));
        std::mem::take(&mut *arrivals)
    }

    /// The clients that were moved here and haven't arrived yet.
    pub(crate) fn moving(&self) -> Vec<ClientRow> {
        moved(&lock(&self.arrivals)).collect()
    }

    pub(crate) fn kills(&self) -> Vec<u64> {
        std::mem::take(&mut lock(&self.kills))
    }

    /// Asks something of the shard.
    pub(crate) fn ask_of_log(&self, ask: LogAsk) {
        lock(&self.log_asks).push(ask);
        self.note();
    }

    /// What the log's keeper has asked, in its order.
    pub(crate) fn log_asks(&self) -> Vec<LogAsk> {
        std::mem::take(&mut lock(&self.log_asks))
    }

    pub(crate) fn changed_libraries(&self) -> BTreeMap<TenantId, ChangedLibraries> {
        std::mem::take(&mut lock(&self.libraries))
    }

    /// What the shard last told of itself.
    pub(crate) fn snapshot(&self) -> MutexGuard<'_, Snapshot> {
        lock(&self.snapshot)
    }
}

/// What is told of the clients that were moved.
fn moved(arrivals: &[Arrival]) -> impl Iterator<Item = ClientRow> {
    let now = Instant::now();
    arrivals.iter().filter_map(move |arrival| match arrival {
        Arrival::Moved(it) => Some(client_row(&it.pipe.client, it.buffers(), now)),
        Arrival::Accepted(_) => None,
    })
}
