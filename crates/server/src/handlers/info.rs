//! INFO: the sections and fields that clients, redis_exporter among them, read.
//!
//! 1. A field is here only if it says something true of this server.
//!
//! Belongs to the shard's thread.

use crate::commands;
use crate::handlers::session::REDIS_VERSION;
use crate::handlers::usage;
use crate::observe::inside;
use crate::observe::snapshot::Snapshot;
use crate::state::State;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// Sections in their order, and whether INFO without arguments has them.
const SECTIONS: [(&str, bool); 15] = [
    ("server", true),
    ("clients", true),
    ("memory", true),
    ("persistence", true),
    ("stats", true),
    ("replication", true),
    ("cpu", true),
    ("modules", true),
    ("commandstats", false),
    ("errorstats", true),
    ("latencystats", false),
    ("cluster", true),
    ("keyspace", true),
    ("nigh", true),
    (HOT_KEYS, false),
];

/// Keys are data: what gathers INFO ALL doesn't carry them away unless they are named.
const HOT_KEYS: &str = "hotkeys";

/// The text of the sections that `wanted` names; none: the default ones.
pub(crate) fn render(state: &State, all: &Snapshot, wanted: &[&[u8]]) -> String {
    let has = |word: &str| wanted.iter().any(|name| name.eq_ignore_ascii_case(word.as_bytes()));
    let everything = has("all") || has("everything");
    let default = wanted.is_empty() || has("default");
    let mut text = String::new();
    for (section, is_default) in SECTIONS {
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
        for (name, value) in fields(state, all, section) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    text
}

type Fields = Vec<(String, String)>;

fn put(fields: &mut Fields, name: &str, value: impl ToString) {
    fields.push((name.to_owned(), value.to_string()));
}

fn fields(state: &State, all: &Snapshot, section: &str) -> Fields {
    match section {
        "server" => server(state),
        "clients" => clients(state),
        "memory" => memory(state, all),
        "persistence" => persistence(),
        "stats" => stats(all),
        "replication" => replication(),
        "cpu" => cpu(),
        "commandstats" => commandstats(all),
        "errorstats" => errorstats(all),
        "latencystats" => inside::latencystats(all),
        "cluster" => vec![("cluster_enabled".to_owned(), "0".to_owned())],
        "keyspace" => keyspace(all),
        "nigh" => nigh(state, all),
        HOT_KEYS => inside::hot_keys(all),
        _ => Vec::new(),
    }
}

fn server(state: &State) -> Fields {
    let mut f = Fields::new();
    let uname = rustix::system::uname();
    let os = format!(
        "{} {} {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.machine().to_string_lossy()
    );
    let uptime_s = state.shared.started.elapsed().as_secs();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    put(&mut f, "redis_version", REDIS_VERSION);
    put(&mut f, "nigh_version", env!("CARGO_PKG_VERSION"));
    put(&mut f, "redis_mode", "standalone");
    put(&mut f, "os", os);
    put(&mut f, "arch_bits", usize::BITS);
    put(&mut f, "multiplexing_api", "epoll");
    put(&mut f, "process_id", std::process::id());
    put(&mut f, "run_id", &state.shared.run_id);
    put(&mut f, "tcp_port", state.shared.port);
    put(&mut f, "server_time_usec", now.as_micros());
    put(&mut f, "uptime_in_seconds", uptime_s);
    put(&mut f, "uptime_in_days", uptime_s / 86_400);
    put(&mut f, "executable", std::env::current_exe().unwrap_or_default().display());
    put(&mut f, "config_file", "");
    f
}

fn clients(state: &State) -> Fields {
    let mut f = Fields::new();
    put(&mut f, "connected_clients", state.shared.open_connections.load(Relaxed));
    put(&mut f, "maxclients", state.max_clients());
    put(&mut f, "blocked_clients", 0);
    put(&mut f, "tracking_clients", 0);
    f
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

/// What `used_memory` is of an empty store: it counts what lives in the arena, and nothing else.
const EMPTY_BYTES: u64 = 0;

fn memory(state: &State, all: &Snapshot) -> Fields {
    let mut f = Fields::new();
    let arena = all.store.data;
    let total = total_memory_bytes();
    let peak = all.stats.peak_used_bytes.max(arena.used_bytes);
    put(&mut f, "used_memory", arena.used_bytes);
    put(&mut f, "used_memory_human", human(arena.used_bytes));
    put(&mut f, "used_memory_rss", resident_bytes());
    put(&mut f, "used_memory_peak", peak);
    put(&mut f, "used_memory_peak_human", human(peak));
    put(&mut f, "used_memory_overhead", usage::overhead_bytes(all));
    put(&mut f, "used_memory_startup", EMPTY_BYTES);
    put(&mut f, "used_memory_dataset", arena.used_bytes);
    put(&mut f, "total_system_memory", total);
    put(&mut f, "total_system_memory_human", human(total));
    put(&mut f, "number_of_functions", state.libraries.functions());
    put(&mut f, "number_of_libraries", state.libraries.len());
    put(&mut f, "maxmemory", arena.capacity_bytes);
    put(&mut f, "maxmemory_human", human(arena.capacity_bytes));
    put(&mut f, "maxmemory_policy", state.config.text("maxmemory-policy"));
    put(&mut f, "mem_fragmentation_ratio", ratio(arena.backed_bytes, arena.used_bytes));
    // What is counted for eviction is what lives in the arena, and used_memory is nothing else.
    put(&mut f, "mem_not_counted_for_evict", 0);
    put(&mut f, "mem_clients_normal", all.buffer_bytes);
    put(&mut f, "mem_allocator", "system");
    f
}

fn persistence() -> Fields {
    let mut f = Fields::new();
    for name in ["loading", "async_loading", "rdb_bgsave_in_progress", "aof_enabled"] {
        put(&mut f, name, 0);
    }
    f
}

fn stats(all: &Snapshot) -> Fields {
    let mut f = Fields::new();
    let (stats, store) = (&all.stats, &all.store);
    let errors: u64 = stats.errors.values().sum();
    put(&mut f, "total_connections_received", stats.connections);
    put(&mut f, "total_commands_processed", stats.commands());
    put(&mut f, "instantaneous_ops_per_sec", stats.rates.commands);
    put(&mut f, "total_net_input_bytes", stats.bytes_in);
    put(&mut f, "total_net_output_bytes", stats.bytes_out);
    put(&mut f, "instantaneous_input_kbps", ratio(stats.rates.bytes_in, 1024));
    put(&mut f, "instantaneous_output_kbps", ratio(stats.rates.bytes_out, 1024));
    put(&mut f, "rejected_connections", stats.rejected_connections);
    put(&mut f, "expired_keys", store.expired_keys);
    put(&mut f, "evicted_keys", store.evicted_keys);
    put(&mut f, "keyspace_hits", store.keyspace_hits);
    put(&mut f, "keyspace_misses", store.keyspace_misses);
    put(&mut f, "pubsub_channels", 0);
    put(&mut f, "pubsub_patterns", 0);
    put(&mut f, "total_error_replies", errors);
    put(&mut f, "client_query_buffer_limit_disconnections", stats.query_limit_disconnections);
    put(&mut f, "client_output_buffer_limit_disconnections", stats.output_limit_disconnections);
    put(&mut f, "total_reads_processed", stats.reads);
    put(&mut f, "total_writes_processed", stats.writes);
    put(&mut f, "eventloop_cycles", stats.turns);
    put(&mut f, "eventloop_duration_sum", stats.worked_ns / 1000);
    put(&mut f, "eventloop_duration_cmd_sum", stats.commands_ns() / 1000);
    put(&mut f, "instantaneous_eventloop_cycles_per_sec", stats.rates.turns);
    let each_us = stats.rates.worked_us.checked_div(stats.rates.turns).unwrap_or(0);
    put(&mut f, "instantaneous_eventloop_duration_usec", each_us);
    f
}

fn replication() -> Fields {
    let mut f = Fields::new();
    put(&mut f, "role", "master");
    put(&mut f, "connected_slaves", 0);
    put(&mut f, "master_repl_offset", 0);
    f
}

/// Processor time of the process: user and system, in seconds.
fn cpu() -> Fields {
    let mut f = Fields::new();
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
    put(&mut f, "used_cpu_sys", seconds(ticks.get(1).copied().unwrap_or(0)));
    put(&mut f, "used_cpu_user", seconds(ticks.first().copied().unwrap_or(0)));
    f
}

fn commandstats(all: &Snapshot) -> Fields {
    let mut f = Fields::new();
    for (spec, row) in commands::table().iter().zip(&all.stats.rows) {
        if row.calls == 0 && row.rejected == 0 {
            continue;
        }
        let usec = row.nanoseconds / 1000;
        let per_call_hundredths =
            row.nanoseconds.checked_div(row.calls).map_or(0, |nanoseconds| nanoseconds / 10);
        let value = format!(
            "calls={},usec={usec},usec_per_call={}.{:02},rejected_calls={},failed_calls={}",
            row.calls,
            per_call_hundredths / 100,
            per_call_hundredths % 100,
            row.rejected,
            row.failed
        );
        put(&mut f, &format!("cmdstat_{}", spec.name), value);
    }
    f
}

fn errorstats(all: &Snapshot) -> Fields {
    let counts = all.stats.errors.iter();
    counts.map(|(code, count)| (format!("errorstat_{code}"), format!("count={count}"))).collect()
}

fn keyspace(all: &Snapshot) -> Fields {
    let store = &all.store;
    if store.keys == 0 {
        return Fields::new();
    }
    let value = format!("keys={},expires={},avg_ttl=0", store.keys, store.expires);
    vec![("db0".to_owned(), value)]
}

fn nigh(state: &State, all: &Snapshot) -> Fields {
    let mut f = Fields::new();
    let (store, runtime) = (&all.store, &all.runtime);
    let arena = store.data;
    put(&mut f, "shm_dir", state.config.shm_dir(state.shared.port).display());
    put(&mut f, "arena_capacity_bytes", arena.capacity_bytes);
    put(&mut f, "arena_used_bytes", arena.used_bytes);
    put(&mut f, "arena_backed_bytes", arena.backed_bytes);
    put(&mut f, "arena_dead_bytes", arena.dead_bytes);
    put(&mut f, "arena_appended_bytes", arena.appended_bytes);
    put(&mut f, "arena_segments", arena.segments);
    put(&mut f, "arena_runs", arena.runs);
    put(
        &mut f,
        "arena_huge_pages",
        u8::from(state.keyspace.librarian().data_region().has_huge_pages()),
    );
    put(&mut f, "arenas_gone", state.shared.arenas().map_or(0, |arenas| arenas.gone().len()));
    put(&mut f, "recency_bytes", all.store.recency_bytes);
    put(&mut f, "arena_index_lines", arena.index_lines);
    put(&mut f, "arena_index_growing", u8::from(arena.growing));
    put(&mut f, "arena_available_bytes", arena.available_bytes);
    put(&mut f, "arena_index_rebuilds_larger", arena.rebuilds.larger);
    put(&mut f, "arena_index_rebuilds_same", arena.rebuilds.same);
    put(&mut f, "arena_index_rebuilds_smaller", arena.rebuilds.smaller);
    put(&mut f, "cleaner_segments", arena.cleaner.segments);
    put(&mut f, "cleaner_relocated_bytes", arena.cleaner.relocated_bytes);
    put(&mut f, "cleaner_dead_records", arena.cleaner.dead_records);
    put(&mut f, "cleaner_expired_keys", arena.cleaner.expired_keys);
    put(&mut f, "cleaner_bad_records", arena.cleaner.bad_records);
    put(&mut f, "cleaner_longest_step_bytes", arena.cleaner.longest_step_bytes);
    put(&mut f, "arena_incarnation", arena.incarnation);
    put(&mut f, "arena_lsn", arena.lsn);
    put(&mut f, "watched_keys", store.watched_keys);
    put(&mut f, "function_libraries", state.libraries.len());
    put(&mut f, "function_libraries_broken", state.libraries.broken.len());
    put(&mut f, "functions", state.libraries.functions());
    put(&mut f, "function_contexts", runtime.contexts);
    put(&mut f, "function_contexts_dropped", runtime.dropped_contexts);
    put(&mut f, "function_heap_bytes", runtime.heap_bytes);
    put(&mut f, "function_array_buffer_bytes", runtime.array_buffer_bytes);
    put(&mut f, "function_calls", runtime.calls);
    put(&mut f, "function_batches", runtime.batches);
    put(&mut f, "function_errors", runtime.errors);
    put(&mut f, "function_timeouts", runtime.timeouts);
    put(&mut f, "function_isolates_lost", runtime.isolates_lost);
    put(&mut f, "function_calls_lingering", runtime.lingering);
    put(&mut f, "function_heap_limit_hits", runtime.heap_limit_hits);
    put(&mut f, "partitions", state.keyspace.partitions());
    put(&mut f, "shards", state.shared.shards());
    put(&mut f, "commands_sent_to_owner", all.stats.hops_out);
    put(&mut f, "reads_moved_to_owner", all.stats.moved_reads);
    put(&mut f, "function_calls_moved_to_owner", all.stats.moved_calls);
    put(&mut f, "function_calls_with_owners_still", all.stats.stills);
    put(&mut f, "loop_turns", all.stats.turns);
    put(&mut f, "replies_copied_bytes", all.stats.copied_bytes);
    put(&mut f, "replies_longest_turn_copied_bytes", all.stats.most_copied_bytes);
    f.extend(inside::shards(all));
    f
}

/// Resident memory of the process, from statm (second field, in pages).
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.trim().parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Memory of the machine.
fn total_memory_bytes() -> u64 {
    crate::folder::arena_folder::meminfo_bytes("MemTotal").unwrap_or(0)
}
