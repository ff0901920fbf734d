//! A client of a server until somebody closes it, for all threads of the interpreter.
//!
//! ```text
//! read ── at_once: with the interpreter's lock ── from memory ──> answer
//!            └─ would wait, or another thread is in it: waiting
//! write ── waiting: without the interpreter's lock ── ring or socket ──> reply
//! ```
//!
//! 1. A thread that has the client runs no Python code and doesn't ask for the interpreter's lock.
//!    So a thread that waits for the client, which it does without that lock, gets it.
//! 2. A thread that closes sets `is_closed` before it waits for the calls of others.
//! 3. A child of a fork touches nothing: the lock may be held for ever there.
//! 4. A thread that waits for a reply looks for signals. A signal's handler is the one piece of
//!    Python code that runs while its thread has the client. It finds the client taken (`signals`).
//!
//! Any thread that has the interpreter's lock.

use crate::copies::{copies_of, copy_of};
use crate::errors;
use crate::signals;
use nigh_client::{Address, CallError, Client, ClientOptions, ForeignValues, ForkMark, Frame};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Between two looks for signals while calls wait for a server to come.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of memory that are kept for the next values.
const KEPT_BYTES: usize = 1 << 20;

/// Memory that a client's calls use again.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) value: Vec<u8>,
    pub(crate) values: ForeignValues,
}

impl Kept {
    /// Gives most of the memory of a long value back.
    fn shrink(&mut self) {
        self.value.clear();
        self.value.shrink_to(KEPT_BYTES);
    }

    /// The values that were read; many or long ones leave no memory behind.
    fn take_values<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let values = (0..self.values.len()).map(|key| self.values.get(key));
        let bytes: usize = values.clone().flatten().map(<[u8]>::len).sum();
        let found = copies_of(py, values);
        if bytes > KEPT_BYTES {
            self.values = ForeignValues::new();
        }
        found
    }
}

/// A client, while it is open.
pub(crate) struct OpenClient {
    address: String,
    /// How long a call waits for a server to come.
    wait: Duration,
    fork_mark: Arc<ForkMark>,
    is_closed: AtomicBool,
    client: Mutex<Option<(Client, Kept)>>,
}

