//! Changes under a prefix.
//!
//! 1. A thread waits without the interpreter's lock, and looks for signals between, so that Ctrl-C
//!    ends it.
//! 2. A fork's child takes no lock.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::timeout;
use crate::copies::copy_of;
use crate::errors;
use crate::open_db::OpenDb;
use nigh::{DbError, WatchEvent, WatchPlace};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two looks for signals, and for another thread that closes the watch.
const LOOK: Duration = Duration::from_millis(100);

/// A change, with its number.
#[pyclass(frozen, get_all, module = "nigh")]
pub(crate) struct Event {
    kind: &'static str,
    partition: usize,
    change: u64,
    key: Option<Py<PyBytes>>,
    value: Option<Py<PyBytes>>,
    expires_at: Option<f64>,
    first: Option<u64>,
}

impl Event {
    /// A change that finds no memory for its copy is lost.
    fn of(py: Python<'_>, event: &WatchEvent) -> PyResult<Event> {
        let made = Event::copy(py, event);
        let is_lost = made.as_ref().is_err_and(|error| error.is_instance_of::<PyMemoryError>(py));
        let lost = Event { kind: "lost", first: Some(event.change()), ..Event::plain(event) };
        if is_lost { Ok(lost) } else { made }
    }

    fn plain(event: &WatchEvent) -> Event {
        let (partition, change) = (event.partition(), event.change());
        Event { kind: "", partition, change, key: None, value: None, expires_at: None, first: None }
    }

    fn copy(py: Python<'_>, event: &WatchEvent) -> PyResult<Event> {
        let bytes = |bytes: &Vec<u8>| Ok::<_, PyErr>(Some(copy_of(py, bytes)?.unbind()));
        let plain = Event::plain(event);
        Ok(match event {
            WatchEvent::Put { key, value, expires_at, .. } => {
                let (key, value) = (bytes(key)?, bytes(value)?);
                Event { kind: "put", key, value, expires_at: expires_at.map(unix_s), ..plain }
            }
            WatchEvent::Expires { key, expires_at, .. } => {
                let expires_at = expires_at.map(unix_s);
                Event { kind: "expires", key: bytes(key)?, expires_at, ..plain }
            }
            WatchEvent::Removed { key, .. } => Event { kind: "removed", key: bytes(key)?, ..plain },
            WatchEvent::Cleared { .. } => Event { kind: "cleared", ..plain },
            WatchEvent::Lost { first, .. } => Event { kind: "lost", first: Some(*first), ..plain },
            other => return Err(errors::unknown_event(&format!("{other:?}"))),
        })
    }
}

fn unix_s(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[pymethods]
impl Event {
    fn __repr__(&self, py: Python<'_>) -> String {
        let key = self.key.as_ref().map(|key| format!(" key={}", key.bind(py).as_any()));
        let (kind, change, key) = (self.kind, self.change, key.unwrap_or_default());
        format!("<nigh.Event {kind} change={change}{key}>")
    }
}

/// Changes under a prefix, each once and in order.
#[pyclass(frozen, module = "nigh")]
pub(crate) struct Watch {
    /// It stays open as long as somebody has the watch.
    db: Arc<OpenDb>,
    watch: Mutex<WatchState>,
}

enum WatchState {
    Open(Arc<nigh::Watch>),
    /// Where it was.
    Closed(Result<WatchPlace, DbError>),
}

impl Watch {
    pub(crate) fn new(db: Arc<OpenDb>, watch: nigh::Watch) -> Watch {
        Watch { db, watch: Mutex::new(WatchState::Open(Arc::new(watch))) }
    }

    fn check_process(&self) -> PyResult<()> {
        errors::check_process(self.db.path(), self.db.fork_mark())
    }

    fn state(&self) -> MutexGuard<'_, WatchState> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when it is closed.
    fn watch(&self) -> Option<Arc<nigh::Watch>> {
        match &*self.state() {
            WatchState::Open(watch) => Some(Arc::clone(watch)),
            WatchState::Closed(_) => None,
        }
    }

    /// An event was taken. If the watch was closed meanwhile, its place is behind that.
    fn taken(&self, watch: &nigh::Watch) {
        let mut state = self.state();
        if matches!(*state, WatchState::Closed(_)) {
            *state = WatchState::Closed(watch.place());
        }
    }

    /// The next event, if one comes in time; `None`: without a bound. `Closed` if the watch or the
    /// database is.
    fn wait(
        &self,
        py: Python<'_>,
        most: Option<Duration>,
    ) -> PyResult<Result<Option<WatchEvent>, DbError>> {
        self.check_process()?;
        let begin = Instant::now();
        loop {
            let Some(watch) = self.watch() else { return Ok(Err(DbError::Closed)) };
            let left = most.map_or(LOOK, |most| LOOK.min(most.saturating_sub(begin.elapsed())));
            let next = || {
                watch.next_within(left).inspect(|event| {
                    if event.is_some() {
                        self.taken(&watch);
                    }
                })
            };
            match py.detach(|| errors::guarded(self.db.path(), next))? {
                Ok(None) if most.is_none_or(|most| begin.elapsed() < most) => py.check_signals()?,
                answer => return Ok(answer),
            }
        }
    }
}

#[pymethods]
impl Watch {
    /// The next event, or `None` if none comes within `timeout` seconds. Without a timeout it waits
    /// for one.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        let most = timeout.map(self::timeout).transpose()?;
        match self.wait(py, most)? {
            Ok(event) => event.map(|event| Event::of(py, &event)).transpose(),
            Err(DbError::Closed) => Err(errors::ended(self.db.path(), "watch")),
            Err(error) => Err(errors::of_call(self.db.path(), &error)),
        }
    }

    /// Where it is: behind the events that were taken.
    #[getter]
    fn place(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process()?;
        let told = |place: &Result<WatchPlace, DbError>| match place {
            Ok(place) => Ok(place.to_string()),
            Err(error) => Err(errors::of_call(self.db.path(), error)),
        };
        let watch = match &*self.state() {
            WatchState::Open(watch) => Arc::clone(watch),
            WatchState::Closed(place) => return told(place),
        };
        told(&py.detach(|| errors::guarded(self.db.path(), || watch.place()))?)
    }

    /// Ends it, also for threads that wait. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.db.fork_mark().is_in_child() {
            return Ok(());
        }
        let Some(watch) = self.watch() else { return Ok(()) };
        let close = || {
            let mut state = self.state();
            *state = WatchState::Closed(watch.place());
        };
        py.detach(|| errors::guarded(self.db.path(), close))
    }

    fn __iter__(slf: Bound<'_, Watch>) -> Bound<'_, Watch> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        match self.wait(py, None)? {
            Ok(event) => event.map(|event| Event::of(py, &event)).transpose(),
            Err(DbError::Closed) => Ok(None),
            Err(error) => Err(errors::of_call(self.db.path(), &error)),
        }
    }

    fn __enter__(slf: Bound<'_, Watch>) -> Bound<'_, Watch> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }
}
