//! All keys and values of one moment.
//!
//! Any thread that has the interpreter's lock.

use crate::copies::copy_of;
use crate::errors;
use crate::walk::Pair;
use nigh::DbError;
use pyo3::prelude::*;
use std::collections::VecDeque;

/// Keys of a step, and bytes behind which it ends: enough to give the interpreter's lock away.
const STEP_KEYS: usize = 64;
const STEP_BYTES: usize = 256 << 10;

/// Keys and values that are still to be given.
type Found = VecDeque<(Vec<u8>, Vec<u8>)>;

/// Keys and values of one moment, to be read once while others write.
#[pyclass(module = "nigh")]
pub(crate) struct Snapshot {
    path: String,
    place: String,
    /// `None` when it is closed.
    snapshot: Option<nigh::Snapshot>,
    found: Found,
}

impl Snapshot {
    pub(crate) fn new(path: &str, snapshot: nigh::Snapshot) -> Snapshot {
        let place = snapshot.place().to_string();
        let (path, snapshot) = (path.to_owned(), Some(snapshot));
        Snapshot { path, place, snapshot, found: Found::new() }
    }
}

/// The next keys and values; none at the end. An error comes behind what was found before it.
fn step(snapshot: &mut nigh::Snapshot) -> Result<Found, DbError> {
    let (mut found, mut bytes) = (Found::new(), 0);
    while found.len() < STEP_KEYS && bytes < STEP_BYTES {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        match snapshot.next_into(&mut key, &mut value) {
            Ok(true) => {}
            Err(error) if found.is_empty() => return Err(error),
            _ => break,
        }
        bytes += key.len() + value.len();
        found.push_back((key, value));
    }
    Ok(found)
}

#[pymethods]
impl Snapshot {
    /// The place of its moment: a watch from there tells what came later.
    #[getter]
    fn place(&self) -> &str {
        &self.place
    }

    /// Holds nothing back any more. Closing again does nothing.
    fn close(&mut self) {
        self.snapshot = None;
        self.found.clear();
    }

    fn __iter__(slf: Bound<'_, Snapshot>) -> Bound<'_, Snapshot> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        if self.found.is_empty() {
            let ended = || errors::ended(&self.path, "snapshot");
            let snapshot = self.snapshot.as_mut().ok_or_else(ended)?;
            // All of it may be looked at for a key with the prefix.
            let found = py.detach(|| step(snapshot));
            self.found = found.map_err(|error| errors::of_call(&self.path, &error))?;
        }
        let found = self.found.pop_front();
        let copied =
            |(key, value): (Vec<u8>, Vec<u8>)| Ok((copy_of(py, &key)?, copy_of(py, &value)?));
        found.map(copied).transpose()
    }

    fn __enter__(slf: Bound<'_, Snapshot>) -> Bound<'_, Snapshot> {
        slf
    }

    fn __exit__(
        &mut self,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close();
    }
}
