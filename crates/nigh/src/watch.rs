//! Telling changes to those that watch a prefix.
//!
//! ```text
//! journal ── each entry, in order ──> maker of its log ── prefix? room? ──> WatchQueue ──> Watch, any thread
//!                                            └── no room: noted as lost
//! ```
//!
//! 1. Entries come from the journal, which is read for the log anyhow: so an eventual write does
//!    nothing for a watch, and waits for none. Without one, an entry costs its reader a load.
//! 2. A queue is bounded in bytes. What finds no room is dropped, and told as lost in its place.
//! 3. Changes of a partition are numbered densely. A queue knows which number comes next: what is
//!    lower was before its watch began, or was told; if it is higher, what lies between was lost.
//! 4. A watch begins with the writers' locks: each change behind it is told, or told as lost.
//! 5. What was before comes from the log's files (`watch_history.rs`), and is told first.
//! 6. The place of a watch is behind the last event that was taken, of each partition. If none of a
//!    partition waits, it is behind all that was seen, so it goes on where nothing has the prefix.
//!
//! The maker of a log tells as it takes entries: its thread, or a strong writer. Any thread takes
//! events.

use crate::error::DbError;
use crate::watch_event::{WatchEvent, event_of};
use crate::watch_history::WatchHistory;
use crate::watch_place::WatchPlace;
use nigh_shm::{ForkMark, JournalEntry};
use nigh_store::{EntryObserver, data_stream};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Most watches of a database: all of them are looked at for each entry.
const WATCHES_MOST: usize = 256;

/// Changes under a prefix, one after the other: see [`Db::watch`](crate::Db::watch).
///
/// As an iterator it waits for each, and ends when the database is closed. Several threads may take
/// from one: each event goes to one of them.
pub struct Watch {
    queue: Arc<WatchQueue>,
    /// What was before the watch began, of each partition, until all of it was told.
    history: Mutex<VecDeque<WatchHistory>>,
    log_id: [u8; 16],
    fork_mark: Arc<ForkMark>,
}

/// The events of one watch.
struct WatchQueue {
    prefix: Vec<u8>,
    bytes_most: u64,
    state: Mutex<QueueState>,
    told: Condvar,
}

struct QueueState {
    events: VecDeque<WatchEvent>,
    bytes: u64,
    partitions: Vec<PartitionProgress>,
    /// Called when there is something to take.
    waker: Option<Waker>,
    is_closed: bool,
}

/// How far a watch is in a partition.
struct PartitionProgress {
    /// Numbers that were lost behind the last event, and not told so yet.
    lost: Option<(u64, u64)>,
    /// The number of the change that comes next from the journal.
    next: u64,
    /// Events that wait to be taken.
    waiting: usize,
    /// If an event waits, or something is lost: all before this number was taken, or isn't meant.
    taken: u64,
}

impl PartitionProgress {
    /// Nothing was seen yet, and this change comes next.
    fn from(next: u64) -> PartitionProgress {
        PartitionProgress { lost: None, next, waiting: 0, taken: next }
    }

    /// The change from which on nothing was taken.
    fn place(&self) -> u64 {
        if self.waiting == 0 && self.lost.is_none() { self.next } else { self.taken }
    }

    /// Something with this number is to be taken now, behind all that is there.
    fn begin_at(&mut self, number: u64) {
        if self.waiting == 0 && self.lost.is_none() {
            self.taken = number;
        }
    }

    /// Notes that changes are lost, behind all that is there.
    fn lose(&mut self, first: u64, last: u64) {
        self.begin_at(first);
        self.lost = Some((self.lost.map_or(first, |(first, _)| first), last));
    }

    /// All changes up to number `next` were told, or are lost.
    fn skip_to(&mut self, next: u64) {
        if self.next < next {
            self.lose(self.next, next - 1);
            self.next = next;
        }
    }
}

impl QueueState {
    fn progress(&mut self, partition: usize) -> &mut PartitionProgress {
        self.partitions.get_mut(partition).expect("a partition of the database")
    }

