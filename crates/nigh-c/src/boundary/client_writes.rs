//! What a client changes, functions, and requests of any kind.
//!
//! 1. Each request is sent once. A request that can't be is refused before anything is sent.
//!
//! The rules of `boundary`, which the comments cite. Any thread.

use super::pointers::{bytes, list, set, set_block, text, things};
use super::replies::give_replies;
use crate::c_types::nigh_bytes;
use crate::client_options::set_words;
use crate::client_types::{nigh_client, nigh_reply, nigh_request, nigh_set_options};
use crate::clients::with_client;
use crate::fault::{Fault, answer, nigh_status};
use ::nigh_client::{CallError, Frame, reads_only};
use nigh_status::{NIGH_MISMATCH, NIGH_NOT_FOUND, NIGH_OK};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::slice::from_ref;
use std::time::Duration;

/// Gives a key a value, and the expiry of `options`, else none. `options` may be NULL. NIGH_OK; or
/// NIGH_MISMATCH, if the condition of `options` doesn't hold: nothing is written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_set(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    options: Option<&nigh_set_options>,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1 of `boundary`.
        let [key, value] = unsafe { bytes([("key", key, key_len), ("value", value, value_len)]) }?;
        check_words(&[key, value])?;
        let behind = options.map_or_else(|| Ok(Vec::new()), set_words)?;
        with_client(client.id, |client, _| {
            let mut words = vec![&b"SET"[..], key, value];
            words.extend(behind.iter().map(|word| word.as_bytes()));
            let is_set = !client.call_done(&words)?.is_null();
            Ok(if is_set { NIGH_OK } else { NIGH_MISMATCH })
        })
    })
}

/// Deletes a key: NIGH_OK, or NIGH_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_delete(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        check_words(&[key])?;
        let deleted = with_client(client.id, |client, _| Ok(client.del(&[key])?))?;
        Ok(if deleted > 0 { NIGH_OK } else { NIGH_NOT_FOUND })
    })
}

/// Adds `by` to the decimal integer that a key has, 0 if it isn't there. Its expiry stays. `sum`
/// gets the result, and may be NULL. NIGH_REFUSED if the value is no number, or the sum is out of
/// range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_incr(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    by: i64,
    sum: Option<&mut MaybeUninit<i64>>,
) -> nigh_status {
    answer(|| {
        let sum = sum.map(|sum| sum.write(0));
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        check_words(&[key])?;
        let result = with_client(client.id, |client, _| Ok(client.incr(key, by)?))?;
        if let Some(sum) = sum {
            *sum = result;
        }
        Ok(NIGH_OK)
    })
}

/// Puts bytes behind the value that a key has, if any. Its expiry stays. `new_len` gets the length
/// of the whole, and may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_append(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    new_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let new_len = new_len.map(|new_len| new_len.write(0));
        // SAFETY: rule 1 of `boundary`.
        let [key, value] = unsafe { bytes([("key", key, key_len), ("value", value, value_len)]) }?;
        check_words(&[key, value])?;
        let result = with_client(client.id, |client, _| {
            let reply = client.call_done(&[b"APPEND", key, value])?;
            let length = reply.integer().and_then(|it| usize::try_from(it).ok());
            let (address, command) = (client.address().to_string(), "APPEND".to_owned());
            Ok(length.ok_or(CallError::Unexpected { address, command })?)
        })?;
        if let Some(new_len) = new_len {
            *new_len = result;
        }
        Ok(NIGH_OK)
    })
}

/// Lets a key be gone after so many milliseconds, at least one: NIGH_OK, or NIGH_NOT_FOUND. Its
/// value stays. (PERSIST, by nigh_client_call, takes an expiry away.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_expire(
    client: nigh_client,
    key: *const c_void,
    key_len: usize,
    expires_in_ms: u64,
) -> nigh_status {
    answer(|| {
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        check_words(&[key])?;
        if expires_in_ms == 0 {
            let message = "expires_in_ms is 0: name a time from 1 on, or delete the key";
            return Err(Fault::invalid(message));
        }
        let life = Duration::from_millis(expires_in_ms);
        let is_there = with_client(client.id, |client, _| Ok(client.expire(key, life)?))?;
        Ok(if is_there { NIGH_OK } else { NIGH_NOT_FOUND })
    })
}

