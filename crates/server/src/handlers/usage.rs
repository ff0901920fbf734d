//! MEMORY STATS and DOCTOR: what memory is used for, and what is odd about it.
//!
//! 1. Names are Redis's where their meaning holds here; what only an arena has begins with
//!    `arena.`.
//! 2. The arena has a fixed capacity. What is live in it is `dataset.bytes`; index, clocks and
//!    buffers are `overhead.total`; what is dead is the cleaner's to win back.
//!
//! Belongs to the shard's thread.

use crate::engine::allocator;
use crate::handlers::context::Context;
use crate::handlers::session;
use crate::net::output::ReplyWriter;
use crate::observe::snapshot::Snapshot;
use nigh_store::{Policy, ReplySink};

/// What Redis answers without jemalloc.
pub(crate) const NO_ALLOCATOR_STATS: &[u8] = b"Stats not supported for the current allocator";
/// Bytes of an index line.
const LINE_BYTES: u64 = 64;
/// Use of the arena from which DOCTOR warns, per cent of its capacity.
const FULL_PERCENT: u64 = 85;
/// Dead share of the segments from which DOCTOR says so, per cent.
const DEAD_PERCENT: u64 = 60;
/// Below this use DOCTOR has nothing to say, bytes (as Redis).
const LITTLE_BYTES: u64 = 5 << 20;
/// Waiting replies and requests for each client from which DOCTOR warns, bytes (as Redis).
const BIG_BUFFER_BYTES: u64 = 200 << 10;

/// Memory for other things than records: index, clocks, and buffers of clients.
pub(crate) fn overhead_bytes(all: &Snapshot) -> u64 {
    index_bytes(all) + all.store.recency_bytes + all.buffer_bytes as u64
}

fn index_bytes(all: &Snapshot) -> u64 {
    all.store.data.index_lines * LINE_BYTES
}

#[expect(clippy::cast_precision_loss, reason = "shares are shown to people")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(crate) fn stats(context: &mut Context<'_, '_>) {
    let all = session::all_clients(context);
    let (arena, store) = (&all.store.data, &all.store);
    let (overhead, keys) = (overhead_bytes(&all), store.keys);
    let total = arena.used_bytes + overhead;
    let peak = all.stats.peak_used_bytes.max(arena.used_bytes) + overhead;
    let functions = (all.runtime.heap_bytes + all.runtime.array_buffer_bytes) as u64;
    let figures = [
        ("peak.allocated", peak),
        ("total.allocated", total),
        ("clients.normal", all.buffer_bytes as u64),
        ("functions.caches", functions),
        ("overhead.total", overhead),
        ("keys.count", keys),
        ("keys.bytes-per-key", total.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", arena.used_bytes),
        ("fragmentation.bytes", arena.backed_bytes.saturating_sub(arena.used_bytes)),
        ("arena.capacity", arena.capacity_bytes),
        ("arena.backed", arena.backed_bytes),
        ("arena.available", arena.available_bytes),
        ("arena.dead", arena.dead_bytes),
        ("arena.segments", arena.segments.into()),
        ("arena.runs", arena.runs.into()),
    ];
    let shares = [
        ("dataset.percentage", 100.0 * share(arena.used_bytes, total)),
        ("peak.percentage", 100.0 * share(total, peak)),
        ("fragmentation", share(arena.backed_bytes, arena.used_bytes)),
    ];
    let mut out = ReplyWriter::new(context.out, context.client.protocol);
    out.map(figures.len() + shares.len() + 1);
    out.text("db.0");
    let recency = ("overhead.recency", store.recency_bytes);
    out.figures([("overhead.hashtable.main", index_bytes(&all)), recency]);
    figures.into_iter().for_each(|(name, figure)| out.figure(name, figure));
    for (name, value) in shares {
        out.text(name);
        out.double(value);
    }
}

/// MEMORY PURGE.
pub(crate) fn purge(context: &mut Context<'_, '_>) {
    allocator::trim();
    context.reply().ok();
}

pub(crate) fn doctor(context: &mut Context<'_, '_>) {
    let all = session::all_clients(context);
    let policy = Policy::of_name(&context.state.config.text("maxmemory-policy"));
    let text = diagnose(&all, policy.unwrap_or_default());
    context.reply().verbatim(&text);
}

fn diagnose(all: &Snapshot, policy: Policy) -> String {
    let arena = &all.store.data;
    if arena.used_bytes < LITTLE_BYTES {
        return "The store is empty or nearly so: there is nothing to say about its memory yet.\n"
            .to_owned();
    }
    let mut found: Vec<String> = Vec::new();
    let is_full = arena.used_bytes >= arena.capacity_bytes / 100 * FULL_PERCENT;
    if is_full && policy == Policy::NoEviction {
        found.push(format!(
            "Full: live records take {} of {} bytes, and with maxmemory-policy noeviction writes will be refused. \
             Delete keys, set a policy that evicts, or start with a larger maxmemory.",
            arena.used_bytes, arena.capacity_bytes
        ));
    }
    let may_evict = all.store.expires > 0 || policy == Policy::AllKeysLru;
    if is_full && policy != Policy::NoEviction && !may_evict {
        found.push(format!(
            "No candidates: {} evicts keys with an expiry only, and none has one. Writes will be refused. Set \
             expiries, or maxmemory-policy allkeys-lru.",
            policy.name()
        ));
    }
    let segments = arena.used_bytes.max(1) + arena.dead_bytes;
    if arena.dead_bytes * 100 > segments * DEAD_PERCENT {
        found.push(format!(
            "Dead records: {} bytes of segments hold nothing that lives. The cleaner packs them when there is \
             nothing else to do; until then they are room for new records.",
            arena.dead_bytes
        ));
    }
    let clients = all.clients.len().max(1) as u64;
    if all.buffer_bytes as u64 / clients > BIG_BUFFER_BYTES {
        found.push(format!(
            "Large buffers: requests and replies of {clients} clients take {} bytes. CLIENT LIST shows whose; \
             output-buffer-limit bounds them.",
            all.buffer_bytes
        ));
    }
    match found.is_empty() {
        true => "Nothing is odd about the memory of this store.\n".to_owned(),
        false => found.iter().map(|line| format!("* {line}\n")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(used: u64, capacity: u64) -> Snapshot {
        let mut all = Snapshot::default();
        all.store.data.used_bytes = used;
        all.store.data.capacity_bytes = capacity;
        all
    }

    /// The doctor names what will go wrong: a full store that refuses, and a policy that finds
    /// nothing.
    #[test]
    fn the_doctor_sees_a_full_store() {
        let healthy = snapshot(6 << 20, 64 << 20);
        assert!(diagnose(&healthy, Policy::NoEviction).starts_with("Nothing is odd"));
        assert!(diagnose(&snapshot(0, 64 << 20), Policy::NoEviction).contains("empty"));
        let mut full = snapshot(60 << 20, 64 << 20);
        assert!(diagnose(&full, Policy::NoEviction).starts_with("* Full: live records take"));
        assert!(diagnose(&full, Policy::VolatileTtl).contains("volatile-ttl evicts keys with"));
        assert!(diagnose(&full, Policy::AllKeysLru).starts_with("Nothing is odd"));
        full.store.expires = 1;
        assert!(diagnose(&full, Policy::VolatileTtl).starts_with("Nothing is odd"));
        full.store.data.dead_bytes = 200 << 20;
        full.buffer_bytes = 1 << 20;
        let text = diagnose(&full, Policy::AllKeysLru);
        assert!(text.contains("* Dead records") && text.contains("* Large buffers"), "{text}");
    }
}
