//! Walks over the keys with a prefix.
//!
//! 1. What a step finds is given once, also if several threads use one walk. Two of them may make
//!    the same step: what the first one has found counts.
//! 2. The lock of a walk is held by threads that have the interpreter's lock, and run no Python
//!    code meanwhile. A step is made without it: it may wait, and run handlers of signals.
//!
//! Any thread that has the interpreter's lock.

use crate::copies::copy_of;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Keys of a step: enough to make its beginning cheap, few enough for the memory of their values.
const STEP_KEYS: u32 = 64;

/// How long one call keeps the interpreter's lock, if its steps are made with it. A thread that
/// waits for the lock asks for it after half of that (`sys.getswitchinterval()`), and has it next.
/// If it were given more often, it would never ask.
const TURN: Duration = Duration::from_millis(10);

/// A key and its value.
pub(crate) type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The same, kept for later calls.
type KeptPair = (Py<PyBytes>, Py<PyBytes>);

/// What is walked over, in steps.
pub(crate) trait Steps: Send + Sync {
    /// Passes about `count` keys with their values to `found`. Returns the next cursor, 0 at the
    /// end.
    fn step(
        &self,
        py: Python<'_>,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8], &[u8]),
    ) -> PyResult<u64>;
}

/// One step: the next cursor, and what was found.
pub(crate) fn step<'py>(
    py: Python<'py>,
    walked: &dyn Steps,
    prefix: &[u8],
    cursor: u64,
    count: u32,
) -> PyResult<(u64, Vec<Pair<'py>>)> {
    let mut found = Vec::new();
    let next = walked.step(py, prefix, cursor, count, &mut |key, value| {
        found.push(copy_of(py, key).and_then(|key| Ok((key, copy_of(py, value)?))));
    })?;
    Ok((next, found.into_iter().collect::<PyResult<_>>()?))
}

/// What a walk gives of each key.
#[derive(Clone, Copy)]
pub(crate) enum Gives {
    Keys,
    Values,
    Items,
}

/// An iterator over keys, values or both.
#[pyclass(frozen, module = "nigh")]
pub(crate) struct Walk {
    walked: Arc<dyn Steps>,
    gives: Gives,
    prefix: Vec<u8>,
    /// Keys that a step aims at.
    count: u32,
    state: Mutex<WalkState>,
}

/// How far a walk has come.
struct WalkState {
    /// Of the next step; `None` behind the last one.
    cursor: Option<u64>,
    /// What is still to be given.
    found: VecDeque<KeptPair>,
}

impl Walk {
    pub(crate) fn new(walked: Arc<dyn Steps>, gives: Gives, prefix: &[u8]) -> Walk {
        Walk::by_steps_of(STEP_KEYS, walked, gives, prefix)
    }

    /// The same by steps of about so many keys.
    pub(crate) fn by_steps_of(
        count: u32,
        walked: Arc<dyn Steps>,
        gives: Gives,
        prefix: &[u8],
    ) -> Walk {
        let state = Mutex::new(WalkState { cursor: Some(0), found: VecDeque::new() });
        Walk { walked, gives, prefix: prefix.to_vec(), count, state }
    }

    fn state(&self) -> MutexGuard<'_, WalkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a key that was found; and the cursor of the step that comes behind all those.
    fn take(&self) -> (Option<KeptPair>, Option<u64>) {
        let mut state = self.state();
        (state.found.pop_front(), state.cursor)
    }
}

#[pymethods]
impl Walk {
    fn __iter__(slf: Bound<'_, Walk>) -> Bound<'_, Walk> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut turn = Instant::now();
        loop {
            let (taken, cursor) = self.take();
            if let Some((key, value)) = taken {
                return Ok(Some(match self.gives {
                    Gives::Keys => key.into_bound(py).into_any(),
                    Gives::Values => value.into_bound(py).into_any(),
                    Gives::Items => (key, value).into_pyobject(py)?.into_any(),
                }));
            }
            let Some(cursor) = cursor else { return Ok(None) };
            // A prefix that few keys have takes many steps.
            py.check_signals()?;
            if turn.elapsed() >= TURN {
                py.detach(|| ());
                turn = Instant::now();
            }
            let (next, found) = step(py, &*self.walked, &self.prefix, cursor, self.count)?;
            let found = found.into_iter().map(|(key, value)| (key.unbind(), value.unbind()));
            let mut state = self.state();
            if state.cursor == Some(cursor) {
                state.cursor = (next != 0).then_some(next);
                state.found.extend(found);
            }
        }
    }
}
