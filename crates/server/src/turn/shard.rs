//! A shard's loop: wait for events, do a turn's work, look after the store, announce, sleep.
//!
//! ```text
//! poll (zero timeout while there is work, and for `spin-us` after it; else offline and asleep)
//!   └─> answers of other shards, look at the seat ─> accept, mark connections ── pin ── Work::turn,
//!   ^                       mail to the other shards, Store::maintain ── unpin, quiescent ──┐
//!   └───────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Spinning: a sleep and the wake-up after it cost a round trip some 8 µs; a client that asks again
//! at once needs about that long. 50 µs catch it, and cost an idle server nothing.
//!
//! 1. No pin outlives a turn: `quiescent` takes the participant mutably, so the compiler proves it.
//! 2. The loop never sleeps longer than a tick, since expiry, idle clients and metrics need one.
//! 3. What other threads leave at the seat is looked at before a socket is read, and what is left
//!    there until a read before what was read runs (see `shared`, and [`Work::receive`]).
//!
//! Whether it worked, span or slept is told by the clock that the loop reads anyway: a turn with
//! work counts from the poll that found it, if that didn't wait, to the look after the store.
//!
//! The shard's thread runs it, from start to stop.

mod ending;
mod events;
mod seat;

use crate::config::Config;
use crate::engine::allocator;
use crate::error::ServeError;
use crate::folder::faults::FaultWatch;
use crate::hop::mailbox::Mailbox;
use crate::net::client::Client;
use crate::net::connection::{Connection, Stream};
use crate::net::listener::{Accepted, Listeners};
use crate::observe::http::Page;
use crate::observe::log_totals::LogTotals;
use crate::observe::metrics;
use crate::state::State;
use crate::state::libraries::ChangedLibraries;
use crate::state::seat::Arrival;
use crate::state::shared::{Shared, Stop};
use crate::state::told;
use crate::tenant::TenantId;
use crate::turn::trimmer::{self, Trimmer};
use crate::turn::turn_clock::TurnClock;
use crate::turn::work::Work;
use mio::{Events, Poll, Token};
use nigh_shm::{Domain, Participant};
use nigh_store::{ClosedArenas, Turn};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Token of the waker that other threads use.
pub(crate) const WAKE: Token = Token(usize::MAX);
/// Time between looks at idle clients, metrics and expiry.
const TICK: Duration = Duration::from_millis(100);
/// Sleep while the store waits for memory that another thread backs: about 2 MiB's worth. And while
/// another shard doesn't take its replies: it does before all else, when its turn is over.
const SOON: Duration = Duration::from_millis(2);
/// While rings are looked at, sockets are asked for at least so often: what a call of epoll costs
/// is then a fiftieth of the time, and a socket's client waits for less than a wake-up takes.
const POLL_EVERY: Duration = Duration::from_micros(20);
/// The same if no socket carries anything but new connections and the ends of clients: then one
/// request of a ring in a hundred waits for a call of epoll.
const POLL_RARELY: Duration = Duration::from_micros(100);
/// Events of one poll.
const EVENTS: usize = 1024;
/// Connections accepted in a turn: bounds how long the others wait.
const MOST_ACCEPTS: usize = 256;
/// Ticks after which the counts of hot keys are halved: what was hot ten seconds ago counts half.
const TICKS_PER_AGE: u32 = 100;

/// Behind that the machine's clock is told to be behind: less is how a clock is set right.
const WORTH_TELLING_MS: u64 = 1000;

/// A refusal that is sent before a connection is closed.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
const PROTECTED: &[u8] = b"-DENIED Nigh is running in protected mode because no password is set. \
    Connections are only accepted from the loopback interface. Set requirepass, or set protected-mode \
    to no if nobody else can reach this port.\r\n";

pub(crate) struct Shard {
    participant: Participant,
    poll: Poll,
    events: Events,
    listeners: Listeners,
    /// Listeners that may have more connections than were accepted.
    accepting: Vec<bool>,
    /// One refused for want of something that may come back.
    accept_again: bool,
    work: Work,
    shared: Arc<Shared>,
    page: Option<Arc<Page>>,
    random: u64,
    /// The store has more to look after.
    more: bool,
    /// The store waits for memory, or another shard has replies to take: it wants to look again
    /// soon.
    soon: bool,
    next_tick: Instant,
    /// When events were asked for last.
    last_poll: Instant,
    turn_clock: TurnClock,
    /// Ticks until the hot keys' counts are halved.
    ticks_to_age: u32,
    next_look: usize,
    trimmer: Trimmer,
    faults: FaultWatch,
}

