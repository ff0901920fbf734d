//! LMDB, by its C header: a B+ tree in one mapped file, copied on write.
//!
//! 1. A transaction belongs to one session; with `MDB_NOTLS` a reader's isn't a thread's.
//! 2. A writer's transaction begins and ends within one call.

use super::engine::{Engine, EngineKind, Place, Session};
use crate::data::Key;
use anyhow::{Result, bail};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;

pub(super) const KIND: EngineKind = EngineKind {
    name: "lmdb",
    title: "LMDB",
    version: env!("VERSION_LMDB"),
    eventual: "`MDB_NOSYNC`, `MDB_WRITEMAP`, `MDB_MAPASYNC`: a killed process loses nothing, a \
               power cut may damage the file. One transaction for each write; for each `get` a \
               reader's transaction is renewed, so it sees the newest value",
    strong: "one transaction for each write, without flags: each commit waits for the disk",
    multi_get: Some("16 reads in one read transaction"),
    groups_commits: false,
    open,
};

const NO_SYNC: c_uint = 0x1_0000;
const READ_ONLY: c_uint = 0x2_0000;
const WRITE_MAP: c_uint = 0x8_0000;
const MAP_ASYNC: c_uint = 0x10_0000;
const NO_TLS: c_uint = 0x20_0000;
const NOT_FOUND: c_int = -30_798;
/// Readers at once.
const READERS: c_uint = 256;
const MODE: c_uint = 0o600;
/// Of the address space, bytes: the file is as long as it needs to be.
const MAP_BYTES_LEAST: usize = 4 << 30;

/// Something of the library's.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

/// `MDB_val`.
#[repr(C)]
struct Slice {
    bytes: usize,
    data: *mut c_void,
}

impl Slice {
    /// The library only reads what a key or a new value points to.
    fn of(bytes: &[u8]) -> Slice {
        Slice { bytes: bytes.len(), data: bytes.as_ptr().cast_mut().cast() }
    }
}

// SAFETY: as in lmdb.h of 0.9; each pointer is one that the library gave.
unsafe extern "C" {
    fn mdb_env_create(env: *mut *mut Opaque) -> c_int;
    fn mdb_env_set_mapsize(env: *mut Opaque, bytes: usize) -> c_int;
    fn mdb_env_set_maxreaders(env: *mut Opaque, readers: c_uint) -> c_int;
    fn mdb_env_open(env: *mut Opaque, path: *const c_char, flags: c_uint, mode: c_uint) -> c_int;
    fn mdb_env_close(env: *mut Opaque);
    fn mdb_txn_begin(
        env: *mut Opaque,
        parent: *mut Opaque,
        flags: c_uint,
        transaction: *mut *mut Opaque,
    ) -> c_int;
    fn mdb_txn_commit(transaction: *mut Opaque) -> c_int;
    fn mdb_txn_abort(transaction: *mut Opaque);
    fn mdb_txn_reset(transaction: *mut Opaque);
    fn mdb_txn_renew(transaction: *mut Opaque) -> c_int;
    fn mdb_dbi_open(
        transaction: *mut Opaque,
        name: *const c_char,
        flags: c_uint,
        dbi: *mut c_uint,
    ) -> c_int;
    fn mdb_get(t: *mut Opaque, dbi: c_uint, key: *mut Slice, value: *mut Slice) -> c_int;
    fn mdb_put(
        t: *mut Opaque,
        dbi: c_uint,
        key: *mut Slice,
        value: *mut Slice,
        flags: c_uint,
    ) -> c_int;
    fn mdb_del(t: *mut Opaque, dbi: c_uint, key: *mut Slice, value: *mut Slice) -> c_int;
    safe fn mdb_strerror(code: c_int) -> *const c_char;
}

struct Lmdb {
    env: *mut Opaque,
    dbi: c_uint,
}

// SAFETY: an environment is for several threads; transactions are the sessions'.
unsafe impl Sync for Lmdb {}

