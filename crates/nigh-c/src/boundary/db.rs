//! A database: opening it, reads, writes, walks, and closing it.
//!
//! The rules of `boundary`, which the comments cite. Any thread.

use super::pointers::{
    Buffer, bytes, folder_path, give, give_one, list, listed, name_of, path, set, set_block,
    things, walk,
};
use crate::c_types::{
    nigh_batch_write, nigh_bytes, nigh_db, nigh_db_stats, nigh_durability, nigh_options, nigh_pair,
    nigh_write_kind, nigh_write_options,
};
use crate::fault::{Fault, answer, nigh_status, with_message};
use crate::handles::DBS;
use crate::options::{batch_options, has_no_expiry, open_options, write_options};
use nigh::{Db, TimeToLive, WriteBatch};
use nigh_status::{NIGH_MISMATCH, NIGH_NOT_FOUND, NIGH_OK};
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

/// For a single write: on disk when the call returns.
#[unsafe(no_mangle)]
pub static nigh_strong: nigh_write_options = nigh_write_options {
    durability: nigh_durability::NIGH_STRONG as i32,
    expires_in_ms: 0,
    expires_at_ms: 0,
};

/// The message of this thread's last call that failed: what happened, to which thing, and what to
/// do. Empty if none did. It stays until the thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_error_message() -> *const c_char {
    with_message(CStr::as_ptr)
}

/// Gives back what a function has handed out. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_free(given: *mut c_void) {
    // SAFETY: the caller got it from here, where it came from `calloc`, and gives it back once.
    unsafe { libc::free(given) }
}

/// Opens the database in a folder, which is made if it isn't there. What an earlier process wrote
/// is there, also if that was killed. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_open(
    folder: *const c_char,
    options: Option<&nigh_options>,
    db: Option<&mut MaybeUninit<nigh_db>>,
) -> nigh_status {
    answer(|| {
        let db = set("db", db, nigh_db { id: 0 })?;
        // SAFETY: rule 1.
        let folder = unsafe { folder_path(folder) }?;
        // SAFETY: rule 1.
        let memory_dir = options.and_then(|given| unsafe { path(given.memory_dir) });
        let options = open_options(options, memory_dir)?;
        db.id = DBS.add(&name_of(folder), || Ok(Db::open(folder, &options)?))?;
        Ok(NIGH_OK)
    })
}

/// Has the log take all that there is, and closes the database; calls of other threads that use it
/// return first. After an error it is closed too; the journal stays for the next open, and so does
/// memory that is shared. While the machine runs, a full disk loses nothing. If the log broke,
/// private memory is gone, and with it what only the log's failed writes had.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_close(db: nigh_db) -> nigh_status {
    answer(|| {
        // No call uses it any more.
        let (db, name) = DBS.remove(db.id)?;
        let closed = Arc::into_inner(db).map_or(Ok(()), Db::close);
        closed.map(|()| NIGH_OK).map_err(|error| Fault::from(error).of(&name))
    })
}

/// Finds the value of a key: NIGH_OK, and a copy of it, for nigh_free, with a NUL behind that
/// doesn't count; or NIGH_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_get(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let (value, value_len) = set_block("value", value, value_len)?;
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        DBS.with(db.id, |db| {
            let Some(found) = db.get(key)? else { return Ok(NIGH_NOT_FOUND) };
            give_one(&found, value, value_len).map(|()| NIGH_OK)
        })
    })
}

/// Copies the value of a key into a buffer of `room` bytes: NIGH_OK, or NIGH_NOT_FOUND, or
/// NIGH_TOO_SMALL. `value_len` gets the value's length, also if the buffer is too small for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_get_into(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    room: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let value_len = set("value_len", value_len, 0)?;
        let buffer = Buffer::of(buffer, room)?;
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        DBS.with(db.id, |db| {
            let Some(found) = db.get(key)? else { return Ok(NIGH_NOT_FOUND) };
            *value_len = found.len();
            // SAFETY: rule 1; the value is in the database's memory.
            Ok(unsafe { buffer.take(&found) })
        })
    })
}

