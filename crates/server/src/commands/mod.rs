//! The command table, as data, and finding a row in it.
//!
//! ```text
//! GET -> fold to lower case, pack into a word -> slot of a hash table -> row
//! CLIENT LIST -> row of the container -> row of the subcommand
//! ```
//!
//! 1. A command exists if and only if it has a row; COMMAND, HELP and the shell derive from the
//!    rows.
//! 2. The lookup is made once, on first use, and never changes. Any thread may call anything here.

pub(crate) mod args;
mod backup_rows;
mod command_rows;
mod connection_rows;
mod container_help;
mod generic_rows;
mod getkeys;
mod key_specs;
mod local_rows;
mod observe_rows;
mod resolve;
mod scripting_rows;
mod server_rows;
pub mod spec;
mod string_rows;
mod syntax;

pub(crate) use container_help::help;
pub(crate) use getkeys::find_keys;
pub(crate) use resolve::{Resolved, resolve, resolve_args};
pub use spec::{Builtin, CommandSpec, Latency, Run};
pub use syntax::{Argument, Shape};

use std::sync::OnceLock;

/// Slots of the lookup table: a power of two, some eight times the commands, so that probes are
/// short.
const SLOTS: usize = 1024;
/// Longest command name that is looked up: one word of 128 bits.
const NAME_BYTES: usize = 16;

/// Position of a row in [`table`].
pub type Row = u16;

/// The whole table: commands, each container followed by its subcommands.
pub fn table() -> &'static [CommandSpec] {
    &lookup().rows
}

#[inline]
pub(crate) fn of(row: Row) -> &'static CommandSpec {
    &table()[usize::from(row)]
}

/// The row of a command, by its name in any case.
#[inline]
pub fn find(name: &[u8]) -> Option<Row> {
    lookup().find(name)
}

/// The row of a subcommand of the container in row `container`.
pub fn find_subcommand(container: Row, name: &[u8]) -> Option<Row> {
    let own = lookup().rows[usize::from(container)].name;
    subcommands(container).find_map(|(row, spec)| {
        let sub = spec.name.get(own.len() + 1..)?;
        sub.as_bytes().eq_ignore_ascii_case(name).then_some(row)
    })
}

/// The row of `get` or `client|list`.
pub(crate) fn find_full(name: &[u8]) -> Option<Row> {
    match name.iter().position(|byte| *byte == b'|') {
        None => find(name),
        Some(at) => find_subcommand(find(&name[..at])?, &name[at + 1..]),
    }
}

/// The rows of the subcommands of a container; none for another command.
pub fn subcommands(container: Row) -> impl Iterator<Item = (Row, &'static CommandSpec)> {
    let rows = table();
    let own = rows[usize::from(container)].name;
    (container + 1..)
        .map_while(move |row| rows.get(usize::from(row)).map(|spec| (row, spec)))
        .take_while(move |(_, spec)| spec.container() == Some(own))
}

/// The rows of commands proper, without subcommands.
pub fn commands() -> impl Iterator<Item = (Row, &'static CommandSpec)> {
    (0..).zip(table()).filter(|(_, spec): &(Row, _)| spec.container().is_none())
}

struct Lookup {
    rows: Vec<CommandSpec>,
    /// Packed name and row + 1 (0: empty), by hash, linear probing.
    slots: Box<[(u128, Row); SLOTS]>,
}

fn lookup() -> &'static Lookup {
    static LOOKUP: OnceLock<Lookup> = OnceLock::new();
    LOOKUP.get_or_init(Lookup::new)
}

/// The name in lower case in a word, shorter ones padded with zeros, and the length, which makes
/// names with a zero byte differ.
#[inline]
fn pack(name: &[u8]) -> Option<u128> {
    let push = |word, byte: &u8| word << 8 | u128::from(byte.to_ascii_lowercase());
    (name.len() <= NAME_BYTES).then(|| name.iter().fold(0, push))
}

#[inline]
fn slot_of(word: u128) -> usize {
    // Fibonacci hashing: the high bits of a product with 2^64 / golden ratio are well mixed.
    #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed in")]
    let mixed = (word as u64 ^ (word >> 61) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 54) as usize & (SLOTS - 1)
}

impl Lookup {
    fn new() -> Self {
        let tables = [
            connection_rows::CONNECTION,
            local_rows::LOCAL,
            server_rows::SERVER,
            backup_rows::BACKUP,
            observe_rows::OBSERVE,
            command_rows::COMMAND,
            string_rows::STRING,
            generic_rows::GENERIC,
            scripting_rows::SCRIPTING,
        ];
        let rows: Vec<CommandSpec> = tables.concat();
        let mut slots = Box::new([(0u128, 0); SLOTS]);
        for (row, spec) in (0..).zip(&rows) {
            if spec.container().is_some() {
                continue;
            }
            let word = pack(spec.name.as_bytes()).expect("names of commands fit into a word");
            let mut slot = slot_of(word);
            while slots[slot].1 != 0 {
                slot = (slot + 1) & (SLOTS - 1);
            }
            slots[slot] = (word, row + 1);
        }
        Self { rows, slots }
    }

    #[inline]
    fn find(&self, name: &[u8]) -> Option<Row> {
        let word = pack(name)?;
        let mut slot = slot_of(word);
        loop {
            match self.slots[slot] {
                (_, 0) => return None,
                (found, row) if found == word => {
                    let row = row - 1;
                    // A leading zero byte packs like a shorter name.
                    let same = self.rows[usize::from(row)].name.len() == name.len();
                    return same.then_some(row);
                }
                _ => slot = (slot + 1) & (SLOTS - 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row can be found by its name in any case, and nothing else can.
    #[test]
    fn every_command_is_found_by_its_name() {
        for (row, spec) in commands() {
            assert_eq!(find(spec.name.as_bytes()), Some(row), "{}", spec.name);
            assert_eq!(find(spec.name.to_uppercase().as_bytes()), Some(row), "{}", spec.name);
            for (sub, sub_spec) in subcommands(row) {
                let name = sub_spec.name.split_once('|').expect("a subcommand").1;
                assert_eq!(find_subcommand(row, name.to_uppercase().as_bytes()), Some(sub));
            }
        }
        for unknown in ["", "ge", "gett", "\0get", "get\0", "fcall\x7fro", "client|list"] {
            assert_eq!(find(unknown.as_bytes()), None, "{unknown:?}");
        }
        assert_eq!(find(&[b'x'; 100]), None);
    }

    /// What a row doesn't say it takes from a plain one, which says nothing of these.
    #[test]
    fn every_row_says_what_it_is() {
        for spec in table() {
            let said = [spec.name, spec.group, spec.since, spec.summary];
            assert!(!said.contains(&""), "{spec:?}");
            assert!(spec.run != Run::Container || spec.container().is_none(), "{spec:?}");
        }
    }

    /// A container has subcommands, each right behind it; other commands have none.
    #[test]
    fn containers_are_followed_by_their_subcommands() {
        for (row, spec) in commands() {
            let is_container = spec.run == Run::Container || spec.name == "command";
            assert_eq!(subcommands(row).count() > 0, is_container, "{}", spec.name);
        }
        let subs: usize = commands().map(|(row, _)| subcommands(row).count()).sum();
        assert_eq!(commands().count() + subs, table().len());
    }
}
