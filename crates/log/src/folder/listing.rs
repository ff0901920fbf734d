//! What names stand in a log's folder, and which of them go.
//!
//! A file goes only if `meta` is there, and names no chain that the file is of. Files of named
//! chains are the reader's and the writer's to judge.
//!
//! The thread that has the folder.

use crate::error::LogError;
use crate::format::meta::Meta;
use crate::format::names::{FileName, LOCK, META, META_NEW, NEW};
use crate::position::Chain;
use crate::storage::Storage;

/// The names in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// Log files, sorted by generation, shard and number.
    pub files: Vec<FileName>,
    /// What was being made: `meta.new`, and log files with `.new`. Never read.
    pub new: Vec<String>,
    /// Names that aren't the log's.
    pub others: Vec<String>,
    /// Whether there is a file `meta`.
    pub meta: bool,
}

/// Lists the folder.
///
/// # Errors
/// `Io` if it can't be read.
pub fn list<S: Storage>(storage: &S) -> Result<Listing, LogError> {
    let names = storage.names();
    let names = names.map_err(|error| LogError::io(".", 0, "listing the folder", error))?;
    let mut listing = Listing::default();
    for name in names {
        if let Some(file) = FileName::parse(&name) {
            listing.files.push(file);
        } else if is_new(&name) {
            listing.new.push(name);
        } else if name == META {
            listing.meta = true;
        } else if name != LOCK {
            listing.others.push(name);
        }
    }
    listing.files.sort_unstable();
    listing.new.sort_unstable();
    listing.others.sort_unstable();
    Ok(listing)
}

fn is_new(name: &str) -> bool {
    let made = name.strip_suffix(NEW);
    name == META_NEW || made.is_some_and(|made| FileName::parse(made).is_some())
}

/// Compares the names with `meta`: log files need one, and it has to be theirs. A file's generation
/// was raised in `meta` before the file was made; so a `meta` below it is an older copy.
///
/// # Errors
/// `MetaMissing`, or `Meta`.
pub fn need_meta(listing: &Listing, meta: Option<&Meta>) -> Result<(), LogError> {
    let Some(newest) = listing.files.last() else {
        return Ok(());
    };
    let Some(meta) = meta else {
        return Err(LogError::MetaMissing { file: newest.to_string() });
    };
    if newest.generation >= meta.next_generation {
        let next = meta.next_generation;
        let what = format!("next-generation is {next}, but there is {newest}: it is an older copy");
        return Err(LogError::Meta { line: 4, what });
    }
    Ok(())
}

/// Removes the files of chains that `meta` doesn't name, and what was being made, but for the log
/// files of named chains, whose writers take them over: at a start, when nobody makes anything.
/// Returns the names of what went; that is durable.
///
/// # Errors
/// `Io`; some may be removed.
pub fn remove_unnamed<S: Storage>(
    storage: &S,
    listing: &Listing,
    meta: &Meta,
) -> Result<Vec<String>, LogError> {
    let unnamed = |file: &FileName| !meta.chains.iter().any(|chain| file.is_of(chain));
    let files = listing.files.iter().filter(|file| unnamed(file)).map(ToString::to_string);
    let made = |new: &&String| {
        let made = new.strip_suffix(NEW).and_then(FileName::parse);
        made.is_none_or(|made| unnamed(&made))
    };
    let new = listing.new.iter().filter(made).cloned();
    remove(storage, new.chain(files).collect())
}

/// Removes all files of some chains, and what was being made of them: while others are written,
/// when `meta` names these no more. Returns the names of what went; that is durable.
///
/// # Errors
/// `Io`; some may be removed.
pub fn remove_chains<S: Storage>(
    storage: &S,
    listing: &Listing,
    chains: &[Chain],
) -> Result<Vec<String>, LogError> {
    let goes = |file: &FileName| chains.iter().any(|chain| file.is_of(chain));
    let made = |new: &&String| {
        let made = new.strip_suffix(NEW).and_then(FileName::parse);
        made.is_some_and(|made| goes(&made))
    };
    let new = listing.new.iter().filter(made).cloned();
    let files = listing.files.iter().filter(|file| goes(file)).map(ToString::to_string);
    remove(storage, new.chain(files).collect())
}

fn remove<S: Storage>(storage: &S, names: Vec<String>) -> Result<Vec<String>, LogError> {
    for name in &names {
        storage.remove(name).map_err(|error| LogError::io(name, 0, "removing", error))?;
    }
    if !names.is_empty() {
        let synced = storage.sync_folder();
        synced.map_err(|error| LogError::io(".", 0, "syncing the folder", error))?;
    }
    Ok(names)
}
