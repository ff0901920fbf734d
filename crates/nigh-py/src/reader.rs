//! A database that another process has open: it is read.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::{Bytes, seconds_left, timeout};
use crate::copies::{copies_of, copy_of};
use crate::errors;
use crate::walk::{Gives, Pair, Steps, Walk, step};
use nigh::{DbReader, ReaderError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks for signals, and for another thread that closes the reader.
const LOOK: Duration = Duration::from_millis(100);

/// A reader, until somebody closes it.
struct OpenReader {
    path: String,
    reader: Mutex<Option<Arc<DbReader>>>,
}

impl OpenReader {
    fn reader(&self) -> PyResult<Arc<DbReader>> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reader.ok_or_else(|| errors::ended(&self.path, "reader"))
    }

    /// A call that doesn't take long. It runs no Python code.
    fn call<R>(&self, call: impl FnOnce(&DbReader) -> Result<R, ReaderError>) -> PyResult<R> {
        let reader = self.reader()?;
        let answer = errors::guarded(&self.path, || call(&reader))?;
        answer.map_err(|error| errors::of_reader(&error))
    }
}

impl Steps for OpenReader {
    fn step(
        &self,
        _py: Python<'_>,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8], &[u8]),
    ) -> PyResult<u64> {
        self.call(|reader| reader.scan(prefix, cursor, count, found))
    }
}

/// A database that another process has open, or has left in memory: it can be read here, while that
/// one writes.
#[pyclass(frozen, mapping, module = "nigh")]
pub(crate) struct Reader {
    open: Arc<OpenReader>,
}

/// Opens, to read, a database that another process has open with `shared=True`, or has left in
/// memory. Name its `memory_dir` if it has one.
#[pyfunction]
#[pyo3(signature = (path, *, memory_dir=None))]
pub(crate) fn open_reader(path: PathBuf, memory_dir: Option<PathBuf>) -> PyResult<Reader> {
    let name = path.display().to_string();
    let reader = errors::guarded(&name, || match memory_dir {
        None => nigh::Db::open_reader(&path),
        Some(memory) => nigh::Db::open_reader_in(&path, memory),
    })?;
    let reader = reader.map_err(|error| errors::of_reader(&error))?;
    let (path, reader) = (name, Mutex::new(Some(Arc::new(reader))));
    Ok(Reader { open: Arc::new(OpenReader { path, reader }) })
}

#[pymethods]
impl Reader {
    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.open.call(|reader| reader.get(key.get()))?;
        let found = found.map(|value| copy_of(py, &value)).transpose()?;
        Ok(found.map(Bound::into_any).or(default))
    }

    /// The values of several keys, `None` where there is none, those of a partition all of one
    /// moment.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys.try_iter()?.map(|key| key?.extract::<Bytes<'_>>());
        let keys = keys.collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(Bytes::get).collect();
        let found = self.open.call(|reader| reader.multi_get(&keys))?;
        copies_of(py, found.iter().map(Option::as_deref))
    }

    /// A step of a walk, as that of `Db`.
    #[pyo3(signature = (prefix=None, cursor=0, count=100))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<Bytes<'py>>,
        cursor: u64,
        count: u32,
    ) -> PyResult<(u64, Vec<Pair<'py>>)> {
        let prefix = prefix.as_ref().map_or(&b""[..], Bytes::get);
        step(py, &*self.open, prefix, cursor, count)
    }

    /// The keys that begin with `prefix`, and their values, as those of `Db`.
    #[pyo3(signature = (prefix=None))]
    fn items(&self, prefix: Option<Bytes<'_>>) -> Walk {
        let prefix = prefix.as_ref().map_or(&b""[..], Bytes::get);
        Walk::new(Arc::clone(&self.open) as Arc<dyn Steps>, Gives::Items, prefix)
    }

    /// Seconds for which a key stays: infinity if it has no expiry, `None` if it isn't there.
    fn ttl(&self, key: Bytes<'_>) -> PyResult<Option<f64>> {
        Ok(self.open.call(|reader| reader.ttl(key.get()))?.map(seconds_left))
    }

    /// Waits until the database can be read, for `timeout` seconds at most; then it raises why it
    /// can't be. Without a timeout it waits as long as that may pass.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let most = timeout.map(self::timeout).transpose()?;
        let begin = Instant::now();
        loop {
            let reader = self.open.reader()?;
            let left = most.map_or(LOOK, |most| LOOK.min(most.saturating_sub(begin.elapsed())));
            match py.detach(|| errors::guarded(&self.open.path, || reader.wait(left)))? {
                Ok(()) => return Ok(()),
                Err(error) if error.is_passing() && most.is_none_or(|it| begin.elapsed() < it) => {
                    py.check_signals()?;
                }
                Err(error) => return Err(errors::of_reader(&error)),
            }
        }
    }

    /// Gives the mapping of the memory back. Closing again does nothing.
    fn close(&self) {
        *self.open.reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn __contains__(&self, key: Bytes<'_>) -> PyResult<bool> {
        self.open.call(|reader| reader.contains(key.get()))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.open.call(|reader| reader.get(key.get()))?;
        let value = found.ok_or_else(|| errors::no_key(key.get()))?;
        copy_of(py, &value)
    }

    fn __enter__(slf: Bound<'_, Reader>) -> Bound<'_, Reader> {
        slf
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        self.close();
    }

    fn __repr__(&self) -> String {
        format!("<nigh.Reader {:?}>", self.open.path)
    }
}
