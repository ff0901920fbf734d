//! The class `Client`: a server's memory, and its commands.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::{Word, bound};
use crate::commands::Commands;
use crate::key_walk::KeyWalk;
use crate::open_client::OpenClient;
use crate::pipeline::Pipeline;
use crate::view;
use crate::walk::{Gives, Walk};
use crate::watchers::Watchers;
use nigh_client::{Address, ClientOptions, ConnectionOptions, LocalUse, SPIN_MOST};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice};
use std::sync::Arc;
use std::time::Duration;

/// Keys that a step of a walk aims at, if nobody says so.
const STEP_KEYS: u32 = 100;

/// A client of a server. On the server's host, over its Unix socket, it reads the server's memory
/// itself and writes by a ring in shared memory; else it sends requests. The calls are the same.
///
/// Any thread may call anything; calls of several threads come one after the other.
#[pyclass(frozen, extends = Commands, module = "nigh")]
pub(crate) struct Client {
    watchers: Arc<Watchers>,
}

type This<'py> = Bound<'py, Client>;

fn open<'a>(this: &'a This<'_>) -> &'a Arc<OpenClient> {
    this.as_super().get().open()
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (
        address, *, username=None, password=None, timeout=Some(10.0), wait=0.0, local="auto",
        spin=None, reads_unsynced=false, name=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        address: &str,
        username: Option<String>,
        password: Option<String>,
        timeout: Option<f64>,
        wait: f64,
        local: &str,
        spin: Option<f64>,
        reads_unsynced: bool,
        name: Option<String>,
    ) -> PyResult<PyClassInitializer<Client>> {
        let address: Address = address
            .parse()
            .map_err(|error: nigh_client::AddressError| PyValueError::new_err(error.to_string()))?;
        let local = match local {
            "auto" => LocalUse::Auto,
            "required" => LocalUse::Required,
            "never" => LocalUse::Never,
            other => {
                return Err(PyValueError::new_err(format!(
                    "local is '{other}': give 'auto', 'required' or 'never'"
                )));
            }
        };
        let (user, client_name) = (username, name);
        let timeout = timeout.map(|given| bound("timeout", given)).transpose()?;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(PyValueError::new_err(
                "timeout is 0: give some time, or None for no limit",
            ));
        }
        let connection = ConnectionOptions {
            timeout,
            user,
            password,
            client_name,
            ..ConnectionOptions::default()
        };
        let (wait, spin) = (bound("wait", wait)?, spin.map(spin_of).transpose()?);
        let mut options =
            ClientOptions { connection, local, wait, spin, ..ClientOptions::default() };
        options.reads_unsynced = reads_unsynced;
        let open = Arc::new(OpenClient::connect(py, &address, options.clone())?);
        let client = Client { watchers: Arc::new(Watchers::new(address, options)) };
        Ok(PyClassInitializer::from(Commands::of_client(open)).add_subclass(client))
    }

    /// Copies the value of a key to the begin of a writable buffer. Its length, or `None`.
    fn get_into<'py>(
        slf: &This<'py>,
        name: Word<'py>,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Option<usize>> {
        let bytes = writable(buffer)?;
        let Some(value) = open(slf).get(slf.py(), name.get())? else { return Ok(None) };
        let (len, room) = (value.as_bytes().len(), bytes.len()?);
        if len > room {
            return Err(PyValueError::new_err(format!(
                "the value has {len} bytes, and the buffer {room}: give a larger one"
            )));
        }
        let place = PySlice::new(slf.py(), 0, isize::try_from(len)?, 1);
        bytes.set_item(place, value)?;
        Ok(Some(len))
    }

    /// Calls `read` with a view, whose keys are of one moment (in each partition), and gives its
    /// result. When too much has changed meanwhile, it calls it again. It takes local access.
    fn view<'py>(slf: &This<'py>, read: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        view::view(slf.py(), open(slf), read)
    }

    /// The keys that match a pattern, or all, with SCAN's promise. `count`: some so many in a step.
    #[pyo3(signature = (r#match=None, count=None))]
    fn scan_iter(slf: &This<'_>, r#match: Option<Word<'_>>, count: Option<u32>) -> Walk {
        let pattern = r#match.map(|pattern| pattern.get().to_vec());
        let walked = Arc::new(KeyWalk::new(Arc::clone(open(slf)), pattern));
        Walk::by_steps_of(count.unwrap_or(STEP_KEYS), walked, Gives::Keys, b"")
    }

    /// Gathers commands that are sent together: as a transaction, or without MULTI and EXEC. A
    /// transaction can watch keys, and happens only if they haven't changed.
    #[pyo3(signature = (transaction=true))]
    fn pipeline<'py>(slf: &This<'py>, transaction: bool) -> PyResult<Bound<'py, Pipeline>> {
        Pipeline::new(slf.py(), open(slf), &slf.get().watchers, transaction)
    }

    /// Whether it reads the server's memory now.
    #[getter]
    fn is_local(slf: &This<'_>) -> PyResult<bool> {
        open(slf).read(slf.py(), |client| Ok(client.is_local()))
    }

    /// Why it doesn't, though it is connected.
    #[getter]
    fn why_not_local(slf: &This<'_>) -> PyResult<Option<String>> {
        open(slf).read(slf.py(), |client| Ok(client.why_not_local().map(str::to_owned)))
    }

    /// Whether it is closed.
    #[getter]
    fn closed(slf: &This<'_>) -> bool {
        open(slf).is_closed()
    }

    /// Ends it, after the calls of other threads. Closing again does nothing.
    fn close(slf: &This<'_>) {
        open(slf).close(slf.py());
        slf.get().watchers.close();
    }

    fn __enter__(slf: Bound<'_, Client>) -> Bound<'_, Client> {
        slf
    }

    fn __exit__(
        slf: &This<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        Client::close(slf);
    }

    fn __repr__(slf: &This<'_>) -> String {
        let state = if open(slf).is_closed() { ", closed" } else { "" };
        format!("<nigh.Client {}{state}>", open(slf).address())
    }
}

/// How long a call looks for its reply.
fn spin_of(given: f64) -> PyResult<Duration> {
    let spin = bound("spin", given)?;
    if spin > SPIN_MOST {
        let most = SPIN_MOST.as_secs();
        return Err(PyValueError::new_err(format!("spin is {given}: seconds, {most} at most")));
    }
    Ok(spin)
}

/// The bytes of a buffer that can be written to.
fn writable<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let refused = |_| PyTypeError::new_err("get_into needs a writable buffer, as a bytearray");
    let view = PyMemoryView::from(buffer).map_err(refused)?;
    if view.getattr("readonly")?.is_truthy()? {
        return Err(refused(PyTypeError::new_err(())));
    }
    view.call_method1("cast", ("B",)).map_err(|_| {
        PyTypeError::new_err("get_into needs a buffer in one piece: its bytes aren't contiguous")
    })
}
