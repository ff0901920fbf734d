//! The words of commands: keys, options, and commands that a client doesn't send.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::{Word, instant, span, words};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// Milliseconds of a unit of time.
pub(crate) const SECOND: f64 = 1000.0;
pub(crate) const MILLISECOND: f64 = 1.0;

/// Commands whose effect stays with a connection, which calls of all threads share, or which change
/// how it is read.
const REFUSED: [(&str, &str); 15] = [
    ("MULTI", "use pipeline()"),
    ("EXEC", "use pipeline()"),
    ("DISCARD", "use pipeline()"),
    ("WATCH", "use pipeline() and its watch()"),
    ("UNWATCH", "use pipeline() and its unwatch()"),
    ("AUTH", "connect with username and password"),
    ("HELLO", "connect with username, password and name"),
    ("RESET", "connect another client"),
    ("QUIT", "use close()"),
    ("LOCAL", "a client attaches by itself"),
    ("CLIENT REPLY", "each call waits for its reply"),
    ("MONITOR", "Nigh has none"),
    ("SUBSCRIBE", "Nigh has none"),
    ("PSUBSCRIBE", "Nigh has none"),
    ("SSUBSCRIBE", "Nigh has none"),
];

/// A command and its keys.
pub(crate) fn with_keys<'a>(command: &'a [u8], keys: &'a [Word<'_>]) -> Vec<&'a [u8]> {
    std::iter::once(command).chain(keys.iter().map(Word::get)).collect()
}

/// Refuses what would change the connection under other threads' calls.
pub(crate) fn refuse(words: &[&[u8]]) -> PyResult<()> {
    let is_it = |(name, _): &&(&str, &str)| {
        let names = name.split(' ').zip(words);
        names.clone().count() == name.split(' ').count()
            && names.into_iter().all(|(name, word)| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    match REFUSED.iter().find(is_it) {
        Some((name, instead)) => Err(PyValueError::new_err(format!(
            "{name} would change the connection, which all calls of this client share: {instead}"
        ))),
        None => Ok(()),
    }
}

/// The options of SET and GETEX that say when a key is gone; at most one of them.
pub(crate) struct Expiry<'a, 'py> {
    pub(crate) ex: Option<&'a Bound<'py, PyAny>>,
    pub(crate) px: Option<&'a Bound<'py, PyAny>>,
    pub(crate) exat: Option<&'a Bound<'py, PyAny>>,
    pub(crate) pxat: Option<&'a Bound<'py, PyAny>>,
}

impl Expiry<'_, '_> {
    /// The word and the number; the server refuses several.
    pub(crate) fn words(&self) -> PyResult<Vec<(&'static [u8], String)>> {
        let mut words: Vec<(&'static [u8], String)> = Vec::new();
        if let Some(it) = self.ex {
            words.push((b"EX", span(it, SECOND)?));
        }
        if let Some(it) = self.px {
            words.push((b"PX", span(it, MILLISECOND)?));
        }
        if let Some(it) = self.exat {
            words.push((b"EXAT", instant(it, SECOND)?));
        }
        if let Some(it) = self.pxat {
            words.push((b"PXAT", instant(it, MILLISECOND)?));
        }
        Ok(words)
    }
}

/// Keys that are given as an iterable or one by one.
pub(crate) fn one_or_many<'py>(
    keys: &Bound<'py, PyAny>,
    more: &Bound<'py, PyTuple>,
) -> PyResult<Vec<Word<'py>>> {
    let is_many = keys.is_instance_of::<PyList>() || keys.is_instance_of::<PyTuple>();
    let one = if is_many { None } else { Some(keys.extract::<Word<'_>>()) };
    let mut found = match one {
        Some(Ok(key)) => vec![key],
        Some(Err(error)) if !error.is_instance_of::<PyTypeError>(keys.py()) => return Err(error),
        _ => words(keys)?,
    };
    found.extend(words(more.as_any())?);
    Ok(found)
}
