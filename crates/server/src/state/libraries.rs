//! The libraries of a tenant that a shard has loaded, which engine has each, and which of their
//! functions may write.
//!
//! Belongs to the shard's thread.

use crate::commands::args::integer;
use crate::engine::{Function, Library, LoadError};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Libraries whose names are noted at a time: more count as all.
const MOST_NAMED: usize = 128;

/// Which libraries of a tenant have changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChangedLibraries {
    /// Those with these names.
    Some(BTreeSet<String>),
    All,
}

impl ChangedLibraries {
    pub(crate) fn of(name: &str) -> Self {
        Self::Some(BTreeSet::from([name.to_owned()]))
    }

    /// These have changed too.
    pub(crate) fn add(&mut self, more: &ChangedLibraries) {
        match (&mut *self, more) {
            (Self::Some(names), Self::Some(more)) => {
                names.extend(more.iter().cloned());
                if names.len() > MOST_NAMED {
                    *self = Self::All;
                }
            }
            _ => *self = Self::All,
        }
    }
}

/// A library that is kept, but not running.
pub(crate) struct Broken {
    pub(crate) engine: usize,
    pub(crate) reason: String,
    /// The function that another library has.
    pub(crate) blocked_by: Option<String>,
}

/// A library as FUNCTION LIST shows it.
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a str,
    pub(crate) engine: usize,
    pub(crate) functions: &'a [Function],
    /// Why it is kept, but not running.
    pub(crate) broken: Option<&'a str>,
}

/// What a call has to know of its function. One that isn't there writes nothing.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traits {
    /// The one that has it, or says that there is none.
    pub(crate) engine: usize,
    pub(crate) writes: bool,
    /// It may write to several partitions.
    pub(crate) crosses: bool,
    /// Its replies wait until all is on disk.
    durable: bool,
}

/// The libraries that are loaded.
#[derive(Default)]
pub(crate) struct Libraries {
    /// With the number of its engine.
    by_name: BTreeMap<String, (usize, Library)>,
    /// What calls have to know of each of their functions, and the library that has it.
    by_function: HashMap<Vec<u8>, (Traits, Arc<str>)>,
    /// Functions with the flag `durable`.
    durable: usize,
    /// By name.
    pub(crate) broken: BTreeMap<String, Broken>,
}

impl Libraries {
    /// Refuses a library that has a function of another library's name.
    pub(crate) fn check_names(&self, library: &Library) -> Result<(), LoadError> {
        let is_others = |(_, owner): &(Traits, Arc<str>)| **owner != *library.name;
        let taken = |name: &str| self.by_function.get(name.as_bytes()).is_some_and(is_others);
        match library.functions.iter().find(|function| taken(&function.name)) {
            Some(taken) => Err(LoadError::FunctionExists { function: taken.name.clone() }),
            None => Ok(()),
        }
    }

    /// Those that couldn't be loaded because of a function of another library, which is gone.
    pub(crate) fn unblocked(&self) -> Vec<String> {
        let is_free = |name: &String| !self.by_function.contains_key(name.as_bytes());
        let broken = self.broken.iter();
        let free = broken.filter(|(_, broken)| broken.blocked_by.as_ref().is_some_and(is_free));
        free.map(|(name, _)| name.clone()).collect()
    }

