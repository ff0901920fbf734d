//! A database that is open from time to time, for JavaScript and for the pool's threads.
//!
//! 1. A thread that closes says so before it waits for the calls that use the database. So the
//!    thread of the JavaScript waits for no close that a thread of the pool does.
//! 2. While a call uses a database, no JavaScript runs in its thread: nobody waits for itself.
//!
//! Any thread.

use crate::fault::{Fault, guarded};
use nigh::{DbError, Options};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// A database, open or not.
pub(crate) struct OpenDb {
    path: String,
    options: Options,
    is_open: AtomicBool,
    db: RwLock<Option<nigh::Db>>,
}

impl OpenDb {
    /// Not open yet.
    pub(crate) fn new(path: String, options: Options) -> OpenDb {
        OpenDb { path, options, is_open: AtomicBool::new(false), db: RwLock::new(None) }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Opens it. Once.
    pub(crate) fn open(&self) -> Result<(), Fault> {
        let db = nigh::Db::open(&self.path, &self.options)?;
        *self.db.write().unwrap_or_else(PoisonError::into_inner) = Some(db);
        self.is_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Passes the database to `call`. It isn't closed meanwhile.
    #[inline]
    pub(crate) fn call<R>(
        &self,
        call: impl FnOnce(&nigh::Db) -> Result<R, DbError>,
    ) -> Result<R, Fault> {
        if !self.is_open() {
            return Err(Fault::closed(&self.path));
        }
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let db = db.as_ref().ok_or_else(|| Fault::closed(&self.path))?;
        call(db).map_err(|error| Fault::of_call(&self.path, &error))
    }

    /// Closes it, after the calls that use it. Nothing if it is closed.
    pub(crate) fn close(&self) -> Result<(), Fault> {
        if !self.is_open.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let db = self.db.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = db.map_or(Ok(()), nigh::Db::close);
        closed.map_err(|error| Fault::of_call(&self.path, &error))
    }
}

impl Drop for OpenDb {
    /// JavaScript has forgotten an open database: it is closed, and nobody is told an error.
    fn drop(&mut self) {
        let _ = guarded(|| self.close());
    }
}
