//! Copies of keys and values, as Python has them.
//!
//! 1. A long value for which there is no memory is a `MemoryError`. Python's own call for a copy
//!    panics there, and a panic is no `Exception`: it ends programs that catch those.
//!
//! Any thread that has the interpreter's lock.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// From here on a copy may fail: one that may fills the memory with zeros first. Shorter ones fail
/// only when Python itself can't go on.
const LONG_BYTES: usize = 64 << 10;

/// A copy of some bytes.
#[inline]
pub(crate) fn copy_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    if bytes.len() < LONG_BYTES {
        return Ok(PyBytes::new(py, bytes));
    }
    PyBytes::new_with(py, bytes.len(), |copy| {
        copy.copy_from_slice(bytes);
        Ok(())
    })
}

/// Copies of some values; `None` for one that isn't there.
pub(crate) fn copies_of<'py, 'v>(
    py: Python<'py>,
    values: impl Iterator<Item = Option<&'v [u8]>>,
) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
    values.map(|value| value.map(|value| copy_of(py, value)).transpose()).collect()
}
