//! What waits for the disk or for a server runs in libuv's pool, and a `Promise` tells how it
//! ended.
//!
//! 1. The outcome is a value, also if it is a fault: JavaScript throws it, so that its stack leads
//!    to the caller.
//! 2. A panic is a fault (`fault.rs`).
//!
//! Begun in the thread of the JavaScript; done in one of the pool.

use crate::fault::{Fault, guarded};
use crate::open_db::OpenDb;
use napi::bindgen_prelude::{AsyncTask, BigInt, ToNapiValue, TypeName};
use napi::{Env, ScopedTask};
use napi_derive::napi;
use nigh::DbError;
use std::sync::Arc;

/// What work in the pool gives.
pub trait Told: Send + Sized + 'static {
    /// Its form in JavaScript, which tells a fault too.
    type Js<'env>: ToNapiValue + TypeName;

    /// Tells how work ended.
    fn told(env: &Env, ended: Result<Self, Fault>) -> napi::Result<Self::Js<'_>>;
}

/// How work ended well.
pub enum Done {
    Nothing,
    Was(bool),
    Sum(i64),
}

/// Copies of bytes, for a call that waits.
pub(crate) fn copies<const N: usize>(all: [&[u8]; N]) -> Result<[Vec<u8>; N], Fault> {
    let mut copies = [const { Vec::new() }; N];
    for (copy, bytes) in copies.iter_mut().zip(all) {
        copy.try_reserve_exact(bytes.len()).map_err(|_| Fault::no_memory(bytes.len()))?;
        copy.extend_from_slice(bytes);
    }
    Ok(copies)
}

type Call<T> = Box<dyn FnOnce() -> Result<T, Fault> + Send>;

/// A call that waits.
pub struct PoolWork<T = Done> {
    /// `None` when it has been done.
    call: Option<Call<T>>,
}

impl<T: Told> PoolWork<T> {
    /// Any call.
    pub(crate) fn new(
        call: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> AsyncTask<PoolWork<T>> {
        AsyncTask::new(PoolWork { call: Some(Box::new(call)) })
    }
}

impl PoolWork {
    /// A call on whatever the database is, open or not.
    pub(crate) fn of(
        db: &Arc<OpenDb>,
        call: impl FnOnce(&OpenDb) -> Result<Done, Fault> + Send + 'static,
    ) -> AsyncTask<PoolWork> {
        let db = Arc::clone(db);
        PoolWork::new(move || call(&db))
    }

    /// A call on an open database.
    pub(crate) fn of_open(
        db: &Arc<OpenDb>,
        call: impl FnOnce(&nigh::Db) -> Result<Done, DbError> + Send + 'static,
    ) -> AsyncTask<PoolWork> {
        PoolWork::of(db, move |db| db.call(call))
    }

    /// The same with copies of its arguments, if there was memory for them.
    pub(crate) fn with<const N: usize>(
        db: &Arc<OpenDb>,
        arguments: [&[u8]; N],
        call: impl FnOnce(&nigh::Db, [&[u8]; N]) -> Result<Done, DbError> + Send + 'static,
    ) -> AsyncTask<PoolWork> {
        let copies = copies(arguments);
        PoolWork::of(db, move |db| {
            let copies = copies?;
            db.call(|db| call(db, copies.each_ref().map(Vec::as_slice)))
        })
    }
}

impl<'env, T: Told> ScopedTask<'env> for PoolWork<T> {
    type Output = Result<T, Fault>;
    type JsValue = T::Js<'env>;

    fn compute(&mut self) -> napi::Result<Result<T, Fault>> {
        let call = self.call.take();
        let twice = || Err(Fault::own("work in the pool was done twice"));
        Ok(guarded(|| call.map_or_else(twice, |call| call())))
    }

    fn resolve(&mut self, env: &'env Env, ended: Result<T, Fault>) -> napi::Result<T::Js<'env>> {
        T::told(env, ended)
    }
}

/// How work ended: one of the fields, or none.
#[napi(object, object_from_js = false)]
pub struct WorkEnd {
    pub was: Option<bool>,
    pub sum: Option<BigInt>,
    pub code: Option<String>,
    pub message: Option<String>,
}

impl Told for Done {
    type Js<'env> = WorkEnd;

    fn told(_: &Env, ended: Result<Done, Fault>) -> napi::Result<WorkEnd> {
        let mut outcome = WorkEnd { was: None, sum: None, code: None, message: None };
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
