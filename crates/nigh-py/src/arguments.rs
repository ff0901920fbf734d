//! What Python passes, as the library takes it.
//!
//! 1. Bytes are used where they lie: they never change. Any other buffer is copied, since it may
//!    change while the interpreter's lock is free.
//! 2. A database takes bytes alone. A client takes what redis-py takes: text and numbers too.
//! 3. A copy for which there is no memory is a `MemoryError`, whatever was given.
//!
//! Any thread that has the interpreter's lock.

use nigh::{TimeToLive, WriteOptions};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyMemoryView, PyString};
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
        let view = PyMemoryView::from(&given).map_err(|error| {
            told::<PyTypeError>(given.py(), error, || {
                let name = type_name(&given);
                let advice = if name == "str" { ": encode it, as by .encode()" } else { "" };
                PyTypeError::new_err(format!("bytes or a buffer are needed, not {name}{advice}"))
            })
        })?;
        Ok(Bytes(view.call_method0("tobytes")?.cast_into()?))
    }
}

/// An error of Python's; of this kind, better words for it.
fn told<Kind: PyTypeInfo>(py: Python<'_>, error: PyErr, better: impl FnOnce() -> PyErr) -> PyErr {
    if error.is_instance_of::<Kind>(py) { better() } else { error }
}

fn type_name(given: &Bound<'_, PyAny>) -> String {
    given.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string())
}

/// A word of a request: bytes or a buffer as they are, text as UTF-8, a number as Python writes it.
pub(crate) struct Word<'py>(Bytes<'py>);

impl Word<'_> {
    #[inline]
    pub(crate) fn get(&self) -> &[u8] {
        self.0.get()
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Word<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Word<'py>> {
        let py = given.py();
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(Word(Bytes(bytes.to_owned())));
        }
        if let Ok(text) = given.cast::<PyString>() {
            let encoded = text.encode_utf8().map_err(|error| {
                told::<PyUnicodeEncodeError>(py, error, || {
                    // Enough of it to be found.
                    let begin: String = text.to_string_lossy().chars().take(40).collect();
                    PyValueError::new_err(format!(
                        "the text {begin:?} has a lone surrogate, so it isn't UTF-8: give its bytes"
                    ))
                })
            })?;
            return Ok(Word(Bytes(encoded)));
        }
        let number = if given.is_instance_of::<PyBool>() {
            None
        } else if given.is_instance_of::<PyInt>() {
            // Not its `str`, which a class of its own may have changed.
            Some(py.get_type::<PyInt>().call_method1("__repr__", (given,))?)
        } else if given.is_instance_of::<PyFloat>() {
            Some(py.get_type::<PyFloat>().call_method1("__repr__", (given,))?)
        } else {
            None
        };
        if let Some(number) = number {
            return Ok(Word(Bytes(number.cast::<PyString>()?.encode_utf8()?)));
        }
        given.extract::<Bytes<'_>>().map(Word).map_err(|error| {
            told::<PyTypeError>(py, error, || {
                let name = type_name(&given);
                PyTypeError::new_err(format!(
                    "bytes, a buffer, text or a number are needed, not {name}: turn it into one of \
                     them"
                ))
            })
        })
    }
}

/// The words of an iterable.
pub(crate) fn words<'py>(given: &Bound<'py, PyAny>) -> PyResult<Vec<Word<'py>>> {
    given.try_iter()?.map(|word| word?.extract::<Word<'_>>()).collect()
}

/// A length of time: a whole number of units of so many milliseconds, or a timedelta.
pub(crate) fn span(given: &Bound<'_, PyAny>, unit_ms: f64) -> PyResult<String> {
    whole(given, unit_ms, "total_seconds", "a timedelta")
}

/// A point in time: a whole number of units of so many milliseconds since 1970, or a datetime.
pub(crate) fn instant(given: &Bound<'_, PyAny>, unit_ms: f64) -> PyResult<String> {
    whole(given, unit_ms, "timestamp", "a datetime")
}

/// A number of units, for a request; of an object whose method says how many seconds it is.
fn whole(given: &Bound<'_, PyAny>, unit_ms: f64, seconds: &str, other: &str) -> PyResult<String> {
    if given.is_instance_of::<PyInt>() && !given.is_instance_of::<PyBool>() {
        return Ok(given.extract::<i64>()?.to_string());
    }
    match given.call_method0(seconds) {
        Ok(seconds) => Ok(format!("{:.0}", (seconds.extract::<f64>()? * 1000.0 / unit_ms).floor())),
        Err(_) => Err(PyTypeError::new_err(format!(
            "a whole number or {other} is needed, not {}",
            type_name(given)
        ))),
    }
}

/// The number that an option of this name was given.
pub(crate) fn number(name: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    given.extract().map_err(|_| match given.cast::<PyInt>() {
        Ok(_) => PyValueError::new_err(format!(
            "the option {name} is {given}: a number from 0 to 2**64 - 1 is needed"
        )),
        Err(_) => PyTypeError::new_err(format!(
            "the option {name} needs a whole number, not {}",
            type_name(given)
        )),
    })
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
        // Beyond all time is never.
        (Some(after), None) => Ok(match seconds("expires_in", after)? {
            Some(after) => options.expires_in(after),
            None => options,
        }),
        (None, Some(at)) => {
            let since = seconds("expires_at", at)?;
            let at = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
            Ok(at.map_or(options, |at| options.expires_at(at)))
        }
        _ => Err(PyValueError::new_err("both expires_in and expires_at are given: leave one out")),
    }
}

/// How long a thread waits.
pub(crate) fn timeout(given: f64) -> PyResult<Duration> {
    bound("timeout", given)
}

/// How long a thread does something.
pub(crate) fn bound(name: &str, given: f64) -> PyResult<Duration> {
    // A bound beyond all time is none.
    const MOST: Duration = Duration::from_secs(u32::MAX as u64);
    Ok(seconds(name, given)?.map_or(MOST, |given| given.min(MOST)))
}

/// `None`: beyond all time.
fn seconds(name: &str, given: f64) -> PyResult<Option<Duration>> {
    match Duration::try_from_secs_f64(given) {
        Ok(time) => Ok(Some(time)),
        Err(_) if given > 0.0 => Ok(None),
        Err(_) => {
            let told = format!("{name} is {given}: give seconds that aren't negative");
            Err(PyValueError::new_err(told))
        }
    }
}

/// How long a key stays, seconds: infinity if it has no expiry.
pub(crate) fn seconds_left(life: TimeToLive) -> f64 {
    match life {
        TimeToLive::Forever => f64::INFINITY,
        TimeToLive::Left(left) => left.as_secs_f64(),
    }
}
