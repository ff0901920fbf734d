//! LevelDB, by its C header: a log-structured merge tree.
//!
//! Invariant: options, cache and filter outlive the database that uses them (see `Drop`).

use super::engine::{Engine, EngineKind, Place, Session};
use crate::data::Key;
use anyhow::{Result, anyhow, bail};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;

pub(super) const KIND: EngineKind = EngineKind {
    name: "leveldb",
    title: "LevelDB",
    version: env!("VERSION_LEVELDB"),
    eventual: "`sync = false`: the kernel has a write when it returns. No compression, Bloom \
               filter of 10 bits, memtable of 64 MiB (as RocksDB and fjall have by default)",
    strong: "`sync = true`",
    multi_get: None,
    groups_commits: true,
    open,
};

/// Bytes of writes that are gathered in memory.
const MEMTABLE_BYTES: usize = 64 << 20;
const BLOOM_BITS: c_int = 10;
/// `leveldb_no_compression`.
const NO_COMPRESSION: c_int = 0;
/// Files that are kept open: more than there are.
const OPEN_FILES: c_int = 10_000;

/// Something of the library's.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

// SAFETY: as in leveldb/c.h of 1.23; each pointer is one that the library gave.
unsafe extern "C" {
    fn leveldb_open(
        options: *const Opaque,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut Opaque;
    fn leveldb_close(db: *mut Opaque);
    fn leveldb_put(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_delete(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    );
    fn leveldb_get(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        value_bytes: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    safe fn leveldb_options_create() -> *mut Opaque;
    fn leveldb_options_destroy(options: *mut Opaque);
    fn leveldb_options_set_create_if_missing(options: *mut Opaque, on: c_uchar);
    fn leveldb_options_set_write_buffer_size(options: *mut Opaque, bytes: usize);
    fn leveldb_options_set_max_open_files(options: *mut Opaque, files: c_int);
    fn leveldb_options_set_cache(options: *mut Opaque, cache: *mut Opaque);
    fn leveldb_options_set_filter_policy(options: *mut Opaque, policy: *mut Opaque);
    fn leveldb_options_set_compression(options: *mut Opaque, compression: c_int);
    safe fn leveldb_cache_create_lru(bytes: usize) -> *mut Opaque;
    fn leveldb_cache_destroy(cache: *mut Opaque);
    safe fn leveldb_filterpolicy_create_bloom(bits: c_int) -> *mut Opaque;
    fn leveldb_filterpolicy_destroy(policy: *mut Opaque);
    safe fn leveldb_readoptions_create() -> *mut Opaque;
    fn leveldb_readoptions_destroy(options: *mut Opaque);
    safe fn leveldb_writeoptions_create() -> *mut Opaque;
    fn leveldb_writeoptions_destroy(options: *mut Opaque);
    fn leveldb_writeoptions_set_sync(options: *mut Opaque, on: c_uchar);
    fn leveldb_free(bytes: *mut c_void);
}

struct LevelDb {
    db: *mut Opaque,
    options: *mut Opaque,
    cache: *mut Opaque,
    filter: *mut Opaque,
    read: *mut Opaque,
    write: *mut Opaque,
}

// SAFETY: a leveldb::DB is for several threads; the options are only read once it is open.
unsafe impl Sync for LevelDb {}

/// What a call has said of itself.
fn outcome(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error is a string that ends with a zero.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: the library allocated it, and nobody uses it any more.
    unsafe { leveldb_free(error.cast()) };
    bail!("LevelDB: {text}")
}

fn open(place: &Place) -> Result<Box<dyn Engine>> {
    let mut engine = LevelDb {
        db: null_mut(),
        options: leveldb_options_create(),
        cache: leveldb_cache_create_lru(place.cache_bytes()),
        filter: leveldb_filterpolicy_create_bloom(BLOOM_BITS),
        read: leveldb_readoptions_create(),
        write: leveldb_writeoptions_create(),
    };
    let options = engine.options;
    // SAFETY: the options live until `engine` is dropped; so in the following lines.
    unsafe { leveldb_options_set_create_if_missing(options, 1) };
    // SAFETY: see above.
    unsafe { leveldb_options_set_write_buffer_size(options, MEMTABLE_BYTES) };
    // SAFETY: see above.
    unsafe { leveldb_options_set_max_open_files(options, OPEN_FILES) };
    // SAFETY: see above; the cache outlives the database.
    unsafe { leveldb_options_set_cache(options, engine.cache) };
    // SAFETY: see above; the filter outlives the database.
    unsafe { leveldb_options_set_filter_policy(options, engine.filter) };
    // SAFETY: see above.
    unsafe { leveldb_options_set_compression(options, NO_COMPRESSION) };
    // SAFETY: see above.
    unsafe { leveldb_writeoptions_set_sync(engine.write, u8::from(place.strong)) };
    let name = CString::new(place.dir.as_os_str().as_bytes())?;
    let mut error = null_mut();
    // SAFETY: the name ends with a zero; the error's place is written before the call returns.
    engine.db = unsafe { leveldb_open(options, name.as_ptr(), &mut error) };
    outcome(error)?;
    if engine.db.is_null() {
        return Err(anyhow!("LevelDB: no database, and no error"));
    }
    Ok(Box::new(engine))
}

impl Engine for LevelDb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &LevelDb {
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (mut bytes, mut error) = (0, null_mut());
        let at = key.as_ptr().cast();
        // SAFETY: the database is open, the key has as many bytes as are told.
        let value =
            unsafe { leveldb_get(self.db, self.read, at, key.len(), &mut bytes, &mut error) };
        outcome(error)?;
        if value.is_null() {
            return Ok(false);
        }
        // SAFETY: the value has that many bytes, until it is freed.
        see(unsafe { std::slice::from_raw_parts(value.cast(), bytes) });
        // SAFETY: the library allocated it; the slice is gone.
        unsafe { leveldb_free(value.cast()) };
        Ok(true)
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let mut error = null_mut();
        let (at, from) = (key.as_ptr().cast(), value.as_ptr().cast());
        let (db, options) = (self.db, self.write);
        // SAFETY: the database is open; key and value have as many bytes as are told.
        unsafe { leveldb_put(db, options, at, key.len(), from, value.len(), &mut error) };
        outcome(error)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        let mut error = null_mut();
        let at = key.as_ptr().cast();
        // SAFETY: the database is open; the key has as many bytes as are told.
        unsafe { leveldb_delete(self.db, self.write, at, key.len(), &mut error) };
        outcome(error)
    }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        if !self.db.is_null() {
            // SAFETY: sessions borrow the engine, so none is left.
            unsafe { leveldb_close(self.db) };
        }
        // SAFETY: made in `open`; the database that used it is closed. So are the following.
        unsafe { leveldb_writeoptions_destroy(self.write) };
        // SAFETY: see above.
        unsafe { leveldb_readoptions_destroy(self.read) };
        // SAFETY: see above.
        unsafe { leveldb_options_destroy(self.options) };
        // SAFETY: see above.
        unsafe { leveldb_filterpolicy_destroy(self.filter) };
        // SAFETY: see above.
        unsafe { leveldb_cache_destroy(self.cache) };
    }
}
