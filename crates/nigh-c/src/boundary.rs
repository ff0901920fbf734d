//! The functions that C calls, and all `unsafe` of the crate.
//!
//! ```text
//! answer ── arguments: pointer and length to slice ── open_dbs::with ── nigh::Db ── block ── results
//! ```
//!
//! 1. What a caller of each function has to see to, and nobody can check: a pointer that isn't NULL
//!    leads to as many bytes, or things, as its length says, or to one thing, or to a text that a
//!    NUL ends. They don't change during the call. No two results are in one place.
//! 2. NULL where something must be, lengths that can't be and places out of line are refused.
//! 3. Results are set first to NULL or 0, and then only if the call succeeds.
//! 4. Blocks for the caller come from `calloc` and go by `free`, so that `nigh_free` needs to know
//!    no length.
//!
//! Any thread.

use crate::c_types::{
    nigh_batch_write, nigh_bytes, nigh_db, nigh_db_stats, nigh_durability, nigh_options, nigh_pair,
    nigh_write_kind, nigh_write_options,
};
use crate::fault::{Fault, answer, nigh_status, with_message};
use crate::open_dbs;
use crate::options::{batch_options, open_options, write_options};
use nigh::WriteBatch;
use nigh_status::{NIGH_MISMATCH, NIGH_NOT_FOUND, NIGH_OK, NIGH_TOO_SMALL};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::{MaybeUninit, take};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

/// Sets a result for now; NULL is refused.
fn set<'a, T>(
    name: &str,
    out: Option<&'a mut MaybeUninit<T>>,
    first: T,
) -> Result<&'a mut T, Fault> {
    let out = out.ok_or_else(|| Fault::invalid(format!("{name} is NULL: it gets a result")))?;
    Ok(out.write(first))
}

/// What a pointer and a length name.
///
/// # Safety
/// Rule 1.
unsafe fn things<'a, T>(name: &str, data: *const T, len: usize) -> Result<&'a [T], Fault> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Fault::invalid(format!("{name} is NULL, and its length is {len}")));
    }
    if !data.is_aligned() {
        return Err(Fault::invalid(format!("{name} isn't aligned as its type must be")));
    }
    if len > isize::MAX.unsigned_abs() / size_of::<T>() {
        return Err(Fault::invalid(format!("the length of {name} is {len}: no memory has that")));
    }
    // SAFETY: rule 1; the rest was looked at.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Keys, values and a prefix.
///
/// # Safety
/// Rule 1.
unsafe fn bytes<'a, const N: usize>(
    given: [(&str, *const c_void, usize); N],
) -> Result<[&'a [u8]; N], Fault> {
    let mut all: [&[u8]; N] = [&[]; N];
    for (bytes, (name, data, len)) in all.iter_mut().zip(given) {
        // SAFETY: rule 1.
        *bytes = unsafe { things(name, data.cast(), len) }?;
    }
    Ok(all)
}

/// What the parts of a key or value in a list name.
///
/// # Safety
/// Rule 1.
unsafe fn listed<'a>(name: &str, given: nigh_bytes) -> Result<&'a [u8], Fault> {
    // SAFETY: rule 1.
    unsafe { things(name, given.data.cast(), given.len) }
}

