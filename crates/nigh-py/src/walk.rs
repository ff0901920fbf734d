//! Walks over the keys with a prefix.
//!
//! Any thread that has the interpreter's lock.

use crate::copies::copy_of;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Keys of a step: enough to make its beginning cheap, few enough for the memory of their values.
const STEP_KEYS: u32 = 64;

/// A key and its value.
pub(crate) type Pair<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

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
#[pyclass(module = "nigh")]
pub(crate) struct Walk {
    walked: Arc<dyn Steps>,
    gives: Gives,
    prefix: Vec<u8>,
    /// Keys that a step aims at.
    count: u32,
    /// `None` behind the last step.
    cursor: Option<u64>,
    found: VecDeque<(Py<PyBytes>, Py<PyBytes>)>,
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
        let (prefix, found) = (prefix.to_vec(), VecDeque::new());
        Walk { walked, gives, prefix, count, cursor: Some(0), found }
    }
}

#[pymethods]
impl Walk {
    fn __iter__(slf: Bound<'_, Walk>) -> Bound<'_, Walk> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            if let Some((key, value)) = self.found.pop_front() {
                return Ok(Some(match self.gives {
                    Gives::Keys => key.into_bound(py).into_any(),
                    Gives::Values => value.into_bound(py).into_any(),
                    Gives::Items => (key, value).into_pyobject(py)?.into_any(),
                }));
            }
            let Some(cursor) = self.cursor else { return Ok(None) };
            // A prefix that few keys have takes many steps.
            py.check_signals()?;
            let (next, found) = step(py, &*self.walked, &self.prefix, cursor, self.count)?;
            self.cursor = (next != 0).then_some(next);
            self.found.extend(found.into_iter().map(|(key, value)| (key.unbind(), value.unbind())));
        }
    }
}
