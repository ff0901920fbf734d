//! INFO: the sections and fields that clients, redis_exporter among them, read.
//!
//! 1. A field is here only if it says something true of this server.
//!
//! Belongs to the shard's thread.

use crate::commands;
use crate::folder::arena_folder::meminfo_bytes;
use crate::handlers::{session::REDIS_VERSION, usage};
use crate::observe::inside::{self, Fields, put};
use crate::observe::log_totals::LogTotals;
use crate::observe::snapshot::Snapshot;
use crate::state::State;
use crate::state::tenants::LocalTenant;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the fields of a section.
type Section = fn(&mut Fields, &State, &Snapshot);

/// Sections in their order, and whether INFO without arguments has them.
const SECTIONS: [(&str, bool, Section); 15] = [
    ("server", true, |f, state, _| server(f, state)),
    ("clients", true, clients),
    ("memory", true, memory),
    ("persistence", true, persistence),
    ("stats", true, |f, _, all| stats(f, all)),
    ("replication", true, |f, _, _| replication(f)),
    ("cpu", true, |f, _, _| cpu(f)),
    ("modules", true, |_, _, _| ()),
    ("commandstats", false, |f, _, all| commandstats(f, all)),
    ("errorstats", true, |f, _, all| errorstats(f, all)),
    ("latencystats", false, |f, _, all| f.extend(inside::latencystats(all))),
    ("cluster", true, |f, _, _| put(f, "cluster_enabled", 0)),
    ("keyspace", true, |f, _, all| keyspace(f, all)),
    ("nigh", true, nigh),
    (HOT_KEYS, false, |f, _, all| f.extend(inside::hot_keys(all))),
];

/// Keys are data: what gathers INFO ALL doesn't carry them away unless they are named.
const HOT_KEYS: &str = "hotkeys";