    /// Adds or replaces a library, which an engine has.
    pub(crate) fn insert(&mut self, engine: usize, library: Library) {
        self.remove(&library.name);
        let owner: Arc<str> = library.name.as_str().into();
        for function in &library.functions {
            let traits = Traits {
                engine,
                writes: !function.no_writes,
                crosses: function.allow_cross_slot_keys,
                durable: function.durable,
            };
            let name = function.name.clone().into_bytes();
            self.by_function.insert(name, (traits, Arc::clone(&owner)));
            self.durable += usize::from(function.durable);
        }
        self.by_name.insert(library.name.clone(), (engine, library));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.broken.remove(name);
        for function in self.by_name.remove(name).into_iter().flat_map(|(_, old)| old.functions) {
            self.by_function.remove(function.name.as_bytes());
            self.durable -= usize::from(function.durable);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn functions(&self) -> usize {
        self.by_function.len()
    }

    /// Numbers of libraries and functions that an engine has.
    pub(crate) fn of_engine(&self, engine: usize) -> (usize, usize) {
        let here = self.by_name.values().filter(|(number, _)| *number == engine);
        here.fold((0, 0), |sum, (_, library)| (sum.0 + 1, sum.1 + library.functions.len()))
    }

    /// What is known of a function.
    #[inline]
    pub(crate) fn traits(&self, function: &[u8]) -> Traits {
        self.by_function.get(function).map(|(traits, _)| *traits).unwrap_or_default()
    }

    pub(crate) fn engine_of_library(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).map(|(engine, _)| *engine)
    }

    /// Whether there is a function with the flag `durable`.
    #[inline]
    pub(crate) fn has_durable(&self) -> bool {
        self.durable > 0
    }

    #[inline]
    pub(crate) fn is_durable(&self, name: &[u8]) -> bool {
        self.has_durable() && self.traits(name).durable
    }

    /// All of them and those that are broken, by name.
    pub(crate) fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        let running = self.by_name.values().map(|(engine, library)| Listed {
            name: &library.name,
            engine: *engine,
            functions: &library.functions,
            broken: None,
        });
        let broken = self.broken.iter().map(|(name, broken)| Listed {
            name,
            engine: broken.engine,
            functions: &[],
            broken: Some(&broken.reason),
        });
        let mut all: Vec<Listed<'_>> = running.chain(broken).collect();
        all.sort_unstable_by_key(|library| library.name);
        all.into_iter()
    }

    /// Whether a library has this name, running or broken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.broken.contains_key(name)
    }
}

/// Where the keys of an FCALL end: keys are `args[3..end]`, the rest are arguments. An error is the
/// error reply, if the number of keys is wrong. (Redis looks for the function first.)
pub(crate) fn key_end(libraries: &Libraries, args: &[&[u8]]) -> Result<usize, &'static str> {
    let error = match integer(args[2]) {
        None => "ERR Bad number of keys provided",
        Some(..0) => "ERR Number of keys can't be negative",
        Some(count) => match usize::try_from(count) {
            Ok(count) if count <= args.len() - 3 => return Ok(3 + count),
            _ => "ERR Number of keys can't be greater than number of args",
        },
    };
    let is_there = libraries.by_function.contains_key(args[1]);
    Err(if is_there { error } else { "ERR Function not found" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, functions: &[&str]) -> Library {
        let function = |name: &&str| Function {
            name: (*name).to_owned(),
            no_writes: true,
            allow_cross_slot_keys: false,
            durable: false,
            description: None,
        };
        Library { name: name.to_owned(), functions: functions.iter().map(function).collect() }
    }

    #[test]
    fn a_name_is_taken_as_long_as_another_library_has_the_function() {
        let mut libraries = Libraries::default();
        libraries.insert(0, library("one", &["f", "g"]));
        let is_taken = |libraries: &Libraries, name: &str| {
            let error = libraries.check_names(&library(name, &["new", "g"]));
            assert!(error.as_ref().err().is_none_or(|it| it.to_string().contains("g already")));
            error.is_err()
        };
        assert!(is_taken(&libraries, "two") && !is_taken(&libraries, "one"));
        libraries.insert(0, library("one", &["f"]));
        assert!(!is_taken(&libraries, "two"), "it has another function no more");
        libraries.insert(1, library("two", &["g"]));
        assert!(is_taken(&libraries, "one") && !is_taken(&libraries, "two"));
        libraries.remove("two");
        assert!(!is_taken(&libraries, "one"));
        assert_eq!((libraries.len(), libraries.functions()), (1, 1));
    }
}