/// A path. NULL is none.
///
/// # Safety
/// Rule 1.
unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    if text.is_null() {
        return None;
    }
    // SAFETY: rule 1.
    let text = unsafe { CStr::from_ptr(text) };
    Some(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Memory for the caller, all zeros: so many places, and behind them bytes. It begins where the
/// places do.
fn block(
    places: usize,
    len: usize,
) -> Result<(&'static mut [nigh_bytes], &'static mut [u8]), Fault> {
    let whole = places.checked_mul(size_of::<nigh_bytes>()).and_then(|all| all.checked_add(len));
    let told = || {
        let message = format!("the system has no {len} bytes for what was found: ask for less");
        Fault::new(nigh_status::NIGH_NO_MEMORY, message)
    };
    let whole = whole.filter(|whole| isize::try_from(*whole).is_ok()).ok_or_else(told)?;
    // SAFETY: any number may be asked for.
    let begin = unsafe { libc::calloc(whole.max(1), 1) };
    if begin.is_null() {
        return Err(told());
    }
    // SAFETY: the block has room for the places, `calloc` aligns for any type, and all zeros are
    // NULL and no bytes. Nobody else knows the block.
    let of_places = unsafe { std::slice::from_raw_parts_mut(begin.cast::<nigh_bytes>(), places) };
    // SAFETY: the block goes on behind the places, by `len` bytes.
    let behind = unsafe { begin.cast::<u8>().add(size_of_val(of_places)) };
    // SAFETY: as above; the two don't overlap.
    Ok((of_places, unsafe { std::slice::from_raw_parts_mut(behind, len) }))
}

/// A block with these bytes, each with a NUL behind. `None` stays NULL.
fn give<'v>(all: impl Iterator<Item = Option<&'v [u8]>> + Clone) -> Result<*mut nigh_bytes, Fault> {
    let len = all.clone().flatten().map(|bytes| bytes.len() + 1).sum();
    let (places, mut room) = block(all.clone().count(), len)?;
    let begin = places.as_mut_ptr();
    for (place, bytes) in places.iter_mut().zip(all) {
        let Some(bytes) = bytes else { continue };
        let (own, rest) = take(&mut room).split_at_mut(bytes.len() + 1);
        own[..bytes.len()].copy_from_slice(bytes);
        *place = nigh_bytes { data: own.as_ptr().cast(), len: bytes.len() };
        room = rest;
    }
    Ok(begin)
}

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
        let folder = unsafe { path(folder) };
        let folder = folder.ok_or_else(|| Fault::invalid("folder is NULL: name one"))?;
        // SAFETY: rule 1.
        let memory_dir = options.and_then(|given| unsafe { path(given.memory_dir) });
        *db = open_dbs::open(folder, &open_options(options, memory_dir)?)?;
        Ok(NIGH_OK)
    })
}

/// Has the log take all that there is, and closes the database; calls of other threads that use it
/// return first. After an error it is closed too: memory and journal stay for the next open, and
/// nothing is lost as long as the machine runs.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_close(db: nigh_db) -> nigh_status {
    answer(|| open_dbs::close(db).map(|()| NIGH_OK))
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
        let (value, value_len) = (set("value", value, null_mut()), set("value_len", value_len, 0));
        let (value, value_len) = (value?, value_len?);
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        open_dbs::with(db, |db| {
            let Some(found) = db.get(key)? else { return Ok(NIGH_NOT_FOUND) };
            let (_, own) = block(0, found.len() + 1)?;
            own[..found.len()].copy_from_slice(&found);
            (*value, *value_len) = (own.as_mut_ptr().cast(), found.len());
            Ok(NIGH_OK)
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
        if buffer.is_null() && room > 0 {
            return Err(Fault::invalid(format!("buffer is NULL, and its room is {room}")));
        }
        // SAFETY: rule 1.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        open_dbs::with(db, |db| {
            let Some(found) = db.get(key)? else { return Ok(NIGH_NOT_FOUND) };
            *value_len = found.len();
            if found.len() > room {
                return Ok(NIGH_TOO_SMALL);
            }
            if !found.is_empty() {
                // SAFETY: the buffer has the room by rule 1, and isn't in the database's memory.
                unsafe {
                    std::ptr::copy_nonoverlapping(found.as_ptr(), buffer.cast(), found.len())
                };
            }
            Ok(NIGH_OK)
        })
    })
}

