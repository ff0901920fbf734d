//! What a shard's commands work on: store or view of it, function runtime, settings, statistics.
//!
//! Everything of the shard but its connections and its participation in the QSBR domain, so that a
//! command can change it while it borrows arguments from a connection and records from the arena.
//!
//! Belongs to the shard's thread.

pub(crate) mod checks;
pub(crate) mod lend;
pub(crate) mod libraries;
pub(crate) mod place;
pub(crate) mod shared;
pub(crate) mod still;
pub(crate) mod stopper;
pub(crate) mod told;

use crate::commands::{self, Row, Run};
use crate::config::Config;
use crate::error::ServeError;
use crate::folder::starts;
use crate::hop::mailbox::MailStats;
use crate::observe::hotkeys::HotKeys;
use crate::observe::stats::Stats;
use crate::state::libraries::Libraries;
use crate::state::place::{LIBRARIAN, Place};
use crate::state::shared::{Shared, Versions};
use nigh_js::{Fiber, Runtime, Tenant};
use nigh_resp::limits::Limits;
use nigh_store::{Keyspace, Policy, Turn};
use std::sync::Arc;
use std::time::Duration;

/// Time that a part of a turn has: some 20,000 plain commands, so that what a turn costs beside
/// them isn't felt.
pub(crate) const PART_TIME: Duration = Duration::from_millis(4);

/// Settings that are looked at so often that they are kept at hand.
#[derive(Debug, Clone)]
pub(crate) struct Hot {
    pub(crate) output_pause: usize,
    pub(crate) output_limit: usize,
    pub(crate) query_limit: usize,
    pub(crate) max_clients: usize,
    pub(crate) spin_us: u64,
    pub(crate) password: String,
    /// In ns; `None`: nothing is slow.
    pub(crate) slow_ns: Option<u64>,
    /// Measure each command by itself, since even a fast one may be logged as slow.
    pub(crate) time_each: bool,
}

/// Fast commands can't take a millisecond but by a preemption, so unless less is asked for they are
/// measured a window at a time.
const TIME_EACH_BELOW_NS: u64 = 1_000_000;

impl Hot {
    pub(crate) fn new(config: &Config) -> Self {
        let slow_us = u64::try_from(config.number("slowlog-log-slower-than")).ok();
        let slow_ns = slow_us.map(|us| us.saturating_mul(1000));
        Self {
            output_pause: config.size("output-buffer-pause"),
            output_limit: config.size("output-buffer-limit"),
            query_limit: config.size("client-query-buffer-limit"),
            max_clients: config.size("maxclients"),
            spin_us: config.unsigned("spin-us"),
            password: config.text("requirepass"),
            time_each: slow_ns.is_some_and(|ns| ns < TIME_EACH_BELOW_NS),
            slow_ns,
        }
    }
}

/// A shard, but for its connections.
pub(crate) struct State {
    pub(crate) keyspace: Keyspace,
    pub(crate) runtime: Runtime,
    pub(crate) tenant: Tenant,
    pub(crate) libraries: Libraries,
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
    /// The shard's number.
    pub(crate) number: usize,
    /// Where each row's command runs.
    places: Vec<Place>,
    /// Notes at the shard's seat that have been looked at.
    pub(crate) notes: u64,
    /// What of the shared state has been taken over.
    pub(crate) seen: Versions,
    /// Functions ran since the runtime last had time for itself.
    pub(crate) ran_functions: bool,
    /// Batches of functions that have run.
    pub(crate) batches: u64,
    /// Partitions whose owners stand still for this shard now, a bit for each.
    pub(crate) still: u64,
    /// Those that a call of the transaction that runs couldn't be told of.
    pub(crate) untold: u64,
    /// The partition of the transaction that runs.
    pub(crate) in_transaction: Option<usize>,
    /// Connections that CLIENT KILL ended, to be closed in this turn.
    pub(crate) killed: Vec<u64>,
    /// Changes when what clients may send does: connections have to be told.
    pub(crate) limits_version: u64,
}

impl State {
    /// The state of shard `number`, with its keyspace.
    pub(crate) fn new(
        mut keyspace: Keyspace,
        shared: Arc<Shared>,
        number: usize,
        fiber: Fiber,
    ) -> Result<Self, ServeError> {
        let config = shared.config();
        let mut runtime = Runtime::on(fiber, function_limits(&config))
            .map_err(|error| ServeError::Functions(error.to_string()))?;
        shared.seats[number].show_functions(runtime.running());
        runtime.tell_starts(Box::new(shared.skips.marker(number)));
        set_eviction(&mut keyspace, &config);
        let arenas = keyspace.parts().iter().map(|store| {
            let arena = lend::mapping(store.data_region());
            if store.is_owner() { arena } else { arena.foreign() }
        });
        let tenant = runtime.open_tenant(arenas.collect::<Vec<_>>());
        Ok(Self {
            keyspace,
            runtime,
            tenant,
            libraries: Libraries::default(),
            hot: Hot::new(&config),
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
            ran_functions: true, // so that it gets ready for the first ones
            batches: 0,
            still: 0,
            untold: 0,
            in_transaction: None,
            killed: Vec::new(),
            limits_version: 0,
        })
    }

