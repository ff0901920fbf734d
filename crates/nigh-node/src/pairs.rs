//! Lists of keys and values for JavaScript: key, value, key, value, and so on.
//!
//! The thread of the JavaScript.

use crate::fault::{Fault, made};
use napi::Env;
use napi::bindgen_prelude::BufferSlice;

/// Copies bytes into a `Buffer`.
#[inline]
pub(crate) fn buffer<'env>(env: &'env Env, bytes: &[u8]) -> Result<BufferSlice<'env>, Fault> {
    made(BufferSlice::copy_from(env, bytes))
}

/// Keys and values that were found.
pub(crate) struct Pairs<'env> {
    env: &'env Env,
    found: Result<Vec<BufferSlice<'env>>, Fault>,
}

impl<'env> Pairs<'env> {
    pub(crate) fn new(env: &'env Env) -> Pairs<'env> {
        Pairs { env, found: Ok(Vec::new()) }
    }

    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        let Ok(found) = &mut self.found else { return };
        for part in [key, value] {
            match buffer(self.env, part) {
                Ok(part) => found.push(part),
                Err(fault) => {
                    self.found = Err(fault);
                    return;
                }
            }
        }
    }

    pub(crate) fn into_list(self) -> Result<Vec<BufferSlice<'env>>, Fault> {
        self.found
    }
}