/// Finds the values of several keys, those of a partition all of one moment: a batch is seen whole
/// or not at all. `values` gets as many, for one nigh_free of all; `data` is NULL where none is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_multi_get(
    db: nigh_db,
    keys: *const nigh_bytes,
    keys_len: usize,
    values: Option<&mut MaybeUninit<*mut nigh_bytes>>,
) -> nigh_status {
    answer(|| {
        let values = set("values", values, null_mut())?;
        // SAFETY: rule 1.
        let keys = unsafe { list("keys", "a key", keys, keys_len) }?;
        DBS.with(db.id, |db| {
            let found = db.multi_get(&keys)?;
            *values = give(found.iter().map(Option::as_deref))?;
            Ok(NIGH_OK)
        })
    })
}

/// Gives a key a value, and the expiry of `options`, else none. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_put(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    options: Option<&nigh_write_options>,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1.
        let [key, value] = unsafe { bytes([("key", key, key_len), ("value", value, value_len)]) }?;
        let options = write_options(options)?;
        DBS.with(db.id, |db| Ok(db.put_with(key, value, &options).map(|()| NIGH_OK)?))
    })
}

/// Deletes a key: NIGH_OK, or NIGH_NOT_FOUND. `options` may be NULL; an expiry means nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_delete(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    options: Option<&nigh_write_options>,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        let options = write_options(options)?;
        DBS.with(db.id, |db| Ok(found(db.delete_with(key, &options)?, NIGH_NOT_FOUND)))
    })
}

/// Does several writes, in their order: all of them or none, also if the process is killed or the
/// power goes. Of several to one key the last counts. A NIGH_DELETE with an expiry is NIGH_INVALID.
/// `options` may be NULL; its expiry means nothing, as each write has its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_batch(
    db: nigh_db,
    writes: *const nigh_batch_write,
    writes_len: usize,
    options: Option<&nigh_write_options>,
) -> nigh_status {
    const PUT: i32 = nigh_write_kind::NIGH_PUT as i32;
    const DELETE: i32 = nigh_write_kind::NIGH_DELETE as i32;
    answer(|| {
        let mut batch = WriteBatch::new();
        // SAFETY: rule 1.
        for write in unsafe { things("writes", writes, writes_len) }? {
            // SAFETY: rule 1.
            let key = unsafe { listed("a write's key", write.key) }?;
            match write.kind {
                PUT => {
                    // SAFETY: rule 1.
                    let value = unsafe { listed("a write's value", write.value) }?;
                    batch.put_with(key, value, &batch_options(write)?);
                }
                DELETE => {
                    has_no_expiry(write)?;
                    batch.delete(key);
                }
                other => {
                    let message = format!("a write's kind is {other}, which is no nigh_write_kind");
                    return Err(Fault::invalid(message));
                }
            }
        }
        let options = write_options(options)?;
        DBS.with(db.id, |db| Ok(db.write_with(&batch, &options).map(|_| NIGH_OK)?))
    })
}

/// Adds `by` to the decimal integer that a key has, 0 if it isn't there. Its expiry stays. `sum`
/// gets the result, and may be NULL; so may `options`, whose expiry means nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_incr(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    by: i64,
    sum: Option<&mut MaybeUninit<i64>>,
    options: Option<&nigh_write_options>,
) -> nigh_status {
    answer(|| {
        let sum = sum.map(|sum| sum.write(0));
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        let options = write_options(options)?;
        let result = DBS.with(db.id, |db| Ok(db.incr_with(key, by, &options)?))?;
        if let Some(sum) = sum {
            *sum = result;
        }
        Ok(NIGH_OK)
    })
}

