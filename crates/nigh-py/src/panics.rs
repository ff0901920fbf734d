//! For the tests of a debug build: a call that ends by a fault of its own.
//!
//! Any thread that has the interpreter's lock.

use crate::database::Db;
use pyo3::prelude::*;

/// Panics within a call on a database, with the interpreter's lock or without.
#[pyfunction]
#[pyo3(name = "_panics")]
pub(crate) fn panics(py: Python<'_>, db: &Bound<'_, Db>, waits: bool) -> PyResult<()> {
    let open = &db.get().open;
    match waits {
        true => open.waiting_call(py, |_| panic!("as the test wants")),
        false => open.call(|_| panic!("as the test wants")),
    }
}
