//! Transactions and functions.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::key_specs::{RO_ACCESS_AT2_COUNTED, RO_ALL, RW_ACCESS_UPDATE_AT2_COUNTED};
use super::spec::{
    ALLOW_BUSY, Builtin, CommandSpec, DENYOOM, FAST, LOADING, MOVABLEKEYS, NO_MANDATORY_KEYS,
    NOSCRIPT, PLAIN, READONLY, Run, SKIP_MONITOR, SKIP_SLOWLOG, STALE, WRITE, container, help,
};

const TRANSACTION: CommandSpec = CommandSpec {
    acl: "transaction",
    group: "transactions",
    flags: NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY,
    ..PLAIN
};
const FUNCTION: CommandSpec =
    CommandSpec { acl: "scripting", group: "scripting", since: "7.0.0", ..PLAIN };

#[rustfmt::skip] // for each what it is, then what tools ask, then what people read
pub(super) static SCRIPTING: &[CommandSpec] = &[
    CommandSpec { name: "multi", run: Run::Server(Builtin::Multi), arity: 1,
        since: "1.2.0",
        summary: "Begins a transaction.", ..TRANSACTION },
    CommandSpec { name: "exec", run: Run::Server(Builtin::Exec), arity: 1,
        flags: NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG,
        since: "1.2.0", complexity: "Depends on the commands",
        summary: "Runs the queued commands, all or nothing.", ..TRANSACTION },
    CommandSpec { name: "discard", run: Run::Server(Builtin::Discard), arity: 1,
        since: "2.0.0", complexity: "O(N), when N is the number of queued commands",
        summary: "Drops the queued commands.", ..TRANSACTION },
    CommandSpec { name: "watch", run: Run::Server(Builtin::Watch),
        keys: RO_ALL, since: "2.2.0", complexity: "O(1) for every key",
        summary: "Makes the next EXEC depend on keys staying as they are.", syntax: "key ...",
        ..TRANSACTION },
    CommandSpec { name: "unwatch", run: Run::Server(Builtin::Unwatch), arity: 1,
        since: "2.2.0",
        summary: "Forgets the watched keys.", ..TRANSACTION },
    container("function", "Commands about function libraries.", "7.0.0", FUNCTION.group),
    CommandSpec { name: "function|load", run: Run::Server(Builtin::FunctionLoad), arity: -3,
        flags: WRITE | DENYOOM | NOSCRIPT,
        tips: "request_policy:all_shards response_policy:all_succeeded",
        summary: "Loads a library.", syntax: "[REPLACE] function-code", ..FUNCTION },
    CommandSpec { name: "function|list", run: Run::Server(Builtin::FunctionList), flags: NOSCRIPT,
        tips: "nondeterministic_output_order",
        complexity: "O(N) where N is the number of functions",
        summary: "Describes the libraries.",
        syntax: "[LIBRARYNAME library-name-pattern] [WITHCODE]", ..FUNCTION },
    CommandSpec { name: "function|delete", run: Run::Server(Builtin::FunctionDelete), arity: 3,
        flags: WRITE | NOSCRIPT,
        tips: "request_policy:all_shards response_policy:all_succeeded",
        summary: "Removes a library.", syntax: "library-name", ..FUNCTION },
    CommandSpec { name: "function|flush", run: Run::Server(Builtin::FunctionFlush),
        flags: WRITE | NOSCRIPT,
        tips: "request_policy:all_shards response_policy:all_succeeded",
        complexity: "O(N) where N is the number of functions deleted",
        summary: "Removes all libraries.", syntax: "[ASYNC | SYNC]", ..FUNCTION },
    CommandSpec { name: "function|dump", run: Run::Server(Builtin::FunctionDump), arity: 2,
        flags: NOSCRIPT,
        complexity: "O(N) where N is the number of functions",
        summary: "Answers all libraries as one payload.", ..FUNCTION },
    CommandSpec { name: "function|restore", run: Run::Server(Builtin::FunctionRestore), arity: -3,
        flags: WRITE | DENYOOM | NOSCRIPT,
        tips: "request_policy:all_shards response_policy:all_succeeded",
        complexity: "O(N) where N is the number of functions on the payload",
        summary: "Loads the libraries of a payload, all or none.",
        syntax: "serialized-value [FLUSH | APPEND | REPLACE]", ..FUNCTION },
    CommandSpec { name: "function|stats", run: Run::Server(Builtin::FunctionStats), arity: 2,
        flags: NOSCRIPT | ALLOW_BUSY,
        tips: "nondeterministic_output request_policy:all_shards response_policy:special",
        summary: "Tells what function runs, and the engine's counts.", ..FUNCTION },
    CommandSpec { name: "function|kill", run: Run::Server(Builtin::FunctionKill), arity: 2,
        flags: NOSCRIPT | ALLOW_BUSY,
        tips: "request_policy:all_shards response_policy:one_succeeded",
        summary: "Ends the functions that run on other shards; where one runs, its time limit ends \
            it.", ..FUNCTION },
    help("function|help", Run::Server(Builtin::Help), "7.0.0", FUNCTION),
    CommandSpec { name: "fcall", run: Run::Server(Builtin::Fcall), arity: -3,
        flags: NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS | MOVABLEKEYS,
        keys: RW_ACCESS_UPDATE_AT2_COUNTED, complexity: "Depends on the function",
        summary: "Calls a function.", syntax: "function numkeys [key ...] [arg ...]", ..FUNCTION },
    CommandSpec { name: "fcall_ro", run: Run::Server(Builtin::FcallRo), arity: -3,
        flags: READONLY | NOSCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS | MOVABLEKEYS,
        keys: RO_ACCESS_AT2_COUNTED, complexity: "Depends on the function",
        summary: "Calls a function that only reads.",
        syntax: "function numkeys [key ...] [arg ...]", ..FUNCTION },
];
