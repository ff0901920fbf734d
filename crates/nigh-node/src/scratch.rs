//! Memory of JavaScript's that all clients of its thread share: a key goes in, a value comes back,
//! and a call passes numbers alone, since each object that it passes takes as long as a read.
//!
//! 1. A value that finds no room stays here until [`Scratch::long`] or [`Scratch::forget`], and
//!    leaves no memory behind.
//! 2. What is in it counts until the next call.
//!
//! The thread of the JavaScript.

use crate::fault::Fault;
use crate::packed;
use crate::pairs::buffer;
use napi::Env;
use napi::bindgen_prelude::{Buffer, BufferSlice};
use nigh_client::ForeignValues;
use std::cell::RefCell;

/// In place of a length: there is no such key.
const NONE: i32 = -1;
/// In place of a length: the server is to be asked, or the view is over.
pub(crate) const UNSURE: i32 = -2;

/// The shared memory.
pub(crate) struct Scratch {
    key: Buffer,
    value: RefCell<Buffer>,
    found: RefCell<Vec<u8>>,
    values: RefCell<ForeignValues>,
}

impl Scratch {
    pub(crate) fn new(key: Buffer, value: Buffer) -> Scratch {
        let (found, values) = (RefCell::default(), RefCell::default());
        Scratch { key, value: RefCell::new(value), found, values }
    }

    /// The key, or the keys, whose bytes JavaScript has put there.
    pub(crate) fn key(&self, bytes: u32) -> &[u8] {
        let key: &[u8] = self.key.as_ref();
        usize::try_from(bytes).ok().and_then(|bytes| key.get(..bytes)).unwrap_or(key)
    }

    /// Reads one key. Length of its value.
    #[inline]
    pub(crate) fn read(
        &self,
        key_bytes: u32,
        read: impl FnOnce(&[u8], &mut Vec<u8>) -> Option<bool>,
    ) -> i32 {
        let mut found = self.found.borrow_mut();
        match read(self.key(key_bytes), &mut found) {
            Some(true) => self.give(&found),
            told => {
                if found.capacity() > self.room() {
                    *found = Vec::new();
                }
                if told.is_some() { NONE } else { UNSURE }
            }
        }
    }

    /// Reads several keys. Length of their values: for each its length and its bytes, or -1.
    pub(crate) fn read_all(
        &self,
        keys_bytes: u32,
        read: impl FnOnce(&[&[u8]], &mut ForeignValues) -> Option<()>,
    ) -> Result<i32, Fault> {
        let keys = packed::keys(self.key(keys_bytes)).ok_or_else(|| Fault::own("a packed key"))?;
        let (mut values, mut found) = (self.values.borrow_mut(), self.found.borrow_mut());
        let is_told = read(&keys, &mut values).is_some() && pack(&values, keys.len(), &mut found);
        if !is_told || found.len() > self.room() {
            *values = ForeignValues::new();
        }
        Ok(if is_told { self.give(&found) } else { UNSURE })
    }

    /// What found no room.
    pub(crate) fn long<'env>(&self, env: &'env Env) -> Result<BufferSlice<'env>, Fault> {
        let found = std::mem::take(&mut *self.found.borrow_mut());
        buffer(env, &found)
    }

    /// Nobody wants what found no room.
    pub(crate) fn forget(&self) {
        *self.found.borrow_mut() = Vec::new();
    }

    /// Bytes of a value that find room.
    fn room(&self) -> usize {
        self.value.borrow().len()
    }

    #[inline]
    fn give(&self, found: &[u8]) -> i32 {
        if let Some(place) = self.value.borrow_mut().get_mut(..found.len()) {
            place.copy_from_slice(found);
        }
        i32::try_from(found.len()).unwrap_or(i32::MAX)
    }
}

/// Puts the values of so many keys into `found`, each behind its length. False if there is no
/// memory.
fn pack(values: &ForeignValues, keys: usize, found: &mut Vec<u8>) -> bool {
    found.clear();
    let bytes = |key| 4 + values.get(key).map_or(0, <[u8]>::len);
    if found.try_reserve((0..keys).map(bytes).sum()).is_err() {
        return false;
    }
    for key in 0..keys {
        let value = values.get(key);
        let len = value.map_or(NONE, |it| i32::try_from(it.len()).unwrap_or(i32::MAX));
        found.extend_from_slice(&len.to_le_bytes());
        found.extend_from_slice(value.unwrap_or_default());
    }
    true
}