/// The text of the sections that `wanted` names; none: the default ones.
pub(crate) fn render(state: &State, all: &Snapshot, wanted: &[&[u8]]) -> String {
    let has = |word: &str| wanted.iter().any(|name| name.eq_ignore_ascii_case(word.as_bytes()));
    let everything = has("all") || has("everything");
    let default = wanted.is_empty() || has("default");
    let mut text = String::new();
    for (section, is_default, write) in SECTIONS {
        if !((everything && section != HOT_KEYS) || has(section) || (default && is_default)) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut title = section.to_owned();
        title[..1].make_ascii_uppercase();
        let title = if section == "cpu" { "CPU" } else { &title };
        let _ = write!(text, "# {title}\r\n");
        let mut fields = Fields::new();
        write(&mut fields, state, all);
        for (name, value) in fields {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    text
}

fn server(f: &mut Fields, state: &State) {
    let uname = rustix::system::uname();
    let [system, release, machine] =
        [uname.sysname(), uname.release(), uname.machine()].map(|name| name.to_string_lossy());
    let os = format!("{system} {release} {machine}");
    let uptime_s = state.shared.started.elapsed().as_secs();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    put(f, "redis_version", REDIS_VERSION);
    put(f, "nigh_version", env!("CARGO_PKG_VERSION"));
    put(f, "redis_mode", "standalone");
    put(f, "os", os);
    put(f, "arch_bits", usize::BITS);
    put(f, "multiplexing_api", "epoll");
    put(f, "process_id", std::process::id());
    put(f, "run_id", &state.shared.run_id);
    put(f, "tcp_port", state.shared.port);
    put(f, "server_time_usec", now.as_micros());
    put(f, "uptime_in_seconds", uptime_s);
    put(f, "uptime_in_days", uptime_s / 86_400);
    put(f, "executable", std::env::current_exe().unwrap_or_default().display());
    let file = state.config.file.as_deref().unwrap_or(Path::new(""));
    put(f, "config_file", file.display());
}

fn clients(f: &mut Fields, state: &State, all: &Snapshot) {
    put(f, "connected_clients", state.shared.open_connections.load(Relaxed));
    put(f, "maxclients", state.max_clients());
    put(f, "blocked_clients", all.parts.iter().map(|part| part.blocked).sum::<usize>());
    put(f, "tracking_clients", 0);
    put(f, "local_clients", state.shared.locals.clients.load(Relaxed));
    put(f, "local_requests", all.stats.local_requests);
}

/// Bytes as Redis shows them to people.
fn human(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let float = bytes as f64;
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..0x10_0000 => format!("{:.2}K", float / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2}M", float / 1_048_576.0),
        _ => format!("{:.2}G", float / 1_073_741_824.0),
    }
}

/// How many times `whole` is `part`, with two decimals.
fn ratio(whole: u64, part: u64) -> String {
    let hundredths = whole.saturating_mul(100) / part.max(1);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn memory(f: &mut Fields, state: &State, all: &Snapshot) {
    let arena = all.store.data;
    let total = meminfo_bytes("MemTotal").unwrap_or(0);
    let peak = all.stats.peak_used_bytes.max(arena.used_bytes);
    put(f, "used_memory", arena.used_bytes);
    put(f, "used_memory_human", human(arena.used_bytes));
    put(f, "used_memory_rss", resident_bytes());
    put(f, "used_memory_peak", peak);
    put(f, "used_memory_peak_human", human(peak));
    put(f, "used_memory_overhead", usage::overhead_bytes(all));
    put(f, "used_memory_startup", 0); // used_memory counts only what lives in the arena
    put(f, "used_memory_dataset", arena.used_bytes);
    put(f, "total_system_memory", total);
    put(f, "total_system_memory_human", human(total));
    put(f, "number_of_functions", state.tenants.sum(|it| it.libraries.functions()));
    put(f, "number_of_libraries", state.tenants.sum(|it| it.libraries.len()));
    put(f, "maxmemory", arena.capacity_bytes);
    put(f, "maxmemory_human", human(arena.capacity_bytes));
    put(f, "maxmemory_policy", state.config.text("maxmemory-policy"));
    put(f, "mem_fragmentation_ratio", ratio(arena.backed_bytes, arena.used_bytes));
    // What is counted for eviction is what lives in the arena, and used_memory is nothing else.
    put(f, "mem_not_counted_for_evict", 0);
    put(f, "mem_clients_normal", all.buffer_bytes);
    put(f, "mem_allocator", "system");
}

fn persistence(f: &mut Fields, state: &State, all: &Snapshot) {
    put(f, "loading", 0);
    put(f, "async_loading", 0);
    state.shared.backups.fields(f);
    put(f, "aof_enabled", u8::from(state.has_log()));
    let mut totals = LogTotals::of(state.logs.all(), &all.parts);
    // It is about to begin.
    totals.bases += u64::from(state.has_log() && !state.logs.exist());
    totals.status_fields(&state.shared.log_desk.rewrites(), f);
    if state.has_log() {
        totals.fields(f);
    }
}

fn stats(f: &mut Fields, all: &Snapshot) {
    let (stats, store) = (&all.stats, &all.store);
    put(f, "total_connections_received", stats.connections);
    put(f, "total_commands_processed", stats.commands());
    put(f, "instantaneous_ops_per_sec", stats.rates.commands);
    put(f, "total_net_input_bytes", stats.bytes_in);
    put(f, "total_net_output_bytes", stats.bytes_out);
    put(f, "instantaneous_input_kbps", ratio(stats.rates.bytes_in, 1024));
    put(f, "instantaneous_output_kbps", ratio(stats.rates.bytes_out, 1024));
    put(f, "rejected_connections", stats.rejected_connections);
    put(f, "expired_keys", store.expired_keys);
    put(f, "evicted_keys", store.evicted_keys);
    put(f, "keyspace_hits", store.keyspace_hits);
    put(f, "keyspace_misses", store.keyspace_misses);
    put(f, "pubsub_channels", 0);
    put(f, "pubsub_patterns", 0);
    put(f, "total_error_replies", stats.error_replies);
    put(f, "client_query_buffer_limit_disconnections", stats.query_limit_disconnections);
    put(f, "client_output_buffer_limit_disconnections", stats.output_limit_disconnections);
    put(f, "total_reads_processed", stats.reads);
    put(f, "total_writes_processed", stats.writes);
    put(f, "eventloop_cycles", stats.turns);
    put(f, "eventloop_duration_sum", stats.worked_ns / 1000);
    put(f, "eventloop_duration_cmd_sum", stats.commands_ns() / 1000);
    put(f, "instantaneous_eventloop_cycles_per_sec", stats.rates.turns);
    let each_us = stats.rates.worked_us.checked_div(stats.rates.turns).unwrap_or(0);
    put(f, "instantaneous_eventloop_duration_usec", each_us);
    put(f, "clock_ahead_ms", stats.clock_ahead_ms);
}

fn replication(f: &mut Fields) {
    put(f, "role", "master");
    put(f, "connected_slaves", 0);
    put(f, "master_repl_offset", 0);
}

/// Processor time of the process: user and system, in seconds.
fn cpu(f: &mut Fields) {
    // Fields 14 and 15 of proc_pid_stat(5), counted after the name in brackets.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map_or("", |parts| parts.1);
    let ticks: Vec<u64> =
        after_name.split(' ').skip(11).take(2).filter_map(|word| word.parse().ok()).collect();
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let seconds = |ticks: u64| {
        let micros = ticks * 1_000_000 / per_second;
        format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    };
    put(f, "used_cpu_sys", seconds(ticks.get(1).copied().unwrap_or(0)));
    put(f, "used_cpu_user", seconds(ticks.first().copied().unwrap_or(0)));
}

fn commandstats(f: &mut Fields, all: &Snapshot) {
    for (spec, row) in commands::table().iter().zip(&all.stats.rows) {
        if row.calls == 0 && row.rejected == 0 {
            continue;
        }
        let usec = row.nanoseconds / 1000;
        let usec_per_call = ratio(row.nanoseconds.checked_div(row.calls).unwrap_or(0), 1000);
        let (calls, rejected, failed) = (row.calls, row.rejected, row.failed);
        let value = format!(
            "calls={calls},usec={usec},usec_per_call={usec_per_call},rejected_calls={rejected},\
             failed_calls={failed}"
        );
        put(f, &format!("cmdstat_{}", spec.name), value);
    }
}

fn errorstats(f: &mut Fields, all: &Snapshot) {
    for (code, count) in &all.stats.errors {
        put(f, &format!("errorstat_{code}"), format!("count={count}"));
    }
}

fn keyspace(f: &mut Fields, all: &Snapshot) {
    let store = &all.store;
    if store.keys > 0 {
        let (keys, expires, avg_ttl) = (store.keys, store.expires, store.data.mean_left_ms);
        put(f, "db0", format!("keys={keys},expires={expires},avg_ttl={avg_ttl}"));
    }
}

fn nigh(f: &mut Fields, state: &State, all: &Snapshot) {
    let (store, runtime) = (&all.store, &all.runtime);
    let arena = store.data;
    put(f, "shm_dir", state.config.shm_dir(state.shared.port).display());
    put(f, "arena_capacity_bytes", arena.capacity_bytes);
    put(f, "arena_used_bytes", arena.used_bytes);
    put(f, "arena_backed_bytes", arena.backed_bytes);
    put(f, "arena_dead_bytes", arena.dead_bytes);
    put(f, "arena_appended_bytes", arena.appended_bytes);
    put(f, "arena_segments", arena.segments);
    put(f, "arena_runs", arena.runs);
    let has_huge_pages = |it: &LocalTenant| it.keyspace.librarian().data_region().has_huge_pages();
    let has_huge_pages = state.tenants.all.iter().any(has_huge_pages);
    put(f, "arena_huge_pages", u8::from(has_huge_pages));
    put(f, "arenas_gone", state.shared.arenas.get().map_or(0, |arenas| arenas.gone().len()));
    put(f, "recency_bytes", all.store.recency_bytes);
    put(f, "arena_index_lines", arena.index_lines);
    put(f, "arena_index_growing", u8::from(arena.growing));
    put(f, "arena_available_bytes", arena.available_bytes);
    put(f, "arena_index_rebuilds_larger", arena.rebuilds.larger);
    put(f, "arena_index_rebuilds_same", arena.rebuilds.same);
    put(f, "arena_index_rebuilds_smaller", arena.rebuilds.smaller);
    put(f, "cleaner_segments", arena.cleaner.segments);
    put(f, "cleaner_relocated_bytes", arena.cleaner.relocated_bytes);
    put(f, "cleaner_expired_keys", arena.cleaner.expired_keys);
    put(f, "cleaner_bad_records", arena.cleaner.bad_records);
    put(f, "cleaner_longest_step_bytes", arena.cleaner.longest_step_bytes);
    put(f, "arena_incarnation", arena.incarnation);
    put(f, "arena_lsn", arena.lsn);
    put(f, "watched_keys", store.watched_keys);
    put(f, "function_libraries", state.tenants.sum(|it| it.libraries.len()));
    put(f, "function_libraries_broken", state.tenants.sum(|it| it.libraries.broken.len()));
    put(f, "functions", state.tenants.sum(|it| it.libraries.functions()));
    put(f, "function_contexts", runtime.contexts);
    put(f, "function_contexts_dropped", runtime.dropped_contexts);
    put(f, "function_heap_bytes", runtime.heap_bytes);
    put(f, "function_array_buffer_bytes", runtime.array_buffer_bytes);
    put(f, "function_calls", runtime.calls);
    put(f, "function_batches", runtime.batches);
    put(f, "function_errors", runtime.errors);
    put(f, "function_timeouts", runtime.timeouts);
    put(f, "function_isolates_lost", runtime.isolates_lost);
    put(f, "function_calls_lingering", runtime.lingering);
    put(f, "function_heap_limit_hits", runtime.heap_limit_hits);
    put(f, "partitions", state.tenants.sum(|it| it.keyspace.partitions()));
    put(f, "shards", state.shared.shards());
    put(f, "commands_sent_to_owner", all.stats.hops_out);
    put(f, "reads_moved_to_owner", all.stats.moved_reads);
    put(f, "function_calls_moved_to_owner", all.stats.moved_calls);
    put(f, "function_calls_with_owners_still", all.stats.stills);
    put(f, "loop_turns", all.stats.turns);
    put(f, "replies_copied_bytes", all.stats.copied_bytes);
    put(f, "replies_longest_turn_copied_bytes", all.stats.most_copied_bytes);
    f.extend(inside::shards(all));
}

/// Resident memory of the process, from statm (second field, in pages).
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.trim().parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