impl OpenClient {
    pub(crate) fn connect(
        py: Python<'_>,
        address: &Address,
        options: ClientOptions,
    ) -> PyResult<OpenClient> {
        // The crate waits for a server without a look for signals: so by small pieces.
        let (wait, mut options) = (options.wait, options);
        options.wait = wait.min(LOOK);
        options.connection.while_waiting = Some(signals::none_raises);
        let name = address.to_string();
        let connect = || Client::connect_with(address, options.clone());
        let client = until(py, &name, wait, connect)?;
        let client = client.map_err(|error| errors::of_client(&error))?;
        Ok(OpenClient {
            address: name,
            wait,
            fork_mark: client.fork_mark(),
            is_closed: AtomicBool::new(false),
            client: Mutex::new(Some((client, Kept::default()))),
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// A call that doesn't wait; `None` if it would. It runs no Python code.
    #[inline]
    pub(crate) fn at_once<R>(
        &self,
        call: impl FnOnce(&mut Client, &mut Kept) -> Result<R, CallError>,
    ) -> PyResult<Option<R>> {
        self.check()?;
        let mut client = match self.client.try_lock() {
            Ok(client) => client,
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Poisoned(client)) => client.into_inner(),
        };
        let Some((client, kept)) = client.as_mut() else {
            return Err(errors::client_closed(&self.address));
        };
        let answer =
            errors::guarded(&self.address, || client.without_waiting(|client| call(client, kept)));
        match answer? {
            Ok(answer) => Ok(Some(answer)),
            Err(CallError::WouldWait) => Ok(None),
            Err(error) => Err(errors::of_client(&error)),
        }
    }

    /// A call that may wait for the server: the interpreter goes on meanwhile. It is made again as
    /// long as there is no server, and nothing was sent.
    pub(crate) fn waiting<R: Send>(
        &self,
        py: Python<'_>,
        mut call: impl FnMut(&mut Client) -> Result<R, CallError> + Send,
    ) -> PyResult<R> {
        self.check()?;
        let answer = until(py, &self.address, self.wait, || {
            let Some(mut client) = self.lock() else { return Ok(None) };
            let answer = client.as_mut().map(|(client, _)| call(client)).transpose();
            if self.is_closed() {
                // By a handler, which couldn't do it.
                *client = None;
            }
            answer
        })?;
        let answer = answer.map_err(|error| errors::of_client(&error))?;
        match answer {
            Some(answer) => Ok(answer),
            None if self.is_closed() => Err(errors::client_closed(&self.address)),
            None => Err(errors::in_a_handler(&self.address)),
        }
    }

    /// The client, behind the calls of other threads. `None` in a signal's handler, if it is taken:
    /// maybe by the call that the signal interrupts.
    fn lock(&self) -> Option<MutexGuard<'_, Option<(Client, Kept)>>> {
        if !signals::are_handled() {
            return Some(self.client.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match self.client.try_lock() {
            Ok(client) => Some(client),
            Err(TryLockError::Poisoned(client)) => Some(client.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A read: at once if it can be.
    #[inline]
    pub(crate) fn read<R: Send>(
        &self,
        py: Python<'_>,
        mut call: impl FnMut(&mut Client) -> Result<R, CallError> + Send,
    ) -> PyResult<R> {
        match self.at_once(|client, _| call(client))? {
            Some(answer) => Ok(answer),
            None => self.waiting(py, call),
        }
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = self.at_once(|client, kept| {
            let is_there = client.get_into(key, &mut kept.value)?;
            let value = is_there.then(|| copy_of(py, &kept.value)).transpose();
            kept.shrink();
            Ok(value)
        })?;
        if let Some(value) = found {
            return value;
        }
        let value = self.waiting(py, |client| client.get(key))?;
        value.map(|value| copy_of(py, &value)).transpose()
    }

    /// The values of several keys.
    pub(crate) fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &[&[u8]],
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let found = self.at_once(|client, kept| {
            client.multi_get_into(keys, &mut kept.values)?;
            Ok(kept.take_values(py))
        })?;
        if let Some(values) = found {
            return values;
        }
        let values = self.waiting(py, |client| client.multi_get(keys))?;
        copies_of(py, values.iter().map(Option::as_deref))
    }

    /// Sends a request that changes nothing, and waits for its reply, which is no error.
    pub(crate) fn ask(&self, py: Python<'_>, words: &[&[u8]]) -> PyResult<Frame> {
        self.waiting(py, |client| client.call_read(words))
    }

    /// Sends a request once, and waits for its reply.
    pub(crate) fn request(&self, py: Python<'_>, words: &[&[u8]]) -> PyResult<Frame> {
        self.waiting(py, |client| client.call(words))
    }

    /// Closes it, after the calls of other threads. Nothing if it is closed.
    pub(crate) fn close(&self, py: Python<'_>) {
        if !self.is_closed.swap(true, Ordering::Relaxed) && !self.fork_mark.is_in_child() {
            py.detach(|| self.lock().map(|mut client| *client = None));
        }
    }

    /// An error if it is closed, or this process is a child of its own.
    #[inline]
    pub(crate) fn check(&self) -> PyResult<()> {
        if self.is_closed() {
            return Err(errors::client_closed(&self.address));
        }
        if self.fork_mark.is_in_child() {
            let address = self.address.clone();
            return Err(errors::of_client(&CallError::Forked { address }));
        }
        Ok(())
    }
}

/// Makes a call on a server without the interpreter's lock; again, for so long, as long as there is
/// none. What a signal's handler raises meanwhile ends it.
fn until<R: Send>(
    py: Python<'_>,
    address: &str,
    wait: Duration,
    mut call: impl FnMut() -> Result<R, CallError> + Send,
) -> PyResult<Result<R, CallError>> {
    let begin = Instant::now();
    loop {
        let answer = py.detach(|| errors::guarded(address, &mut call));
        if let Some(raised) = signals::take_raised() {
            return Err(raised);
        }
        match answer? {
            // That the socket lets this user in may still come, too.
            Err(CallError::NotAttached { .. } | CallError::NotPermitted { .. })
                if begin.elapsed() < wait =>
            {
                py.check_signals()?;
            }
            answer => return Ok(answer),
        }
    }
}
