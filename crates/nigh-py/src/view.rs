//! Some keys of one moment, in which the caller decides by one value what to read next.
//!
//! 1. Between two reads nothing of the client is locked: the caller's function may call whatever it
//!    likes, and other threads may too.
//!
//! One thread at a time that has the interpreter's lock.

use crate::arguments::Word;
use crate::copies::copy_of;
use crate::errors;
use crate::open_client::OpenClient;
use nigh_client::{TooNew, ViewSteps};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, PoisonError};

/// What the function of `Client.view` reads by. The keys of a partition are of one moment.
#[pyclass(frozen, module = "nigh")]
pub(crate) struct View {
    open: Arc<OpenClient>,
    /// `None` when it is over, or while a thread reads.
    steps: Mutex<Option<ViewSteps>>,
}

impl View {
    pub(crate) fn new(open: Arc<OpenClient>, steps: ViewSteps) -> View {
        View { open, steps: Mutex::new(Some(steps)) }
    }

    /// Takes the steps, and with them the right to read.
    pub(crate) fn take(&self) -> PyResult<ViewSteps> {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner).take();
        steps.ok_or_else(|| errors::view_over(self.open.address()))
    }

    fn put_back(&self, steps: ViewSteps) {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) = Some(steps);
    }
}

#[pymethods]
impl View {
    /// The value that a key had at the moment, or `None`.
    fn get<'py>(&self, py: Python<'py>, name: Word<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (mut steps, key) = (self.take()?, name.get());
        let value =
            self.open.read(py, |client| Ok(client.step_view(&mut steps, |view| view.get(key))));
        self.put_back(steps);
        match value? {
            Ok(value) => value.map(|value| copy_of(py, &value)).transpose(),
            Err(TooNew) => Err(errors::too_new(self.open.address())),
        }
    }

    /// Whether there was such a key at the moment.
    fn exists(&self, py: Python<'_>, name: Word<'_>) -> PyResult<bool> {
        let (mut steps, key) = (self.take()?, name.get());
        let found =
            self.open.read(py, |client| Ok(client.step_view(&mut steps, |view| view.exists(key))));
        self.put_back(steps);
        found?.map_err(|TooNew| errors::too_new(self.open.address()))
    }
}

/// Calls a function with a view, again and again until what it read is of one moment.
pub(crate) fn view<'py>(
    py: Python<'py>,
    open: &Arc<OpenClient>,
    read: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut steps = open.read(py, nigh_client::Client::begin_view)?;
    loop {
        let view = Bound::new(py, View::new(Arc::clone(open), steps))?;
        let result = read.call1((&view,));
        steps = view.get().take()?;
        let result = match result {
            Ok(result) => Some(result),
            Err(error) if error.is_instance_of::<errors::TooNewError>(py) => None,
            Err(error) => return Err(error),
        };
        let to_the_end = result.is_some();
        let counts = open.read(py, |client| client.end_view(&mut steps, to_the_end))?;
        if counts && let Some(result) = result {
            return Ok(result);
        }
    }
}
