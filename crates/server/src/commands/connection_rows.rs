//! Commands about connections.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::spec::{
    ADMIN, ALLOW_BUSY, Builtin, CommandSpec, FAST, LOADING, NO_AUTH, NOSCRIPT, PLAIN, Run, STALE,
    container, help,
};

const ROW: CommandSpec = CommandSpec { acl: "connection", group: "connection", ..PLAIN };
const CLIENT: CommandSpec = CommandSpec { flags: NOSCRIPT | LOADING | STALE, ..ROW };

pub(super) static CONNECTION: &[CommandSpec] = &[
    CommandSpec {
        name: "ping",
        run: Run::Server(Builtin::Ping),
        arity: -1,
        flags: FAST,
        tips: "request_policy:all_shards response_policy:all_succeeded",
        since: "1.0.0",
        summary: "Answers PONG, or the message.",
        syntax: "[message]",
        ..ROW
    },
    CommandSpec {
        name: "echo",
        run: Run::Server(Builtin::Echo),
        arity: 2,
        flags: LOADING | STALE | FAST,
        since: "1.0.0",
        summary: "Answers the message.",
        syntax: "message",
        ..ROW
    },
    CommandSpec {
        name: "hello",
        run: Run::Server(Builtin::Hello),
        arity: -1,
        flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        since: "6.0.0",
        summary: "Chooses the protocol version and tells what the server is.",
        syntax: "[protover:integer [AUTH username password] [SETNAME clientname]]",
        ..ROW
    },
    CommandSpec {
        name: "auth",
        run: Run::Server(Builtin::Auth),
        arity: -2,
        flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        since: "1.0.0",
        complexity: "O(N) where N is the number of passwords defined for the user",
        summary: "Authenticates the connection.",
        syntax: "[username] password",
        ..ROW
    },
    CommandSpec {
        name: "quit",
        run: Run::Server(Builtin::Quit),
        arity: -1,
        flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        since: "1.0.0",
        summary: "Closes the connection after the replies that are under way.",
        ..ROW
    },
    CommandSpec {
        name: "reset",
        run: Run::Server(Builtin::Reset),
        arity: 1,
        flags: NOSCRIPT | LOADING | STALE | FAST | NO_AUTH | ALLOW_BUSY,
        since: "6.2.0",
        summary: "Puts the connection back into its first state.",
        ..ROW
    },
    CommandSpec {
        name: "select",
        run: Run::Server(Builtin::Select),
        arity: 2,
        flags: LOADING | STALE | FAST,
        since: "1.0.0",
        summary: "Chooses the database; there is one, number 0.",
        syntax: "index:integer",
        ..ROW
    },
    container("client", "Commands about client connections.", "2.4.0", ROW.group),
    CommandSpec {
        name: "client|id",
        run: Run::Server(Builtin::ClientId),
        arity: 2,
        since: "5.0.0",
        summary: "Answers the number of this connection.",
        ..CLIENT
    },
    CommandSpec {
        name: "client|getname",
        run: Run::Server(Builtin::ClientGetname),
        arity: 2,
        since: "2.6.9",
        summary: "Answers the name of this connection.",
        ..CLIENT
    },
    CommandSpec {
        name: "client|setname",
        run: Run::Server(Builtin::ClientSetname),
        arity: 3,
        since: "2.6.9",
        summary: "Names this connection.",
        syntax: "connection-name",
        ..CLIENT
    },
    CommandSpec {
        name: "client|setinfo",
        run: Run::Server(Builtin::ClientSetinfo),
        arity: 4,
        tips: "request_policy:all_nodes response_policy:all_succeeded",
        since: "7.2.0",
        summary: "Records the name or version of the client library.",
        syntax: "LIB-NAME libname | LIB-VER libver",
        ..CLIENT
    },
    CommandSpec {
        name: "client|info",
        run: Run::Server(Builtin::ClientInfo),
        arity: 2,
        tips: "nondeterministic_output",
        since: "6.2.0",
        summary: "Describes this connection.",
        ..CLIENT
    },
    CommandSpec {
        name: "client|list",
        run: Run::Server(Builtin::ClientList),
        flags: ADMIN | NOSCRIPT | LOADING | STALE,
        tips: "nondeterministic_output",
        since: "2.4.0",
        complexity: "O(N) where N is the number of client connections",
        summary: "Describes the open connections.",
        syntax: "[TYPE (NORMAL | MASTER | REPLICA | PUBSUB)] [ID client-id:integer ...]",
        ..CLIENT
    },
    CommandSpec {
        name: "client|kill",
        run: Run::Server(Builtin::ClientKill),
        arity: -3,
        flags: ADMIN | NOSCRIPT | LOADING | STALE,
        since: "2.4.0",
        complexity: "O(N) where N is the number of client connections",
        summary: "Closes the connections that match.",
        syntax: "(ip:port | [ID client-id:integer] [TYPE (NORMAL | MASTER | SLAVE | REPLICA | PUBSUB)] [USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME (YES | NO)])",
        ..CLIENT
    },
    CommandSpec {
        name: "client|no-evict",
        run: Run::Server(Builtin::ClientNoEvict),
        arity: 3,
        flags: ADMIN | NOSCRIPT | LOADING | STALE,
        since: "7.0.0",
        summary: "Keeps this connection when clients are evicted.",
        syntax: "ON | OFF",
        ..CLIENT
    },
    CommandSpec {
        name: "client|no-touch",
        run: Run::Server(Builtin::ClientNoTouch),
        arity: 3,
        since: "7.2.0",
        summary: "Keeps this connection's commands from touching keys' access times.",
        syntax: "ON | OFF",
        ..CLIENT
    },
    CommandSpec {
        name: "client|reply",
        run: Run::Server(Builtin::ClientReply),
        arity: 3,
        since: "3.2.0",
        summary: "Says whether commands are answered.",
        syntax: "ON | OFF | SKIP",
        ..CLIENT
    },
    help("client|help", Run::Server(Builtin::Help), "5.0.0", ROW),
];
