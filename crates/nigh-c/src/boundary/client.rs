//! A client of a server: connecting, reads, and closing it.
//!
//! The rules of `boundary`, which the comments cite. Any thread.

use super::pointers::{Buffer, bytes, give, give_one, list, no_memory, set, set_block, text, walk};
use crate::c_types::{nigh_bytes, nigh_pair};
use crate::client_options::{OptionTexts, client_options};
use crate::client_types::{nigh_client, nigh_client_options};
use crate::clients::{close, connect, with_client};
use crate::fault::{Fault, answer, nigh_status};
use ::nigh_client::{Address, ClientOptions, ForeignValues, KeyLife};
use nigh_status::{NIGH_NOT_FOUND, NIGH_OK};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Connects to a server: "unix:/path", "tcp:host:port", "host:port", or
/// "redis://user:password@host:port". `options` may be NULL. NIGH_INVALID if the address can't be
/// read; NIGH_NO_SERVER if there is no server, NIGH_CANNOT_CONNECT if it can't be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_connect(
    address: *const c_char,
    options: Option<&nigh_client_options>,
    client: Option<&mut MaybeUninit<nigh_client>>,
) -> nigh_status {
    answer(|| {
        let client = set("client", client, nigh_client { id: 0 })?;
        // SAFETY: rule 1 of `boundary`.
        let address = unsafe { text("address", address) }?;
        let address = address.ok_or_else(|| Fault::invalid("address is NULL: name a server"))?;
        let address: Address = address.parse()?;
        let options = match options {
            None => ClientOptions::default(),
            Some(given) => {
                let texts = OptionTexts {
                    // SAFETY: rule 1 of `boundary`.
                    user: unsafe { text("user", given.user) }?,
                    // SAFETY: rule 1 of `boundary`.
                    password: unsafe { text("password", given.password) }?,
                    // SAFETY: rule 1 of `boundary`.
                    client_name: unsafe { text("client_name", given.client_name) }?,
                };
                client_options(given, &texts)?
            }
        };
        client.id = connect(&address, options)?;
        Ok(NIGH_OK)
    })
}

/// Closes a client; calls of other threads that use it return first.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_client_close(client: nigh_client) -> nigh_status {
    answer(|| close(client.id).map(|()| NIGH_OK))
}

/// Looks whether there is a server, and attaches again if need be: NIGH_OK, or why not.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_client_check(client: nigh_client) -> nigh_status {
    answer(|| with_client(client.id, |client, _| Ok(client.check().map(|()| NIGH_OK)?)))
}

/// Whether the client reads the server's memory now: `is_local` gets 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_client_is_local(
    client: nigh_client,
    is_local: Option<&mut MaybeUninit<i32>>,
) -> nigh_status {
    answer(|| {
        let is_local = set("is_local", is_local, 0)?;
        *is_local = with_client(client.id, |client, _| Ok(client.is_local().into()))?;
        Ok(NIGH_OK)
    })
}

/// Why the client doesn't read the server's memory, though it is connected: a text for nigh_free.
/// NULL if it does, or isn't connected now.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_client_why_not_local(
    client: nigh_client,
    why: Option<&mut MaybeUninit<*mut c_char>>,
) -> nigh_status {
    answer(|| {
        let why = set("why", why, null_mut())?;
        with_client(client.id, |client, _| match client.why_not_local() {
            Some(told) => give_one(told.as_bytes(), why, &mut 0),
            None => Ok(()),
        })?;
        Ok(NIGH_OK)
    })
}

/// Finds the value of a key: NIGH_OK, and a copy of it, for nigh_free, with a NUL behind that
/// doesn't count; or NIGH_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_get(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let (value, value_len) = set_block("value", value, value_len)?;
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        with_client(client.id, |client, found| {
            if !client.get_into(key, found)? {
                return Ok(NIGH_NOT_FOUND);
            }
            give_one(found, value, value_len).map(|()| NIGH_OK)
        })
    })
}

/// Copies the value of a key into a buffer of `room` bytes: NIGH_OK, or NIGH_NOT_FOUND, or
/// NIGH_TOO_SMALL. `value_len` gets the value's length, also if the buffer is too small for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_get_into(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    room: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let value_len = set("value_len", value_len, 0)?;
        let buffer = Buffer::of(buffer, room)?;
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        with_client(client.id, |client, found| {
            if !client.get_into(key, found)? {
                return Ok(NIGH_NOT_FOUND);
            }
            *value_len = found.len();
            // SAFETY: rule 1 of `boundary`; the value is in the client's memory.
            Ok(unsafe { buffer.take(found) })
        })
    })
}

