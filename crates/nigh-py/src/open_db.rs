//! A database that is open until somebody closes it, for all threads of the interpreter.
//!
//! 1. A thread that closes sets `is_closed` with the interpreter's lock, before it waits for calls
//!    that use the database. So a thread that keeps the interpreter's lock never waits for a close.
//! 2. A thread that uses the database without the interpreter's lock gives it back before it takes
//!    that.
//! 3. A fork's child touches nothing: another thread may have had the lock at the fork, and then it
//!    stays locked for ever.
//!
//! Any thread that has the interpreter's lock.

use crate::errors;
use crate::walk::Steps;
use nigh::{DbError, ForkMark, Options, WriteOptions};
use pyo3::prelude::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes whose copying takes longer than to give the interpreter's lock away and get it back.
const LONG: usize = 64 << 10;

/// A database, while it is open.
pub(crate) struct OpenDb {
    path: String,
    is_strong: bool,
    fork_mark: Arc<ForkMark>,
    is_closed: AtomicBool,
    db: RwLock<Option<nigh::Db>>,
}

impl OpenDb {
    pub(crate) fn open(
        py: Python<'_>,
        path: &Path,
        options: &Options,
        is_strong: bool,
    ) -> PyResult<OpenDb> {
        let name = path.display().to_string();
        let db = py.detach(|| errors::guarded(&name, || nigh::Db::open(path, options)))?;
        let db = db.map_err(|error| errors::of_open(&error))?;
        Ok(OpenDb {
            path: name,
            is_strong,
            fork_mark: db.fork_mark(),
            is_closed: AtomicBool::new(false),
            db: RwLock::new(Some(db)),
        })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Tells whether this process is a fork's child of the one that opened it.
    pub(crate) fn fork_mark(&self) -> &Arc<ForkMark> {
        &self.fork_mark
    }

    /// An error if it is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> PyResult<()> {
        if self.is_closed() { Err(errors::closed(&self.path)) } else { Ok(()) }
    }

    /// An error if it is closed, or this process is a child of its own.
    #[inline]
    fn check(&self) -> PyResult<()> {
        self.check_open()?;
        errors::check_process(&self.path, &self.fork_mark)
    }

    /// A call that doesn't take long. It runs no Python code.
    #[inline]
    pub(crate) fn call<R>(
        &self,
        call: impl FnOnce(&nigh::Db) -> Result<R, DbError>,
    ) -> PyResult<R> {
        self.check()?;
        self.answer(self.try_call(call))
    }

    /// A call that waits for the disk: the interpreter goes on meanwhile.
    pub(crate) fn waiting_call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&nigh::Db) -> Result<R, DbError> + Send,
    ) -> PyResult<R> {
        self.check()?;
        self.answer(py.detach(|| self.try_call(call)))
    }

    /// A write of so many bytes, which waits for the disk if it is strong; `None`: as the database
    /// was opened. If another one would wait, it does that without the interpreter's lock too.
    #[inline]
    pub(crate) fn write<R: Send>(
        &self,
        py: Python<'_>,
        strong: Option<bool>,
        len: usize,
        options: &WriteOptions,
        write: impl Fn(&nigh::Db, &WriteOptions) -> Result<R, DbError> + Sync,
    ) -> PyResult<R> {
        self.check()?;
        if !strong.unwrap_or(self.is_strong) && len < LONG {
            match self.try_call(|db| write(db, &options.without_waiting())) {
                Ok(Some(Err(DbError::Held | DbError::Late))) => {}
                answer => return self.answer(answer),
            }
        }
        self.waiting_call(py, |db| write(db, options))
    }

    /// Closes it, after the calls that use it. Nothing if it is closed.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        errors::check_process(&self.path, &self.fork_mark)?;
        let close = || {
            let db = self.db.write().unwrap_or_else(PoisonError::into_inner).take();
            db.map_or(Ok(()), nigh::Db::close)
        };
        let closed = py.detach(|| errors::guarded(&self.path, close))?;
        closed.map_err(|error| errors::of_call(&self.path, &error))
    }

    /// `None` if it is closed.
    #[inline]
    fn try_call<R>(
        &self,
        call: impl FnOnce(&nigh::Db) -> Result<R, DbError>,
    ) -> PyResult<Option<Result<R, DbError>>> {
        errors::guarded(&self.path, || {
            self.db.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(call)
        })
    }

    #[inline]
    fn answer<R>(&self, answer: PyResult<Option<Result<R, DbError>>>) -> PyResult<R> {
        let answer = answer?.ok_or_else(|| errors::closed(&self.path))?;
        answer.map_err(|error| errors::of_call(&self.path, &error))
    }
}

impl Steps for OpenDb {
    fn step(
        &self,
        _py: Python<'_>,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8], &[u8]),
    ) -> PyResult<u64> {
        self.call(|db| db.scan(prefix, cursor, count, found))
    }
}

impl Drop for OpenDb {
    /// Python has forgotten an open database: it is closed, and nobody is told an error.
    fn drop(&mut self) {
        // When the interpreter ends, there is no lock to give away.
        let _ = Python::try_attach(|py| self.close(py));
    }
}