impl Shard {
    /// A shard over its store or a view, which loads the libraries that are kept there.
    pub(crate) fn new(
        state: State,
        poll: Poll,
        mut listeners: Listeners,
        mailbox: Mailbox,
        domain: &Arc<Domain>,
        page: Option<Arc<Page>>,
    ) -> Result<Self, ServeError> {
        listeners.register(poll.registry())?;
        let mut seed = [0u8; 8];
        // Without the kernel's randomness functions' Math.random starts from the same number.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let shared = Arc::clone(&state.shared);
        let judged_by = state.tenants.all.iter().map(|it| it.keyspace.clock_ms());
        let mut turn_clock = TurnClock::new(judged_by.max().unwrap_or(0));
        let now_ms = turn_clock.begin_turn(Instant::now());
        let mut shard = Self {
            participant: domain.join(),
            poll,
            events: Events::with_capacity(EVENTS),
            accepting: vec![true; listeners.len()],
            accept_again: false,
            listeners,
            work: Work::new(state, mailbox),
            shared,
            page,
            random: u64::from_le_bytes(seed),
            more: false,
            soon: false,
            next_tick: Instant::now() + TICK,
            last_poll: Instant::now(),
            turn_clock,
            ticks_to_age: TICKS_PER_AGE,
            next_look: 0,
            trimmer: Trimmer::new(look_at_allocator()),
            faults: FaultWatch::default(),
        };
        {
            let pin = shard.participant.pin();
            let turn = Turn { now_ms, pin: &pin, random: shard.random };
            let tenants = shard.work.state.tenants.all.len();
            let ids = (0..).map(TenantId).take(tenants);
            let state = &mut shard.work.state;
            ids.for_each(|id| {
                state.renew_libraries(id, ChangedLibraries::All, Duration::MAX, &turn);
            });
        }
        shard.participant.quiescent();
        Ok(shard)
    }

    pub(crate) fn run(&mut self) -> Stop {
        let mut clock = Instant::now();
        let mut last_work = clock;
        loop {
            let Work { rings, slab, ready, .. } = &mut self.work;
            let has_news = rings.look(slab, ready, clock);
            let spin = Duration::from_micros(self.work.state.hot.spin_us);
            let busy = has_news
                || self.more
                || self.work.has_work()
                || self.work.mailbox.has_mail()
                || self.work.state.has_notes()
                || self.work.has_synced(clock)
                || self.accepting.iter().any(|accepting| *accepting);
            let spins = busy || clock.duration_since(last_work) < spin;
            let timeout = if spins { Duration::ZERO } else { self.sleep_time(clock) };
            let polls = !spins || self.is_poll_due(clock);
            if !polls {
                self.events.clear();
            } else if let Err(error) = self.wait(timeout) {
                tracing::error!(%error, "waiting for events failed: ending");
                return Stop::Keep;
            }
            let now = Instant::now();
            if polls {
                self.last_poll = now;
            }
            let is_tick = now >= self.next_tick;
            let has_work = busy || !self.events.is_empty();
            // A poll that didn't wait is part of the work that it found.
            let began = if spins { clock } else { now };
            clock = now;
            if has_work || is_tick || self.soon {
                clock = self.turn(now, is_tick);
                if has_work {
                    last_work = now;
                    self.work.state.stats.count_turn(clock.duration_since(began));
                }
            }
            if self.shared.still.wants(self.work.state.number) {
                self.stand_still();
                clock = Instant::now();
            }
            if let Some(stop) = self.shared.stopping() {
                return stop;
            }
        }
    }

    /// Whether sockets are asked for now, though there may be work.
    #[inline]
    fn is_poll_due(&self, clock: Instant) -> bool {
        let (connections, polled) = (self.work.slab.len(), self.work.rings.len());
        let every = if connections > polled { POLL_EVERY } else { POLL_RARELY };
        polled == 0 || clock - self.last_poll >= every
    }

    /// Lets another shard read what this one owns, as it is now.
    fn stand_still(&mut self) {
        let now_ms = self.turn_clock.begin_turn(Instant::now());
        let tenant = self.shared.still.tenant();
        {
            let pin = self.participant.pin();
            let turn = Turn { now_ms, pin: &pin, random: self.random };
            self.work.state.tenants[tenant].keyspace.begin_turn(&turn);
        }
        self.work.state.logs.tell_stand();
        self.participant.offline();
        let shared = &self.shared;
        let wake = |shard: usize| shared.wake(shard);
        shared.still.stand(self.work.state.number, tenant, wake, || shared.stopping().is_some());
        self.participant.online();
    }

