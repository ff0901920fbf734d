//! What an import leaves out: counted by kind, with the first examples of each.
//!
//! Bounds: at most [`KINDS_MAX`] kinds; what comes behind is counted together.

use std::collections::BTreeMap;
use std::fmt;

/// Most kinds that are told apart: a hostile file may have any number of command names.
const KINDS_MAX: usize = 64;
/// Examples of a kind.
const EXAMPLES: usize = 3;
/// Most characters of an example.
const EXAMPLE_CHARS: usize = 48;
/// The kind of all that comes after the last kind that has room.
const REST: &str = "others";

/// Kinds that belong to no database, so that no flush removes what they stand for.
const OF_NO_DATABASE: [&str; 3] = [SCRIPTS, LIBRARIES, MODULE_DATA];
/// The kind of commands that load functions and scripts.
pub(crate) const SCRIPTS: &str = "functions and scripts";
/// The kind of libraries of functions in an RDB.
pub(crate) const LIBRARIES: &str = "libraries of functions";
/// The kind of what modules keep beside the keys.
pub(crate) const MODULE_DATA: &str = "data of modules";
/// The kinds of what lies in other databases: their numbers follow.
const OF_OTHERS: [&str; 2] = ["commands in database ", "keys of database "];

#[derive(Clone, Debug, Default)]
struct Group {
    count: u64,
    examples: Vec<String>,
}

/// Counts by kind.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    groups: BTreeMap<String, Group>,
}

impl LeftOut {
    /// Counts one of `kind`; `example` is its key.
    pub(crate) fn add(&mut self, kind: &str, example: &[u8]) {
        let has_room = self.groups.len() < KINDS_MAX || self.groups.contains_key(kind);
        let kind = if has_room { kind } else { REST };
        if !self.groups.contains_key(kind) {
            self.groups.insert(kind.to_owned(), Group::default());
        }
        let Some(group) = self.groups.get_mut(kind) else { return };
        group.count += 1;
        if group.examples.len() < EXAMPLES && !example.is_empty() {
            let example = shown(example);
            if !group.examples.contains(&example) {
                group.examples.push(example);
            }
        }
    }

    /// Counts `count` of `kind`, without an example.
    pub(crate) fn add_many(&mut self, kind: &str, count: u64) {
        if count > 0 {
            self.groups.entry(kind.to_owned()).or_default().count += count;
        }
    }

    /// All databases of the source were emptied.
    pub(crate) fn all_flushed(&mut self) {
        self.retain(|_| false);
    }

    /// The imported database of the source was emptied.
    pub(crate) fn ours_flushed(&mut self) {
        self.retain(|kind| OF_OTHERS.iter().any(|others| kind.starts_with(others)));
    }

    /// Another database of the source was emptied.
    pub(crate) fn other_flushed(&mut self, db: u64) {
        self.retain(|kind| OF_OTHERS.iter().all(|others| kind != format!("{others}{db}")));
    }

    /// Forgets the kinds that don't stay. [`REST`] stays: it may be of any.
    fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        let fixed = |kind: &str| kind == REST || OF_NO_DATABASE.contains(&kind);
        self.groups.retain(|kind, _| fixed(kind) || stays(kind));
    }

    /// Adds what another one counted.
    pub(crate) fn merge(&mut self, other: Self) {
        for (kind, theirs) in other.groups {
            let group = self.groups.entry(kind).or_default();
            group.count += theirs.count;
            group.examples.extend(theirs.examples);
            group.examples.truncate(EXAMPLES);
        }
    }

    /// All together.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.groups.values().map(|group| group.count).sum()
    }

    /// How many of a kind.
    #[must_use]
    pub fn of(&self, kind: &str) -> u64 {
        self.groups.get(kind).map_or(0, |group| group.count)
    }

    /// One line for each kind: count, kind, examples.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.groups.iter().map(|(kind, group)| {
            let more = if group.count > group.examples.len() as u64 { ", …" } else { "" };
            match group.examples.is_empty() {
                true => format!("{} {kind}", group.count),
                false => format!("{} {kind}: {}{more}", group.count, group.examples.join(", ")),
            }
        })
    }
}

impl fmt::Display for LeftOut {
    /// All kinds with their counts, in one line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, group)) in self.groups.iter().enumerate() {
            write!(out, "{}{} {kind}", if at == 0 { "" } else { ", " }, group.count)?;
        }
        Ok(())
    }
}

/// A key as ASCII, cut if it is long.
pub(crate) fn shown(key: &[u8]) -> String {
    let cut = key.len() > EXAMPLE_CHARS;
    let text = key[..key.len().min(EXAMPLE_CHARS)].escape_ascii().to_string();
    if cut { format!("{text}…") } else { text }
}
