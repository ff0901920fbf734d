//! C's pointers and lengths as slices, and blocks of memory for C.
//!
//! Any thread.

use crate::c_types::{nigh_bytes, nigh_pair};
use crate::fault::{Fault, nigh_status};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::{MaybeUninit, take};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Sets a result for now; NULL is refused.
pub(super) fn set<'a, T>(
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

/// A path. NULL is none.
///
/// # Safety
/// Rule 1 of `boundary`.
pub(super) unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    if text.is_null() {
        return None;
    }
    // SAFETY: rule 1 of `boundary`.
    let text = unsafe { CStr::from_ptr(text) };
    Some(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Memory for the caller, all zeros: so many places, and behind them bytes. It begins where the
/// places do.
pub(super) fn block(
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
pub(super) fn give<'v>(
    all: impl Iterator<Item = Option<&'v [u8]>> + Clone,
) -> Result<*mut nigh_bytes, Fault> {
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

/// A pair is two times bytes: what [`give`] makes is both.
const _: () = assert!(size_of::<nigh_pair>() == 2 * size_of::<nigh_bytes>());

/// Keys and values that were found, for one block.
#[derive(Default)]
pub(super) struct FoundPairs {
    bytes: Vec<u8>,
    /// Of keys and values in turn.
    lens: Vec<usize>,
}

impl FoundPairs {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        for part in [key, value] {
            self.bytes.extend_from_slice(part);
            self.lens.push(part.len());
        }
    }

    /// Bytes of all that was found.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A block with all of them, and their number.
    pub(super) fn give(&self) -> Result<(*mut nigh_pair, usize), Fault> {
        let parts = self.lens.iter().scan(&*self.bytes, |rest, len| {
            let (part, behind) = rest.split_at(*len);
            *rest = behind;
            Some(Some(part))
        });
        Ok((give(parts)?.cast(), self.lens.len() / 2))
    }
}
