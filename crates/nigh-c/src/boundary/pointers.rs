//! C's pointers and lengths as slices, and blocks of memory for C.
//!
//! Any thread.

use crate::c_types::{nigh_bytes, nigh_pair};
use crate::client_types::nigh_reply;
use crate::fault::{Fault, nigh_status};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::{MaybeUninit, take};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

/// Sets a result for now; NULL is refused.
pub(super) fn set<'a, T>(
    name: &str,
    out: Option<&'a mut MaybeUninit<T>>,
    first: T,
) -> Result<&'a mut T, Fault> {
    out.map(|out| out.write(first)).ok_or_else(|| no_result(name))
}

/// The same for a block and its length, which are set both, also if one is refused.
pub(super) fn set_block<'a, T>(
    name: &str,
    block: Option<&'a mut MaybeUninit<*mut T>>,
    len: Option<&'a mut MaybeUninit<usize>>,
) -> Result<(&'a mut *mut T, &'a mut usize), Fault> {
    let (block, len) = (block.map(|it| it.write(null_mut())), len.map(|it| it.write(0)));
    let block = block.ok_or_else(|| no_result(name))?;
    Ok((block, len.ok_or_else(|| no_result(&format!("{name}_len")))?))
}

#[cold]
fn no_result(name: &str) -> Fault {
    Fault::invalid(format!("{name} is NULL: it gets a result"))
}

/// What a pointer and a length name.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn things<'a, T>(
    name: &str,
    data: *const T,
    len: usize,
) -> Result<&'a [T], Fault> {
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
    // SAFETY: rule 1 of `boundary`; the rest was looked at.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Keys, values and a prefix.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn bytes<'a, const N: usize>(
    given: [(&str, *const c_void, usize); N],
) -> Result<[&'a [u8]; N], Fault> {
    let mut all: [&[u8]; N] = [&[]; N];
    for (bytes, (name, data, len)) in all.iter_mut().zip(given) {
        // SAFETY: rule 1 of `boundary`.
        *bytes = unsafe { things(name, data.cast(), len) }?;
    }
    Ok(all)
}

/// What the parts of a key or value in a list name.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn listed<'a>(name: &str, given: nigh_bytes) -> Result<&'a [u8], Fault> {
    // SAFETY: rule 1 of `boundary`.
    unsafe { things(name, given.data.cast(), given.len) }
}

/// What a list of keys, values or words names.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn list<'a>(
    name: &str,
    of_one: &str,
    given: *const nigh_bytes,
    len: usize,
) -> Result<Vec<&'a [u8]>, Fault> {
    // SAFETY: rule 1 of `boundary`.
    let given = unsafe { things(name, given, len) }?;
    // SAFETY: rule 1 of `boundary`.
    given.iter().map(|one| unsafe { listed(of_one, *one) }).collect()
}

/// Text that a NUL ends. NULL is none.
///
/// # Safety
/// Rule 1 of `boundary`.
unsafe fn c_text<'a>(text: *const c_char) -> Option<&'a CStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: rule 1 of `boundary`.
    Some(unsafe { CStr::from_ptr(text) })
}

/// A path. NULL is none.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    // SAFETY: rule 1 of `boundary`.
    let text = unsafe { c_text(text) }?;
    Some(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// The path of a folder. NULL is refused.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn folder_path<'a>(text: *const c_char) -> Result<&'a Path, Fault> {
    // SAFETY: rule 1 of `boundary`.
    unsafe { path(text) }.ok_or_else(|| Fault::invalid("folder is NULL: name one"))
}

/// A folder's name in errors: the whole path.
pub(super) fn name_of(folder: &Path) -> Arc<str> {
    let whole = std::path::absolute(folder);
    whole.as_deref().unwrap_or(folder).display().to_string().into()
}

/// A text, in UTF-8. NULL is none.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<Option<&'a str>, Fault> {
    // SAFETY: rule 1 of `boundary`.
    let text = unsafe { c_text(text) };
    let told = |_| Fault::invalid(format!("{name} isn't UTF-8"));
    text.map(CStr::to_str).transpose().map_err(told)
}

/// Things of C's for which all zeros is a value.
///
/// # Safety
/// All zeros is one, and it may be forgotten.
pub(super) unsafe trait Zeros {}

// SAFETY: NULL, and no bytes.
unsafe impl Zeros for nigh_bytes {}
// SAFETY: numbers, NULL, and no bytes and elements.
unsafe impl Zeros for nigh_reply {}

/// There is no memory for so many bytes of an answer.
#[cold]
pub(super) fn no_memory(len: usize) -> Fault {
    let message = format!("the system has no {len} bytes for what was found: ask for less");
    Fault::new(nigh_status::NIGH_NO_MEMORY, message)
}