/// Finds the values of several keys, all of one moment: a batch is seen whole or not at all.
/// `values` gets as many as there are keys, for one nigh_free of all; `data` is NULL where there is
/// none.
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
        let given = unsafe { things("keys", keys, keys_len) }?;
        // SAFETY: rule 1.
        let keys = given.iter().map(|key| unsafe { listed("a key", *key) });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        open_dbs::with(db, |db| {
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
        open_dbs::with(db, |db| Ok(db.put_with(key, value, &options).map(|()| NIGH_OK)?))
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
        open_dbs::with(db, |db| Ok(found(db.delete_with(key, &options)?, NIGH_NOT_FOUND)))
    })
}

/// Does several writes, in their order: all of them or none, also if the process is killed or the
/// power goes. Of several to one key the last counts. `options` may be NULL; its expiry means
/// nothing, as each write has its own.
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
                DELETE => drop(batch.delete(key)),
                other => {
                    let message = format!("a write's kind is {other}, which is no nigh_write_kind");
                    return Err(Fault::invalid(message));
                }
            }
        }
        let options = write_options(options)?;
        open_dbs::with(db, |db| Ok(db.write_with(&batch, &options).map(|()| NIGH_OK)?))
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
        let result = open_dbs::with(db, |db| Ok(db.incr_with(key, by, &options)?))?;
        if let Some(sum) = sum {
            *sum = result;
        }
        Ok(NIGH_OK)
    })
}

/// If a key has the value `expected`, gives it the value `desired`: NIGH_OK, or NIGH_MISMATCH.
/// `expected` NULL: if the key isn't there. `desired` NULL: deletes it. A value of no bytes is a
/// pointer that isn't NULL, with the length 0. `options` may be NULL.
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
        open_dbs::with(db, |db| {
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
        open_dbs::with(db, |db| Ok(found(db.expire(key, &options)?, NIGH_NOT_FOUND)))
    })
}

/// A step of a walk over the keys that begin with `prefix`: about `count` of them, with their
/// values, for one nigh_free of all. `cursor` is 0 for the first step; it gets the next one's, and
/// 0 at the end. A step may find nothing and not be the last.
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
        let (pairs, pairs_len) = (set("pairs", pairs, null_mut()), set("pairs_len", pairs_len, 0));
        let (pairs, pairs_len) = (pairs?, pairs_len?);
        let cursor =
            cursor.ok_or_else(|| Fault::invalid("cursor is NULL: it is the walk's place"))?;
        // SAFETY: rule 1.
        let [prefix] = unsafe { bytes([("prefix", prefix, prefix_len)]) }?;
        // Keys and values in turn, by their lengths.
        let (mut all, mut lens) = (Vec::new(), Vec::new());
        let next = open_dbs::with(db, |db| {
            let next = db.scan(prefix, *cursor, count, |key, value| {
                for part in [key, value] {
                    all.extend_from_slice(part);
                    lens.push(part.len());
                }
            });
            Ok(next?)
        })?;
        let parts = lens.iter().scan(&*all, |rest, len| {
            let (part, behind) = rest.split_at(*len);
            *rest = behind;
            Some(Some(part))
        });
        (*pairs, *pairs_len) = (give(parts)?.cast(), lens.len() / 2);
        *cursor = next;
        Ok(NIGH_OK)
    })
}

/// Waits until all changes are on disk that were made before.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_flush(db: nigh_db) -> nigh_status {
    answer(|| open_dbs::with(db, |db| Ok(db.flush().map(|()| NIGH_OK)?)))
}

/// Counts and sizes.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_stats(
    db: nigh_db,
    stats: Option<&mut MaybeUninit<nigh_db_stats>>,
) -> nigh_status {
    answer(|| {
        let stats = set("stats", stats, nigh::DbStats::default().into())?;
        *stats = open_dbs::with(db, |db| Ok(db.stats()?))?.into();
        Ok(NIGH_OK)
    })
}

fn found(is_done: bool, other: nigh_status) -> nigh_status {
    if is_done { NIGH_OK } else { other }
}

/// A pair is two times bytes: what [`give`] makes is both.
const _: () = assert!(size_of::<nigh_pair>() == 2 * size_of::<nigh_bytes>());
