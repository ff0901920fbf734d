//! RocksDB, by its C header: a log-structured merge tree.
//!
//! Invariant: options and cache outlive the database that uses them (see `Drop`). The table options
//! own the filter.

use super::engine::{Engine, EngineKind, Place, Session};
use crate::data::Key;
use crate::protocol::TOGETHER;
use anyhow::{Result, anyhow, bail, ensure};
use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};

pub(super) const KIND: EngineKind = EngineKind {
    name: "rocksdb",
    title: "RocksDB",
    version: env!("VERSION_ROCKSDB"),
    eventual: "`sync = false`: the kernel has a write when it returns. No compression, Bloom \
               filter of 10 bits, memtable of 64 MiB as by default. `get` by a pinned slice, \
               without a copy",
    strong: "`sync = true`",
    multi_get: Some("`batched_multi_get_cf`, pinned slices"),
    groups_commits: true,
    open,
};

/// Bytes of writes that are gathered in memory: the default.
const MEMTABLE_BYTES: usize = 64 << 20;
const BLOOM_BITS: f64 = 10.0;
/// `rocksdb_no_compression`.
const NO_COMPRESSION: c_int = 0;

/// Something of the library's.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

// SAFETY: as in rocksdb/c.h of 7.8; each pointer is one that the library gave.
unsafe extern "C" {
    fn rocksdb_open_column_families(
        options: *const Opaque,
        name: *const c_char,
        count: c_int,
        names: *const *const c_char,
        their_options: *const *const Opaque,
        handles: *mut *mut Opaque,
        error: *mut *mut c_char,
    ) -> *mut Opaque;
    fn rocksdb_column_family_handle_destroy(handle: *mut Opaque);
    fn rocksdb_close(db: *mut Opaque);
    fn rocksdb_put(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        value: *const c_char,
        value_bytes: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_delete(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    );
    fn rocksdb_get_pinned(
        db: *mut Opaque,
        options: *const Opaque,
        key: *const c_char,
        key_bytes: usize,
        error: *mut *mut c_char,
    ) -> *mut Opaque;
    fn rocksdb_batched_multi_get_cf(
        db: *mut Opaque,
        options: *const Opaque,
        column_family: *mut Opaque,
        count: usize,
        keys: *const *const c_char,
        keys_bytes: *const usize,
        values: *mut *mut Opaque,
        errors: *mut *mut c_char,
        sorted: bool,
    );
    fn rocksdb_pinnableslice_value(slice: *const Opaque, bytes: *mut usize) -> *const c_char;
    fn rocksdb_pinnableslice_destroy(slice: *mut Opaque);
    safe fn rocksdb_options_create() -> *mut Opaque;
    fn rocksdb_options_destroy(options: *mut Opaque);
    fn rocksdb_options_set_create_if_missing(options: *mut Opaque, on: c_uchar);
    fn rocksdb_options_set_write_buffer_size(options: *mut Opaque, bytes: usize);
    fn rocksdb_options_set_compression(options: *mut Opaque, compression: c_int);
    fn rocksdb_options_set_block_based_table_factory(options: *mut Opaque, table: *mut Opaque);
    safe fn rocksdb_block_based_options_create() -> *mut Opaque;
    fn rocksdb_block_based_options_destroy(table: *mut Opaque);
    fn rocksdb_block_based_options_set_block_cache(table: *mut Opaque, cache: *mut Opaque);
    fn rocksdb_block_based_options_set_filter_policy(table: *mut Opaque, policy: *mut Opaque);
    safe fn rocksdb_cache_create_lru(bytes: usize) -> *mut Opaque;
    fn rocksdb_cache_destroy(cache: *mut Opaque);
    safe fn rocksdb_filterpolicy_create_bloom_full(bits: f64) -> *mut Opaque;
    safe fn rocksdb_readoptions_create() -> *mut Opaque;
    fn rocksdb_readoptions_destroy(options: *mut Opaque);
    safe fn rocksdb_writeoptions_create() -> *mut Opaque;
    fn rocksdb_writeoptions_destroy(options: *mut Opaque);
    fn rocksdb_writeoptions_set_sync(options: *mut Opaque, on: c_uchar);
    fn rocksdb_free(bytes: *mut c_void);
}

struct RocksDb {
    db: *mut Opaque,
    column_family: *mut Opaque,
    options: *mut Opaque,
    table: *mut Opaque,
    cache: *mut Opaque,
    read: *mut Opaque,
    write: *mut Opaque,
}

// SAFETY: a rocksdb::DB is for several threads; the options are only read once it is open.
unsafe impl Sync for RocksDb {}

/// What a call has said of itself.
fn outcome(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error is a string that ends with a zero.
    let text = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: the library allocated it, and nobody uses it any more.
    unsafe { rocksdb_free(error.cast()) };
    bail!("RocksDB: {text}")
}

fn open(place: &Place) -> Result<Box<dyn Engine>> {
    let mut engine = RocksDb {
        db: null_mut(),
        column_family: null_mut(),
        options: rocksdb_options_create(),
        table: rocksdb_block_based_options_create(),
        cache: rocksdb_cache_create_lru(place.cache_bytes()),
        read: rocksdb_readoptions_create(),
        write: rocksdb_writeoptions_create(),
    };
    let (options, table) = (engine.options, engine.table);
    // SAFETY: the table options live until `engine` is dropped; they share the cache.
    unsafe { rocksdb_block_based_options_set_block_cache(table, engine.cache) };
    let filter = rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS);
    // SAFETY: see above; the table options own the filter from now on.
    unsafe { rocksdb_block_based_options_set_filter_policy(table, filter) };
    // SAFETY: the options live until `engine` is dropped; so in the following lines.
    unsafe { rocksdb_options_set_block_based_table_factory(options, table) };
    // SAFETY: see above.
    unsafe { rocksdb_options_set_create_if_missing(options, 1) };
    // SAFETY: see above.
    unsafe { rocksdb_options_set_write_buffer_size(options, MEMTABLE_BYTES) };
    // SAFETY: see above.
    unsafe { rocksdb_options_set_compression(options, NO_COMPRESSION) };
    // SAFETY: see above.
    unsafe { rocksdb_writeoptions_set_sync(engine.write, u8::from(place.strong)) };
    let name = CString::new(place.dir.as_os_str().as_bytes())?;
    let (family, its_options) = (c"default".as_ptr(), options.cast_const());
    let (mut handle, mut error) = (null_mut(), null_mut());
    // SAFETY: names end with a zero; one name, one set of options, and room for one handle.
    engine.db = unsafe {
        rocksdb_open_column_families(
            options,
            name.as_ptr(),
            1,
            &family,
            &its_options,
            &mut handle,
            &mut error,
        )
    };
    outcome(error)?;
    if engine.db.is_null() {
        return Err(anyhow!("RocksDB: no database, and no error"));
    }
    engine.column_family = handle;
    Ok(Box::new(engine))
}

