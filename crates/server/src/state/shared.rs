//! What the shards of a server share beside the arenas: rarely changed, never looked at per
//! command.
//!
//! ```text
//! anybody ── change, note it at the seat, wake ──> seat of a shard ──> its next turn looks what it is
//! ```
//!
//! 1. A change is made before it is noted, so a shard that sees the note sees the change.
//! 2. A command that a client sends after it was told of a change meets the change, on whatever
//!    connection. The shard noted the change before it told the client, and the client sent the
//!    command after that. So a shard that has read the command, from a socket or a mailbox, finds
//!    the note if it looks after the read. A shard runs a command only if it has looked at all
//!    notes since the read. If there is a new one, it leaves the command for the next turn, which
//!    begins with the notes.
//! 3. No thread holds two of these locks at once, but for a seat's arrivals and after that its
//!    snapshot; nor one of them while it waits, but for that of the settings' file, which only its
//!    writers take.
//!
//! Any thread.

use crate::config::Config;
use crate::engine::Reason;
use crate::folder::faults::Arenas;
use crate::folder::starts::Skips;
use crate::net::local_counts::LocalCounts;
use crate::observe::slowlog::Slowlog;
use crate::observe::snapshot::Snapshot;
use crate::state::backups::Backups;
use crate::state::checks::Checks;
use crate::state::libraries::ChangedLibraries;
use crate::state::log_desk::LogDesk;
use crate::state::seat::Seat;
use crate::state::still::Still;
use crate::sync::lock;
use crate::tenant::TenantId;
use nigh_store::ClosedArenas;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Instant;

/// How a server was asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Keep the arenas.
    Keep,
    /// Remove them.
    Remove,
}

/// The shared state of a server.
pub(crate) struct Shared {
    pub(crate) seats: Vec<Seat>,
    pub(crate) started: Instant,
    pub(crate) run_id: String,
    pub(crate) port: u16,
    /// Most descriptors of connections and local clients that the process's files allow.
    pub(crate) file_limit: usize,
    /// What is known of new sources.
    pub(crate) checks: Arc<Checks>,
    /// The libraries that aren't started.
    pub(crate) skips: Skips,
    pub(crate) open_connections: AtomicUsize,
    /// Clients of this machine that are attached.
    pub(crate) locals: Arc<LocalCounts>,
    last_client: AtomicU64,
    killed: Mutex<KilledClients>,
    config: Mutex<Config>,
    settings_file: Mutex<()>,
    slowlog: Mutex<Slowlog>,
    settings_version: AtomicU64,
    resets: AtomicU64,
    tickets: AtomicU64,
    /// Counts what the logs have told.
    syncs: AtomicU64,
    /// There when they have been opened.
    pub(crate) arenas: OnceLock<Arenas>,
    stop: OnceLock<Stop>,
    /// Of shards that have ended, if the arenas are to go.
    closed: Mutex<Vec<ClosedArenas>>,
    next_seat: AtomicUsize,
    /// Which shards stand still, and for which one.
    pub(crate) still: Still,
    /// Copies of the log.
    pub(crate) backups: Backups,
    /// What is wanted of the log.
    pub(crate) log_desk: LogDesk,
}

/// Ended clients that are remembered: more than can be on their way between shards.
const KILLED_KEPT: usize = 1 << 16;

/// The last clients that were ended by CLIENT KILL: one may be on its way between shards.
#[derive(Default)]
struct KilledClients {
    ids: HashSet<u64>,
    /// The same in their order.
    order: VecDeque<u64>,
}

impl KilledClients {
    fn add(&mut self, id: u64) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > KILLED_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

/// The state that the versions of [`Shared`] count, as one shard has seen it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) settings: u64,
    pub(crate) resets: u64,
    pub(crate) ticket: u64,
}