    /// Lets go of everything. Returns what is left of its arenas.
    pub(crate) fn close(self) -> Vec<ClosedArenas> {
        let Self { participant: _participant, work, listeners, .. } = self;
        drop(listeners);
        let Work { state, slab, .. } = work;
        drop(slab);
        let State { tenants, engines, .. } = state;
        drop(engines); // they map the arenas: first
        tenants.close()
    }

    fn sleep_time(&self, now: Instant) -> Duration {
        let end = self.work.synced.next_end.map_or(self.next_tick, |end| end.min(self.next_tick));
        let tick = end.saturating_duration_since(now);
        if self.soon { tick.min(SOON) } else { tick }
    }

    /// Waits for events, offline if it may take long.
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let Work { rings, slab, ready, .. } = &mut self.work;
        let sleeps = timeout > Duration::ZERO
            && rings.park(slab, ready)
            && self.work.awaits_sync(true)
            && self.work.mailbox.prepare_sleep();
        let timeout = if sleeps { timeout } else { Duration::ZERO };
        if sleeps {
            if std::mem::take(&mut self.work.state.ran_functions) {
                self.work.state.engines.iter_mut().for_each(|engine| engine.catch_up(true));
            }
            self.participant.offline();
        }
        let outcome = self.poll.poll(&mut self.events, Some(timeout));
        if sleeps {
            self.participant.online();
            self.work.mailbox.woken();
            self.work.awaits_sync(false);
        }
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// A turn that begins `now`; returns when it ended.
    fn turn(&mut self, now: Instant, is_tick: bool) -> Instant {
        self.take_events();
        // First the answers: a shard that they tell of a change finds the note of it.
        self.work.take_answers();
        self.look_at_seat(now);
        if self.accepting.iter().any(|accepting| *accepting) {
            self.accept(now);
        }
        // Any odd constant gives all numbers in turn; the store and V8 mix it.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let now_ms = self.turn_clock.begin_turn(now);
        let ended;
        {
            let pin = self.participant.pin();
            let turn = Turn { now_ms, pin: &pin, random: self.random };
            self.work.turn(&turn, now);
            self.work.mailbox.flush();
            self.work.state.mail = self.work.mailbox.stats;
            let began = self.work.state.tenants.owns_some.then(Instant::now);
            let maintenance = self.work.state.tenants.maintain(&turn, is_tick);
            let compacts = self.work.state.compact(&turn);
            if self.work.state.logs.end_turn() {
                // Writes that wait for room in the journal get on, in turn: none waits in vain.
                self.work.journal_moved = now;
            }
            self.more = maintenance.more | compacts;
            self.soon = maintenance.waiting || self.work.peers.some_wait;
            ended = Instant::now();
            if let Some(began) = began {
                self.work.state.stats.count_step(ended.duration_since(began));
            }
        }
        self.participant.quiescent();
        self.watch_attached();
        self.hand_over();
        self.work.state.stats.turns += 1;
        if is_tick {
            self.tick(now);
        }
        ended
    }

