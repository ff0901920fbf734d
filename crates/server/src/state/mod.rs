//! What a shard's commands work on: its tenants, what runs functions, settings, statistics.
//!
//! Everything of the shard but its connections and its participation in the QSBR domain, so that a
//! command can change it while it borrows arguments from a connection and records from the arena.
//!
//! Belongs to the shard's thread.

pub(crate) mod backup_run;
pub(crate) mod backups;
pub(crate) mod checks;
pub(crate) mod dirty_set;
pub(crate) mod libraries;
pub(crate) mod log_desk;
pub(crate) mod logs;
pub(crate) mod place;
pub(crate) mod renewal;
pub(crate) mod seat;
pub(crate) mod shared;
pub(crate) mod still;
pub(crate) mod streams;
pub(crate) mod tenants;
pub(crate) mod told;

use crate::commands::{self, Row, Run};
use crate::config::Config;
use crate::engine::{self, Engine};
use crate::hop::mailbox::MailStats;
use crate::net::client::Client;
use crate::observe::hotkeys::HotKeys;
use crate::observe::stats::Stats;
use crate::state::logs::{LOGGED, Logs};
use crate::state::place::{LIBRARIES, Place};
use crate::state::seat::LogAsk;
use crate::state::shared::{Shared, Versions};
use crate::state::tenants::Tenants;
use crate::tenant::TenantId;
use nigh_resp::limits::Limits;
use nigh_store::{Keyspace, Policy, SyncMode, Turn};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a part of a turn has: some 20,000 plain commands, so that what a turn costs beside
/// them isn't felt.
pub(crate) const PART_TIME: Duration = Duration::from_millis(4);

/// Settings that are looked at so often that they are kept at hand.
#[derive(Debug, Clone)]
pub(crate) struct Hot {
    pub(crate) output_pause: usize,
    pub(crate) output_limit: usize,
    pub(crate) query_limit: usize,
    pub(crate) spin_us: u64,
    /// Replies wait until what they depend on is on disk.
    pub(crate) replies_wait: bool,
    /// How long writes wait for the log.
    pub(crate) journal_wait: Duration,
    /// How long EXEC and FUNCTION RESTORE go on.
    pub(crate) command_time: Duration,
    pub(crate) password: String,
    /// In ns; `None`: nothing is slow.
    slow_ns: Option<u64>,
    /// Measure each command by itself, since even a fast one may be logged as slow.
    pub(crate) time_each: bool,
}

/// Fast commands can't take a millisecond but by a preemption, so unless less is asked for they are
/// measured a window at a time; those that may take long ([`crate::turn::budget`]) are measured
/// always.
const TIME_EACH_BELOW_NS: u64 = 1_000_000;

impl Hot {
    pub(crate) fn new(config: &Config, logs: &Logs) -> Self {
        let slow_us = u64::try_from(config.number("slowlog-log-slower-than")).ok();
        let slow_ns = slow_us.map(|us| us.saturating_mul(1000));
        Self {
            output_pause: config.size("output-buffer-pause"),
            output_limit: config.size("output-buffer-limit"),
            query_limit: config.size("client-query-buffer-limit"),
            spin_us: config.unsigned("spin-us"),
            replies_wait: config.flag("appendonly")
                && config.sync_mode() == SyncMode::Always
                && logs.promise(),
            journal_wait: Duration::from_millis(config.unsigned("journal-wait-ms")),
            command_time: Duration::from_millis(config.unsigned("command-time-limit-ms")),
            password: config.text("requirepass"),
            time_each: slow_ns.is_some_and(|ns| ns < TIME_EACH_BELOW_NS),
            slow_ns,
        }
    }

    /// Whether a command that took so long is one for the slow log.
    pub(crate) fn is_slow(&self, elapsed_ns: u64) -> bool {
        self.slow_ns.is_some_and(|limit| elapsed_ns >= limit)
    }
}

