//! Several writes that happen as one.
//!
//! The thread of the JavaScript.

use crate::arguments::later_options;
use napi_derive::napi;
use nigh::WriteBatch;

/// Writes that happen together. It copies what it is given.
#[napi]
#[derive(Default)]
pub struct Batch {
    pub(crate) writes: WriteBatch,
}

#[napi]
impl Batch {
    /// An empty one.
    #[napi(constructor)]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds: a key gets a value, and the expiry, else none.
    #[napi]
    pub fn put(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<i64>) {
        self.writes.put_with(key, value, &later_options(expires_at_ms));
    }

    /// Adds: a key is deleted, if it is there.
    #[napi]
    pub fn delete(&mut self, key: &[u8]) {
        self.writes.delete(key);
    }

    /// Forgets all writes.
    #[napi]
    pub fn clear(&mut self) {
        self.writes.clear();
    }

    /// Number of writes.
    #[napi(getter)]
    pub fn length(&self) -> u32 {
        u32::try_from(self.writes.len()).unwrap_or(u32::MAX)
    }
}