impl Shared {
    /// The shared state of a server that starts now.
    pub(crate) fn new(
        seats: Vec<Seat>,
        config: Config,
        port: u16,
        file_limit: usize,
        run_id: String,
        skips: Skips,
    ) -> Arc<Self> {
        let slowlog = Slowlog::with_capacity(config.size("slowlog-max-len"));
        Arc::new_cyclic(|shared: &Weak<Self>| {
            let shared = shared.clone();
            let notice = move || {
                if let Some(shared) = shared.upgrade() {
                    shared.note_all();
                }
            };
            let checks = Checks::new(config.checker.clone(), Box::new(notice));
            Self {
                seats,
                started: Instant::now(),
                run_id,
                port,
                file_limit,
                checks: Arc::new(checks),
                skips,
                open_connections: AtomicUsize::new(0),
                locals: Arc::default(),
                last_client: AtomicU64::new(0),
                killed: Mutex::default(),
                config: Mutex::new(config),
                settings_file: Mutex::default(),
                slowlog: Mutex::new(slowlog),
                settings_version: AtomicU64::new(0),
                resets: AtomicU64::new(0),
                tickets: AtomicU64::new(0),
                syncs: AtomicU64::new(0),
                arenas: OnceLock::new(),
                stop: OnceLock::new(),
                closed: Mutex::default(),
                next_seat: AtomicUsize::new(0),
                still: Still::default(),
                backups: Backups::new(),
                log_desk: LogDesk::default(),
            }
        })
    }

    /// Descriptors that clients cost now: of their connections, and what local ones have beside.
    pub(crate) fn client_files(&self) -> usize {
        self.open_connections.load(Ordering::Relaxed) + self.locals.files.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.seats.len()
    }

    /// Wakes a shard, or nobody by another number.
    pub(crate) fn wake(&self, shard: usize) {
        if let Some(seat) = self.seats.get(shard) {
            seat.wake();
        }
    }

    pub(crate) fn note_all(&self) {
        self.seats.iter().for_each(Seat::note);
    }

    /// Asks all shards but `asker` to end clients: one of them has each, or gets it, if it is
    /// moving.
    pub(crate) fn kill(&self, asker: usize, ids: &BTreeSet<u64>) {
        if ids.is_empty() {
            return;
        }
        {
            let mut killed = lock(&self.killed);
            ids.iter().for_each(|id| killed.add(*id));
        }
        for (_, seat) in self.seats.iter().enumerate().filter(|(number, _)| *number != asker) {
            lock(&seat.kills).extend(ids);
            seat.note();
        }
    }

    /// Whether a client that arrives was ended on its way.
    pub(crate) fn was_killed(&self, id: u64) -> bool {
        lock(&self.killed).ids.contains(&id)
    }

    /// What has changed so far.
    pub(crate) fn versions(&self) -> Versions {
        Versions {
            settings: self.settings_version.load(Ordering::Acquire),
            resets: self.resets.load(Ordering::Acquire),
            ticket: self.tickets.load(Ordering::Acquire),
        }
    }

    /// A number that no other client has had.
    pub(crate) fn client_id(&self) -> u64 {
        self.last_client.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The seat for a connection that any shard may have: they take turns.
    pub(crate) fn any_seat(&self) -> usize {
        self.next_seat.fetch_add(1, Ordering::Relaxed) % self.seats.len()
    }

    pub(crate) fn config(&self) -> Config {
        lock(&self.config).clone()
    }

    /// Replaces the settings by what `change` makes of them, unless it refuses.
    pub(crate) fn change_config<E>(
        &self,
        change: impl FnOnce(&Config) -> Result<Config, E>,
    ) -> Result<(), E> {
        {
            let mut config = lock(&self.config);
            *config = change(&config)?;
            lock(&self.slowlog).set_capacity(config.size("slowlog-max-len"));
        }
        self.settings_changed();
        Ok(())
    }

    /// All shards look again at the settings, and at what they mean for them.
    pub(crate) fn settings_changed(&self) {
        self.settings_version.fetch_add(1, Ordering::Release);
        self.note_all();
    }

    /// For who writes the settings' file: one does at a time.
    pub(crate) fn settings_file(&self) -> MutexGuard<'_, ()> {
        lock(&self.settings_file)
    }

    /// Looks at the settings; nobody changes them meanwhile.
    pub(crate) fn with_config<T>(&self, look: impl FnOnce(&Config) -> T) -> T {
        look(&lock(&self.config))
    }

    /// Tells all shards which libraries in a tenant's system arena have changed.
    pub(crate) fn libraries_changed(&self, tenant: TenantId, changed: &ChangedLibraries) {
        for seat in &self.seats {
            let none = || ChangedLibraries::Some(BTreeSet::new());
            lock(&seat.libraries).entry(tenant).or_insert_with(none).add(changed);
            seat.note();
        }
    }

    /// Asks all shards to set their counters to zero.
    pub(crate) fn reset_stats(&self) {
        self.resets.fetch_add(1, Ordering::Release);
        self.note_all();
    }

