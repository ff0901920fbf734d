//! Prometheus metrics over HTTP, if a port is set.
//!
//! 1. The shard's counters are its own; at each tick the first shard writes all numbers down here,
//!    as the text that Prometheus reads (its exposition format 0.0.4). A request pays nothing.
//!
//! [`Exporter`] belongs to the thread that starts the server; its page is updated by the first
//! shard's thread, and read by the thread that answers HTTP.

use crate::commands;
use crate::config::Config;
use crate::error::ServeError;
use crate::observe::http::{HTTP_LIMITS, Http, Page};
use crate::observe::snapshot::{Part, Snapshot};
use mio::net::TcpListener;
use std::fmt::{Display, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// A metric of each shard: its name, and the number that a shard tells.
type Figure<V> = (&'static str, fn(&Part) -> V);

/// A page of metrics that is being written.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn begin(&mut self, name: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
    }

    /// A metric of one number.
    fn one(&mut self, name: &str, value: u64) {
        self.begin(name);
        let _ = writeln!(self.0, "{name} {value}\n");
    }

    /// A metric of some numbers, each with the value of this label; nothing if there are none yet.
    fn labelled<L: Display, V: Display>(
        &mut self,
        name: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        self.begin(name);
        for (of, value) in values {
            let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
        }
        self.0.push('\n');
    }

    /// What each shard tells of itself.
    fn parts(&mut self, parts: &[Part]) {
        let counts: [Figure<u64>; 8] = [
            ("nigh_shard_operations_total", |part| part.operations),
            ("nigh_shard_hops_out_total", |part| part.hops_out),
            ("nigh_shard_hops_in_total", |part| part.hops_in),
            ("nigh_shard_mailbox_full_total", |part| part.mailbox_full),
            ("nigh_shard_wakes_total", |part| part.wakes),
            ("nigh_shard_function_calls_total", |part| part.function_calls),
            ("nigh_shard_connections", |part| part.connections as u64),
            ("nigh_shard_mailbox_depth", |part| part.mailbox_depth),
        ];
        for (name, value) in counts {
            self.labelled(name, "shard", parts.iter().map(|part| (part.number, value(part))));
        }
        #[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
        let shares: [Figure<f64>; 3] = [
            ("nigh_shard_utilisation_ratio", |part| part.utilisation_permille as f64 / 1000.0),
            ("nigh_shard_longest_step_seconds", |part| part.longest_step_ns as f64 / 1e9),
            ("nigh_shard_longest_turn_seconds", |part| part.longest_turn_ns as f64 / 1e9),
        ];
        for (name, value) in shares {
            self.labelled(name, "shard", parts.iter().map(|part| (part.number, value(part))));
        }
    }
}

/// Writes down the numbers of the server, by name, and of all shards.
pub(crate) fn update(
    current: &Page,
    server: impl Iterator<Item = (&'static str, u64)>,
    all: &Snapshot,
) {
    let page = page(server, all).into();
    // While the other thread copies the old page, this one doesn't wait: the next comes in a tick.
    if let Ok(mut current) = current.try_lock() {
        *current = page;
    }
}

fn page(server: impl Iterator<Item = (&'static str, u64)>, all: &Snapshot) -> String {
    let (store, runtime, stats) = (&all.store, &all.runtime, &all.stats);
    let mut text = MetricsText::default();
    server.for_each(|(name, value)| text.one(name, value));
    text.one("nigh_keys", store.keys);
    text.one("nigh_keys_with_expiry", store.expires);
    text.one("nigh_arena_capacity_bytes", store.data.capacity_bytes);
    text.one("nigh_arena_used_bytes", store.data.used_bytes);
    text.one("nigh_arena_backed_bytes", store.data.backed_bytes);
    text.one("nigh_arena_dead_bytes", store.data.dead_bytes);
    text.one("nigh_recency_bytes", store.recency_bytes);
    text.one("nigh_function_heap_bytes", runtime.heap_bytes as u64);
    text.one("nigh_connections_total", stats.connections);
    text.one("nigh_connections_rejected_total", stats.rejected_connections);
    text.one("nigh_local_requests_total", stats.local_requests);
    text.one("nigh_input_bytes_total", stats.bytes_in);
    text.one("nigh_output_bytes_total", stats.bytes_out);
    text.one("nigh_loop_turns_total", stats.turns);
    text.one("nigh_commands_sent_to_owner_total", stats.hops_out);
    text.one("nigh_keyspace_hits_total", store.keyspace_hits);
    text.one("nigh_keyspace_misses_total", store.keyspace_misses);
    text.one("nigh_expired_keys_total", store.expired_keys);
    text.one("nigh_evicted_keys_total", store.evicted_keys);
    text.one("nigh_arena_appended_bytes_total", store.data.appended_bytes);
    text.one("nigh_cleaner_relocated_bytes_total", store.data.cleaner.relocated_bytes);
    text.one("nigh_cleaner_segments_total", store.data.cleaner.segments);
    text.one("nigh_cleaner_bad_records_total", store.data.cleaner.bad_records);
    text.one("nigh_function_calls_total", runtime.calls);
    text.one("nigh_function_errors_total", runtime.errors);
    text.one("nigh_function_timeouts_total", runtime.timeouts);
    text.one("nigh_function_isolates_lost_total", runtime.isolates_lost);
    text.parts(&all.parts);
    let rows = || commands::table().iter().zip(&stats.rows).filter(|(_, stats)| stats.calls > 0);
    let calls = rows().map(|(spec, stats)| (spec.name, stats.calls));
    text.labelled("nigh_commands_total", "command", calls);
    let micros = rows().map(|(spec, stats)| (spec.name, stats.nanoseconds / 1000));
    text.labelled("nigh_command_microseconds_total", "command", micros);
    text.0
}

/// The thread that answers HTTP.
pub(crate) struct Exporter {
    /// The first shard updates it.
    pub(crate) page: Arc<Page>,
    _http: Http,
}

impl Exporter {
    /// Starts it, if `metrics-port` isn't 0.
    pub(crate) fn start(config: &Config) -> Result<Option<Self>, ServeError> {
        let port = u16::try_from(config.number("metrics-port")).unwrap_or(0);
        if port == 0 {
            return Ok(None);
        }
        let ip: IpAddr = config.text("metrics-bind").parse().map_err(|_| {
            ServeError::Setting("setting `metrics-bind` is no IP address".to_owned())
        })?;
        let address = SocketAddr::new(ip, port);
        let page: Arc<Page> = Arc::new(Mutex::new(Arc::from("")));
        let http = TcpListener::bind(address)
            .and_then(|listener| Http::start(listener, Arc::clone(&page), HTTP_LIMITS))
            .map_err(|cause| {
                ServeError::listen(address, cause, ["metrics-bind", "metrics-port"])
            })?;
        Ok(Some(Self { page, _http: http }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_totals::LogTotals;

    #[test]
    fn the_log_has_metrics_if_there_is_one() {
        let all = Snapshot::default();
        assert!(!page(std::iter::empty(), &all).contains("nigh_log_"));
        let logs = LogTotals { syncs: 7, oldest_ms: 30, ..LogTotals::default() };
        let page = page(logs.metrics().into_iter(), &all);
        for line in [
            "# TYPE nigh_log_syncs_total counter\nnigh_log_syncs_total 7\n",
            "# TYPE nigh_log_oldest_unsynced_milliseconds gauge\n",
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }
}
