//! What a row of the command table says.
//!
//! The names and orders of flags, categories and key flags are those of Redis's `COMMAND INFO`.
//! Data, read by any thread.

use nigh_store::Op;

/// What runs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// The store: it reads or writes data.
    Data(Op),
    /// The server.
    Server(Builtin),
    /// One of its subcommands, by the first argument.
    Container,
}

/// Commands that the server runs itself: a variant for each row, and one for HELP.
#[rustfmt::skip] // a line or two for each group
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is named after its row, which documents it")]
pub enum Builtin {
    Help, Ping, Echo, Hello, Auth, Quit, Reset, Select,
    ClientId, ClientGetname, ClientSetname, ClientSetinfo, ClientInfo, ClientList, ClientKill,
    ClientNoEvict, ClientNoTouch, ClientReply,
    LocalAttach, LocalList, LocalKill, LocalStats,
    Bgrewriteaof, Info, ConfigGet, ConfigSet, ConfigResetstat, ConfigRewrite, Role, Time, Shutdown,
    Backup, Lastsave, Save, DebugReload,
    SlowlogGet, SlowlogLen, SlowlogReset,
    MemoryDoctor, MemoryMallocStats, MemoryPurge, MemoryStats,
    Latency(Latency),
    Wait, Waitaof,
    Command, CommandCount, CommandInfo, CommandDocs, CommandGetkeys, CommandGetkeysandflags,
    CommandList,
    Multi, Exec, Discard, Watch, Unwatch,
    FunctionLoad, FunctionList, FunctionDelete, FunctionFlush, FunctionDump, FunctionRestore,
    FunctionStats, FunctionKill, Fcall, FcallRo,
}

/// The commands of LATENCY.
#[rustfmt::skip] // as above
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is named after its row, which documents it")]
pub enum Latency { Doctor, Graph, Histogram, History, Latest, Reset }

/// A set of flags: the bits below.
pub type Flags = u32;
/// May change data.
pub const WRITE: Flags = 1 << 0;
/// Only reads data.
pub const READONLY: Flags = 1 << 1;
/// Is refused when memory is full.
pub const DENYOOM: Flags = 1 << 2;
/// Is for administrators.
pub const ADMIN: Flags = 1 << 3;
/// Can't be called by a script.
pub const NOSCRIPT: Flags = 1 << 4;
/// Is answered while data is being loaded.
pub const LOADING: Flags = 1 << 5;
/// Is answered by a replica without its master.
pub const STALE: Flags = 1 << 6;
/// Isn't shown by MONITOR.
pub const SKIP_MONITOR: Flags = 1 << 7;
/// Isn't logged as slow: what it runs is.
pub const SKIP_SLOWLOG: Flags = 1 << 8;
/// Takes constant or logarithmic time.
pub const FAST: Flags = 1 << 9;
/// Is answered before AUTH.
pub const NO_AUTH: Flags = 1 << 10;
/// May be called with no key.
pub const NO_MANDATORY_KEYS: Flags = 1 << 11;
/// Isn't answered while a replica loads beside its old data: Nigh has no replicas.
pub const NO_ASYNC_LOADING: Flags = 1 << 12;
/// Can't stand in a transaction.
pub const NO_MULTI: Flags = 1 << 13;
/// Its keys aren't at fixed places.
pub const MOVABLEKEYS: Flags = 1 << 14;
/// Is answered while a function runs for too long.
pub const ALLOW_BUSY: Flags = 1 << 15;

/// Names of the flags in the order of their bits, separated by blanks.
const FLAG_NAMES: &str = "write readonly denyoom admin noscript loading stale skip_monitor \
    skip_slowlog fast no_auth no_mandatory_keys no_async_loading no_multi movablekeys allow_busy";

/// Names of the ACL categories, in the order in which they are listed, separated by blanks.
pub const CATEGORIES: &str = "keyspace read write set sortedset list hash string bitmap \
    hyperloglog geo stream pubsub admin fast slow blocking dangerous connection transaction scripting";

/// How the keys are found from where they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Find {
    /// Every `step`-th argument up to `last`, counted from the first key, or from the end if it is
    /// negative.
    Range {
        /// Last key: 0 is the first one itself, -1 the last argument.
        last: i8,
        /// Arguments from one key to the next.
        step: u8,
    },
    /// A number, then that many keys.
    Counted,
}