    /// The slow commands of all shards.
    pub(crate) fn slowlog(&self) -> MutexGuard<'_, Slowlog> {
        lock(&self.slowlog)
    }

    /// Asks all shards for new snapshots on behalf of shard `asker`; they are there when
    /// [`Self::is_refreshed`].
    pub(crate) fn refresh(&self, asker: usize) -> u64 {
        self.seats[asker].waits.store(true, Ordering::SeqCst);
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst) + 1;
        self.note_all();
        ticket
    }

    /// Whether the snapshots of all shards but `asker` are as new as the ticket.
    pub(crate) fn is_refreshed(&self, asker: usize, ticket: u64) -> bool {
        let others = self.seats.iter().enumerate().filter(|(number, _)| *number != asker);
        // SYNC(snapshot)
        others.into_iter().all(|(_, seat)| seat.refreshed.load(Ordering::Acquire) >= ticket)
    }

    /// Nobody of shard `asker` waits any more.
    pub(crate) fn nobody_waits(&self, asker: usize) {
        self.seats[asker].waits.store(false, Ordering::SeqCst);
    }

    /// Shard `number` tells of itself, and wakes the shards that wait for that.
    pub(crate) fn publish(&self, number: usize, snapshot: Snapshot, ticket: u64) {
        self.seats[number].snapshot().renew(snapshot);
        // SYNC(snapshot)
        self.seats[number].refreshed.store(ticket, Ordering::SeqCst);
        for (other, seat) in self.seats.iter().enumerate() {
            if other != number && seat.waits.load(Ordering::SeqCst) {
                seat.note();
            }
        }
    }

    /// Shard `number` tells of itself, unasked. Its clients stay as they were.
    pub(crate) fn tell(&self, number: usize, snapshot: Snapshot) {
        let mut place = self.seats[number].snapshot();
        let clients = std::mem::take(&mut place.clients);
        place.renew(Snapshot { clients, ..snapshot });
    }

    /// Durable LSNs have risen, or a log tells something else of how it is: its thread says so
    /// behind that. Wakes the shards that sleep and wait for it, and no others.
    pub(crate) fn tell_synced(&self) {
        // SYNC(synced)
        self.syncs.fetch_add(1, Ordering::SeqCst);
        for seat in &self.seats {
            // SYNC(synced): with `await_sync`.
            if seat.awaits_sync.load(Ordering::SeqCst)
                && seat.awaits_sync.swap(false, Ordering::SeqCst)
            {
                seat.wake();
            }
        }
    }

    /// How often a log has told something.
    #[inline]
    pub(crate) fn syncs(&self) -> u64 {
        // SYNC(synced): what was told before is seen behind this.
        self.syncs.load(Ordering::SeqCst)
    }

    /// Asks all shards to stop; the first call says how.
    pub(crate) fn stop(&self, stop: Stop) {
        let _ = self.stop.set(stop);
        for seat in &self.seats {
            seat.terminate(Reason::Shutdown);
            seat.wake();
        }
    }

    /// A shard has ended, and its arenas are to go when the log has all that they have.
    pub(crate) fn leave_arenas(&self, closed: Vec<ClosedArenas>) {
        lock(&self.closed).extend(closed);
    }

    /// Those that shards have left, once.
    pub(crate) fn take_arenas(&self) -> Vec<ClosedArenas> {
        std::mem::take(&mut lock(&self.closed))
    }

    /// Tells the log what is left when all has ended.
    pub(crate) fn tell_end(&self) {
        match self.left() {
            (true, left) => tracing::info!("ended: {left}"),
            (false, left) => tracing::error!("ended: {left}"),
        }
    }

    /// What is left of the arenas, in words; true if that is what was asked for.
    pub(crate) fn left(&self) -> (bool, String) {
        match (self.arenas.get(), self.stopping()) {
            (None, _) => (true, "no arena was opened".to_owned()),
            (Some(arenas), Some(Stop::Remove)) => arenas.removed(),
            (Some(arenas), _) => arenas.left(),
        }
    }

    /// Whether the shards are to stop.
    #[inline]
    pub(crate) fn stopping(&self) -> Option<Stop> {
        self.stop.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each client that moves is looked up among the ended ones: that walked all of them.
    #[test]
    fn the_last_ended_clients_are_known() {
        let mut killed = KilledClients::default();
        let most = KILLED_KEPT as u64;
        (0..most + 10).for_each(|id| killed.add(id));
        killed.add(most); // once more
        assert_eq!((killed.ids.len(), killed.order.len()), (KILLED_KEPT, KILLED_KEPT));
        assert!(!killed.ids.contains(&9) && killed.ids.contains(&10));
        assert!(killed.ids.contains(&(most + 9)));
    }
}