/// If a key has the value `expected`, gives it the value `desired`: NIGH_OK, or NIGH_MISMATCH.
/// `expected` NULL: if the key isn't there. `desired` NULL: deletes it. A value of no bytes is a
/// pointer that isn't NULL, with the length 0. `options` may be NULL; its expiry means nothing if
/// the key is deleted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_compare_and_set(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    expected: *const c_void,
    expected_len: usize,
    desired: *const c_void,
    desired_len: usize,
    options: Option<&nigh_write_options>,
) -> nigh_status {
    answer(|| {
        let values = [("expected", expected, expected_len), ("desired", desired, desired_len)];
        let [given_expected, given_desired] = values;
        // SAFETY: rule 1.
        let [key, old, new] =
            unsafe { bytes([("key", key, key_len), given_expected, given_desired]) }?;
        let (old, new) =
            ((!expected.is_null()).then_some(old), (!desired.is_null()).then_some(new));
        let options = write_options(options)?;
        DBS.with(db.id, |db| {
            Ok(found(db.compare_and_set_with(key, old, new, &options)?, NIGH_MISMATCH))
        })
    })
}

/// Gives a key the expiry of `options`, or none if they have none or are NULL: NIGH_OK, or
/// NIGH_NOT_FOUND. Its value stays. A time that is over deletes the key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_expire(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    options: Option<&nigh_write_options>,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        let options = write_options(options)?;
        DBS.with(db.id, |db| Ok(found(db.expire(key, &options)?, NIGH_NOT_FOUND)))
    })
}

/// How long a key stays, in milliseconds; UINT64_MAX if it has no expiry. NIGH_NOT_FOUND, and 0, if
/// it isn't there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_ttl(
    db: nigh_db,
    key: *const c_void,
    key_len: usize,
    ttl_ms: Option<&mut MaybeUninit<u64>>,
) -> nigh_status {
    answer(|| {
        let ttl_ms = set("ttl_ms", ttl_ms, 0)?;
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        Ok(told_ttl(DBS.with(db.id, |db| Ok(db.ttl(key)?))?, ttl_ms))
    })
}

/// Tells how long a key stays, if it is there.
pub(super) fn told_ttl(life: Option<TimeToLive>, ttl_ms: &mut u64) -> nigh_status {
    *ttl_ms = match life {
        None => return NIGH_NOT_FOUND,
        Some(TimeToLive::Forever) => u64::MAX,
        Some(TimeToLive::Left(left)) => u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
    };
    NIGH_OK
}

/// A step of a walk over the keys that begin with `prefix`: about `count` of them, with their
/// values, for one nigh_free of all. `cursor` is 0 for the first step; it gets the next one's, and
/// 0 at the end. A step may find nothing and not be the last. A `count` of 0 counts as 1.
///
/// A key that is there all the while is met, maybe twice if the number of keys changes much; one
/// that comes or goes meanwhile may be. There is no order. A prefix doesn't make the walk shorter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_scan(
    db: nigh_db,
    prefix: *const c_void,
    prefix_len: usize,
    count: u32,
    cursor: Option<&mut u64>,
    pairs: Option<&mut MaybeUninit<*mut nigh_pair>>,
    pairs_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        walk(cursor, pairs, pairs_len, |at, found| {
            // SAFETY: rule 1.
            let [prefix] = unsafe { bytes([("prefix", prefix, prefix_len)]) }?;
            DBS.with(
                db.id,
                |db| Ok(db.scan(prefix, at, count, |key, value| found.add(key, value))?),
            )
        })
    })
}

/// Waits until all changes are on disk that were made before.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_flush(db: nigh_db) -> nigh_status {
    answer(|| DBS.with(db.id, |db| Ok(db.flush().map(|()| NIGH_OK)?)))
}

/// Counts and sizes.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_stats(
    db: nigh_db,
    stats: Option<&mut MaybeUninit<nigh_db_stats>>,
) -> nigh_status {
    answer(|| {
        let stats = set("stats", stats, nigh::DbStats::default().into())?;
        *stats = DBS.with(db.id, |db| Ok(db.stats()?))?.into();
        Ok(NIGH_OK)
    })
}

fn found(is_done: bool, other: nigh_status) -> nigh_status {
    if is_done { NIGH_OK } else { other }
}
