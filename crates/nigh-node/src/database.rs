//! The class `Db`: the library's calls, for `index.js`.
//!
//! 1. A call whose name ends in `later` does what another does, in the pool, and copies its
//!    arguments before: JavaScript may change them meanwhile.
//!
//! The thread of the JavaScript.

use crate::arguments::{OpenOptions, later_options, ms_left, write_options};
use crate::batch::Batch;
use crate::fault::{Code, answer};
use crate::open_db::OpenDb;
use crate::pairs::{Pairs, buffer};
use crate::pool_work::{Done, PoolWork};
use crate::snapshot::Snapshot;
use crate::watch::{Watch, waker};
use napi::bindgen_prelude::{AsyncTask, BigInt, BufferSlice, Function};
use napi::{Env, Result};
use napi_derive::napi;
use nigh::WatchPlace;
use std::sync::Arc;

/// A database, open or not.
#[napi]
pub struct Db {
    open: Arc<OpenDb>,
}

#[napi]
impl Db {
    /// One that isn't open yet.
    #[napi(constructor)]
    pub fn new(path: String, options: OpenOptions) -> Db {
        Db { open: Arc::new(OpenDb::new(path, options.options())) }
    }

    /// Opens it.
    #[napi]
    pub fn open(&self) -> Result<(), Code> {
        answer(|| self.open.open())
    }

    /// Opens it, in the pool.
    #[napi]
    pub fn open_later(&self) -> AsyncTask<PoolWork> {
        PoolWork::of(&self.open, |db| db.open().map(|()| Done::Nothing))
    }

    /// Whether it is closed.
    #[napi(getter)]
    pub fn closed(&self) -> bool {
        !self.open.is_open()
    }

