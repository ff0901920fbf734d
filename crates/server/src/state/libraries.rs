//! The libraries of a tenant that a shard has loaded, which engine has each, and which of their
//! functions may write.
//!
//! Belongs to the shard's thread.

use crate::commands::args::integer;
use crate::engine::{Function, Library, LoadError};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A library as FUNCTION LIST shows it.
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a str,
    pub(crate) engine: usize,
    pub(crate) functions: &'a [Function],
    /// Why it is kept, but not running.
    pub(crate) broken: Option<&'a str>,
}

/// The libraries that are loaded.
#[derive(Default)]
pub(crate) struct Libraries {
    /// With the number of its engine.
    by_name: BTreeMap<String, (usize, Library)>,
    /// The engines of functions that the first one hasn't.
    elsewhere: HashMap<Vec<u8>, usize>,
    /// Functions that may write.
    writing: HashSet<Vec<u8>>,
    /// Functions that may write to several partitions.
    crossing: HashSet<Vec<u8>>,
    /// Functions whose replies wait until all is on disk.
    durable: HashSet<Vec<u8>>,
    /// Kept in the arena, but not loadable: name, engine and reason.
    pub(crate) broken: BTreeMap<String, (usize, String)>,
}

impl Libraries {
    /// Refuses a library that has a function of another library's name.
    pub(crate) fn check_names(&self, library: &Library) -> Result<(), LoadError> {
        let others = self.by_name.values().filter(|(_, other)| other.name != library.name);
        let mut names = others.flat_map(|(_, other)| &other.functions).map(|it| &it.name);
        let taken = names.find(|name| library.functions.iter().any(|it| it.name == **name));
        let error = |name: &String| LoadError::FunctionExists { function: name.clone() };
        taken.map_or(Ok(()), |name| Err(error(name)))
    }

    /// Adds or replaces a library, which an engine has.
    pub(crate) fn insert(&mut self, engine: usize, library: Library) {
        self.remove(&library.name.clone());
        if engine > 0 {
            let names = library.functions.iter().map(|function| function.name.clone());
            self.elsewhere.extend(names.map(|name| (name.into_bytes(), engine)));
        }
        let writing = library.functions.iter().filter(|function| !function.no_writes);
        self.writing.extend(writing.map(|function| function.name.clone().into_bytes()));
        let crossing = library.functions.iter().filter(|function| function.allow_cross_slot_keys);
        self.crossing.extend(crossing.map(|function| function.name.clone().into_bytes()));
        let durable = library.functions.iter().filter(|function| function.durable);
        self.durable.extend(durable.map(|function| function.name.clone().into_bytes()));
        self.by_name.insert(library.name.clone(), (engine, library));
    }

    /// Forgets a library.
    pub(crate) fn remove(&mut self, name: &str) {
        self.broken.remove(name);
        for function in self.by_name.remove(name).into_iter().flat_map(|(_, old)| old.functions) {
            self.elsewhere.remove(function.name.as_bytes());
            self.writing.remove(function.name.as_bytes());
            self.crossing.remove(function.name.as_bytes());
            self.durable.remove(function.name.as_bytes());
        }
    }

    /// Number of libraries.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Number of functions.
    pub(crate) fn functions(&self) -> usize {
        self.by_name.values().map(|(_, library)| library.functions.len()).sum()
    }

    /// Numbers of libraries and functions that an engine has.
    pub(crate) fn of_engine(&self, engine: usize) -> (usize, usize) {
        let here = self.by_name.values().filter(|(number, _)| *number == engine);
        here.fold((0, 0), |sum, (_, library)| (sum.0 + 1, sum.1 + library.functions.len()))
    }

    /// The engine that has a function, or says that there is none.
    #[inline]
    pub(crate) fn engine(&self, function: &[u8]) -> usize {
        self.elsewhere.get(function).copied().unwrap_or(0)
    }

    /// The engine that has a library.
    pub(crate) fn engine_of_library(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).map(|(engine, _)| *engine)
    }

    /// Whether a function says that it doesn't write. One that isn't there writes nothing either.
    pub(crate) fn only_reads(&self, name: &[u8]) -> bool {
        !self.writing.contains(name)
    }

    /// Whether a function may write to several partitions.
    pub(crate) fn crosses(&self, name: &[u8]) -> bool {
        self.crossing.contains(name)
    }

    /// Whether there is a function with the flag `durable`.
    #[inline]
    pub(crate) fn has_durable(&self) -> bool {
        !self.durable.is_empty()
    }

    /// Whether a function has the flag `durable`.
    #[inline]
    pub(crate) fn is_durable(&self, name: &[u8]) -> bool {
        self.has_durable() && self.durable.contains(name)
    }

    /// Whether a function may write, but to one partition only.
    pub(crate) fn writes_at_home(&self, name: &[u8]) -> bool {
        !self.only_reads(name) && !self.crosses(name)
    }

    /// All of them and those that are broken, by name.
    pub(crate) fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        let running = self.by_name.values().map(|(engine, library)| Listed {
            name: &library.name,
            engine: *engine,
            functions: &library.functions,
            broken: None,
        });
        let broken = self.broken.iter().map(|(name, (engine, reason))| Listed {
            name,
            engine: *engine,
            functions: &[],
            broken: Some(reason),
        });
        let mut all: Vec<Listed<'_>> = running.chain(broken).collect();
        all.sort_unstable_by_key(|library| library.name);
        all.into_iter()
    }

    /// Whether there is a function of this name.
    pub(crate) fn has_function(&self, name: &[u8]) -> bool {
        let mut functions = self.by_name.values().flat_map(|(_, library)| &library.functions);
        functions.any(|function| function.name.as_bytes() == name)
    }

    /// Whether a library has this name, running or broken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.broken.contains_key(name)
    }
}

/// Where the keys of an FCALL end: keys are `args[3..end]`, the rest are arguments.
///
/// # Errors
/// The error reply, if the number of keys is wrong. (Redis looks for the function first.)
pub(crate) fn key_end(libraries: &Libraries, args: &[&[u8]]) -> Result<usize, &'static str> {
    let error = match integer(args[2]) {
        None => "ERR Bad number of keys provided",
        Some(..0) => "ERR Number of keys can't be negative",
        Some(count) => match usize::try_from(count) {
            Ok(count) if count <= args.len() - 3 => return Ok(3 + count),
            _ => "ERR Number of keys can't be greater than number of args",
        },
    };
    Err(if libraries.has_function(args[1]) { error } else { "ERR Function not found" })
}
