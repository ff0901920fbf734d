//! The names of what can be measured.

use crate::protocol::Kind;
use anyhow::{Result, bail};

/// Something that can be measured: its name as db_bench has it, where that has it, and what is
/// done.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// What threads do for the time of a slice, where it is such work.
    pub(crate) kind: Option<Kind>,
}

const fn workload(name: &'static str, kind: Option<Kind>, about: &'static str) -> Workload {
    Workload { name, about, kind }
}

pub(crate) const FILL_SEQ: &str = "fillseq";
pub(crate) const FILL_RANDOM: &str = "fillrandom";
pub(crate) const OVERWRITE: &str = "overwrite";
pub(crate) const READ_RANDOM: &str = "readrandom";
pub(crate) const READ_BESIDE: &str = "readwhilewriting";
pub(crate) const MULTI_GET: &str = "multiget";
pub(crate) const DELETE_RANDOM: &str = "deleterandom";
pub(crate) const FILL_SYNC: &str = "fillsync";
pub(crate) const OPEN_CRASH: &str = "opencrash";
pub(crate) const OPEN_CLOSED: &str = "openclosed";
pub(crate) const DRAGONDB: &str = "dragondb";

/// The row of the writer of readwhilewriting.
pub(crate) const WRITER_BESIDE: &str = "readwhilewriting, its writer";

/// Writers at once where one sync can serve several.
pub(crate) const GROUP_WRITERS: u32 = 64;

/// All, in the order in which pages show them.
pub(crate) const WORKLOADS: [Workload; 12] = [
    workload(FILL_SEQ, None, "each key once, in order, into an empty database"),
    workload(FILL_RANDOM, None, "each key once, in random order, into an empty database"),
    workload(OVERWRITE, Some(Kind::Overwrite), "`put` of random keys that are there"),
    workload(READ_RANDOM, Some(Kind::Read), "`get` of random keys"),
    workload("readhot", Some(Kind::ReadHot), "`get` of random keys of the first 1 %"),
    workload(
        READ_BESIDE,
        Some(Kind::ReadBesideWriter),
        "readrandom while one more thread overwrites; reads are counted",
    ),
    workload(MULTI_GET, Some(Kind::MultiGet), "16 random keys read at once; keys are counted"),
    workload(DELETE_RANDOM, None, "half of the keys deleted, in random order"),
    workload(FILL_SYNC, None, "`put` of random keys, each waits for the disk"),
    workload(OPEN_CRASH, None, "open and one `get` after SIGKILL"),
    workload(OPEN_CLOSED, None, "open and one `get` after a close"),
    workload(DRAGONDB, None, "the operations of DragonDB's tables, Nigh only"),
];

/// The workload of a name.
pub(crate) fn workload_named(name: &str) -> Result<&'static str> {
    static ALL: [Workload; 12] = WORKLOADS;
    match ALL.iter().find(|workload| workload.name == name) {
        Some(workload) => Ok(workload.name),
        None => {
            let names: Vec<&str> = ALL.iter().map(|workload| workload.name).collect();
            bail!("there is no workload {name:?}; there are {}", names.join(", "))
        }
    }
}

/// The names of all rows of figures, in the page's order.
pub(crate) fn rows() -> impl Iterator<Item = &'static str> {
    WORKLOADS.iter().map(|workload| workload.name).flat_map(|name| {
        let writer = (name == READ_BESIDE).then_some(WRITER_BESIDE);
        std::iter::once(name).chain(writer)
    })
}

/// Whether a row's figures are milliseconds of an opening.
pub(crate) fn is_opening(row: &str) -> bool {
    row == OPEN_CRASH || row == OPEN_CLOSED
}

/// Whether a row's figures are operations per second of several engines.
pub(crate) fn has_rates(row: &str) -> bool {
    !is_opening(row) && row != DRAGONDB
}

/// The name of one of DragonDB's rows.
pub(crate) fn dragon_row(name: &str, strong: bool) -> String {
    let durability = if strong { "strong" } else { "weak" };
    format!("{DRAGONDB} {name}, {durability}")
}

/// Whether a row is one of DragonDB's.
pub(crate) fn is_dragon_row(row: &str) -> bool {
    row.starts_with(DRAGONDB)
}
