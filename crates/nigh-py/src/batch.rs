//! Several writes that happen as one.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::{Bytes, write_options};
use crate::open_db::OpenDb;
use nigh::WriteBatch;
use pyo3::prelude::*;
use std::sync::Arc;

/// Writes that happen together, in their order, when the `with` block ends well: all of them or
/// none, also if the process is killed. Of several to one key the last counts.
#[pyclass(module = "nigh")]
pub(crate) struct Batch {
    db: Arc<OpenDb>,
    strong: Option<bool>,
    writes: WriteBatch,
    len_bytes: usize,
}

impl Batch {
    pub(crate) fn new(db: Arc<OpenDb>, strong: Option<bool>) -> Batch {
        Batch { db, strong, writes: WriteBatch::new(), len_bytes: 0 }
    }
}

#[pymethods]
impl Batch {
    /// Adds: a key gets a value, and the expiry, else none.
    #[pyo3(signature = (key, value, *, expires_in=None, expires_at=None))]
    fn put(
        &mut self,
        key: Bytes<'_>,
        value: Bytes<'_>,
        expires_in: Option<f64>,
        expires_at: Option<f64>,
    ) -> PyResult<()> {
        let options = write_options(None, expires_in, expires_at)?;
        self.len_bytes += key.get().len() + value.get().len();
        self.writes.put_with(key.get(), value.get(), &options);
        Ok(())
    }

    /// Adds: a key is deleted, if it is there.
    fn delete(&mut self, key: Bytes<'_>) {
        self.len_bytes += key.get().len();
        self.writes.delete(key.get());
    }

    /// Forgets all writes.
    fn clear(&mut self) {
        self.writes.clear();
        self.len_bytes = 0;
    }

    /// Does all of them now, or nothing; then the batch is empty.
    fn write(&mut self, py: Python<'_>) -> PyResult<()> {
        let options = write_options(self.strong, None, None)?;
        let writes = &self.writes;
        let len = self.len_bytes;
        self.db.write(py, self.strong, len, &options, |db, how| db.write_with(writes, how))?;
        self.clear();
        Ok(())
    }

    fn __setitem__(&mut self, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(key, value, None, None)
    }

    fn __delitem__(&mut self, key: Bytes<'_>) {
        self.delete(key);
    }

    fn __len__(&self) -> usize {
        self.writes.len()
    }

    fn __enter__(slf: Bound<'_, Batch>) -> Bound<'_, Batch> {
        slf
    }

    fn __exit__(
        &mut self,
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
