//! The class `Db`: a dictionary of bytes, and the library's calls.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::{Bytes, number, seconds_left, write_options};
use crate::batch::Batch;
use crate::copies::{copies_of, copy_of};
use crate::errors::{self, no_key};
use crate::open_db::OpenDb;
use crate::snapshot::Snapshot;
use crate::walk::{Gives, Pair, Steps, Walk, step};
use crate::watch::Watch;
use nigh::{DbStats, Durability, Options};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// A durable dictionary of bytes. Any thread may call anything.
///
/// Keys have no order, all data must fit memory, and one process has a database open at a time.
#[pyclass(frozen, mapping, module = "nigh")]
pub(crate) struct Db {
    pub(crate) open: Arc<OpenDb>,
}

/// Sets an option that is a number.
type SetNumber = fn(Options, u64) -> Options;

/// A number of things; more than there can be stays that.
fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[pymethods]
impl Db {
    #[new]
    #[pyo3(signature = (
        path, *, memory_dir=None, capacity_bytes=None, journal_bytes=None, log_file_bytes=None,
        threads_most=None, snapshot_hold_bytes=None, watch_bytes=None, partitions=None,
        strong=false, shared=false, keep_memory=false
    ))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        memory_dir: Option<PathBuf>,
        capacity_bytes: Option<Bound<'_, PyAny>>,
        journal_bytes: Option<Bound<'_, PyAny>>,
        log_file_bytes: Option<Bound<'_, PyAny>>,
        threads_most: Option<Bound<'_, PyAny>>,
        snapshot_hold_bytes: Option<Bound<'_, PyAny>>,
        watch_bytes: Option<Bound<'_, PyAny>>,
        partitions: Option<Bound<'_, PyAny>>,
        strong: bool,
        shared: bool,
        keep_memory: bool,
    ) -> PyResult<Db> {
        let durability = if strong { Durability::Strong } else { Durability::Eventual };
        let mut options = Options::new().durability(durability);
        options = options.shared(shared).keep_memory(keep_memory);
        if let Some(dir) = memory_dir {
            options = options.memory_dir(dir);
        }
        let numbers: [(&str, Option<_>, SetNumber); 7] = [
            ("capacity_bytes", capacity_bytes, Options::capacity_bytes),
            ("journal_bytes", journal_bytes, Options::journal_bytes),
            ("log_file_bytes", log_file_bytes, Options::log_file_bytes),
            ("snapshot_hold_bytes", snapshot_hold_bytes, Options::snapshot_hold_bytes),
            ("watch_bytes", watch_bytes, Options::watch_bytes),
            ("threads_most", threads_most, |options, most| options.threads_most(count(most))),
            ("partitions", partitions, |options, number| options.partitions(count(number))),
        ];
        for (name, given, set) in numbers {
            if let Some(given) = given {
                options = set(options, number(name, &given)?);
            }
        }
        Ok(Db { open: Arc::new(OpenDb::open(py, &path, &options, strong)?) })
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Bytes<'py>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(py, &key)?.map(Bound::into_any).or(default))
    }

    /// The values of several keys, `None` where there is none, those of a partition all of one
    /// moment: a batch is seen whole or not at all.
    fn multi_get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let keys = keys.try_iter()?.map(|key| key?.extract::<Bytes<'_>>());
        let keys = keys.collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(Bytes::get).collect();
        self.open.call(|db| {
            let found = db.multi_get(&keys)?;
            Ok(copies_of(py, found.iter().map(Option::as_deref)))
        })?
    }

    /// Seconds for which a key stays: infinity if it has no expiry, `None` if it isn't there.
    fn ttl(&self, key: Bytes<'_>) -> PyResult<Option<f64>> {
        Ok(self.open.call(|db| db.ttl(key.get()))?.map(seconds_left))
    }

    /// Gives a key a value, and the expiry, else none.
    #[pyo3(signature = (key, value, *, strong=None, expires_in=None, expires_at=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        value: Bytes<'_>,
        strong: Option<bool>,
        expires_in: Option<f64>,
        expires_at: Option<f64>,
    ) -> PyResult<()> {
        let options = write_options(strong, expires_in, expires_at)?;
        let (key, value) = (key.get(), value.get());
        let len = value.len();
        self.open.write(py, strong, len, &options, |db, how| db.put_with(key, value, how))
    }

    /// Deletes a key. Whether it was there.
    #[pyo3(signature = (key, *, strong=None))]
    fn delete(&self, py: Python<'_>, key: Bytes<'_>, strong: Option<bool>) -> PyResult<bool> {
        let options = write_options(strong, None, None)?;
        let key = key.get();
        self.open.write(py, strong, 0, &options, |db, how| db.delete_with(key, how))
    }

    /// Several writes that happen together, when the `with` block ends well.
    #[pyo3(signature = (*, strong=None))]
    fn batch(&self, strong: Option<bool>) -> Batch {
        Batch::new(Arc::clone(&self.open), strong)
    }

    /// Adds `by` to the decimal integer that a key has, 0 if it isn't there. Its expiry stays.
    /// Returns the sum.
    #[pyo3(signature = (key, by=1, *, strong=None))]
    fn incr(&self, py: Python<'_>, key: Bytes<'_>, by: i64, strong: Option<bool>) -> PyResult<i64> {
        let options = write_options(strong, None, None)?;
        let key = key.get();
        self.open.write(py, strong, 0, &options, |db, how| db.incr_with(key, by, how))
    }

    /// If a key has the value `expected`, or isn't there if that is `None`, gives it the value
    /// `desired`, or deletes it if that is `None`. Whether it did.
    #[pyo3(signature = (key, expected, desired, *, strong=None, expires_in=None, expires_at=None))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn compare_and_set(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        expected: Option<Bytes<'_>>,
        desired: Option<Bytes<'_>>,
        strong: Option<bool>,
        expires_in: Option<f64>,
        expires_at: Option<f64>,
    ) -> PyResult<bool> {
        let options = write_options(strong, expires_in, expires_at)?;
        let key = key.get();
        let (old, new) = (expected.as_ref().map(Bytes::get), desired.as_ref().map(Bytes::get));
        let len = old.map_or(0, <[u8]>::len) + new.map_or(0, <[u8]>::len);
        let write = |db: &nigh::Db, how: &_| db.compare_and_set_with(key, old, new, how);
        self.open.write(py, strong, len, &options, write)
    }

    /// Gives a key another expiry, or none; its value stays. Whether the key is there.
    #[pyo3(signature = (key, *, expires_in=None, expires_at=None, strong=None))]
    fn expire(
        &self,
        py: Python<'_>,
        key: Bytes<'_>,
        expires_in: Option<f64>,
        expires_at: Option<f64>,
        strong: Option<bool>,
    ) -> PyResult<bool> {
        let options = write_options(strong, expires_in, expires_at)?;
        let key = key.get();
        self.open.write(py, strong, 0, &options, |db, how| db.expire(key, how))
    }

    /// A step of a walk over the keys that begin with `prefix`: the next cursor, and about `count`
    /// keys with their values. The first cursor is 0, and so is the one at the end.
    #[pyo3(signature = (prefix=None, cursor=0, count=100))]
    fn scan<'py>(
        &self,
        py: Python<'py>,
        prefix: Option<Bytes<'py>>,
        cursor: u64,
        count: u32,
    ) -> PyResult<(u64, Vec<Pair<'py>>)> {
        let prefix = prefix.as_ref().map_or(&b""[..], Bytes::get);
        step(py, &*self.open, prefix, cursor, count)
    }

    /// The keys that begin with `prefix`, and their values. There is no order. One that is there
    /// all the while is met, maybe twice if the number of keys changes much.
    #[pyo3(signature = (prefix=None))]
    fn items(&self, prefix: Option<Bytes<'_>>) -> Walk {
        self.walk(Gives::Items, prefix)
    }

    /// The keys that begin with `prefix`, as `items` meets them.
    #[pyo3(signature = (prefix=None))]
    fn keys(&self, prefix: Option<Bytes<'_>>) -> Walk {
        self.walk(Gives::Keys, prefix)
    }

    /// The values of the keys that begin with `prefix`, as `items` meets them.
    #[pyo3(signature = (prefix=None))]
    fn values(&self, prefix: Option<Bytes<'_>>) -> Walk {
        self.walk(Gives::Values, prefix)
    }

    /// The keys that begin with `prefix`, and their values, as they are now, to be read while
    /// others write.
    #[pyo3(signature = (prefix=None))]
    fn snapshot(&self, py: Python<'_>, prefix: Option<Bytes<'_>>) -> PyResult<Snapshot> {
        let prefix = prefix.as_ref().map_or(&b""[..], Bytes::get);
        let snapshot = self.open.waiting_call(py, |db| db.snapshot_of(prefix))?;
        Ok(Snapshot::new(Arc::clone(&self.open), snapshot))
    }

    /// Tells the changes of keys that begin with `prefix`, from now on, or from a place on.
    #[pyo3(signature = (prefix=None, *, place=None))]
    fn watch(
        &self,
        py: Python<'_>,
        prefix: Option<Bytes<'_>>,
        place: Option<&str>,
    ) -> PyResult<Watch> {
        let prefix = prefix.as_ref().map_or(&b""[..], Bytes::get);
        let watch = match place {
            None => self.open.call(|db| db.watch(prefix))?,
            Some(place) => {
                let place = errors::place(place)?;
                self.open.waiting_call(py, |db| db.watch_from(prefix, &place))?
            }
        };
        Ok(Watch::new(Arc::clone(&self.open), watch))
    }

    /// Waits until all changes are on disk that were made before.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.open.waiting_call(py, nigh::Db::flush)
    }

    /// Counts and sizes.
    fn stats(&self) -> PyResult<Stats> {
        Ok(Stats::of(&self.open.call(nigh::Db::stats)?))
    }

    /// Has the log take all that there is, and closes the database, after the calls of other
    /// threads. A closed one stays closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.open.close(py)
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open.is_closed()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Bytes<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.find(py, &key)?.ok_or_else(|| no_key(key.get()))
    }

    fn __setitem__(&self, py: Python<'_>, key: Bytes<'_>, value: Bytes<'_>) -> PyResult<()> {
        self.put(py, key, value, None, None, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: Bytes<'_>) -> PyResult<()> {
        let text = key.get().to_vec();
        if self.delete(py, key, None)? { Ok(()) } else { Err(no_key(&text)) }
    }

    fn __contains__(&self, key: Bytes<'_>) -> PyResult<bool> {
        let key = key.get();
        self.open.call(|db| Ok(db.get(key)?.is_some()))
    }

    /// Keys. One whose time is over counts until it is met.
    fn __len__(&self) -> PyResult<usize> {
        let keys = self.open.call(nigh::Db::stats)?.keys;
        Ok(usize::try_from(keys)?)
    }

    fn __iter__(&self) -> Walk {
        self.walk(Gives::Keys, None)
    }

    fn __enter__(slf: Bound<'_, Db>) -> PyResult<Bound<'_, Db>> {
        slf.get().open.check_open()?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.open.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.open.is_closed() { ", closed" } else { "" };
        format!("<nigh.Db {:?}{state}>", self.open.path())
    }
}

impl Db {
    #[inline]
    fn find<'py>(
        &self,
        py: Python<'py>,
        key: &Bytes<'py>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let key = key.get();
        self.open.call(|db| Ok(db.get(key)?.map(|value| copy_of(py, &value)).transpose()))?
    }

    fn walk(&self, gives: Gives, prefix: Option<Bytes<'_>>) -> Walk {
        let prefix = prefix.as_ref().map_or(&b""[..], Bytes::get);
        Walk::new(Arc::clone(&self.open) as Arc<dyn Steps>, gives, prefix)
    }
}

/// What a database holds, and what it did since it was opened.
#[pyclass(frozen, get_all, module = "nigh")]
pub(crate) struct Stats {
    keys: u64,
    expires: u64,
    expired_keys: u64,
    used_bytes: u64,
    memory_bytes: u64,
    capacity_bytes: u64,
    last_change: u64,
    durable_change: u64,
    log_bytes: u64,
    syncs: u64,
}

impl Stats {
    fn of(stats: &DbStats) -> Stats {
        Stats {
            keys: stats.keys,
            expires: stats.expires,
            expired_keys: stats.expired_keys,
            used_bytes: stats.used_bytes,
            memory_bytes: stats.memory_bytes,
            capacity_bytes: stats.capacity_bytes,
            last_change: stats.last_change,
            durable_change: stats.durable_change,
            log_bytes: stats.log_bytes,
            syncs: stats.syncs,
        }
    }
}

#[pymethods]
impl Stats {
    fn __repr__(&self) -> String {
        format!(
            "<nigh.Stats keys={} used_bytes={} last_change={} durable_change={}>",
            self.keys, self.used_bytes, self.last_change, self.durable_change
        )
    }
}
