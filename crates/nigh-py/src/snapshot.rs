//! All keys and values of one moment.
//!
//! 1. A thread that has a snapshot's lock may wait for the interpreter's. So a thread waits for a
//!    snapshot's lock without the interpreter's, and runs no Python code while it has it.
//! 2. A fork's child takes no lock.
//!
//! Any thread that has the interpreter's lock.

use crate::copies::copy_of;
use crate::errors;
use crate::open_db::OpenDb;
use crate::walk::Pair;
use nigh::DbError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys of a step, and bytes behind which it ends: enough to give the interpreter's lock away.
const STEP_KEYS: usize = 64;
const STEP_BYTES: usize = 256 << 10;

/// Keys and values that are still to be given.
type Found = VecDeque<(Vec<u8>, Vec<u8>)>;

/// Keys and values of one moment, to be read once while others write.
#[pyclass(frozen, module = "nigh")]
pub(crate) struct Snapshot {
    place: String,
    steps: Mutex<Steps>,
    /// It stays open as long as somebody has the snapshot.
    db: Arc<OpenDb>,
}

struct Steps {
    /// `None` when it is closed.
    snapshot: Option<nigh::Snapshot>,
    found: Found,
}

impl Snapshot {
    pub(crate) fn new(db: Arc<OpenDb>, snapshot: nigh::Snapshot) -> Snapshot {
        let place = snapshot.place().to_string();
        let steps = Steps { snapshot: Some(snapshot), found: Found::new() };
        Snapshot { place, steps: Mutex::new(steps), db }
    }

    fn steps(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Steps>> {
        errors::check_process(self.db.path(), self.db.fork_mark())?;
        Ok(self.steps.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
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
    fn close(&self, py: Python<'_>) {
        // A child closes nothing.
        if let Ok(mut steps) = self.steps(py) {
            *steps = Steps { snapshot: None, found: Found::new() };
        }
    }

    fn __iter__(slf: Bound<'_, Snapshot>) -> Bound<'_, Snapshot> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Pair<'py>>> {
        let mut steps = self.steps(py)?;
        let Steps { snapshot, found } = &mut *steps;
        if found.is_empty() {
            let ended = || errors::ended(self.db.path(), "snapshot");
            let snapshot = snapshot.as_mut().ok_or_else(ended)?;
            // All of it may be looked at for a key with the prefix.
            let next = py.detach(|| errors::guarded(self.db.path(), || step(snapshot)))?;
            *found = next.map_err(|error| errors::of_call(self.db.path(), &error))?;
        }
        let Some((key, value)) = found.front() else { return Ok(None) };
        let copies = (copy_of(py, key)?, copy_of(py, value)?);
        // Without memory for the copies the next call has it again.
        found.pop_front();
        Ok(Some(copies))
    }

    fn __enter__(slf: Bound<'_, Snapshot>) -> Bound<'_, Snapshot> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }
}