    fn accept(&mut self, now: Instant) {
        let keepalive_s = self.work.state.config.unsigned("tcp-keepalive");
        for number in 0..self.listeners.len() {
            let mut left = MOST_ACCEPTS;
            while self.accepting[number] && left > 0 {
                left -= 1;
                match self.listeners.accept(number, keepalive_s) {
                    Ok(Some(accepted)) => {
                        if self.counts_in(&accepted) {
                            self.place(accepted, now);
                        }
                    }
                    Ok(None) => self.accepting[number] = false,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        // Such as no descriptor left: the tick tries again.
                        tracing::warn!(%error, "a connection can't be accepted");
                        self.accept_again = true;
                        self.accepting[number] = false;
                    }
                }
            }
        }
    }

    /// Counts a connection that was accepted, unless it is refused: before another shard may have
    /// it, which may not look for a while.
    fn counts_in(&mut self, accepted: &Accepted) -> bool {
        let state = &mut self.work.state;
        let is_open = |config: &Config| {
            config.text("requirepass").is_empty() && config.flag("protected-mode")
        };
        let open = state.shared.open_connections.fetch_add(1, Ordering::Relaxed);
        let has_files = state.shared.client_files() <= state.shared.file_limit;
        let refusal = match () {
            () if open >= state.max_clients() || !has_files => Some(TOO_MANY),
            () if !accepted.is_local && state.shared.with_config(is_open) => Some(PROTECTED),
            () => None,
        };
        if let Some(text) = refusal {
            state.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
            state.stats.rejected_connections += 1;
            // A new socket has room for it; if not, closing says enough.
            let _ = rustix::io::write(accepted.stream.as_fd(), text);
        }
        refusal.is_none()
    }

    /// Gives a connection its shard: of the Unix path, on which one shard listens, the others get
    /// theirs from it.
    fn place(&mut self, accepted: Accepted, now: Instant) {
        let own = self.work.state.number;
        match accepted.stream {
            Stream::Unix(_) => match self.shared.any_seat() {
                seat if seat == own => self.admit(accepted, now),
                seat => self.shared.seats[seat].arrive(Arrival::Accepted(accepted)),
            },
            Stream::Tcp(_) => self.admit(accepted, now),
        }
    }

    /// Takes a connection that was counted.
    fn admit(&mut self, accepted: Accepted, now: Instant) {
        let state = &mut self.work.state;
        state.stats.connections += 1;
        let id = state.shared.client_id();
        let mut client = Client::new(id, accepted.address, accepted.local_address, now);
        // This shard may still have to look at the change of which the client was told.
        client.authenticated = state.shared.with_config(|it| it.text("requirepass").is_empty());
        client.descriptor = accepted.stream.descriptor();
        client.is_unix = matches!(accepted.stream, Stream::Unix(_));
        client.settle();
        self.seat(Box::new(Connection::new(0, accepted.stream, client)));
    }

    /// What is done now and then.
    fn tick(&mut self, now: Instant) {
        self.next_tick = now + TICK;
        self.turn_clock.read_machine();
        self.look_at_clock(now);
        if std::mem::take(&mut self.accept_again) {
            self.accepting.fill(true);
        }
        let state = &mut self.work.state;
        state.engines.iter_mut().for_each(|engine| engine.catch_up(false));
        if state.number == 0 && self.trimmer.tick(look_at_allocator) {
            allocator::trim();
        }
        // A view's arena is counted by its owner.
        let bytes = state.tenants.bytes();
        state.logs.tell_live(bytes.live);
        state.logs.warn_of_compaction();
        state.stats.peak_used_bytes = state.stats.peak_used_bytes.max(bytes.used);
        state.stats.tick(now);
        self.ticks_to_age -= 1;
        if self.ticks_to_age == 0 {
            self.ticks_to_age = TICKS_PER_AGE;
            state.hot_keys.age();
        }
        let own = told::snapshot(&self.work.state, false, self.work.slab.len());
        self.shared.tell(self.work.state.number, own);
        if let Some(page) = &self.page {
            let own = told::snapshot(&self.work.state, false, self.work.slab.len());
            let all = told::with_others(own, &self.shared, self.work.state.number);
            let state = &self.work.state;
            let figures = [
                ("nigh_connections", state.shared.open_connections.load(Ordering::Relaxed)),
                ("nigh_shards", state.shared.shards()),
                ("nigh_partitions", state.tenants.sum(|it| it.keyspace.partitions())),
                ("nigh_function_libraries", state.tenants.sum(|it| it.libraries.len())),
            ];
            let figures = figures.into_iter().map(|(name, figure)| (name, figure as u64));
            let locals = state.shared.locals.figures().map(|(_, name, value)| (name, value));
            let logs = state.logs.exist().then(|| LogTotals::of(state.logs.all(), &all.parts));
            let logs = logs.iter().flat_map(LogTotals::metrics);
            metrics::update(page, figures.chain(locals).chain(logs), &all);
        }
        // The first one sees the arenas of all.
        if let Some(arenas) = self.shared.arenas.get().filter(|_| self.work.state.number == 0) {
            let keyspaces = self.work.state.tenants.share().map(|it| &it.keyspace);
            self.faults.look(keyspaces, arenas, now);
        }
        self.look_at_clients(now);
        self.forget_gone_clients(now);
        self.work.leaving.wipe_left(now);
        self.resume_askers(now);
    }

    /// Tells how far the machine's clock is behind; once for each time that it comes behind.
    fn look_at_clock(&mut self, now: Instant) {
        let state = &mut self.work.state;
        let before_ms = state.stats.clock_ahead_ms;
        let ahead_ms = self.turn_clock.ahead_ms(now);
        state.stats.clock_ahead_ms = ahead_ms;
        if state.number == 0 && ahead_ms >= WORTH_TELLING_MS && before_ms < WORTH_TELLING_MS {
            tracing::warn!(
                ahead_ms,
                "the machine's clock is behind the time by which keys were over: that time goes on \
                 15/16 as fast until both meet (INFO stats: clock_ahead_ms). Keys with an absolute \
                 expiry are over so much earlier"
            );
        }
    }
}

fn look_at_allocator() -> trimmer::AllocatorLook {
    trimmer::AllocatorLook { free_bytes: allocator::free_bytes(), faults: allocator::page_faults() }
}
