//! Several writes that happen as one.
//!
//! 1. Its lock is held for moments, by a thread that has the interpreter's lock: a write takes the
//!    writes out first. So nobody waits for it, and a fork finds it free.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::{Bytes, write_options};
use crate::open_db::OpenDb;
use nigh::WriteBatch;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Writes that happen together, in their order, when the `with` block ends well: all of them or
/// none, also if the process is killed. Of several to one key the last counts.
#[pyclass(frozen, module = "nigh")]
pub(crate) struct Batch {
    db: Arc<OpenDb>,
    strong: Option<bool>,
    added: Mutex<Added>,
}

/// The writes, and bytes of their keys and values.
#[derive(Default)]
struct Added {
    writes: WriteBatch,
    len_bytes: usize,
}

impl Batch {
    pub(crate) fn new(db: Arc<OpenDb>, strong: Option<bool>) -> Batch {
        Batch { db, strong, added: Mutex::default() }
    }

    fn added(&self) -> MutexGuard<'_, Added> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Batch {
    /// Adds: a key gets a value, and the expiry, else none.
    #[pyo3(signature = (key, value, *, expires_in=None, expires_at=None))]
    fn put(
        &self,
        key: Bytes<'_>,
        value: Bytes<'_>,
        expires_in: Option<f64>,
        expires_at: Option<f64>,
    ) -> PyResult<()> {
        let options = write_options(None, expires_in, expires_at)?;
        let mut added = self.added();
        added.len_bytes += key.get().len() + value.get().len();
        added.writes.put_with(key.get(), value.get(), &options);
        Ok(())
    }

    /// Adds: a key is deleted, if it is there.
    fn delete(&self, key: Bytes<'_>) {
        let mut added = self.added();
        added.len_bytes += key.get().len();
        added.writes.delete(key.get());
    }

    /// Forgets all writes.
    fn clear(&self) {
        *self.added() = Added::default();
    }

    /// Does all of them now, or nothing. Then the batch is empty, also if it failed.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let options = write_options(self.strong, None, None)?;
        let Added { writes, len_bytes } = std::mem::take(&mut *self.added());
        let made = |db: &nigh::Db, how: &_| db.write_with(&writes, how).map(drop);
        self.db.write(py, self.strong, len_bytes, &options, made)
    }

    fn __setitem__(&self, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(key, value, None, None)
    }

    fn __delitem__(&self, key: Bytes<'_>) {
        self.delete(key);
    }

    fn __len__(&self) -> usize {
        self.added().writes.len()
    }

    fn __enter__(slf: Bound<'_, Batch>) -> Bound<'_, Batch> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            self.write(py)
        } else {
            self.clear();
            Ok(())
        }
    }
}
