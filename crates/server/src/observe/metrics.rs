//! Prometheus metrics over HTTP, if a port is set.
//!
//! 1. The shard's counters are its own; at each tick it copies them here. A request pays nothing.
//!
//! [`Exporter`] belongs to the thread that starts the server; [`Gauges`] is updated by the shard's thread, and read
//! by the exporter's.

use crate::commands;
use crate::config::Config;
use crate::error::ServeError;
use crate::observe::snapshot::{Part, Snapshot};
use metrics::{Counter, Gauge, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

static METADATA: Metadata<'static> = Metadata::new("nigh", Level::INFO, None);

/// What a server has, beside what its shards tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server {
    pub(crate) connections: usize,
    pub(crate) shards: usize,
    pub(crate) partitions: usize,
    pub(crate) libraries: usize,
}

/// The registered metrics.
pub(crate) struct Gauges {
    recorder: PrometheusRecorder,
    /// Counters of commands, registered when a command is first called, by row.
    commands: Mutex<HashMap<usize, (Counter, Counter)>>,
}

impl Gauges {
    fn counter(&self, name: &'static str, value: u64) {
        let counter: Counter = self.recorder.register_counter(&Key::from_name(name), &METADATA);
        counter.absolute(value);
    }

    fn gauge(&self, name: &'static str, value: u64) {
        let gauge: Gauge = self.recorder.register_gauge(&Key::from_name(name), &METADATA);
        #[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
        gauge.set(value as f64);
    }

    /// Copies the numbers of one shard, under its label.
    fn update_shard(&self, part: &Part) {
        let key = |name: &'static str| {
            Key::from_parts(name, vec![Label::new("shard", part.number.to_string())])
        };
        let counters = [
            ("nigh_shard_operations_total", part.operations),
            ("nigh_shard_hops_out_total", part.hops_out),
            ("nigh_shard_hops_in_total", part.hops_in),
            ("nigh_shard_mailbox_full_total", part.mailbox_full),
            ("nigh_shard_wakes_total", part.wakes),
            ("nigh_shard_function_calls_total", part.function_calls),
        ];
        for (name, value) in counters {
            self.recorder.register_counter(&key(name), &METADATA).absolute(value);
        }
        #[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
        let gauges = [
            ("nigh_shard_connections", part.connections as f64),
            ("nigh_shard_mailbox_depth", part.mailbox_depth as f64),
            ("nigh_shard_utilisation_ratio", part.utilisation_permille as f64 / 1000.0),
            ("nigh_shard_longest_step_seconds", part.longest_step_ns as f64 / 1e9),
            ("nigh_shard_longest_turn_seconds", part.longest_turn_ns as f64 / 1e9),
        ];
        for (name, value) in gauges {
            self.recorder.register_gauge(&key(name), &METADATA).set(value);
        }
    }

    /// Copies the numbers of all shards.
    pub(crate) fn update(&self, server: Server, all: &Snapshot) {
        let (store, runtime, stats) = (&all.store, &all.runtime, &all.stats);
        self.gauge("nigh_connections", server.connections as u64);
        self.gauge("nigh_shards", server.shards as u64);
        self.gauge("nigh_partitions", server.partitions as u64);
        self.gauge("nigh_keys", store.keys);
        self.gauge("nigh_keys_with_expiry", store.expires);
        self.gauge("nigh_arena_capacity_bytes", store.data.capacity_bytes);
        self.gauge("nigh_arena_used_bytes", store.data.used_bytes);
        self.gauge("nigh_arena_backed_bytes", store.data.backed_bytes);
        self.gauge("nigh_arena_dead_bytes", store.data.dead_bytes);
        self.gauge("nigh_recency_bytes", store.recency_bytes);
        self.gauge("nigh_function_libraries", server.libraries as u64);
        self.gauge("nigh_function_heap_bytes", runtime.heap_bytes as u64);
        self.counter("nigh_connections_total", stats.connections);
        self.counter("nigh_connections_rejected_total", stats.rejected_connections);
        self.counter("nigh_input_bytes_total", stats.bytes_in);
        self.counter("nigh_output_bytes_total", stats.bytes_out);
        self.counter("nigh_loop_turns_total", stats.turns);
        self.counter("nigh_commands_sent_to_owner_total", stats.hops_out);
        self.counter("nigh_keyspace_hits_total", store.keyspace_hits);
        self.counter("nigh_keyspace_misses_total", store.keyspace_misses);
        self.counter("nigh_expired_keys_total", store.expired_keys);
        self.counter("nigh_evicted_keys_total", store.evicted_keys);
        self.counter("nigh_arena_appended_bytes_total", store.data.appended_bytes);
        self.counter("nigh_cleaner_relocated_bytes_total", store.data.cleaner.relocated_bytes);
        self.counter("nigh_cleaner_segments_total", store.data.cleaner.segments);
        self.counter("nigh_cleaner_bad_records_total", store.data.cleaner.bad_records);
        self.counter("nigh_function_calls_total", runtime.calls);
        self.counter("nigh_function_errors_total", runtime.errors);
        self.counter("nigh_function_timeouts_total", runtime.timeouts);
        self.counter("nigh_function_isolates_lost_total", runtime.isolates_lost);
        all.parts.iter().for_each(|part| self.update_shard(part));
        let Ok(mut known) = self.commands.lock() else { return };
        for (row, (spec, stats)) in commands::table().iter().zip(&stats.rows).enumerate() {
            if stats.calls == 0 {
                continue;
            }
            let (calls, micros) = known.entry(row).or_insert_with(|| {
                let key = |name| Key::from_parts(name, vec![Label::new("command", spec.name)]);
                let register = |name| self.recorder.register_counter(&key(name), &METADATA);
                (register("nigh_commands_total"), register("nigh_command_microseconds_total"))
            });
            calls.absolute(stats.calls);
            micros.absolute(stats.nanoseconds / 1000);
        }
    }
}

/// The thread that answers HTTP.
pub(crate) struct Exporter {
    gauges: Arc<Gauges>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
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
        let listen =
            |cause: io::Error| ServeError::listen(address, cause, ["metrics-bind", "metrics-port"]);
        // The exporter binds in its own thread; a port in use is to be told here.
        drop(std::net::TcpListener::bind(address).map_err(listen)?);
        let async_runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (recorder, exporter) = {
            let _entered = async_runtime.enter();
            PrometheusBuilder::new()
                .with_http_listener(address)
                .build()
                .map_err(|error| listen(io::Error::other(error)))?
        };
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread =
            std::thread::Builder::new().name("nigh-metrics".to_owned()).spawn(move || {
                async_runtime.block_on(async move {
                    tokio::select! {
                        outcome = exporter => {
                            if let Err(error) = outcome {
                                tracing::error!(?error, "metrics can't be served");
                            }
                        }
                        _ = stopped => {}
                    }
                });
            })?;
        let gauges = Arc::new(Gauges { recorder, commands: Mutex::default() });
        Ok(Some(Self { gauges, stop: Some(stop), thread: Some(thread) }))
    }

    /// What the shard updates.
    pub(crate) fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