/// A shard, but for its connections.
pub(crate) struct State {
    pub(crate) tenants: Tenants,
    /// What runs functions: see [`engine`].
    pub(crate) engines: Vec<Box<dyn Engine>>,
    /// This shard's copy.
    pub(crate) config: Config,
    pub(crate) hot: Hot,
    pub(crate) stats: Stats,
    pub(crate) hot_keys: HotKeys,
    /// What the mailbox had done at the end of the last turn, and when the statistics were set to
    /// zero.
    pub(crate) mail: MailStats,
    mail_at_reset: MailStats,
    pub(crate) shared: Arc<Shared>,
    /// The logs of all shards.
    pub(crate) logs: Logs,
    /// Connections that wait for what WAIT or WAITAOF asked for.
    pub(crate) blocked: usize,
    /// The shard's number.
    pub(crate) number: usize,
    /// Where each row's command runs.
    places: Vec<Place>,
    /// Notes at the shard's seat that have been looked at.
    pub(crate) notes: u64,
    /// What of the shared state has been taken over.
    pub(crate) seen: Versions,
    /// Functions ran since the engines last had time for themselves.
    pub(crate) ran_functions: bool,
    /// Batches of functions that have run.
    pub(crate) batches: u64,
    /// CLIENT KILL has ended connections, which are to be closed in this turn.
    pub(crate) some_killed: bool,
    /// Changes when what clients may send does: connections have to be told.
    pub(crate) limits_version: u64,
    /// Kept libraries that are still to be loaded, or couldn't be for a reason that passes, in the
    /// order in which they are tried.
    put_off: VecDeque<(TenantId, String)>,
    /// When the first of them is.
    retry_at: Option<Instant>,
}

impl State {
    /// The state of shard `number`, with its part of all tenants' keyspaces. There are `logs` if
    /// `appendonly` was wanted at the server's start; what has changed since is asked at the seat.
    pub(crate) fn new(
        mut keyspaces: Vec<Keyspace>,
        shared: Arc<Shared>,
        logs: Logs,
        number: usize,
        mut engines: Vec<Box<dyn Engine>>,
    ) -> Self {
        let config = shared.config();
        shared.seats[number].show_engines(engines.iter().map(|engine| engine.remote()).collect());
        for engine in &mut engines {
            engine.tell_starts(Box::new(shared.skips.marker(number)));
            (0..).zip(&keyspaces).for_each(|(id, keyspace)| engine.open(TenantId(id), keyspace));
        }
        keyspaces.iter_mut().for_each(|keyspace| set_eviction(keyspace, &config));
        let hot = Hot::new(&config, &logs);
        keyspaces.iter_mut().for_each(|keyspace| keyspace.set_replies_wait(hot.replies_wait));
        Self {
            tenants: Tenants::new(keyspaces),
            engines,
            hot,
            stats: Stats::new(),
            hot_keys: HotKeys::default(),
            mail: MailStats::default(),
            mail_at_reset: MailStats::default(),
            config,
            number,
            places: commands::table().iter().map(place::of).collect(),
            // The first shards serve while the last one starts: what they noted is still to be
            // seen.
            notes: 0,
            seen: Versions::default(),
            shared,
            logs,
            blocked: 0,
            ran_functions: true, // so that it gets ready for the first ones
            batches: 0,
            some_killed: false,
            limits_version: 0,
            put_off: VecDeque::new(),
            retry_at: None,
        }
    }

    /// Where a row's command runs.
    #[inline]
    pub(crate) fn place(&self, row: Row) -> Place {
        self.places[usize::from(row)]
    }

    /// Whether other threads left something at the shard's seat that it hasn't looked at, or it is
    /// time for what it has put off itself.
    #[inline]
    pub(crate) fn has_notes(&self) -> bool {
        self.shared.seats[self.number].notes() != self.notes || self.is_retry_due()
    }

    /// Whether it is time to load again what was put off.
    #[inline]
    fn is_retry_due(&self) -> bool {
        self.retry_at.is_some_and(|at| Instant::now() >= at)
    }

    /// Whether a client may run commands: it has authenticated, or there is no password.
    #[inline]
    pub(crate) fn admits(&self, client: &Client) -> bool {
        client.authenticated || self.hot.password.is_empty()
    }

    /// Whether a row's command looks at the libraries or changes them.
    pub(crate) fn is_about_libraries(&self, row: Row) -> bool {
        self.place(row) == Place::Owner && matches!(commands::of(row).run, Run::Server(_))
    }

