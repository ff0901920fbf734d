//! What Python passes, as the library takes it.
//!
//! 1. Bytes are used where they lie: they never change. Any other buffer is copied, since it may
//!    change while the interpreter's lock is free.
//!
//! Any thread that has the interpreter's lock.

use nigh::WriteOptions;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use std::time::{Duration, SystemTime};

/// A key, a value or a prefix.
pub(crate) struct Bytes<'py>(Bound<'py, PyBytes>);

impl Bytes<'_> {
    #[inline]
    pub(crate) fn get(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Bytes<'py>> {
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Bytes(bytes.to_owned()));
        }
        let view = PyMemoryView::from(&given).map_err(|_| {
            let name =
                given.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            let advice = if name == "str" { ": encode it, as by .encode()" } else { "" };
            PyTypeError::new_err(format!("bytes or a buffer are needed, not {name}{advice}"))
        })?;
        Ok(Bytes(view.call_method0("tobytes")?.cast_into()?))
    }
}

/// How a write is done: whether it waits for the disk, `None` as the database was opened; and when
/// the key is gone, in seconds from now, or in Unix seconds.
pub(crate) fn write_options(
    strong: Option<bool>,
    expires_in: Option<f64>,
    expires_at: Option<f64>,
) -> PyResult<WriteOptions> {
    let options = match strong {
        None => WriteOptions::new(),
        Some(true) => WriteOptions::strong(),
        Some(false) => WriteOptions::eventual(),
    };
    match (expires_in, expires_at) {
        (None, None) => Ok(options),
        (Some(after), None) => Ok(options.expires_in(seconds("expires_in", after)?)),
        (None, Some(at)) => {
            let time = SystemTime::UNIX_EPOCH.checked_add(seconds("expires_at", at)?);
            let told = || PyValueError::new_err(format!("expires_at is {at}, which is no time"));
            Ok(options.expires_at(time.ok_or_else(told)?))
        }
        _ => Err(PyValueError::new_err("both expires_in and expires_at are given: leave one out")),
    }
}

/// How long a thread waits.
pub(crate) fn timeout(given: f64) -> PyResult<Duration> {
    // A bound beyond all time is none.
    seconds("timeout", given.min(f64::from(u32::MAX)))
}

fn seconds(name: &str, given: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(given).map_err(|_| {
        PyValueError::new_err(format!("{name} is {given}: give seconds that aren't negative"))
    })
}