/// Calls a function of the server's, with keys and arguments. `reply` is for nigh_free. An error
/// that the function throws is NIGH_REFUSED, and `reply` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_fcall(
    client: nigh_client,
    function: *const c_char,
    keys: *const nigh_bytes,
    keys_len: usize,
    args: *const nigh_bytes,
    args_len: usize,
    reply: Option<&mut MaybeUninit<*mut nigh_reply>>,
) -> nigh_status {
    answer(|| {
        let reply = set("reply", reply, null_mut())?;
        // SAFETY: rule 1 of `boundary`.
        let function = unsafe { text("function", function) }?;
        let function = function.ok_or_else(|| Fault::invalid("function is NULL: name one"))?;
        // SAFETY: rule 1 of `boundary`.
        let keys = unsafe { list("keys", "a key", keys, keys_len) }?;
        // SAFETY: rule 1 of `boundary`.
        let args = unsafe { list("args", "an argument", args, args_len) }?;
        check_words(&keys)?;
        check_words(&args)?;
        with_client(client.id, |client, _| {
            let told = client.fcall(function, &keys, &args)?;
            *reply = give_behind("FCALL", from_ref(&told))?;
            Ok(NIGH_OK)
        })
    })
}

/// Sends a request of any kind: its words, the command's name first. `reply` is for one nigh_free
/// of all that belongs to it. The server's refusal is a reply too, of the kind NIGH_REPLY_ERROR.
///
/// It is sent once, over the client's only connection, which is another one when the server was
/// away; WATCH and MULTI end with it. Until EXEC, reads that ask the server would be queued: send a
/// transaction by nigh_client_pipeline, or call nothing else meanwhile. Don't send CLIENT REPLY,
/// MONITOR, SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE: behind them requests and replies don't match.
///
/// If there is no memory for the reply of a request that may have changed something, the answer is
/// NIGH_UNKNOWN: it was done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_call(
    client: nigh_client,
    words: *const nigh_bytes,
    words_len: usize,
    reply: Option<&mut MaybeUninit<*mut nigh_reply>>,
) -> nigh_status {
    answer(|| {
        let reply = set("reply", reply, null_mut())?;
        // SAFETY: rule 1 of `boundary`.
        let words = unsafe { list("words", "a word", words, words_len) }?;
        check_request(&words)?;
        with_client(client.id, |client, _| {
            let told = client.call(&words)?;
            *reply = match reads_only(words[0]) {
                true => give_replies(from_ref(&told))?,
                false => give_behind(&String::from_utf8_lossy(words[0]), from_ref(&told))?,
            };
            Ok(NIGH_OK)
        })
    })
}

/// Sends many requests of any kind, each once, and gathers their replies, which stand side by side
/// in the order of the requests; for one nigh_free of all. Refusals are replies.
///
/// If the connection is lost, the answer is NIGH_UNKNOWN, and `replies` has those that came before:
/// so many requests have happened, and of the others some may have. If there is no memory for the
/// replies, it is NIGH_UNKNOWN too, and there are none. If there is none for a request, it is
/// NIGH_NO_MEMORY: those whose replies came have happened, and no other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_client_pipeline(
    client: nigh_client,
    requests: *const nigh_request,
    requests_len: usize,
    replies: Option<&mut MaybeUninit<*mut nigh_reply>>,
    replies_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    answer(|| {
        let (replies, replies_len) = set_block("replies", replies, replies_len)?;
        // SAFETY: rule 1 of `boundary`.
        let given = unsafe { things("requests", requests, requests_len) }?;
        let mut all = Vec::with_capacity(given.len());
        for one in given {
            // SAFETY: rule 1 of `boundary`.
            let words = unsafe { list("a request's words", "a word", one.words, one.words_len) }?;
            check_request(&words)?;
            all.push(words);
        }
        with_client(client.id, |client, _| {
            let mut told = Vec::new();
            let sent = client.pipeline_each(all, |reply| told.push(reply));
            if sent.is_ok() || !told.is_empty() {
                *replies = give_behind("a pipeline", &told)?;
                *replies_len = told.len();
            }
            Ok(sent.map(|()| NIGH_OK)?)
        })
    })
}

/// A block with the replies to what was done, also if there is no memory for them.
fn give_behind(what: &str, told: &[Frame]) -> Result<*mut nigh_reply, Fault> {
    give_replies(told).map_err(|fault| match fault.status {
        nigh_status::NIGH_NO_MEMORY => {
            let message = format!(
                "{what} was done, and its reply has come, but there is no memory to hand it over: \
                 read what is there; free some memory, or raise this process's limit"
            );
            Fault::new(nigh_status::NIGH_UNKNOWN, message)
        }
        _ => fault,
    })
}

/// A request without words has no reply, and one with a word that is too long ends the connection.
fn check_request(words: &[&[u8]]) -> Result<(), Fault> {
    if words.is_empty() {
        return Err(Fault::invalid("a request has no words: the first is the command's name"));
    }
    check_words(words)
}

fn check_words(words: &[&[u8]]) -> Result<(), Fault> {
    Ok(::nigh_client::check_words(words)?)
}