    fn has_room(&self, bytes: u64, most: u64) -> bool {
        self.events.is_empty() || self.bytes + bytes <= most
    }

    fn push(&mut self, partition: usize, event: WatchEvent, most: u64) {
        let (change, bytes) = (event.change(), event.bytes());
        if !self.has_room(bytes, most) {
            return self.progress(partition).lose(change, change);
        }
        if let Some((first, last)) = self.progress(partition).lost.take() {
            self.keep(WatchEvent::Lost { partition, first, last });
        }
        self.keep(event);
    }

    fn keep(&mut self, event: WatchEvent) {
        self.bytes += event.bytes();
        let progress = self.progress(event.partition());
        progress.begin_at(event.first());
        progress.waiting += 1;
        self.events.push_back(event);
    }

    fn take(&mut self) -> Option<WatchEvent> {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.bytes();
            let progress = self.progress(event.partition());
            (progress.waiting, progress.taken) = (progress.waiting - 1, event.change() + 1);
            return Some(event);
        }
        let mut all = self.partitions.iter_mut().enumerate();
        all.find_map(|(partition, it)| {
            let (first, last) = it.lost.take()?;
            Some(WatchEvent::Lost { partition, first, last })
        })
    }

    /// Nothing is there to be taken now, and something may come.
    fn is_idle(&self) -> bool {
        let has_lost = self.partitions.iter().any(|it| it.lost.is_some());
        self.events.is_empty() && !has_lost && !self.is_closed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchQueue {
    /// Takes what it needs of an entry of a partition.
    fn see(&self, partition: usize, entry: &JournalEntry<'_>) {
        let mut state = lock(&self.state);
        let (first, last) = (entry.first_lsn(), entry.last_lsn());
        let progress = state.progress(partition);
        if last < progress.next {
            return;
        }
        progress.skip_to(first);
        for (number, change) in (first..).zip(entry.changes()) {
            let event = change.map_err(|_| ()).and_then(|it| {
                let event = event_of(&self.prefix, partition, &it);
                event.map_err(|_| ())
            });
            match event {
                Ok(Some(event)) => state.push(partition, event, self.bytes_most),
                Ok(None) => {}
                // There is no memory; or it is damaged, which the log finds too and says.
                Err(()) => state.progress(partition).lose(number, number),
            }
        }
        state.progress(partition).next = last + 1;
        self.tell(state);
    }

    /// Tells those that wait, if there is something to take.
    fn tell(&self, mut state: MutexGuard<'_, QueueState>) {
        let waker = if state.is_idle() { None } else { state.waker.take() };
        drop(state);
        self.told.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// All watches of a database.
pub(crate) struct Watches {
    fork_mark: Arc<ForkMark>,
    /// The id of the database's log.
    log_id: [u8; 16],
    any: AtomicBool,
    all: Mutex<Vec<Weak<WatchQueue>>>,
}

impl Watches {
    /// None yet, of the database whose log has this id.
    pub(crate) fn new(fork_mark: &Arc<ForkMark>, log_id: [u8; 16]) -> Watches {
        Watches {
            fork_mark: Arc::clone(fork_mark),
            log_id,
            any: AtomicBool::new(false),
            all: Mutex::default(),
        }
    }

    /// The place with these changes as the next ones.
    pub(crate) fn place(&self, next: Vec<u64>) -> WatchPlace {
        WatchPlace::new(self.log_id, next)
    }

    /// The changes from which on a place goes on, if it is one of this database.
    pub(crate) fn changes_of<'p>(
        &self,
        place: &'p WatchPlace,
        partitions: usize,
    ) -> Result<&'p [u64], DbError> {
        let next = place.next();
        if next.len() != partitions {
            return Err(DbError::PlacePartitions { place: next.len(), database: partitions });
        }
        if place.log_id() != self.log_id {
            return Err(DbError::PlaceOfOther);
        }
        Ok(next)
    }

    /// Begins one, of changes from these numbers on: one for each partition. With the writers'
    /// locks.
    pub(crate) fn begin(
        &self,
        prefix: &[u8],
        next: &[u64],
        bytes_most: u64,
    ) -> Result<Watch, DbError> {
        let mut all = lock(&self.all);
        all.retain(|queue| queue.strong_count() > 0);
        if all.len() == WATCHES_MOST {
            return Err(DbError::TooManyWatches { most: WATCHES_MOST });
        }
        let partitions = next.iter().map(|&next| PartitionProgress::from(next)).collect();
        let (events, bytes) = (VecDeque::new(), 0);
        let state = QueueState { events, bytes, partitions, waker: None, is_closed: false };
        let queue = Arc::new(WatchQueue {
            prefix: prefix.to_vec(),
            bytes_most,
            state: Mutex::new(state),
            told: Condvar::new(),
        });
        all.push(Arc::downgrade(&queue));
        // A journal's tail, which is stored behind this, shows it to the maker of the log.
        self.any.store(true, Ordering::Relaxed);
        let (fork_mark, log_id) = (Arc::clone(&self.fork_mark), self.log_id);
        Ok(Watch { queue, history: Mutex::default(), log_id, fork_mark })
    }

    #[cold]
    fn tell(&self, partition: usize, entry: &JournalEntry<'_>) {
        let mut all = lock(&self.all);
        all.retain(|queue| match queue.upgrade() {
            Some(queue) => {
                queue.see(partition, entry);
                true
            }
            None => false,
        });
        self.any.store(!all.is_empty(), Ordering::Relaxed);
    }

    /// A partition's log is written anew: changes before number `next` that weren't told won't be.
    /// With the writers' lock, while no thread of the log runs.
    pub(crate) fn skip_to(&self, partition: usize, next: u64) {
        for queue in lock(&self.all).iter().filter_map(Weak::upgrade) {
            let mut state = lock(&queue.state);
            state.progress(partition).skip_to(next);
            queue.tell(state);
        }
    }

    /// The database is closed: all was told.
    pub(crate) fn close(&self) {
        for queue in lock(&self.all).drain(..).filter_map(|queue| queue.upgrade()) {
            let mut state = lock(&queue.state);
            state.is_closed = true;
            queue.tell(state);
        }
    }
}

/// The watches, as the maker of a partition's log knows them.
pub(crate) struct PartitionWatches {
    pub(crate) watches: Arc<Watches>,
    pub(crate) partition: usize,
}

impl EntryObserver for PartitionWatches {
    fn wants_entries(&self) -> bool {
        self.watches.any.load(Ordering::Relaxed)
    }

    fn see(&mut self, entry: &JournalEntry<'_>) {
        if self.wants_entries() && entry.stream() == data_stream(self.partition) {
            self.watches.tell(self.partition, entry);
        }
    }
}

impl Watch {
    /// Tells this first, one after the other.
    pub(crate) fn go_back(&mut self, history: VecDeque<WatchHistory>) {
        self.history = Mutex::new(history);
    }

    /// The next event of what was before the watch began. `Ready(None)`: all of it was told.
    /// `Pending`: a frame was read, and there may be more of them.
    fn earlier(&self) -> Poll<Option<WatchEvent>> {
        let mut history = lock(&self.history);
        let Some(first) = history.front_mut() else { return Poll::Ready(None) };
        if let Some(event) = first.take() {
            return Poll::Ready(Some(event));
        }
        if !first.read_on() {
            history.pop_front();
        }
        Poll::Pending
    }

    /// Where it is: behind the events that were taken. A later watch from this place
    /// ([`Db::watch_from`](crate::Db::watch_from)) tells what this one hasn't told, also in another
    /// process, behind a restart or a kill. It goes on also while nothing comes under the prefix.
    ///
    /// So a program that keeps the place with what it made of the events misses nothing, and does
    /// nothing twice. (An event that another thread has taken counts as taken, though it may be at
    /// work on it.) As the events, the place may be ahead of the disk, and a power cut take the
    /// changes away: call [`Db::flush`](crate::Db::flush) before it is kept elsewhere, if that
    /// counts.
    ///
    /// # Errors
    /// [`DbError::Forked`].
    pub fn place(&self) -> Result<WatchPlace, DbError> {
        if self.fork_mark.is_in_child() {
            return Err(DbError::Forked);
        }
        let history = lock(&self.history);
        let state = lock(&self.queue.state);
        let mut next: Vec<u64> = state.partitions.iter().map(PartitionProgress::place).collect();
        for earlier in &*history {
            *next.get_mut(earlier.partition()).expect("one of the database") = earlier.place();
        }
        Ok(WatchPlace::new(self.log_id, next))
    }

    /// The next event, if there is one within this time; a time of zero doesn't wait. While the
    /// watch reads what was before it began, a call looks at the time between frames of the log,
    /// and reads one at least.
    ///
    /// # Errors
    /// [`DbError::Closed`]: the database is closed, and all was taken; or [`DbError::Forked`].
    pub fn next_within(&self, time: Duration) -> Result<Option<WatchEvent>, DbError> {
        if self.fork_mark.is_in_child() {
            return Err(DbError::Forked);
        }
        let begin = Instant::now();
        loop {
            match self.earlier() {
                Poll::Ready(Some(event)) => return Ok(Some(event)),
                Poll::Ready(None) => break,
                Poll::Pending if begin.elapsed() >= time => return Ok(None),
                Poll::Pending => {}
            }
        }
        let (state, left) = (lock(&self.queue.state), time.saturating_sub(begin.elapsed()));
        let waited = self.queue.told.wait_timeout_while(state, left, |state| state.is_idle());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.take() {
            None if state.is_closed => Err(DbError::Closed),
            event => Ok(event),
        }
    }

    /// The next event, for a task: if there is none, the task is woken when there is one, or when
    /// the database is closed. One task is woken: the one that asked last. Its waker is called by a
    /// log's thread, or by a thread within a strong write or `flush`, so it should only note that,
    /// and take no lock that such a thread may have. While the watch reads what was before it
    /// began, a call reads a frame of the log at most, and wakes the task for the next.
    ///
    /// # Errors
    /// As [`Watch::next_within`].
    pub fn poll_next(&self, task: &Context<'_>) -> Poll<Result<WatchEvent, DbError>> {
        if self.fork_mark.is_in_child() {
            return Poll::Ready(Err(DbError::Forked));
        }
        match self.earlier() {
            Poll::Ready(Some(event)) => return Poll::Ready(Ok(event)),
            Poll::Ready(None) => {}
            Poll::Pending => {
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let mut state = lock(&self.queue.state);
        match state.take() {
            Some(event) => Poll::Ready(Ok(event)),
            None if state.is_closed => Poll::Ready(Err(DbError::Closed)),
            None => {
                state.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.fork_mark.is_in_child() {
            // What held files would ask the parent's log to let go.
            let history = self.history.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::take(history));
        }
    }
}

/// How long an iterator waits at a time.
const WAIT: Duration = Duration::from_secs(3600);

impl Iterator for Watch {
    type Item = WatchEvent;

    fn next(&mut self) -> Option<WatchEvent> {
        (&*self).next()
    }
}

impl Iterator for &Watch {
    type Item = WatchEvent;

    fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.next_within(WAIT).transpose() {
                return event.ok();
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without waiting: in a child of fork nobody may ever give the lock back.
        let Ok(state) = self.queue.state.try_lock() else {
            return f.debug_struct("Watch").finish_non_exhaustive();
        };
        let next: Vec<u64> = state.partitions.iter().map(|it| it.next).collect();
        f.debug_struct("Watch").field("next", &next).field("bytes", &state.bytes).finish()
    }
}
