//! Commands that are sent together.
//!
//! Any thread that has the interpreter's lock.

use crate::commands::Commands;
use crate::errors;
use crate::open_client::OpenClient;
use crate::replies;
use crate::request::Request;
use nigh_client::{CallError, Frame};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::Arc;

/// Gathers commands, and sends them when it is executed: with MULTI and EXEC, so that nothing comes
/// between them, or without.
#[pyclass(frozen, extends = Commands, module = "nigh")]
pub(crate) struct Pipeline {
    is_transaction: bool,
}

/// What came of a pipeline.
struct Sent {
    replies: Vec<Frame>,
    /// Why there are no more.
    ended: Option<CallError>,
}

impl Pipeline {
    pub(crate) fn new<'py>(
        py: Python<'py>,
        open: &Arc<OpenClient>,
        is_transaction: bool,
    ) -> PyResult<Bound<'py, Pipeline>> {
        let commands = Commands::of_pipeline(Arc::clone(open));
        let whole = PyClassInitializer::from(commands).add_subclass(Pipeline { is_transaction });
        Bound::new(py, whole)
    }

    /// Sends the requests. `NotAttached` alone is an error: else some may have happened.
    fn send(&self, py: Python<'_>, open: &OpenClient, requests: &[Request]) -> PyResult<Sent> {
        let (before, behind) = (Request::of(&[b"MULTI"]), Request::of(&[b"EXEC"]));
        let frame = self.is_transaction.then_some([&before, &behind]);
        open.waiting(py, |client| {
            let mut replies = Vec::new();
            let begin = frame.iter().map(|[before, _]| *before);
            let all = begin.chain(requests).chain(frame.iter().map(|[_, behind]| *behind));
            match client.pipeline_each(all.map(Request::words), |reply| replies.push(reply)) {
                Err(error @ CallError::NotAttached { .. }) => Err(error),
                sent => Ok(Sent { replies, ended: sent.err() }),
            }
        })
    }
}

/// The results of a transaction: those in the reply to EXEC.
fn of_transaction(
    address: &str,
    requests: &[Request],
    replies: Vec<Frame>,
) -> PyResult<Vec<Frame>> {
    // A command that wasn't even queued says why nothing was done.
    let queued = replies.iter().skip(1).zip(requests).enumerate();
    for (at, (reply, request)) in queued {
        if let Some(text) = reply.error() {
            return Err(errors::refused(address, &named(at, request), text));
        }
    }
    let results = replies.into_iter().next_back();
    match results {
        Some(Frame::Array(results)) if results.len() == requests.len() => Ok(results),
        Some(reply) => match reply.error() {
            Some(text) => Err(errors::refused(address, "EXEC", text)),
            None => Err(errors::unexpected(address, "EXEC")),
        },
        None => Err(errors::unexpected(address, "EXEC")),
    }
}

/// A command in a pipeline, for an error.
fn named(at: usize, request: &Request) -> String {
    format!("command {} of the pipeline, {}", at + 1, replies::name_of(request.command()))
}

#[pymethods]
impl Pipeline {
    /// Sends the commands, and forgets them. Their results in order; an error reply is raised, or
    /// stands in its place.
    #[pyo3(signature = (raise_on_error=true))]
    fn execute<'py>(
        slf: &Bound<'py, Pipeline>,
        raise_on_error: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let (py, commands) = (slf.py(), slf.as_super().get());
        let open = commands.open();
        let results = PyList::empty(py);
        let Some(requests) = commands.gathered().map(|mut it| std::mem::take(&mut *it)) else {
            return Ok(results);
        };
        if requests.is_empty() {
            return Ok(results);
        }
        let sent = match slf.get().send(py, open, &requests) {
            Ok(sent) => sent,
            Err(error) => {
                // Nothing was sent: they wait for the next try.
                if let Some(mut gathered) = commands.gathered() {
                    drop(gathered.splice(..0, requests));
                }
                return Err(error);
            }
        };
        let address = open.address();
        let is_whole = sent.ended.is_none();
        let replies = match (slf.get().is_transaction, is_whole) {
            (true, true) => of_transaction(address, &requests, sent.replies)?,
            (true, false) => Vec::new(),
            (false, _) => sent.replies,
        };
        let raises = raise_on_error && is_whole;
        for (at, (reply, request)) in replies.iter().zip(&requests).enumerate() {
            if let Some(text) = reply.error() {
                let error = errors::refused(address, &named(at, request), text);
                if raises {
                    return Err(error);
                }
                results.append(error.into_bound_py_any(py)?)?;
            } else {
                results.append(replies::of_command(py, address, request.command(), reply)?)?;
            }
        }
        match sent.ended {
            None => Ok(results),
            // What came before stands.
            Some(error) => Err(errors::with(py, errors::of_client(&error), "replies", results)),
        }
    }

    /// Forgets the commands.
    fn reset(slf: &Bound<'_, Pipeline>) {
        if let Some(mut gathered) = slf.as_super().get().gathered() {
            gathered.clear();
        }
    }

    fn __len__(slf: &Bound<'_, Pipeline>) -> usize {
        slf.as_super().get().gathered().map_or(0, |gathered| gathered.len())
    }

    /// A pipeline is true, also without commands.
    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(slf: Bound<'_, Pipeline>) -> Bound<'_, Pipeline> {
        slf
    }

    fn __exit__(
        slf: &Bound<'_, Pipeline>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) {
        Pipeline::reset(slf);
    }
}