    /// What clients may send.
    pub(crate) fn request_limits(&self) -> Limits {
        let bulk_bytes = self.config.size("proto-max-bulk-len");
        Limits { bulk_bytes, ..Limits::requests() }
    }

    /// Takes over what CONFIG SET changed, here or on another shard.
    pub(crate) fn config_changed(&mut self) {
        self.config = self.shared.config();
        self.logs.set_mode(self.config.sync_mode());
        self.set_hot();
        for engine in &mut self.engines {
            engine.set_limits(engine::limits(&self.config));
        }
        let tenants = self.tenants.all.iter_mut();
        tenants.for_each(|tenant| set_eviction(&mut tenant.keyspace, &self.config));
        self.limits_version += 1;
    }

    /// Whether there is a log by the settings: it may be about to begin.
    pub(crate) fn has_log(&self) -> bool {
        self.config.flag("appendonly")
    }

    /// Most connections at a time.
    pub(crate) fn max_clients(&self) -> usize {
        self.config.size("maxclients").min(self.shared.file_limit)
    }

    /// Takes over what has changed for all shards.
    pub(crate) fn catch_up(&mut self, turn: &Turn<'_>) {
        let now = self.shared.versions();
        let seen = std::mem::replace(&mut self.seen, now);
        if now.settings != seen.settings {
            self.config_changed();
        }
        for ask in self.shared.seats[self.number].log_asks() {
            self.obey_keeper(ask);
        }
        if now.resets != seen.resets {
            self.reset_stats();
        }
        let retries = self.is_retry_due();
        let mut changed = self.shared.seats[self.number].changed_libraries();
        changed.retain(|tenant, _| !self.tenants[*tenant].owns(LIBRARIES));
        for (tenant, changed) in changed {
            self.renew_libraries(tenant, changed, self.hot.command_time, turn);
        }
        if retries {
            self.retry_libraries(turn);
        }
    }

    /// Does what the log's keeper asks for, between two turns.
    fn obey_keeper(&mut self, ask: LogAsk) {
        let keyspace = &mut self.tenants[LOGGED].keyspace;
        match ask {
            LogAsk::Attach(side) => {
                let done = side.done.clone();
                if let Some(attached) = self.logs.attach(keyspace, *side) {
                    // It may have given up.
                    let _ = done.try_send(attached);
                }
                self.logs.set_mode(self.config.sync_mode());
            }
            LogAsk::Detach(done) => {
                keyspace.leave_log(self.number, self.shared.shards());
                self.logs.detach();
                let _ = done.try_send(());
            }
        }
        self.set_hot();
    }

    /// Takes over what the settings and the logs say now.
    fn set_hot(&mut self) {
        self.hot = Hot::new(&self.config, &self.logs);
        let tenants = self.tenants.all.iter_mut();
        tenants.for_each(|tenant| tenant.keyspace.set_replies_wait(self.hot.replies_wait));
    }

    /// A step of the compaction of the shard's log. Whether there is more to do.
    pub(crate) fn compact(&mut self, turn: &Turn<'_>) -> bool {
        self.logs.compact(&mut self.tenants[LOGGED].keyspace, turn)
    }

    /// Sets the statistics to zero, as CONFIG RESETSTAT does.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats::new();
        self.mail_at_reset = self.mail;
        self.tenants.all.iter_mut().for_each(|tenant| tenant.keyspace.reset_stats());
        self.engines.iter_mut().for_each(|engine| engine.reset_stats());
    }

    /// What the mailbox has done since the statistics were set to zero.
    pub(crate) fn mail(&self) -> MailStats {
        let (mail, before) = (self.mail, self.mail_at_reset);
        let (full, wakes) = (mail.full - before.full, mail.wakes - before.wakes);
        MailStats { full, wakes, depth: mail.depth }
    }
}

/// Tells the store what happens when memory is full.
fn set_eviction(keyspace: &mut Keyspace, config: &Config) {
    let policy = Policy::of_name(&config.text("maxmemory-policy"));
    let samples = u32::try_from(config.number("maxmemory-samples")).unwrap_or(1);
    keyspace
        .set_eviction(policy.expect("the table of settings lists the store's policies"), samples);
}
