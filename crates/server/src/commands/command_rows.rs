//! COMMAND: the commands about the commands.
//!
//! One row a command, as [`super::spec`] says. Data, read by any thread.

use super::spec::{Builtin, CommandSpec, LOADING, PLAIN, Run, STALE, help};

const ROW: CommandSpec =
    CommandSpec { flags: LOADING | STALE, acl: "connection", group: "server", ..PLAIN };

#[rustfmt::skip] // for each what it is, then what tools ask, then what people read
pub(super) static COMMAND: &[CommandSpec] = &[
    CommandSpec { name: "command", run: Run::Server(Builtin::Command), arity: -1,
        tips: "nondeterministic_output_order", since: "2.8.13",
        complexity: "O(N) where N is the total number of Redis commands",
        summary: "Describes all commands.", ..ROW },
    CommandSpec { name: "command|count", run: Run::Server(Builtin::CommandCount), arity: 2,
        since: "2.8.13",
        summary: "Answers the number of commands.", ..ROW },
    CommandSpec { name: "command|info", run: Run::Server(Builtin::CommandInfo), arity: -2,
        tips: "nondeterministic_output_order", since: "2.8.13",
        complexity: "O(N) where N is the number of commands to look up",
        summary: "Describes the named commands.", syntax: "[command-name ...]", ..ROW },
    CommandSpec { name: "command|docs", run: Run::Server(Builtin::CommandDocs), arity: -2,
        tips: "nondeterministic_output_order", since: "7.0.0",
        complexity: "O(N) where N is the number of commands to look up",
        summary: "Answers the documentation of commands.", syntax: "[command-name ...]", ..ROW },
    CommandSpec { name: "command|getkeys", run: Run::Server(Builtin::CommandGetkeys), arity: -4,
        since: "2.8.13", complexity: "O(N) where N is the number of arguments to the command",
        summary: "Answers the keys of a whole command.", syntax: "command [arg ...]", ..ROW },
    CommandSpec { name: "command|getkeysandflags",
        run: Run::Server(Builtin::CommandGetkeysandflags), arity: -4,
        since: "7.0.0", complexity: "O(N) where N is the number of arguments to the command",
        summary: "Answers the keys of a whole command, and what it does with them.",
        syntax: "command [arg ...]", ..ROW },
    CommandSpec { name: "command|list", run: Run::Server(Builtin::CommandList), arity: -2,
        tips: "nondeterministic_output_order", since: "7.0.0",
        complexity: "O(N) where N is the total number of Redis commands",
        summary: "Lists the names of commands.",
        syntax: "[FILTERBY (MODULE module-name | ACLCAT category | PATTERN pattern)]", ..ROW },
    help("command|help", Run::Server(Builtin::Help), "5.0.0", ROW),
];