/// Keys of a command, and what it does with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpec {
    /// Argument at which to begin; the command's name is 0.
    pub begin: u8,
    /// How to go on from there.
    pub find: Find,
    /// What is done with the keys, in Redis's words, separated by blanks.
    pub flags: &'static str,
    /// Why the flags are these, if that isn't plain.
    pub notes: &'static str,
}

/// A row of the command table.
#[derive(Debug, Clone, Copy)]
pub struct CommandSpec {
    /// Name in lower case; `container|subcommand` for a subcommand.
    pub name: &'static str,
    /// What runs it.
    pub run: Run,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i16,
    /// What it may do, and when.
    pub flags: Flags,
    /// ACL categories that don't follow from the flags, separated by blanks.
    pub acl: &'static str,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// Hints for clients and proxies, separated by blanks.
    pub tips: &'static str,
    /// Group of the documentation.
    pub group: &'static str,
    /// Version of Redis that had it first.
    pub since: &'static str,
    /// How its time grows.
    pub complexity: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// Its arguments: `[optional]`, `one | other`, `TOKEN`, `repeated ...`, `name:type`.
    pub syntax: &'static str,
}

/// A row whose fields say nothing: a row of the table is this one but for what it names. A test
/// finds a row that forgets its name, group, version or summary.
pub(super) const PLAIN: CommandSpec = CommandSpec {
    name: "",
    run: Run::Container,
    arity: -2,
    flags: 0,
    acl: "",
    keys: &[],
    tips: "",
    group: "",
    since: "",
    complexity: "O(1)",
    summary: "",
    syntax: "",
};

type RowText = &'static str;

/// The row of a container.
pub(super) const fn container(
    name: RowText,
    summary: RowText,
    since: RowText,
    group: RowText,
) -> CommandSpec {
    CommandSpec { name, summary, since, complexity: "Depends on the subcommand", group, ..PLAIN }
}

/// The row of a container's HELP, with the group and categories of `row`.
pub(super) const fn help(name: RowText, run: Run, since: RowText, row: CommandSpec) -> CommandSpec {
    let (flags, summary) = (LOADING | STALE, "Lists the subcommands.");
    CommandSpec { name, run, arity: 2, flags, since, summary, ..row }
}

impl CommandSpec {
    /// Whether `argc` arguments, the name included, are right.
    #[inline]
    pub fn takes(&self, argc: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity >= 0 { argc == least } else { argc >= least }
    }

    /// Whether the row has all of these flags.
    #[inline]
    pub fn has(&self, flags: Flags) -> bool {
        self.flags & flags == flags
    }

    /// Names of its flags.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let flags = self.flags;
        let named = FLAG_NAMES.split(' ').enumerate();
        named.filter(move |(bit, _)| flags & (1 << bit) != 0).map(|(_, name)| name)
    }

    /// Whether it belongs to an ACL category.
    pub fn in_category(&self, category: &str) -> bool {
        let scripting = matches!(self.run, Run::Server(Builtin::FcallRo));
        match category {
            "read" => self.has(READONLY) && !scripting,
            "write" => self.has(WRITE),
            "fast" => self.has(FAST),
            "slow" => !self.has(FAST),
            "admin" | "dangerous" if self.has(ADMIN) => true,
            _ => self.acl.split(' ').any(|name| name == category),
        }
    }

    /// The container that this is a subcommand of.
    pub fn container(&self) -> Option<&'static str> {
        self.name.split_once('|').map(|(container, _)| container)
    }

    /// First, last and step of its keys as `COMMAND` gives them; zeros if it has none, or counted
    /// ones.
    pub fn key_range(&self) -> (i64, i64, i64) {
        let (Some(first), Some(end)) = (self.keys.first(), self.keys.last()) else {
            return (0, 0, 0);
        };
        let Find::Range { last, step } = end.find else { return (0, 0, 0) };
        let from = if last < 0 { 0 } else { i64::from(end.begin) };
        (i64::from(first.begin), from + i64::from(last), i64::from(step))
    }
}
