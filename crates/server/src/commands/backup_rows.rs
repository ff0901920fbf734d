//! Commands about copies on disk: Nigh's own, and those by which Redis saves.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::spec::{
    ADMIN, Builtin, CommandSpec, FAST, LOADING, NO_ASYNC_LOADING, NO_MULTI, NOSCRIPT, PLAIN, Run,
    STALE, container, help,
};

const ROW: CommandSpec = CommandSpec { group: "server", ..PLAIN };
const SAVE: CommandSpec = CommandSpec { run: Run::Server(Builtin::Save), since: "1.0.0", ..ROW };
const DEBUG: CommandSpec =
    CommandSpec { flags: ADMIN | NOSCRIPT | LOADING | STALE, since: "1.0.0", ..ROW };

#[rustfmt::skip] // for each what it is, then what tools ask, then what people read
pub(super) static BACKUP: &[CommandSpec] = &[
    // Redis has none of this name.
    CommandSpec { name: "backup", run: Run::Server(Builtin::Backup), arity: -2,
        flags: ADMIN | NOSCRIPT | NO_MULTI,
        since: "0.1.0", complexity: "O(1); a thread of its own copies the log",
        summary: "Begins to copy the log into a folder of the server's machine, and answers the \
            backup's number; tells how far it is; or stops it.",
        syntax: "directory | STATUS [number:integer] | CANCEL", ..ROW },
    CommandSpec { name: "lastsave", run: Run::Server(Builtin::Lastsave), arity: 1,
        flags: LOADING | STALE | FAST,
        acl: "admin dangerous", tips: "nondeterministic_output", since: "1.0.0",
        summary: "Answers when the last backup was complete, in Unix seconds.", ..ROW },
    CommandSpec { name: "save", arity: 1, flags: ADMIN | NOSCRIPT | NO_ASYNC_LOADING | NO_MULTI,
        summary: "Is refused: BACKUP copies the log.", ..SAVE },
    CommandSpec { name: "bgsave", arity: -1, flags: ADMIN | NOSCRIPT | NO_ASYNC_LOADING,
        summary: "Is refused: BACKUP copies the log.", syntax: "[SCHEDULE]", ..SAVE },
    CommandSpec { flags: DEBUG.flags,
        ..container("debug", "Commands for those who look for faults.", DEBUG.since, ROW.group) },
    CommandSpec { name: "debug|reload", run: Run::Server(Builtin::DebugReload), arity: -2,
        summary: "Is refused: a running server's data isn't loaded anew.",
        syntax: "[MERGE] [NOFLUSH] [NOSAVE]", ..DEBUG },
    help("debug|help", Run::Server(Builtin::Help), "1.0.0", DEBUG),
];
