//! Commands about clients of this machine, which attach to the arenas.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::spec::{
    ADMIN, Builtin, CommandSpec, LOADING, NO_MULTI, NOSCRIPT, PLAIN, Run, STALE, container, help,
};

// Redis has none of these names.
const ROW: CommandSpec =
    CommandSpec { acl: "connection", group: "connection", since: "0.1.0", ..PLAIN };

#[rustfmt::skip] // for each what it is, then what tools ask, then what people read
pub(super) static LOCAL: &[CommandSpec] = &[
    container("local", "Commands about clients of this machine that attach.", ROW.since, ROW.group),
    CommandSpec { name: "local|attach", run: Run::Server(Builtin::LocalAttach), arity: 3,
        flags: NOSCRIPT | NO_MULTI,
        complexity: "O(N) where N is the number of partitions",
        summary: "Gives the client at the other end of a Unix socket the arenas to read, and rings \
            by which its commands go from then on.", syntax: "protocol-version:integer", ..ROW },
    CommandSpec { name: "local|list", run: Run::Server(Builtin::LocalList), arity: 2,
        flags: ADMIN | NOSCRIPT | LOADING | STALE,
        tips: "nondeterministic_output",
        complexity: "O(N) where N is the number of client connections",
        summary: "Describes the clients that are attached.", ..ROW },
    CommandSpec { name: "local|kill", run: Run::Server(Builtin::LocalKill), arity: 4,
        flags: ADMIN | NOSCRIPT | LOADING | STALE,
        complexity: "O(N) where N is the number of client connections",
        summary: "Ends a client that is attached.", syntax: "ID client-id:integer", ..ROW },
    CommandSpec { name: "local|stats", run: Run::Server(Builtin::LocalStats), arity: 2,
        flags: LOADING | STALE,
        tips: "nondeterministic_output",
        summary: "Counts the clients that are attached, and what became of others.", ..ROW },
    help("local|help", Run::Server(Builtin::Help), "0.1.0", ROW),
];