    /// The shard that owns a partition.
    #[inline]
    pub(crate) fn owner(&self, partition: usize) -> usize {
        self.keyspace.owner(partition)
    }

    /// Whether this shard does.
    #[inline]
    pub(crate) fn owns(&self, partition: usize) -> bool {
        self.owner(partition) == self.number
    }

    /// Where a row's command runs.
    #[inline]
    pub(crate) fn place(&self, row: Row) -> Place {
        self.places[usize::from(row)]
    }

    /// Whether other threads left something at the shard's seat that it hasn't looked at.
    #[inline]
    pub(crate) fn has_notes(&self) -> bool {
        self.shared.seats[self.number].notes() != self.notes
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
        self.hot = Hot::new(&self.config);
        self.runtime.set_limits(function_limits(&self.config));
        set_eviction(&mut self.keyspace, &self.config);
        self.limits_version += 1;
    }

    /// Most connections at a time.
    pub(crate) fn max_clients(&self) -> usize {
        self.hot.max_clients.min(self.shared.file_limit)
    }

    /// Takes over what has changed for all shards.
    pub(crate) fn catch_up(&mut self, turn: &Turn<'_>) {
        let now = self.shared.versions();
        let seen = std::mem::replace(&mut self.seen, now);
        if now.settings != seen.settings {
            self.config_changed();
        }
        if now.resets != seen.resets {
            self.reset_stats();
        }
        if now.libraries != seen.libraries && self.number != LIBRARIAN {
            self.runtime.remove_all(self.tenant);
            self.libraries = Libraries::default();
            self.reload_libraries(turn);
        }
    }

    /// Sets the statistics to zero, as CONFIG RESETSTAT does.
    pub(crate) fn reset_stats(&mut self) {
        self.stats = Stats::new();
        self.mail_at_reset = self.mail;
        self.keyspace.reset_stats();
        self.runtime.reset_stats();
    }

    /// What the mailbox has done since the statistics were set to zero.
    pub(crate) fn mail(&self) -> MailStats {
        let (mail, before) = (self.mail, self.mail_at_reset);
        MailStats { full: mail.full - before.full, wakes: mail.wakes - before.wakes, ..mail }
    }

    /// Loads the libraries that the system arena holds. One that no longer compiles is reported.
    pub(crate) fn reload_libraries(&mut self, turn: &Turn<'_>) {
        let found: Vec<(Vec<u8>, Vec<u8>)> = self
            .keyspace
            .librarian()
            .libraries(turn)
            .into_iter()
            .map(|(name, source)| (name.to_vec(), source.to_vec()))
            .collect();
        for (name, source) in found {
            let name = String::from_utf8_lossy(&name).into_owned();
            if self.shared.skips.has(&name, &source) {
                self.libraries.broken.insert(name, starts::REASON.to_owned());
                continue;
            }
            let loaded = self.runtime.load_kept(self.tenant, &source).and_then(|library| {
                self.runtime.install(self.tenant, &library, &source)?;
                Ok(library)
            });
            match loaded {
                Ok(library) => {
                    tracing::info!(library = %name, functions = library.functions.len(), "library loaded");
                    self.libraries.insert(library);
                }
                Err(error) => {
                    tracing::error!(library = %name, %error, "a library that was kept can't be loaded");
                    self.libraries.broken.insert(name, error.to_string());
                }
            }
        }
    }
}

/// Tells the store what happens when memory is full.
fn set_eviction(keyspace: &mut Keyspace, config: &Config) {
    let policy = Policy::of_name(&config.text("maxmemory-policy"));
    let samples = u32::try_from(config.number("maxmemory-samples")).unwrap_or(1);
    keyspace
        .set_eviction(policy.expect("the table of settings lists the store's policies"), samples);
}

/// The limits of functions, from their settings.
fn function_limits(config: &Config) -> nigh_js::FunctionLimits {
    let count = |name| u32::try_from(config.number(name)).unwrap_or(u32::MAX);
    nigh_js::FunctionLimits {
        call_ms: config.unsigned("function-time-limit-ms"),
        load_ms: config.unsigned("function-load-limit-ms"),
        heap_bytes: config.size("function-heap-limit-bytes"),
        array_buffer_bytes: config.size("function-array-buffer-limit-bytes"),
        stack_bytes: config.size("function-stack-bytes"),
        result_bytes: config.size("function-result-limit-bytes"),
        result_depth: count("function-result-depth"),
        arguments: count("function-arguments-limit"),
        argument_bytes: config.size("function-arguments-limit-bytes"),
        write_set_bytes: config.size("function-write-set-limit-bytes"),
        write_set_keys: count("function-write-set-limit-keys"),
        source_bytes: config.size("function-source-limit-bytes"),
        contexts: config.size("function-contexts"),
        grace_ms: config.unsigned("function-kill-grace-ms"),
    }
}
