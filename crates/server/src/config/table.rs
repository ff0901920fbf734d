//! The table of settings. One row says name, kind, default, bounds, and whether CONFIG SET may
//! change it.
//!
//! Names are Redis's where the meaning is Redis's. What Nigh doesn't have has no row: a setting
//! that is accepted and ignored is a lie. Some rows have a single value; clients ask for them.

use SettingKind::{Bytes, Choice, Flag, Number, PowerOfTwo, Secret, Text};

/// The values that a setting has. Bounds are the least and the greatest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// A number within bounds.
    Number(i64, i64),
    /// Bytes within bounds; texts may have units such as `64mb`.
    Bytes(i64, i64),
    /// Bytes: a power of two within bounds.
    PowerOfTwo(i64, i64),
    /// `yes` or `no`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Text for the system, such as a path, of so many bytes at most: without zero bytes.
    Text(usize),
    /// Any text of so many bytes at most.
    Secret(usize),
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Name: of the flag (`--name`), in the file, and for CONFIG.
    pub name: &'static str,
    /// Values.
    pub kind: SettingKind,
    /// Default, as text.
    pub default: &'static str,
    /// Whether CONFIG SET may change it while the server runs.
    pub mutable: bool,
    /// What it does, in one sentence.
    pub help: &'static str,
}

/// All settings, in the order in which help lists them.
pub fn settings() -> &'static [Setting] {
    SETTINGS
}

/// The row of a name, in any case.
pub fn setting(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|row| row.name.eq_ignore_ascii_case(name))
}

/// A path is at most as long as Linux takes it.
const PATH_BYTES: usize = 4096;
/// The path of a Unix socket has to fit into its address.
const SOCKET_PATH_BYTES: usize = 107;
/// Largest bound of a client's replies: 64 GiB.
const MOST_BYTES: i64 = 64 << 30;
/// Most memory of all partitions together: 64, each with an arena of 64 GiB at most.
const MOST_MEMORY_BYTES: i64 = 64 * (64 << 30);
/// Largest bound of a log: 1 PiB.
const MOST_LOG_BYTES: i64 = 1 << 50;
/// Longest time limit: an hour, in ms.
const HOUR_MS: i64 = 3_600_000;
const GIB: i64 = 1 << 30;
/// The longest value, and so the longest result and write set of a function: 512 MiB.
const MOST_VALUE_BYTES: i64 = 512 << 20;

type RowText = &'static str;

const fn row(
    name: RowText,
    kind: SettingKind,
    default: RowText,
    mutable: bool,
    help: RowText,
) -> Setting {
    Setting { name, kind, default, mutable, help }
}

const FIXED: bool = false;
const MUTABLE: bool = true;