/// Shows a pinned slice, and lets it go.
fn show(slice: *mut Opaque, see: &mut dyn FnMut(&[u8])) -> bool {
    if slice.is_null() {
        return false;
    }
    let mut bytes = 0;
    // SAFETY: the slice is the library's, and pinned.
    let value = unsafe { rocksdb_pinnableslice_value(slice, &mut bytes) };
    if !value.is_null() {
        // SAFETY: the value has that many bytes while it is pinned.
        see(unsafe { std::slice::from_raw_parts(value.cast(), bytes) });
    }
    // SAFETY: nobody uses it any more.
    unsafe { rocksdb_pinnableslice_destroy(slice) };
    !value.is_null()
}

impl Engine for RocksDb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(self))
    }
}

impl Session for &RocksDb {
    fn get(&mut self, key: &Key, see: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut error = null_mut();
        let at = key.as_ptr().cast();
        // SAFETY: the database is open; the key has as many bytes as are told.
        let slice = unsafe { rocksdb_get_pinned(self.db, self.read, at, key.len(), &mut error) };
        outcome(error)?;
        Ok(show(slice, see))
    }

    fn put(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let mut error = null_mut();
        let (at, from) = (key.as_ptr().cast(), value.as_ptr().cast());
        let (db, options) = (self.db, self.write);
        // SAFETY: the database is open; key and value have as many bytes as are told.
        unsafe { rocksdb_put(db, options, at, key.len(), from, value.len(), &mut error) };
        outcome(error)
    }

    fn delete(&mut self, key: &Key) -> Result<()> {
        let mut error = null_mut();
        let at = key.as_ptr().cast();
        // SAFETY: the database is open; the key has as many bytes as are told.
        unsafe { rocksdb_delete(self.db, self.write, at, key.len(), &mut error) };
        outcome(error)
    }

    fn multi_get(&mut self, keys: &[Key], see: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        ensure!(keys.len() <= TOGETHER, "{} keys at once; {TOGETHER} are the most", keys.len());
        let mut names = [null(); TOGETHER];
        let mut sizes = [0; TOGETHER];
        for (at, key) in keys.iter().enumerate() {
            (names[at], sizes[at]) = (key.as_ptr().cast(), key.len());
        }
        let (mut slices, mut errors) = ([null_mut(); TOGETHER], [null_mut(); TOGETHER]);
        // SAFETY: the database is open; the arrays have room for as many as there are keys.
        unsafe {
            rocksdb_batched_multi_get_cf(
                self.db,
                self.read,
                self.column_family,
                keys.len(),
                names.as_ptr(),
                sizes.as_ptr(),
                slices.as_mut_ptr(),
                errors.as_mut_ptr(),
                false,
            );
        }
        for (at, (slice, error)) in slices.into_iter().zip(errors).take(keys.len()).enumerate() {
            outcome(error)?;
            show(slice, &mut |bytes| see(at, bytes));
        }
        Ok(())
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        if !self.db.is_null() {
            // SAFETY: sessions borrow the engine, so none is left.
            unsafe { rocksdb_column_family_handle_destroy(self.column_family) };
            // SAFETY: see above.
            unsafe { rocksdb_close(self.db) };
        }
        // SAFETY: made in `open`; the database that used it is closed. So are the following.
        unsafe { rocksdb_writeoptions_destroy(self.write) };
        // SAFETY: see above.
        unsafe { rocksdb_readoptions_destroy(self.read) };
        // SAFETY: see above.
        unsafe { rocksdb_options_destroy(self.options) };
        // SAFETY: see above.
        unsafe { rocksdb_block_based_options_destroy(self.table) };
        // SAFETY: see above.
        unsafe { rocksdb_cache_destroy(self.cache) };
    }
}