    /// The value of a key.
    #[napi]
    pub fn get<'env>(&self, env: &'env Env, key: &[u8]) -> Result<Option<BufferSlice<'env>>, Code> {
        answer(|| {
            let made = |db: &nigh::Db| Ok(db.get(key)?.map(|value| buffer(env, &value)));
            self.open.call(made)?.transpose()
        })
    }

    /// Whether a key is there.
    #[napi]
    pub fn has(&self, key: &[u8]) -> Result<bool, Code> {
        answer(|| self.open.call(|db| Ok(db.get(key)?.is_some())))
    }

    /// Milliseconds for which a key stays: infinity if it has no expiry, nothing if it isn't there.
    #[napi]
    pub fn ttl(&self, key: &[u8]) -> Result<Option<f64>, Code> {
        answer(|| Ok(self.open.call(|db| db.ttl(key))?.map(ms_left)))
    }

    /// The values of several keys, those of a partition all of one moment.
    #[napi]
    pub fn multi_get<'env>(
        &self,
        env: &'env Env,
        keys: Vec<&[u8]>,
    ) -> Result<Vec<Option<BufferSlice<'env>>>, Code> {
        answer(|| {
            self.open.call(|db| {
                let found = db.multi_get(&keys)?;
                let made = found.iter().map(|it| it.as_ref().map(|it| buffer(env, it)).transpose());
                Ok(made.collect())
            })?
        })
    }

    /// Gives a key a value, and the expiry, else none.
    #[napi]
    pub fn put(
        &self,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<i64>,
        strong: Option<bool>,
        waits: bool,
    ) -> Result<(), Code> {
        let options = write_options(strong, waits, expires_at_ms);
        answer(|| self.open.call(|db| db.put_with(key, value, &options)))
    }

    /// The same in the pool.
    #[napi]
    pub fn put_later(
        &self,
        key: &[u8],
        value: &[u8],
        expires_at_ms: Option<i64>,
    ) -> AsyncTask<PoolWork> {
        let options = later_options(expires_at_ms);
        PoolWork::with(&self.open, [key, value], move |db, [key, value]| {
            db.put_with(key, value, &options).map(|()| Done::Nothing)
        })
    }

    /// Deletes a key. Whether it was there.
    #[napi]
    pub fn delete(&self, key: &[u8], strong: Option<bool>, waits: bool) -> Result<bool, Code> {
        let options = write_options(strong, waits, None);
        answer(|| self.open.call(|db| db.delete_with(key, &options)))
    }

    /// The same in the pool.
    #[napi]
    pub fn delete_later(&self, key: &[u8]) -> AsyncTask<PoolWork> {
        PoolWork::with(&self.open, [key], |db, [key]| {
            db.delete_with(key, &later_options(None)).map(Done::Was)
        })
    }

    /// Does all of a batch, or nothing. Whether it has changed anything.
    #[napi]
    pub fn write(&self, batch: &Batch, strong: Option<bool>, waits: bool) -> Result<bool, Code> {
        let options = write_options(strong, waits, None);
        answer(|| self.open.call(|db| db.write_with(&batch.writes, &options)))
    }

    /// The same in the pool.
    #[napi]
    pub fn write_later(&self, batch: &Batch) -> AsyncTask<PoolWork> {
        let writes = batch.writes.clone();
        PoolWork::of_open(&self.open, move |db| {
            db.write_with(&writes, &later_options(None)).map(Done::Was)
        })
    }

    /// Adds to the decimal integer that a key has, 0 if it isn't there. Returns the sum.
    #[napi]
    pub fn incr(
        &self,
        key: &[u8],
        by: BigInt,
        strong: Option<bool>,
        waits: bool,
    ) -> Result<BigInt, Code> {
        let (options, (by, _)) = (write_options(strong, waits, None), by.get_i64());
        answer(|| self.open.call(|db| db.incr_with(key, by, &options)).map(BigInt::from))
    }

    /// The same in the pool.
    #[napi]
    pub fn incr_later(&self, key: &[u8], by: BigInt) -> AsyncTask<PoolWork> {
        let (by, _) = by.get_i64();
        PoolWork::with(&self.open, [key], move |db, [key]| {
            db.incr_with(key, by, &later_options(None)).map(Done::Sum)
        })
    }

    /// If a key has the value `expected`, gives it `desired`. Whether it did.
    #[napi]
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        desired: Option<&[u8]>,
        expires_at_ms: Option<i64>,
        strong: Option<bool>,
        waits: bool,
    ) -> Result<bool, Code> {
        let options = write_options(strong, waits, expires_at_ms);
        answer(|| self.open.call(|db| db.compare_and_set_with(key, expected, desired, &options)))
    }

    /// The same in the pool.
    #[napi]
    pub fn compare_and_set_later(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        desired: Option<&[u8]>,
        expires_at_ms: Option<i64>,
    ) -> AsyncTask<PoolWork> {
        let options = later_options(expires_at_ms);
        let (has_old, has_new) = (expected.is_some(), desired.is_some());
        let arguments = [key, expected.unwrap_or_default(), desired.unwrap_or_default()];
        PoolWork::with(&self.open, arguments, move |db, [key, old, new]| {
            let (old, new) = (has_old.then_some(old), has_new.then_some(new));
            db.compare_and_set_with(key, old, new, &options).map(Done::Was)
        })
    }

    /// Gives a key another expiry, or none. Whether it is there.
    #[napi]
    pub fn expire(
        &self,
        key: &[u8],
        expires_at_ms: Option<i64>,
        strong: Option<bool>,
        waits: bool,
    ) -> Result<bool, Code> {
        let options = write_options(strong, waits, expires_at_ms);
        answer(|| self.open.call(|db| db.expire(key, &options)))
    }

    /// The same in the pool.
    #[napi]
    pub fn expire_later(&self, key: &[u8], expires_at_ms: Option<i64>) -> AsyncTask<PoolWork> {
        let options = later_options(expires_at_ms);
        PoolWork::with(&self.open, [key], move |db, [key]| db.expire(key, &options).map(Done::Was))
    }

    /// A step of a walk: the next cursor, and keys and values in turn.
    #[napi]
    pub fn scan<'env>(
        &self,
        env: &'env Env,
        prefix: &[u8],
        cursor: BigInt,
        count: u32,
    ) -> Result<(u64, Vec<BufferSlice<'env>>), Code> {
        answer(|| {
            let mut pairs = Pairs::new(env);
            let (_, cursor, _) = cursor.get_u64();
            let next = self
                .open
                .call(|db| db.scan(prefix, cursor, count, |key, value| pairs.add(key, value)))?;
            Ok((next, pairs.into_list()?))
        })
    }

    /// All keys and values that begin with `prefix`, as they are now.
    #[napi]
    pub fn snapshot(&self, prefix: &[u8]) -> Result<Snapshot, Code> {
        answer(|| {
            let snapshot = self.open.call(|db| db.snapshot_of(prefix))?;
            Ok(Snapshot::of(self.open.path(), snapshot))
        })
    }

    /// Tells changes of keys that begin with `prefix`, from now on, or from a place on.
    #[napi]
    pub fn watch(
        &self,
        prefix: &[u8],
        on_event: Function<'_, (), ()>,
        place: Option<String>,
    ) -> Result<Watch, Code> {
        answer(|| {
            let waker = waker(&on_event)?;
            let place = place.map(|it| it.parse::<WatchPlace>()).transpose()?;
            let watch = self.open.call(|db| match &place {
                None => db.watch(prefix),
                Some(place) => db.watch_from(prefix, place),
            })?;
            Ok(Watch::of(self.open.path(), waker, watch))
        })
    }

    /// Waits until all changes are on disk that were made before.
    #[napi]
    pub fn flush(&self) -> Result<(), Code> {
        answer(|| self.open.call(nigh::Db::flush))
    }

    /// The same in the pool.
    #[napi]
    pub fn flush_later(&self) -> AsyncTask<PoolWork> {
        PoolWork::of_open(&self.open, |db| db.flush().map(|()| Done::Nothing))
    }

    /// Counts and sizes.
    #[napi]
    pub fn stats(&self) -> Result<Stats, Code> {
        answer(|| Ok(Stats::of(&self.open.call(nigh::Db::stats)?)))
    }

    /// Has the log take all that there is, and closes the database.
    #[napi]
    pub fn close(&self) -> Result<(), Code> {
        answer(|| self.open.close())
    }

    /// The same in the pool.
    #[napi]
    pub fn close_later(&self) -> AsyncTask<PoolWork> {
        PoolWork::of(&self.open, |db| db.close().map(|()| Done::Nothing))
    }
}

/// `Stats` of `index.d.ts`.
#[napi(object, object_from_js = false)]
pub struct Stats {
    pub keys: i64,
    pub expires: i64,
    pub expired_keys: i64,
    pub used_bytes: i64,
    pub memory_bytes: i64,
    pub capacity_bytes: i64,
    pub last_change: i64,
    pub durable_change: i64,
    pub log_bytes: i64,
    pub syncs: i64,
}

impl Stats {
    fn of(stats: &nigh::DbStats) -> Stats {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Stats {
            keys: number(stats.keys),
            expires: number(stats.expires),
            expired_keys: number(stats.expired_keys),
            used_bytes: number(stats.used_bytes),
            memory_bytes: number(stats.memory_bytes),
            capacity_bytes: number(stats.capacity_bytes),
            last_change: number(stats.last_change),
            durable_change: number(stats.durable_change),
            log_bytes: number(stats.log_bytes),
            syncs: number(stats.syncs),
        }
    }
}
