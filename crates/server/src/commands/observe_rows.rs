//! Commands that tell how the server does: its memory, its slow commands, its commands' times.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::key_specs::RO_AT2;
use super::spec::{
    ADMIN, Builtin, CommandSpec, LOADING, Latency, NOSCRIPT, PLAIN, READONLY, Run, STALE,
    container, help,
};
use nigh_store::Op;

const ROW: CommandSpec = CommandSpec { group: "server", ..PLAIN };
const MEMORY: CommandSpec = CommandSpec {
    arity: 2,
    since: "4.0.0",
    tips: "nondeterministic_output request_policy:all_shards response_policy:special",
    ..ROW
};
const LATENCY: CommandSpec = CommandSpec {
    flags: ADMIN | NOSCRIPT | LOADING | STALE,
    since: "2.8.13",
    tips: "nondeterministic_output request_policy:all_nodes response_policy:special",
    ..ROW
};
const SLOWLOG: CommandSpec = CommandSpec { flags: ADMIN | LOADING | STALE, since: "2.2.12", ..ROW };

#[rustfmt::skip] // for each what it is, then what tools ask, then what people read
pub(super) static OBSERVE: &[CommandSpec] = &[
    container("memory", "Commands about memory.", "4.0.0", ROW.group),
    CommandSpec { name: "memory|usage", run: Run::Data(Op::MemoryUsage), arity: -3, flags: READONLY,
        acl: "keyspace", keys: RO_AT2, tips: "",
        summary: "Answers the bytes that a key takes: record, run, and its share of the index.",
        syntax: "key [SAMPLES count:integer]", ..MEMORY },
    CommandSpec { name: "memory|stats", run: Run::Server(Builtin::MemoryStats),
        summary: "Answers what memory is used for.", ..MEMORY },
    CommandSpec { name: "memory|doctor", run: Run::Server(Builtin::MemoryDoctor),
        summary: "Answers what is odd about memory, in words.", ..MEMORY },
    CommandSpec { name: "memory|malloc-stats", run: Run::Server(Builtin::MemoryMallocStats),
        summary: "Answers the allocator's statistics: the system's has none to show.", ..MEMORY },
    CommandSpec { name: "memory|purge", run: Run::Server(Builtin::MemoryPurge),
        tips: "request_policy:all_shards response_policy:all_succeeded",
        summary: "Gives memory that the allocator keeps back to the system. It does so by itself, \
            too.", ..MEMORY },
    help("memory|help", Run::Server(Builtin::Help), "4.0.0", ROW),
    container("slowlog", "Commands about the log of slow commands.", "2.2.12", ROW.group),
    CommandSpec { name: "slowlog|get", run: Run::Server(Builtin::SlowlogGet),
        tips: "request_policy:all_nodes nondeterministic_output",
        complexity: "O(N) where N is the number of entries returned",
        summary: "Answers the newest entries of the slow log.", syntax: "[count:integer]",
        ..SLOWLOG },
    CommandSpec { name: "slowlog|len", run: Run::Server(Builtin::SlowlogLen), arity: 2,
        tips: "request_policy:all_nodes response_policy:agg_sum nondeterministic_output",
        summary: "Answers the number of entries in the slow log.", ..SLOWLOG },
    CommandSpec { name: "slowlog|reset", run: Run::Server(Builtin::SlowlogReset), arity: 2,
        tips: "request_policy:all_nodes response_policy:all_succeeded",
        complexity: "O(N) where N is the number of entries in the slowlog",
        summary: "Empties the slow log.", ..SLOWLOG },
    help("slowlog|help", Run::Server(Builtin::Help), "6.2.0", ROW),
    container("latency", "Commands about latency events.", "2.8.13", ROW.group),
    CommandSpec { name: "latency|doctor", run: Run::Server(Builtin::Latency(Latency::Doctor)),
        arity: 2, summary: "Reports on latency in words.", ..LATENCY },
    CommandSpec { name: "latency|graph", run: Run::Server(Builtin::Latency(Latency::Graph)),
        arity: 3, summary: "Draws the latency of an event.", syntax: "event", ..LATENCY },
    help("latency|help", Run::Server(Builtin::Help), "2.8.13", ROW),
    CommandSpec { name: "latency|histogram", run: Run::Server(Builtin::Latency(Latency::Histogram)),
        since: "7.0.0",
        complexity: "O(N), N: the number of commands with latency information being retrieved",
        summary: "Answers the distribution of commands' run times.", syntax: "[command ...]",
        ..LATENCY },
    CommandSpec { name: "latency|history", run: Run::Server(Builtin::Latency(Latency::History)),
        arity: 3, summary: "Answers the samples of an event.", syntax: "event", ..LATENCY },
    CommandSpec { name: "latency|latest", run: Run::Server(Builtin::Latency(Latency::Latest)),
        arity: 2, summary: "Answers the latest sample of each event.", ..LATENCY },
    CommandSpec { name: "latency|reset", run: Run::Server(Builtin::Latency(Latency::Reset)),
        tips: "request_policy:all_nodes response_policy:all_succeeded",
        summary: "Forgets the samples of events.", syntax: "[event ...]", ..LATENCY },
];