// Two lines a row, of which rustfmt would make seven.
#[rustfmt::skip]
static SETTINGS: &[Setting] = &[
    row("port", Number(0, 65_535), "6379", FIXED,
        "TCP port; 0 for none beside a Unix socket, else for one that the system chooses."),
    row("bind", Text(PATH_BYTES), "127.0.0.1 -::1", FIXED,
        "Addresses to listen on, separated by blanks; `*` for all, `::*` for all of IPv6. One behind \
         `-` is left out if the machine hasn't it."),
    row("protected-mode", Flag, "yes", MUTABLE,
        "Refuse clients of other hosts as long as no password is set."),
    row("unixsocket", Text(SOCKET_PATH_BYTES), "", FIXED,
        "Path of a Unix socket to listen on; empty for none."),
    row("unixsocketperm", Text(4), "700", FIXED,
        "Permissions of the Unix socket, in octal digits."),
    row("local-max-clients", Number(0, 100_000), "1024", MUTABLE,
        "Most clients of this machine that are attached by LOCAL ATTACH at a time; 0 for none."),
    row("local-ring-bytes", PowerOfTwo(4096, GIB), "65536", MUTABLE,
        "Bytes of each of the two rings of a local client; holds for those that attach from then on."),
    row("tcp-backlog", Number(1, 65_535), "511", FIXED,
        "Most connections that wait to be accepted."),
    row("tcp-keepalive", Number(0, 32_767), "300", MUTABLE,
        "Seconds between probes of idle TCP connections; 0 for none. Holds for new connections."),
    row("timeout", Number(0, 2_147_483_647), "0", MUTABLE,
        "Seconds after which an idle client is disconnected; 0 for never."),
    row("maxclients", Number(1, 1_000_000), "10000", MUTABLE,
        "Most connections at a time; fewer if the process may not open that many files."),
    row("requirepass", Secret(512), "", MUTABLE,
        "Password that AUTH asks for; empty for none."),
    row("client-query-buffer-limit", Bytes(1 << 20, GIB), "1073741824", MUTABLE,
        "Most bytes of a client's waiting requests; beyond them it is disconnected."),
    row("output-buffer-limit", Bytes(1 << 20, MOST_BYTES), "1073741824", MUTABLE,
        "Most bytes of replies that wait for a client to read; beyond them it is disconnected. A \
         longer single reply that comes by way of another shard is refused."),
    row("output-buffer-pause", Bytes(16 << 10, MOST_BYTES), "1048576", MUTABLE,
        "Bytes of waiting replies beyond which a client's further requests wait."),
    row("output-buffer-timeout", Number(0, 86_400), "60", MUTABLE,
        "Seconds after which a client that reads none of its waiting replies, and sends nothing, is \
         disconnected, if they are more than output-buffer-pause; 0 for never."),
    row("proto-max-bulk-len", Bytes(1 << 20, 512 << 20), "536870912", MUTABLE,
        "Longest argument that a client may send."),
    row("databases", Number(1, 1), "1", FIXED, "Nigh has one database."),
    row("shm-dir", Text(PATH_BYTES), "", FIXED,
        "Folder of the arenas, in a tmpfs; empty for /dev/shm/nigh-<port>."),
    row("maxmemory", Bytes(0, MOST_MEMORY_BYTES), "0", FIXED,
        "Memory of the arenas, at most 64gb for each partition; 0 for half of the available memory, \
         at most the size of the tmpfs."),
    row("maxmemory-policy",
        Choice(&["noeviction", "allkeys-lru", "volatile-lru", "volatile-ttl"]), "noeviction",
        MUTABLE,
        "When memory is full, noeviction refuses writes. The others remove keys: the least \
         recently used of all, or of those with an expiry; or those that expire soonest."),
    row("maxmemory-samples", Number(1, 64), "5", MUTABLE,
        "Random keys of which the best one is removed: more find older keys and take longer."),
    row("verify", Flag, "no", FIXED,
        "Compare the checksums of all records before serving, and log the wrong ones."),
    row("fresh", Flag, "no", FIXED,
        "Start empty: remove the arenas of an earlier server. Refused if they have a log, unless \
         appendonly is no: then the log goes too."),
    row("save", Choice(&[""]), "", FIXED, "Nigh saves no snapshots: see appendonly, and BACKUP."),
    row("appendonly", Flag, "yes", MUTABLE,
        "Keep a log of all changes on disk, in the folder of `dir`. Without, a reboot loses all data."),
    row("appendfsync", Choice(&["always", "everysec", "no"]), "everysec", MUTABLE,
        "When the log is on disk for certain: always, before a client is answered; everysec, \
         within a second; no, when the system likes."),
    row("dir", Text(PATH_BYTES), "nigh-data", FIXED,
        "Folder of the log, on a disk of this machine; a relative path begins where the server is \
         started."),
    row("journal-size", Bytes(1 << 20, 4 * GIB), "67108864", FIXED,
        "Memory of each shard's journal, which holds changes until they are in the log; rounded up \
         to a power of two. One commit takes at most a fourth."),
    row("journal-wait-ms", Number(0, HOUR_MS), "1000", MUTABLE,
        "Longest wait of a write for the log; then it is refused."),
    row("log-file-size", Bytes(1 << 20, GIB), "67108864", FIXED, "Bytes of a file of the log."),
    row("log-garbage", Number(10, 10_000), "100", FIXED,
        "Bytes of the log that may be out of date, in per cent of those that count."),
    row("log-max-size", Bytes(0, MOST_LOG_BYTES), "0", FIXED,
        "Bytes of a shard's log from which on it is made smaller; 0 for none."),
    row("log-hold-size", Bytes(0, MOST_LOG_BYTES), "1073741824", MUTABLE,
        "Most bytes of a shard's log that are kept for a backup that has fallen behind. Holds for \
         the next backup."),
    row("backup-rate", Bytes(0, MOST_LOG_BYTES), "67108864", MUTABLE,
        "Most bytes that a backup reads in a second, and as many that it reads back; 0 for no bound."),
    row("log-on-tmpfs", Flag, "no", FIXED,
        "Let the log lie in a tmpfs, where the end of the machine takes it too."),
    row("log-any-filesystem", Flag, "no", FIXED,
        "Let the log lie in a file system that isn't of this machine, where two servers may get \
         the same folder."),
    row("spin-us", Number(0, 1_000_000), "50", MUTABLE,
        "Microseconds for which a shard looks for work before it sleeps."),
    row("shards", Number(0, 64), "0", FIXED,
        "Threads that serve, each on a core of its own; 0 for one on each core."),
    row("partitions", Number(1, 64), "1", FIXED,
        "Partitions of the keyspace, divided among the shards. With more than one, several shards \
         write at once, and Redis Cluster's rules hold for commands of several keys."),
    row("pin-core", Number(-1, 1023), "-1", FIXED,
        "Core of the first shard; the others get the cores after it. -1: a core for each of \
         several shards if there are enough, else none."),
    row("slowlog-log-slower-than", Number(-1, i64::MAX), "10000", MUTABLE,
        "Microseconds from which on a command is logged as slow; 0 logs all, -1 none."),
    row("slowlog-max-len", Number(0, 100_000), "128", MUTABLE,
        "Most entries of the slow log."),
    row("loglevel", Choice(&["error", "warn", "info", "debug", "trace"]), "info", FIXED,
        "Least level of the log lines on stderr."),
    row("metrics-port", Number(0, 65_535), "0", FIXED,
        "Port of Prometheus metrics over HTTP; 0 for none."),
    row("metrics-bind", Text(64), "127.0.0.1", FIXED,
        "Address of Prometheus metrics over HTTP."),
    row("command-time-limit-ms", Number(1, HOUR_MS), "5000", MUTABLE,
        "Time from which on EXEC and FUNCTION RESTORE are stopped, and do nothing: they hold their \
         shard."),
    row("function-time-limit-ms", Number(1, HOUR_MS), "50", MUTABLE,
        "Most CPU time of one function call."),
    row("function-load-limit-ms", Number(10, HOUR_MS), "2000", MUTABLE,
        "Most CPU time in which a library is compiled and its top level runs."),
    row("function-heap-limit-bytes", Bytes(16 << 20, 4 * GIB), "268435456", MUTABLE,
        "Most JavaScript heap of all functions together."),
    row("function-array-buffer-limit-bytes", Bytes(1 << 20, 4 * GIB), "268435456", MUTABLE,
        "Most bytes in ArrayBuffers of all functions together."),
    row("function-stack-bytes", Bytes(64 << 10, 6 << 20), "983040", MUTABLE,
        "Largest stack of a function."),
    row("function-result-limit-bytes", Bytes(1 << 10, MOST_VALUE_BYTES), "33554432", MUTABLE,
        "Longest reply of one function call."),
    row("function-result-depth", Number(1, 128), "32", MUTABLE,
        "Deepest nesting of a function's reply."),
    row("function-arguments-limit", Number(1, 10_000_000), "250000", MUTABLE,
        "Most keys and arguments of one function call."),
    row("function-arguments-limit-bytes", Bytes(1 << 10, 640 << 20), "67108864", MUTABLE,
        "Most bytes in the keys and arguments of one function call."),
    row("function-write-set-limit-bytes", Bytes(1 << 10, MOST_VALUE_BYTES), "67108864", MUTABLE,
        "Most bytes of keys and values that one function call may write."),
    row("function-write-set-limit-keys", Number(1, 1 << 20), "100000", MUTABLE,
        "Most keys that one function call may write."),
    row("function-source-limit-bytes", Bytes(1 << 10, 64 << 20), "4194304", MUTABLE,
        "Longest source of one function library."),
    row("function-contexts", Number(1, 100_000), "500", MUTABLE,
        "V8 contexts that are kept alive, one for each tenant in use."),
    row("function-kill-grace-ms", Number(100, HOUR_MS), "5000", MUTABLE,
        "Time for which a stopped function may run on if its shard can't leave it behind; then the \
         process ends."),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What doesn't hold is refused. Some limits were taken, and lower ones held.
    #[test]
    fn a_limit_of_functions_that_would_not_hold_is_refused() {
        for (name, most) in [
            ("function-result-limit-bytes", 512 << 20),
            ("function-write-set-limit-bytes", 512 << 20),
            ("function-write-set-limit-keys", 1 << 20),
            ("function-arguments-limit-bytes", 640 << 20),
        ] {
            let row = setting(name).expect("a row");
            assert!(row.parse(&most.to_string()).is_ok(), "{name}");
            assert!(row.parse(&(most + 1).to_string()).is_err(), "{name}");
        }
    }

    /// A user who looks for a setting finds it: as `name` or as its flag, on some page.
    #[test]
    fn each_setting_stands_on_a_page_for_users() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let pages = docs.read_dir().expect("the pages").map(|page| page.expect("a page").path());
        let pages = pages.filter(|page| page.extension().is_some_and(|it| it == "md"));
        let pages = pages.map(|page| std::fs::read_to_string(page).expect("a page"));
        let text: String = pages.collect();
        let stands = |name: &str, before: &str| {
            let named = format!("{before}{name}");
            let mut after = text.split(&named).skip(1);
            after.any(|rest| !rest.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '-'))
        };
        let lacks = |row: &&Setting| !stands(row.name, "`") && !stands(row.name, "--");
        let missing: Vec<_> = settings().iter().filter(lacks).map(|row| row.name).collect();
        assert_eq!(missing, [""; 0], "on no page of docs");
    }
}
