//! What waits for the disk runs in libuv's pool, and a `Promise` tells how it ended.
//!
//! 1. The outcome is a value, also if it is a fault: `index.js` throws it, so that its stack leads
//!    to the caller.
//! 2. A panic is a fault (`fault.rs`).
//!
//! Begun in the thread of the JavaScript; done in one of the pool.

use crate::fault::{Fault, guarded};
use crate::open_db::OpenDb;
use napi::bindgen_prelude::{AsyncTask, BigInt};
use napi::{Env, Task};
use napi_derive::napi;
use nigh::DbError;
use std::sync::Arc;

/// How work ended well.
pub enum Done {
    Nothing,
    Was(bool),
    Sum(i64),
}

type Call = Box<dyn FnOnce(&OpenDb) -> Result<Done, Fault> + Send>;

/// A call that waits.
pub struct PoolWork {
    db: Arc<OpenDb>,
    /// `None` when it has been done.
    call: Option<Call>,
}

impl PoolWork {
    /// A call on whatever the database is, open or not.
    pub(crate) fn of(
        db: &Arc<OpenDb>,
        call: impl FnOnce(&OpenDb) -> Result<Done, Fault> + Send + 'static,
    ) -> AsyncTask<PoolWork> {
        AsyncTask::new(PoolWork { db: Arc::clone(db), call: Some(Box::new(call)) })
    }

    /// A call on an open database.
    pub(crate) fn of_open(
        db: &Arc<OpenDb>,
        call: impl FnOnce(&nigh::Db) -> Result<Done, DbError> + Send + 'static,
    ) -> AsyncTask<PoolWork> {
        PoolWork::of(db, move |db| db.call(call))
    }
}

/// How work ended: one of the fields, or none.
#[napi(object, object_from_js = false)]
pub struct Outcome {
    pub was: Option<bool>,
    pub sum: Option<BigInt>,
    pub code: Option<String>,
    pub message: Option<String>,
}

impl Task for PoolWork {
    type Output = Result<Done, Fault>;
    type JsValue = Outcome;

    fn compute(&mut self) -> napi::Result<Result<Done, Fault>> {
        let call = self.call.take();
        Ok(guarded(|| call.map_or(Ok(Done::Nothing), |call| call(&self.db))))
    }

    fn resolve(&mut self, _: Env, ended: Result<Done, Fault>) -> napi::Result<Outcome> {
        let mut outcome = Outcome { was: None, sum: None, code: None, message: None };
        match ended {
            Ok(Done::Nothing) => {}
            Ok(Done::Was(was)) => outcome.was = Some(was),
            Ok(Done::Sum(sum)) => outcome.sum = Some(BigInt::from(sum)),
            Err(fault) => {
                outcome.code = Some(fault.code.as_ref().to_owned());
                outcome.message = Some(fault.message);
            }
        }
        Ok(outcome)
    }
}
