//! For the tests of a debug build: calls that end by a fault of their own.
//!
//! The thread of the JavaScript, and one of the pool.

use crate::fault::{Code, answer};
use crate::open_db::OpenDb;
use crate::pool_work::PoolWork;
use napi::Result;
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;
use nigh::Options;
use std::sync::Arc;

/// Panics within a call.
#[napi]
pub(crate) fn panics() -> Result<(), Code> {
    answer(|| panic!("as the test wants"))
}

/// Panics within a call in the pool.
#[napi]
pub(crate) fn panics_later() -> AsyncTask<PoolWork> {
    let db = Arc::new(OpenDb::new(String::new(), Options::new()));
    PoolWork::of(&db, |_| panic!("as the test wants"))
}
