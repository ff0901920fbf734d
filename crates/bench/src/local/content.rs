//! The keys and values of a run.
//!
//! Invariant: a value begins with its key, so each read can be checked.

use anyhow::{Result, ensure};

/// Bytes of a key: `key:` and 12 digits.
pub(super) const KEY_BYTES: usize = 16;

/// A key.
pub(super) type Key = [u8; KEY_BYTES];

/// How many keys there are, and how long values are.
#[derive(Clone, Copy)]
pub(super) struct Content {
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
}

/// The key of a number, in place of another one's.
pub(super) fn set_key(key: &mut Key, mut number: u64) {
    key[..4].copy_from_slice(b"key:");
    for digit in key[4..].iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// A value of a key; `by` varies it.
pub(super) fn set_value(value: &mut [u8], key: &Key, by: u64) {
    value.fill(b'a' + (by % 26) as u8);
    value[..KEY_BYTES].copy_from_slice(key);
}

/// An error unless this is a value of the key.
pub(super) fn check(key: &Key, value: Option<&[u8]>, content: Content) -> Result<()> {
    let is_its = |value: &[u8]| value.len() == content.value_bytes && value.starts_with(key);
    ensure!(
        value.is_some_and(is_its),
        "{} has a wrong value: {value:?}",
        String::from_utf8_lossy(key)
    );
    Ok(())
}

/// Keys and values of a pipeline, in memory that is used again.
pub(super) struct Sets {
    content: Content,
    pub(super) keys: Vec<Key>,
    values: Vec<u8>,
}

impl Sets {
    pub(super) fn new(content: Content) -> Sets {
        Sets { content, keys: Vec::new(), values: Vec::new() }
    }

    /// Takes the keys with these numbers, and values for them.
    pub(super) fn choose(&mut self, numbers: impl Iterator<Item = u64>) {
        let bytes = self.content.value_bytes;
        self.keys.clear();
        for number in numbers {
            let (mut key, from) = ([0; KEY_BYTES], self.keys.len() * bytes);
            set_key(&mut key, number);
            self.values.resize(self.values.len().max(from + bytes), 0);
            set_value(&mut self.values[from..from + bytes], &key, number);
            self.keys.push(key);
        }
    }

    /// The keys, each with its value.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Key, &[u8])> + Clone {
        self.keys.iter().zip(self.values.chunks(self.content.value_bytes))
    }
}
