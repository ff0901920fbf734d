//! Commands about the server as a whole.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::spec::{
    ADMIN, ALLOW_BUSY, Builtin, CommandSpec, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT,
    PLAIN, READONLY, Run, STALE, WRITE, container,
};
use nigh_store::Op;

const ROW: CommandSpec = CommandSpec { group: "server", ..PLAIN };
const CONFIG: CommandSpec =
    CommandSpec { flags: ADMIN | NOSCRIPT | LOADING | STALE, since: "2.0.0", ..ROW };
const FLUSH: CommandSpec = CommandSpec {
    arity: -1,
    flags: WRITE,
    acl: "keyspace dangerous",
    tips: "request_policy:all_shards response_policy:all_succeeded",
    since: "1.0.0",
    complexity: "O(1), memory is reclaimed later",
    syntax: "[ASYNC | SYNC]",
    ..ROW
};

#[rustfmt::skip] // for each what it is, then what tools ask, then what people read
pub(super) static SERVER: &[CommandSpec] = &[
    CommandSpec { name: "info", run: Run::Server(Builtin::Info), arity: -1, flags: LOADING | STALE,
        acl: "dangerous",
        tips: "nondeterministic_output request_policy:all_shards response_policy:special",
        since: "1.0.0",
        summary: "Describes the server in sections of name:value lines.", syntax: "[section ...]",
        ..ROW },
    container("config", "Commands about settings.", "2.0.0", ROW.group),
    CommandSpec { name: "config|get", run: Run::Server(Builtin::ConfigGet), arity: -3,
        complexity: "O(N), N: the number of configuration parameters provided",
        summary: "Answers the settings whose names match the patterns.", syntax: "parameter ...",
        ..CONFIG },
    CommandSpec { name: "config|set", run: Run::Server(Builtin::ConfigSet), arity: -4,
        tips: "request_policy:all_nodes response_policy:all_succeeded",
        complexity: "O(N), N: the number of configuration parameters provided",
        summary: "Changes settings, all or none.", syntax: "(parameter value) ...", ..CONFIG },
    CommandSpec { name: "config|resetstat", run: Run::Server(Builtin::ConfigResetstat), arity: 2,
        summary: "Sets the statistics of INFO to zero.", ..CONFIG },
    CommandSpec { name: "config|rewrite", run: Run::Server(Builtin::ConfigRewrite), arity: 2,
        since: "2.8.0",
        summary: "Writes what CONFIG SET has changed into the settings file, durably.", ..CONFIG },
    CommandSpec { name: "config|help", run: Run::Server(Builtin::Help), arity: 2,
        flags: LOADING | STALE,
        since: "5.0.0",
        summary: "Lists the subcommands, and what each setting means.", ..CONFIG },
    CommandSpec { name: "bgrewriteaof", run: Run::Server(Builtin::Bgrewriteaof), arity: 1,
        flags: ADMIN | NOSCRIPT | NO_ASYNC_LOADING,
        since: "1.0.0", complexity: "O(1), the log is written anew later",
        summary: "Compacts the log, or begins a new one in place of one that broke.", ..ROW },
    CommandSpec { name: "role", run: Run::Server(Builtin::Role), arity: 1,
        flags: NOSCRIPT | LOADING | STALE | FAST,
        acl: "admin dangerous", since: "2.8.12",
        summary: "Answers that this is a master, and that it has no replicas.", ..ROW },
    CommandSpec { name: "time", run: Run::Server(Builtin::Time), arity: 1,
        flags: LOADING | STALE | FAST,
        tips: "nondeterministic_output", since: "2.6.0",
        summary: "Answers the server's time: seconds and microseconds.", ..ROW },
    CommandSpec { name: "dbsize", run: Run::Data(Op::DbSize), arity: 1, flags: READONLY | FAST,
        acl: "keyspace", tips: "request_policy:all_shards response_policy:agg_sum", since: "1.0.0",
        summary: "Answers the number of keys.", ..ROW },
    CommandSpec { name: "flushdb", run: Run::Data(Op::FlushDb),
        summary: "Removes all keys of this database.", ..FLUSH },
    CommandSpec { name: "flushall", run: Run::Data(Op::FlushAll),
        summary: "Removes all keys.", ..FLUSH },
    CommandSpec { name: "shutdown", run: Run::Server(Builtin::Shutdown), arity: -1,
        flags: ADMIN | NOSCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY,
        since: "1.0.0",
        summary: "Stops the server; NOSAVE also removes what it kept in memory files.",
        syntax: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]", ..ROW },
];