fn outcome(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let text = mdb_strerror(code);
    // SAFETY: it is a string of the library's, ends with a zero, and stays for this thread.
    bail!("LMDB: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

fn open(place: &Place) -> Result<Box<dyn Engine>> {
    let mut engine = Lmdb { env: null_mut(), dbi: 0 };
    // SAFETY: the place for the environment is written before the call returns.
    outcome(unsafe { mdb_env_create(&mut engine.env) })?;
    let bytes = place.cache_bytes().max(MAP_BYTES_LEAST);
    // SAFETY: the environment was made, and isn't open yet; so in the next line.
    outcome(unsafe { mdb_env_set_mapsize(engine.env, bytes) })?;
    // SAFETY: see above.
    outcome(unsafe { mdb_env_set_maxreaders(engine.env, READERS) })?;
    let path = CString::new(place.dir.as_os_str().as_bytes())?;
    let sync = if place.strong { 0 } else { NO_SYNC | WRITE_MAP | MAP_ASYNC };
    // SAFETY: the path ends with a zero.
    outcome(unsafe { mdb_env_open(engine.env, path.as_ptr(), NO_TLS | sync, MODE) })?;
    let mut dbi = 0;
    engine.write(|transaction| {
        // SAFETY: the transaction is running; no name means the main database.
        unsafe { mdb_dbi_open(transaction, std::ptr::null(), 0, &mut dbi) }
    })?;
    engine.dbi = dbi;
    Ok(Box::new(engine))
}

impl Lmdb {
    fn begin(&self, flags: c_uint) -> Result<*mut Opaque> {
        let mut transaction = null_mut();
        // SAFETY: the environment is open; the transaction's place is written.
        outcome(unsafe { mdb_txn_begin(self.env, null_mut(), flags, &mut transaction) })?;
        Ok(transaction)
    }

    /// A transaction of one change.
    fn write(&self, change: impl FnOnce(*mut Opaque) -> c_int) -> Result<()> {
        let transaction = self.begin(0)?;
        let code = change(transaction);
        if code != 0 {
            // SAFETY: the transaction is running, and isn't used any more.
            unsafe { mdb_txn_abort(transaction) };
            return outcome(code);
        }
        // SAFETY: see above.
        outcome(unsafe { mdb_txn_commit(transaction) })
    }
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let reading = self.begin(READ_ONLY)?;
        // SAFETY: the transaction is running. It sees nothing from now on, until it is renewed.
        unsafe { mdb_txn_reset(reading) };
        Ok(Box::new(LmdbSession { engine: self, reading }))
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        if !self.env.is_null() {
            // SAFETY: sessions borrow the engine, so none is left.
            unsafe { mdb_env_close(self.env) };
        }
    }
}

struct LmdbSession<'a> {
    engine: &'a Lmdb,
    /// A reader's transaction, which is reset between two calls.
    reading: *mut Opaque,
}

impl LmdbSession<'_> {
    /// Shows a value, of the transaction that was renewed.
    fn look(&self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut key, mut value) = (Slice::of(key), Slice::of(&[]));
        // SAFETY: the transaction is running; the key lives until the call returns.
        match unsafe { mdb_get(self.reading, self.engine.dbi, &mut key, &mut value) } {
            NOT_FOUND => return Ok(false),
            code => outcome(code)?,
        }
        // SAFETY: the value lies in the map until the transaction is reset.
        see(unsafe { std::slice::from_raw_parts(value.data.cast(), value.bytes) });
        Ok(true)
    }

    /// Runs `work` with the newest state.
    fn renewed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: the transaction was reset.
        outcome(unsafe { mdb_txn_renew(self.reading) })?;
        let result = work();
        // SAFETY: it is running.
        unsafe { mdb_txn_reset(self.reading) };
        result
    }
}

impl Session for LmdbSession<'_> {
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.renewed(|| self.look(key, see))
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let dbi = self.engine.dbi;
        self.engine.write(|transaction| {
            let (mut key, mut value) = (Slice::of(key), Slice::of(value));
            // SAFETY: the transaction is running; key and value live until the call returns.
            unsafe { mdb_put(transaction, dbi, &mut key, &mut value, 0) }
        })
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        let dbi = self.engine.dbi;
        self.engine.write(|transaction| {
            let mut key = Slice::of(key);
            // SAFETY: the transaction is running; no value means whatever it is.
            let code = unsafe { mdb_del(transaction, dbi, &mut key, null_mut()) };
            if code == NOT_FOUND { 0 } else { code }
        })
    }

    fn multi_get(&mut self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        self.renewed(|| {
            for (at, key) in keys.iter().enumerate() {
                self.look(key, &mut |bytes| see(at, bytes))?;
            }
            Ok(())
        })
    }
}

impl Drop for LmdbSession<'_> {
    fn drop(&mut self) {
        // SAFETY: it was begun in `session`, and isn't used any more.
        unsafe { mdb_txn_abort(self.reading) };
    }
}
