//! All keys and values of one moment.
//!
//! Any thread that has the interpreter's lock.

use crate::errors;
use crate::walk::Pair;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Keys and values of one moment, to be read once while others write.
#[pyclass(module = "nigh")]
pub(crate) struct Snapshot {
    path: String,
    last_change: u64,
    /// `None` when it is closed.
    snapshot: Option<nigh::Snapshot>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Snapshot {
    pub(crate) fn new(path: &str, snapshot: nigh::Snapshot) -> Snapshot {
        let last_change = snapshot.last_change();
        let (path, snapshot) = (path.to_owned(), Some(snapshot));
        Snapshot { path, last_change, snapshot, key: Vec::new(), value: Vec::new() }
    }
}

#[pymethods]
impl Snapshot {
    /// The number of the last change that it sees.
    #[getter]
    fn last_change(&self) -> u64 {
        self.last_change
    }

    /// Holds nothing back any more. Closing again does nothing.
    fn close(&mut self) {
        self.snapshot = None;
    }

    fn __iter__(slf: Bound<'_, Snapshot>) -> Bound<'_, Snapshot> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        let ended = || errors::ended(&self.path, "snapshot");
        let snapshot = self.snapshot.as_mut().ok_or_else(ended)?;
        // All of it may be looked at for a key with the prefix.
        let found = py.detach(|| snapshot.next_into(&mut self.key, &mut self.value));
        Ok(match found.map_err(|error| errors::of_call(&self.path, &error))? {
            true => Some((PyBytes::new(py, &self.key), PyBytes::new(py, &self.value))),
            false => None,
        })
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
