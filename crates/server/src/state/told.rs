//! What a shard tells of itself, and what it knows of the others.
//!
//! Made by the shard's thread.

use crate::engine::RuntimeStats;
use crate::net::client::{Buffers, Client, Close, client_row};
use crate::net::connection::Connection;
use crate::observe::snapshot::{Part, Snapshot, add_runtime};
use crate::state::State;
use crate::state::shared::Shared;
use std::time::Instant;

fn part(state: &State, connections: usize, function_calls: u64) -> Part {
    let (stats, mail) = (&state.stats, state.mail());
    Part {
        number: state.number,
        connections,
        operations: stats.commands(),
        operations_per_s: stats.rates.commands,
        hops_out: stats.hops_out,
        hops_in: stats.hops_in,
        mailbox_depth: mail.depth,
        mailbox_full: mail.full,
        wakes: mail.wakes,
        utilisation_permille: stats.rates.worked_permille,
        longest_step_ns: stats.longest_step_ns,
        longest_turn_ns: stats.longest_turn_ns,
        function_calls,
        blocked: state.blocked,
        unsynced_ms: u64::try_from(state.logs.age(Instant::now()).as_millis()).unwrap_or(u64::MAX),
        log_delays: state.logs.delays,
    }
}

/// What a shard with so many connections tells, but for what they are; of all tenants, or some.
pub(crate) fn snapshot(state: &State, of_all: bool, connections: usize) -> Snapshot {
    let mut runtime = RuntimeStats::default();
    state.engines.iter().for_each(|engine| add_runtime(&mut runtime, &engine.stats()));
    Snapshot {
        stats: state.stats.clone(),
        tenants: state.tenants.stats(of_all),
        parts: vec![part(state, connections, runtime.calls)],
        runtime,
        hot_keys: state.hot_keys.clone(),
        ..Snapshot::default()
    }
}

/// Adds a client to its shard's snapshot.
pub(crate) fn add_client(snapshot: &mut Snapshot, client: &Client, buffers: Buffers, now: Instant) {
    snapshot.buffer_bytes += buffers.input_capacity + buffers.output_capacity;
    snapshot.clients.push(client_row(client, buffers, now));
}

/// The same of a connection, unless it is about to end.
pub(crate) fn add_connection(snapshot: &mut Snapshot, connection: &Connection, now: Instant) {
    let client = &connection.pipe.client;
    if client.close == Close::No {
        add_client(snapshot, client, connection.buffers(), now);
    }
}

/// The sum of a shard's own snapshot, with what it has told of tenants before, and the others'.
pub(crate) fn with_others(mut snapshot: Snapshot, shared: &Shared, own: usize) -> Snapshot {
    for (number, seat) in shared.seats.iter().enumerate() {
        // Before the snapshot: a client that arrives meanwhile is in one of the two.
        snapshot.clients.extend(seat.moving());
        if number != own {
            snapshot.add(&seat.snapshot());
            continue;
        }
        for (tenant, store) in &seat.snapshot().tenants {
            snapshot.tenants.entry(*tenant).or_insert(*store);
        }
    }
    snapshot.tenants.values().for_each(|store| snapshot.store.add(store));
    snapshot
}