/// Memory for the caller, all zeros: so many places, and behind them bytes. It begins where the
/// places do.
pub(super) fn block<T: Zeros>(
    places: usize,
    len: usize,
) -> Result<(&'static mut [T], &'static mut [u8]), Fault> {
    let whole = places.checked_mul(size_of::<T>()).and_then(|all| all.checked_add(len));
    let whole =
        whole.filter(|whole| isize::try_from(*whole).is_ok()).ok_or_else(|| no_memory(len))?;
    // SAFETY: any number may be asked for.
    let begin = unsafe { libc::calloc(whole.max(1), 1) };
    if begin.is_null() {
        return Err(no_memory(len));
    }
    // SAFETY: the block has room for the places, `calloc` aligns for any type, and all zeros is a
    // value. Nobody else knows the block.
    let of_places = unsafe { std::slice::from_raw_parts_mut(begin.cast::<T>(), places) };
    // SAFETY: the block goes on behind the places, by `len` bytes.
    let behind = unsafe { begin.cast::<u8>().add(size_of_val(of_places)) };
    // SAFETY: as above; the two don't overlap.
    Ok((of_places, unsafe { std::slice::from_raw_parts_mut(behind, len) }))
}

/// A block with these bytes, each with a NUL behind. `None` stays NULL.
pub(super) fn give<'v>(
    all: impl Iterator<Item = Option<&'v [u8]>> + Clone,
) -> Result<*mut nigh_bytes, Fault> {
    let len = all.clone().flatten().map(|bytes| bytes.len() + 1).sum();
    let (places, mut room) = block::<nigh_bytes>(all.clone().count(), len)?;
    let begin = places.as_mut_ptr();
    for (place, bytes) in places.iter_mut().zip(all) {
        let Some(bytes) = bytes else { continue };
        *place = put(bytes, &mut room);
    }
    Ok(begin)
}

/// Copies bytes to the beginning of a room, which is what is left then, with a NUL behind.
pub(super) fn put(bytes: &[u8], room: &mut &'static mut [u8]) -> nigh_bytes {
    let (own, rest) = take(room).split_at_mut(bytes.len() + 1);
    own[..bytes.len()].copy_from_slice(bytes);
    *room = rest;
    nigh_bytes { data: own.as_mut_ptr().cast(), len: bytes.len() }
}

/// A block with one value, and a NUL behind: sets both results.
pub(super) fn give_one(
    found: &[u8],
    value: &mut *mut c_char,
    value_len: &mut usize,
) -> Result<(), Fault> {
    let (_, mut room) = block::<nigh_bytes>(0, found.len() + 1)?;
    let given = put(found, &mut room);
    (*value, *value_len) = (given.data.cast_mut(), given.len);
    Ok(())
}

/// A caller's buffer.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    begin: *mut c_void,
    room: usize,
}

impl Buffer {
    pub(super) fn of(begin: *mut c_void, room: usize) -> Result<Buffer, Fault> {
        if begin.is_null() && room > 0 {
            return Err(Fault::invalid(format!("buffer is NULL, and its room is {room}")));
        }
        Ok(Buffer { begin, room })
    }

    /// Copies a value there, if it has the room.
    ///
    /// # Safety
    /// Rule 1 of `boundary`; and the value isn't in the buffer.
    pub(super) unsafe fn take(self, found: &[u8]) -> nigh_status {
        if found.len() > self.room {
            return nigh_status::NIGH_TOO_SMALL;
        }
        if !found.is_empty() {
            // SAFETY: the buffer has the room by rule 1, and isn't where the value is.
            unsafe {
                std::ptr::copy_nonoverlapping(found.as_ptr(), self.begin.cast(), found.len())
            };
        }
        nigh_status::NIGH_OK
    }
}

/// A pair is two times bytes: what [`give`] makes is both.
const _: () = assert!(size_of::<nigh_pair>() == 2 * size_of::<nigh_bytes>());

/// Keys and values that were found, for one block.
#[derive(Default)]
pub(super) struct FoundPairs {
    bytes: Vec<u8>,
    /// Of keys and values in turn.
    lens: Vec<usize>,
    /// Bytes for which there was no memory: what was found isn't whole then.
    denied: Option<usize>,
}

impl FoundPairs {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let len = key.len() + value.len();
        if self.denied.is_some() || self.bytes.try_reserve(len).is_err() {
            self.denied = Some(self.denied.unwrap_or(len));
            return;
        }
        for part in [key, value] {
            self.bytes.extend_from_slice(part);
            self.lens.push(part.len());
        }
    }

    /// A block with all of them, and their number.
    fn give(&self) -> Result<(*mut nigh_pair, usize), Fault> {
        if let Some(len) = self.denied {
            return Err(no_memory(len));
        }
        let parts = self.lens.iter().scan(&*self.bytes, |rest, len| {
            let (part, behind) = rest.split_at(*len);
            *rest = behind;
            Some(Some(part))
        });
        Ok((give(parts)?.cast(), self.lens.len() / 2))
    }
}

/// A step of a walk from `cursor` on, which gets the next place. `step` adds what it finds.
pub(super) fn walk(
    cursor: Option<&mut u64>,
    pairs: Option<&mut MaybeUninit<*mut nigh_pair>>,
    pairs_len: Option<&mut MaybeUninit<usize>>,
    step: impl FnOnce(u64, &mut FoundPairs) -> Result<u64, Fault>,
) -> Result<nigh_status, Fault> {
    let (pairs, pairs_len) = set_block("pairs", pairs, pairs_len)?;
    let cursor = cursor.ok_or_else(|| Fault::invalid("cursor is NULL: it is the walk's place"))?;
    let mut found = FoundPairs::default();
    let next = step(*cursor, &mut found)?;
    (*pairs, *pairs_len) = found.give()?;
    *cursor = next;
    Ok(nigh_status::NIGH_OK)
}
