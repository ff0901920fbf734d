//! Is there room for what a server will take? Compared before anything is made.
//!
//! | compared | with | cannot be | may not be |
//! |---|---|---|---|
//! | arenas, journals, [`RESERVE_BYTES`] | what is free in the file system of `shm-dir` | refused | |
//! | arenas, journals | the least memory limit of the control groups | refused | |
//! | the same, and [`Needs::process`] | that limit | | warned |
//!
//! 1. Arenas that an earlier server left are served whatever is free: then a refusal is a warning,
//!    since nobody else has the data.
//! 2. Without `maxmemory` the arenas are made small enough for all of it.
//!
//! Called by the thread that starts the server.

use crate::config::Config;
use crate::error::{ServeError, shown};
use crate::folder::cgroup::MemoryLimit;
use std::path::Path;

/// What is left of a tmpfs for the arena of libraries.
pub(crate) const RESERVE_BYTES: u64 = 4 << 20;
/// A journal's file is longer than its ring by its head, of a page.
const JOURNAL_HEAD_BYTES: u64 = 4 << 10;
/// A process without clients: program, V8's snapshot, tables.
const PROCESS_BYTES: u64 = 64 << 20;
/// A shard's: a runtime of functions, mailboxes, buffers of a few clients.
const SHARD_BYTES: u64 = 24 << 20;

/// Memory that a server takes beside its arenas, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The journals of all shards; none without a log.
    pub(crate) journals: u64,
    /// The process's own.
    pub(crate) process: u64,
}

impl Needs {
    pub(crate) fn of(config: &Config, shards: usize) -> Self {
        let shards = shards as u64;
        let journal = config.unsigned("journal-size").next_power_of_two() + JOURNAL_HEAD_BYTES;
        let journals = if config.flag("appendonly") { shards * journal } else { 0 };
        Self { journals, process: PROCESS_BYTES + shards * SHARD_BYTES }
    }

    /// What lies in the tmpfs beside the arenas.
    pub(crate) fn beside_arenas(self) -> u64 {
        self.journals + RESERVE_BYTES
    }
}

/// Looks whether arenas of so many bytes fit into the file system of `dir`, which has `free` bytes
/// for all of it.
pub(crate) fn look_at_file_system(
    dir: &Path,
    arenas: u64,
    needs: Needs,
    free: u64,
) -> Result<(), ServeError> {
    let needed = arenas.saturating_add(needs.beside_arenas());
    if needed <= free {
        return Ok(());
    }
    Err(ServeError::TooLittleMemory {
        path: dir.to_owned(),
        arenas,
        journals: needs.journals,
        free,
    })
}

/// Looks whether they fit into the memory limit of the process's groups. A warning is returned.
pub(crate) fn look_at_limit(
    arenas: u64,
    needs: Needs,
    limit: Option<&MemoryLimit>,
) -> Result<Option<String>, ServeError> {
    let Some(MemoryLimit { bytes, file }) = limit else { return Ok(None) };
    let in_tmpfs = arenas.saturating_add(needs.beside_arenas());
    let all = in_tmpfs.saturating_add(needs.process);
    let (arenas, journals) = (shown(arenas), shown(needs.journals));
    let (file, allowed) = (file.display(), shown(*bytes));
    let help = "lower --maxmemory, or raise the limit (systemd: MemoryMax=, Docker: --memory)";
    if in_tmpfs > *bytes {
        return Err(ServeError::Setting(format!(
            "the arenas ({arenas}) and journals ({journals}) don't fit into the {allowed} that \
             {file} allows, and the kernel would end the server: {help}"
        )));
    }
    Ok((all > *bytes).then(|| {
        let process = shown(needs.process);
        format!(
            "arenas ({arenas}), journals ({journals}) and the server itself (some {process}) may \
             exceed the {allowed} that {file} allows, and the kernel would end the server: {help}"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NEEDS: Needs = Needs { journals: 8 * MIB, process: 100 * MIB };

    fn limit(bytes: u64) -> MemoryLimit {
        MemoryLimit { bytes, file: "/sys/fs/cgroup/x/memory.max".into() }
    }

    /// Journals are there with a log only, one for each shard, of a power of two.
    #[test]
    fn journals_count_with_a_log() {
        let mut config = Config::default();
        config.set("journal-size", "3000000").expect("a size");
        let with = Needs::of(&config, 3);
        assert_eq!(with.journals, 3 * (4 * MIB + JOURNAL_HEAD_BYTES));
        config.set("appendonly", "no").expect("a flag");
        assert_eq!(Needs::of(&config, 3), Needs { journals: 0, ..with });
    }

    /// All that lies in the tmpfs has to fit there, to the byte.
    #[test]
    fn a_tmpfs_holds_all_or_is_refused() {
        let look = |free| look_at_file_system(Path::new("/x"), 64 * MIB, NEEDS, free);
        assert!(look(76 * MIB).is_ok());
        let text = look(76 * MIB - 1).expect_err("a byte too little").to_string();
        for part in ["64 MiB", "8 MiB", "/x", "--maxmemory", "--journal-size", "--shm-size"] {
            assert!(text.contains(part), "{text}: {part}");
        }
    }

    /// What can't fit under a limit is refused; what may grow over it is warned about.
    #[test]
    fn a_limit_refuses_or_warns() {
        let look = |bytes| look_at_limit(64 * MIB, NEEDS, Some(&limit(bytes)));
        assert_eq!(look(176 * MIB).expect("it fits"), None);
        let warning = look(176 * MIB - 1).expect("it may fit").expect("a warning");
        let refusal = look(76 * MIB - 1).expect_err("it can't fit").to_string();
        assert!(look(76 * MIB).expect("it may fit").is_some());
        for text in [warning, refusal] {
            for part in ["64 MiB", "memory.max", "--maxmemory", "MemoryMax=", "--memory)"] {
                assert!(text.contains(part), "{text}: {part}");
            }
        }
        assert_eq!(look_at_limit(u64::MAX, NEEDS, None).expect("no limit"), None);
    }
}