/// Copies a part of a key's value into a buffer: its bytes from `begin` on, as many as there are,
/// up to `room`. NIGH_OK, or NIGH_NOT_FOUND. `value_len` gets the length of the whole value. A few
/// bytes of a long value cost what a few bytes cost, if the client is local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_get_part(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    begin: usize,
    buffer: *mut c_void,
    room: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let value_len = set("value_len", value_len, 0)?;
        let buffer = Buffer::of(buffer, room)?;
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        with_client(client.id, |client, part| {
            let whole = client.get_in_place(key, |value| {
                let len = value.len().saturating_sub(begin).min(room);
                part.clear();
                if part.try_reserve_exact(len).is_err() {
                    return Ok(Err(no_memory(len)));
                }
                part.resize(len, 0);
                value.read(begin.min(value.len()), part)?;
                Ok(Ok(value.len()))
            })?;
            let Some(whole) = whole else { return Ok(NIGH_NOT_FOUND) };
            *value_len = whole?;
            // SAFETY: rule 1 of `boundary`; the part is in the client's memory.
            Ok(unsafe { buffer.take(part) })
        })
    })
}

/// Whether a key is there: NIGH_OK, or NIGH_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_exists(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        let is_there = with_client(client.id, |client, _| Ok(client.exists(key)?))?;
        Ok(if is_there { NIGH_OK } else { NIGH_NOT_FOUND })
    })
}

/// How long a key stays, in milliseconds; UINT64_MAX if it has no expiry. NIGH_NOT_FOUND, and 0, if
/// it isn't there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_ttl(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    ttl_ms: Option<&mut MaybeUninit<u64>>,
) -> nigh_status {
    answer(|| {
        let ttl_ms = set("ttl_ms", ttl_ms, 0)?;
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        *ttl_ms = match with_client(client.id, |client, _| Ok(client.ttl(key)?))? {
            None => return Ok(NIGH_NOT_FOUND),
            Some(KeyLife::Forever) => u64::MAX,
            Some(KeyLife::Left(left)) => u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        };
        Ok(NIGH_OK)
    })
}

/// Finds the values of several keys. Those of a partition are of one moment: a transaction is seen
/// whole or not at all. `values` gets as many as there are keys, for one nigh_free of all; `data`
/// is NULL where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_multi_get(
    client: nigh_client,
    keys: *const nigh_bytes,
    keys_len: usize,
    values: Option<&mut MaybeUninit<*mut nigh_bytes>>,
) -> nigh_status {
    answer(|| {
        let values = set("values", values, null_mut())?;
        // SAFETY: rule 1 of `boundary`.
        let keys = unsafe { list("keys", "a key", keys, keys_len) }?;
        with_client(client.id, |client, _| {
            let mut found = ForeignValues::new();
            client.multi_get_into(&keys, &mut found)?;
            *values = give((0..keys.len()).map(|key| found.get(key)))?;
            Ok(NIGH_OK)
        })
    })
}

/// A step of a walk over the keys that begin with `prefix`: about `count` of them, with their
/// values, for one nigh_free of all. `cursor` is 0 for the first step; it gets the next one's, and
/// 0 at the end. A step may find nothing and not be the last.
///
/// A key that is there all the while is met, maybe more than once; one that comes or goes meanwhile
/// may be. There is no order. A prefix doesn't make the walk shorter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_scan(
    client: nigh_client,
    prefix: *const c_void,
    prefix_len: usize,
    count: u32,
    cursor: Option<&mut u64>,
    pairs: Option<&mut MaybeUninit<*mut nigh_pair>>,
    pairs_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        walk(cursor, pairs, pairs_len, |at, found| {
            // SAFETY: rule 1 of `boundary`.
            let [prefix] = unsafe { bytes([("prefix", prefix, prefix_len)]) }?;
            with_client(client.id, |client, _| {
                Ok(client.scan(prefix, at, count, |key, value| found.add(key, value))?)
            })
        })
    })
}
