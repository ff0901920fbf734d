//! Several writes that happen as one.
//!
//! 1. A batch that found no memory for one of its writes is refused when it is to be done.
//!
//! Any thread: plain data.

use crate::copies::add_copy;
use crate::error::DbError;
use crate::options::WriteOptions;
use nigh_store::KeyWrite;
use std::ops::Range;

/// Writes that happen together, in their order: all of them or none, also if the process is killed
/// or the power goes. Of several to one key the last counts. It copies what it is given; if the
/// system has no memory for that, the whole batch is refused when it is to be done.
///
/// ```
/// let mut batch = nigh::WriteBatch::new();
/// batch.put(b"from", b"90").put(b"to", b"110").delete(b"pending");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Debug, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    writes: Vec<BatchWrite>,
    /// Bytes for which there was no memory.
    denied: Option<usize>,
}

#[derive(Debug, Clone)]
struct BatchWrite {
    key: Range<usize>,
    /// The value and its expiry; `None`: the key is deleted.
    value: Option<(Range<usize>, u64)>,
}

impl WriteBatch {
    /// An empty one.
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Adds: a key gets a value, and no expiry.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut WriteBatch {
        self.add(key, Some((value, 0)))
    }

    /// Adds: a key gets a value, with an expiry. Nothing else of `options` counts here: durability,
    /// and [`without_waiting`](WriteOptions::without_waiting), are the whole batch's.
    pub fn put_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: &WriteOptions,
    ) -> &mut WriteBatch {
        self.add(key, Some((value, options.expiry_ms())))
    }

    /// Adds: a key is deleted, if it is there.
    pub fn delete(&mut self, key: &[u8]) -> &mut WriteBatch {
        self.add(key, None)
    }

    fn add(&mut self, key: &[u8], value: Option<(&[u8], u64)>) -> &mut WriteBatch {
        let key = self.keep(key);
        let value = value.map(|(value, expiry_ms)| (self.keep(value), expiry_ms));
        self.writes.push(BatchWrite { key, value });
        self
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let begin = self.bytes.len();
        if add_copy(&mut self.bytes, bytes).is_err() {
            self.denied = Some(bytes.len());
        }
        begin..self.bytes.len()
    }

    /// Number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Forgets all writes, and keeps the memory for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.writes.clear();
        self.denied = None;
    }

    /// Whether all of them delete.
    pub(crate) fn only_removes(&self) -> bool {
        self.writes.iter().all(|write| write.value.is_none())
    }

    /// The writes, as the store takes them.
    ///
    /// # Errors
    /// There was no memory for one of them.
    pub(crate) fn writes(&self) -> Result<Vec<KeyWrite<'_>>, DbError> {
        if let Some(bytes) = self.denied {
            return Err(DbError::of_copy(bytes));
        }
        let writes = self.writes.iter().map(|write| {
            let key = &self.bytes[write.key.clone()];
            match &write.value {
                Some((value, expiry_ms)) => {
                    KeyWrite::Put { key, value: &self.bytes[value.clone()], expiry_ms: *expiry_ms }
                }
                None => KeyWrite::Delete { key },
            }
        });
        Ok(writes.collect())
    }
}

impl Clone for WriteBatch {
    fn clone(&self) -> WriteBatch {
        let (writes, denied) = (self.writes.clone(), self.denied);
        let mut clone = WriteBatch { bytes: Vec::new(), writes, denied };
        clone.keep(&self.bytes);
        clone
    }
}
