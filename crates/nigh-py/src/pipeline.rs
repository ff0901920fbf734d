//! Commands that are sent together, and keys that are watched meanwhile.
//!
//! 1. What a transaction sends goes by the connection that watches, if there is one.
//! 2. A connection that has watched is used again only when the server has forgotten its WATCH: by
//!    EXEC's reply, or UNWATCH's. Else it is given up.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::words;
use crate::command_words::with_keys;
use crate::commands::Commands;
use crate::errors;
use crate::gathering::Gathering;
use crate::open_client::OpenClient;
use crate::replies;
use crate::request::Request;
use crate::watchers::Watchers;
use nigh_client::{CallError, Frame};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::Arc;

/// Gathers commands, and sends them when it is executed: with MULTI and EXEC, so that nothing comes
/// between them, or without. Behind `watch` commands are sent at once, until `multi`.
#[pyclass(frozen, extends = Commands, module = "nigh")]
pub(crate) struct Pipeline {
    is_transaction: bool,
    watchers: Arc<Watchers>,
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
        watchers: &Arc<Watchers>,
        is_transaction: bool,
    ) -> PyResult<Bound<'py, Pipeline>> {
        let commands = Commands::of_pipeline(Arc::clone(open));
        let pipeline = Pipeline { is_transaction, watchers: Arc::clone(watchers) };
        Bound::new(py, PyClassInitializer::from(commands).add_subclass(pipeline))
    }

    /// Takes all that it has gathered.
    fn take(this: &Bound<'_, Pipeline>) -> Gathering {
        let gathering = this.as_super().get().gathering();
        gathering.map(|mut it| std::mem::take(&mut *it)).unwrap_or_default()
    }

    /// Changes what it has gathered.
    fn change<R>(
        this: &Bound<'_, Pipeline>,
        change: impl FnOnce(&mut Gathering) -> PyResult<R>,
    ) -> PyResult<R> {
        match this.as_super().get().gathering() {
            Some(mut gathering) => change(&mut gathering),
            None => Err(errors::out_of_order("a client is no pipeline")),
        }
    }

    /// Sends the requests. Behind an error nothing was sent, unless a signal's handler has raised
    /// it: then `may_have_sent` says whether some may have happened.
    fn send(
        py: Python<'_>,
        open: &OpenClient,
        requests: &[Request],
        is_transaction: bool,
        may_have_sent: &mut bool,
    ) -> PyResult<Sent> {
        let word = |word: &[u8]| Request::of(&[word]).map_err(|error| errors::of_client(&error));
        let (before, behind) = (word(b"MULTI")?, word(b"EXEC")?);
        let frame = is_transaction.then_some([&before, &behind]);
        open.waiting(py, |client| {
            let mut replies = Vec::new();
            let begin = frame.iter().map(|[before, _]| *before);
            let all = begin.chain(requests).chain(frame.iter().map(|[_, behind]| *behind));
            match client.pipeline_each(all.map(Request::words), |reply| replies.push(reply)) {
                Err(error @ (CallError::NotAttached { .. } | CallError::Over { .. })) => Err(error),
                sent => {
                    *may_have_sent = true;
                    Ok(Sent { replies, ended: sent.err() })
                }
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
        Some(reply) if reply.is_null() => Err(errors::watched_key_changed(address)),
        Some(reply) => match reply.error() {
            Some(text) => Err(errors::refused(address, "EXEC", text)),
            None => Err(errors::unexpected(address, "EXEC")),
        },
        None => Err(errors::unexpected(address, "EXEC")),
    }
}

/// What came of the requests, as a list.
fn results<'py>(
    this: &Bound<'py, Pipeline>,
    requests: &[Request],
    sent: Sent,
    is_transaction: bool,
    raise_on_error: bool,
) -> PyResult<Bound<'py, PyList>> {
    let (py, address) = (this.py(), this.as_super().get().open().address());
    let results = PyList::empty(py);
    let is_whole = sent.ended.is_none();
    let replies = match (is_transaction, is_whole) {
        (true, true) => of_transaction(address, requests, sent.replies)?,
        (true, false) => Vec::new(),
        (false, _) => sent.replies,
    };
    let raises = raise_on_error && is_whole;
    for (at, (reply, request)) in replies.iter().zip(requests).enumerate() {
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

/// A command in a pipeline, for an error.
fn named(at: usize, request: &Request) -> String {
    format!("command {} of the pipeline, {}", at + 1, replies::name_of(request.command()))
}

#[pymethods]
impl Pipeline {
    /// Watches keys: `execute` happens only if none of them has changed. From now on commands are
    /// sent at once, until `multi`.
    #[pyo3(signature = (*names))]
    fn watch(slf: &Bound<'_, Pipeline>, names: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let (py, names) = (slf.py(), words(names.as_any())?);
        let open = slf.as_super().get().open();
        open.check()?;
        let earlier = Pipeline::change(slf, |gathering| match gathering.is_multi {
            true => Err(errors::out_of_order("watch after multi: watch first, or reset")),
            false => Ok(gathering.watcher.take()),
        })?;
        let request = with_keys(b"WATCH", &names);
        // If there is no reply, it is given up, and what it watched before with it.
        let watched_before = earlier.is_some();
        let (watcher, reply) = match earlier {
            Some(watcher) => {
                let reply = watcher.request(py, &request)?;
                (watcher, reply)
            }
            None => slf.get().watchers.watch(py, &request)?,
        };
        let refused = reply.error().map(|text| errors::refused(open.address(), "WATCH", text));
        if refused.is_some() && !watched_before {
            slf.get().watchers.give_back(watcher);
        } else {
            Pipeline::change(slf, |gathering| {
                gathering.watcher = Some(watcher);
                Ok(())
            })?;
        }
        refused.map_or(Ok(true), Err)
    }

    /// Watches no more. Commands are gathered again.
    fn unwatch(slf: &Bound<'_, Pipeline>) -> PyResult<bool> {
        let watcher = Pipeline::change(slf, |gathering| match gathering.is_multi {
            true => Err(errors::out_of_order("unwatch after multi: execute, or reset")),
            false => Ok(gathering.watcher.take()),
        })?;
        let Some(watcher) = watcher else { return Ok(true) };
        match watcher.request(slf.py(), &[b"UNWATCH"]) {
            Ok(reply) if reply.error().is_none() => slf.get().watchers.give_back(watcher),
            // It is given up, and its WATCH with it.
            Ok(_) => {}
            Err(error) if error.is_instance_of::<errors::Error>(slf.py()) => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Gathers commands again, behind `watch`: as a transaction.
    fn multi(slf: &Bound<'_, Pipeline>) -> PyResult<()> {
        Pipeline::change(slf, |gathering| {
            if gathering.is_multi {
                return Err(errors::out_of_order("multi within multi: execute, or reset"));
            }
            if !gathering.requests.is_empty() {
                return Err(errors::out_of_order(
                    "multi behind commands that are gathered already: watch and multi come first",
                ));
            }
            gathering.is_multi = true;
            Ok(())
        })
    }

    /// Sends the commands, and forgets them. Their results in order; an error reply is raised, or
    /// stands in its place. `WatchError` if a watched key has changed.
    #[pyo3(signature = (raise_on_error=true))]
    fn execute<'py>(
        slf: &Bound<'py, Pipeline>,
        raise_on_error: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let (py, commands) = (slf.py(), slf.as_super().get());
        let open = commands.open();
        let Gathering { requests, watcher, is_multi } = Pipeline::take(slf);
        if requests.is_empty() && watcher.is_none() {
            return Ok(PyList::empty(py));
        }
        let is_transaction = slf.get().is_transaction || is_multi || watcher.is_some();
        open.check()?;
        let by = watcher.as_ref().unwrap_or(open);
        let mut may_have_sent = false;
        let sent = match Pipeline::send(py, by, &requests, is_transaction, &mut may_have_sent) {
            Ok(sent) => sent,
            Err(error) => {
                if watcher.is_none() && !may_have_sent {
                    // Nothing was sent: they wait for the next try.
                    Pipeline::change(slf, |gathering| {
                        gathering.is_multi |= is_multi;
                        drop(gathering.requests.splice(..0, requests));
                        Ok(())
                    })?;
                }
                return Err(error);
            }
        };
        let has_executed = sent.replies.last().is_some_and(|reply| reply.error().is_none());
        if let Some(watcher) = watcher.filter(|_| sent.ended.is_none() && has_executed) {
            slf.get().watchers.give_back(watcher);
        }
        results(slf, &requests, sent, is_transaction, raise_on_error)
    }

    /// Forgets the commands, and watches no more.
    fn reset(slf: &Bound<'_, Pipeline>) {
        drop(Pipeline::take(slf));
    }

    /// Whether it watches keys.
    #[getter]
    fn watching(slf: &Bound<'_, Pipeline>) -> bool {
        slf.as_super().get().gathering().is_some_and(|gathering| gathering.watcher.is_some())
    }

    fn __len__(slf: &Bound<'_, Pipeline>) -> usize {
        slf.as_super().get().gathering().map_or(0, |gathering| gathering.requests.len())
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
