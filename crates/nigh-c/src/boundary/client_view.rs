//! Views: the caller decides by one value what it reads next.
//!
//! ```text
//! nigh_client_view ── begins ──> callback ── nigh_view_get … ──> returns ── whole? ──> NIGH_OK
//!                         └───────── too much has changed ────────────┘
//! ```
//!
//! 1. A view is of the thread that its callback runs in, and of one attempt: CURRENT has it only as
//!    long as the callback runs. So a nigh_view that is kept, or used in another thread, is closed.
//! 2. A call on a view that fails for another cause than the moment fails the view.
//!
//! The rules of `boundary`, which the comments cite.

use super::pointers::{Buffer, bytes, give_one, set, set_block};
use crate::client_types::{nigh_client, nigh_view};
use crate::clients::{with_named_client, within_callback};
use crate::fault::{Fault, answer, nigh_status};
use ::nigh_client::{CallError, ClientView};
use nigh_shm::layout::KEY_BYTES_MAX;
use nigh_status::{NIGH_BUSY, NIGH_CLOSED, NIGH_NOT_FOUND, NIGH_OK};
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::mem::{MaybeUninit, take};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The attempt whose callback this thread runs.
struct Current {
    id: u64,
    view: *mut ClientView<'static>,
    /// The server's.
    address: Arc<str>,
    /// Where values are read to.
    buffer: Vec<u8>,
    /// Why the view fails.
    failed: Option<Fault>,
}

/// Reads some keys as of one moment for each partition: calls `read`, which gets them from the view
/// one after another, and may decide by one value which key is next. Too much may change meanwhile;
/// then `read` is called again, for another moment: up to 16 times, then the answer is NIGH_BUSY.
/// So it sets anew what it puts into `context`, which may be NULL. It takes local access, else
/// NIGH_NOT_LOCAL.
///
/// The view is of this thread, and ends with `read`. `read` returns: no exception and no longjmp
/// leaves it. It calls no nigh_client_ function.
#[unsafe(no_mangle)]
pub extern "C" fn nigh_client_view(
    client: nigh_client,
    read: Option<extern "C" fn(view: nigh_view, context: *mut c_void)>,
    context: *mut c_void,
) -> nigh_status {
    answer(|| {
        let read = read.ok_or_else(|| Fault::invalid("read is NULL: it gets the keys"))?;
        with_named_client(client.id, |client, buffer, address| {
            let failed = client.view(|view| {
                static VIEWS: AtomicU64 = AtomicU64::new(0);
                let id = VIEWS.fetch_add(1, Ordering::Relaxed) + 1;
                let view = std::ptr::from_mut(view).cast();
                let (address, buffer_of_view) = (Arc::clone(address), take(buffer));
                let current = Current { id, view, address, buffer: buffer_of_view, failed: None };
                CURRENT.set(Some(current));
                within_callback(|| read(nigh_view { id }, context));
                let left = CURRENT.take();
                Ok(left.and_then(|left| {
                    *buffer = left.buffer;
                    left.failed
                }))
            })?;
            failed.map_or(Ok(NIGH_OK), Err)
        })
    })
}

/// Finds the value that a key had at the view's moment: NIGH_OK, and a copy of it, for nigh_free;
/// or NIGH_NOT_FOUND. NIGH_BUSY: too much has changed, so return from the callback, which is called
/// again. After another error the view fails with that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_view_get(
    view: nigh_view,
    key: *const c_void,
    key_len: usize,
    value: Option<&mut MaybeUninit<*mut c_char>>,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    let results = set_block("value", value, value_len);
    of_view(view, |view, found| {
        let (value, value_len) = results?;
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        if !view.get_into(checked(key)?, found)? {
            return Ok(NIGH_NOT_FOUND);
        }
        give_one(found, value, value_len).map(|()| NIGH_OK)
    })
}

/// The same into a buffer of `room` bytes, as nigh_client_get_into.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_view_get_into(
    view: nigh_view,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    room: usize,
    value_len: Option<&mut MaybeUninit<usize>>,
) -> nigh_status {
    let value_len = set("value_len", value_len, 0);
    of_view(view, |view, found| {
        let (value_len, buffer) = (value_len?, Buffer::of(buffer, room)?);
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        if !view.get_into(checked(key)?, found)? {
            return Ok(NIGH_NOT_FOUND);
        }
        *value_len = found.len();
        // SAFETY: rule 1 of `boundary`; the value is in the client's memory.
        Ok(unsafe { buffer.take(found) })
    })
}

/// Whether there was such a key at the view's moment: NIGH_OK, or NIGH_NOT_FOUND; else as
/// nigh_view_get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nigh_view_exists(
    view: nigh_view,
    key: *const c_void,
    key_len: usize,
) -> nigh_status {
    of_view(view, |view, _| {
        // SAFETY: rule 1 of `boundary`.
        let [key] = unsafe { bytes([("key", key, key_len)]) }?;
        Ok(if view.exists(checked(key)?)? { NIGH_OK } else { NIGH_NOT_FOUND })
    })
}

/// A call on the view whose callback this thread runs, and its buffer.
fn of_view(
    view: nigh_view,
    call: impl FnOnce(&mut ClientView<'static>, &mut Vec<u8>) -> Result<nigh_status, Fault>,
) -> nigh_status {
    answer(|| {
        CURRENT.with_borrow_mut(|current| {
            let current = current.as_mut().filter(|it| it.id == view.id).ok_or_else(|| {
                let message = "the handle names no view: a view ends with its callback, and is of \
                               the thread that runs it";
                Fault::new(NIGH_CLOSED, message)
            })?;
            // SAFETY: by rule 1 the view is borrowed by nigh_client_view, which waits for the
            // callback, and this borrow of CURRENT keeps others from it. It takes no reference
            // away, so its lifetime doesn't count.
            let own = unsafe { &mut *current.view };
            let result = call(own, &mut current.buffer);
            let result = result.map_err(|fault| fault.of(&current.address));
            if let Err(fault) = &result
                && fault.status != NIGH_BUSY
            {
                current.failed.get_or_insert_with(|| fault.clone());
            }
            result
        })
    })
}

fn checked(key: &[u8]) -> Result<&[u8], CallError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(CallError::KeyTooLong { bytes: key.len() });
    }
    Ok(key)
}
