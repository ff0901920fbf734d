//! The values of several keys of one moment, in memory that is used again.
//!
//! 1. A value counts only if the whole attempt of its view does: one that is given up is taken
//!    back.
//!
//! One thread at a time.

use super::copier::ForeignVersion;
use super::foreign_view::{KEYS_AHEAD, View};
use crate::format::words::SharedWords;
use crate::index::moment::TooNew;

/// The values of some keys, in the keys' order.
#[derive(Debug, Clone, Default)]
pub struct ForeignValues {
    bytes: Vec<u8>,
    places: Vec<Option<ValuePlace>>,
    scratch: Vec<u8>,
}

/// Where a value lies.
#[derive(Debug, Clone, Copy)]
struct ValuePlace {
    from: usize,
    len: usize,
    version: ForeignVersion,
}

impl ForeignValues {
    /// None, of no keys.
    #[must_use]
    pub fn new() -> ForeignValues {
        ForeignValues::default()
    }

    /// Forgets all, and makes place for those of so many keys.
    pub fn reset(&mut self, keys: usize) {
        self.bytes.clear();
        self.places.clear();
        self.places.resize(keys, None);
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The value of a key, by its number; `None` if the key wasn't there.
    #[must_use]
    pub fn get(&self, key: usize) -> Option<&[u8]> {
        let place = self.places.get(key).copied().flatten()?;
        self.bytes.get(place.from..place.from + place.len)
    }

    /// Which version of a key it is.
    #[must_use]
    pub fn version(&self, key: usize) -> Option<ForeignVersion> {
        self.places.get(key).copied().flatten().map(|place| place.version)
    }

    /// Makes room for values of so many bytes together. False if the system gives no memory: to set
    /// them all the same would end the process.
    #[must_use]
    pub fn make_room(&mut self, bytes: usize) -> bool {
        self.bytes.try_reserve(bytes).is_ok()
    }

    /// Sets the value of a key, by its number.
    ///
    /// # Panics
    /// If there are fewer keys.
    pub fn set(&mut self, key: usize, value: &[u8], version: ForeignVersion) {
        self.places[key] = Some(ValuePlace { from: self.bytes.len(), len: value.len(), version });
        self.bytes.extend_from_slice(value);
    }

    /// The key isn't there after all.
    ///
    /// # Panics
    /// If there are fewer keys.
    pub fn forget(&mut self, key: usize) {
        self.places[key] = None;
    }

    /// Reads the keys with these numbers by a view.
    pub(super) fn read<W: SharedWords>(
        &mut self,
        view: &mut View<'_, W>,
        keys: &[&[u8]],
        numbers: &[usize],
    ) -> Result<(), TooNew> {
        let mut hashes = [0; KEYS_AHEAD];
        for numbers in numbers.chunks(KEYS_AHEAD) {
            for (hash, number) in hashes.iter_mut().zip(numbers) {
                *hash = view.hash(keys[*number]);
            }
            view.prefetch_hashes(&hashes[..numbers.len()]);
            for (hash, number) in hashes.iter().zip(numbers) {
                let mut scratch = std::mem::take(&mut self.scratch);
                let found = view.find(*hash, keys[*number], true, &mut scratch);
                let taken = match found {
                    Ok(Some(_)) if !self.make_room(scratch.len()) => Err(view.deny(scratch.len())),
                    found => found.map(|found| match found {
                        Some(version) => self.set(*number, &scratch, version),
                        None => self.forget(*number),
                    }),
                };
                self.scratch = scratch;
                taken?;
            }
        }
        Ok(())
    }

    /// How far the bytes go: for [`Self::back_to`].
    pub(super) fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what an attempt has read.
    pub(super) fn back_to(&mut self, mark: usize) {
        self.bytes.truncate(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::{ForeignValues, ForeignVersion};

    const VERSION: ForeignVersion = ForeignVersion { lsn: 7, expiry_ms: 9 };

    #[test]
    fn values_are_those_of_their_keys_until_they_are_forgotten() {
        let mut values = ForeignValues::new();
        assert_eq!((values.len(), values.is_empty()), (0, true));
        values.reset(3);
        assert_eq!((values.len(), values.is_empty()), (3, false));
        values.set(2, b"two", VERSION);
        values.set(0, b"", VERSION);
        assert_eq!(
            [0, 1, 2, 3].map(|key| values.get(key)),
            [Some(&[][..]), None, Some(b"two"), None]
        );
        assert_eq!([0, 1, 2].map(|key| values.version(key)), [Some(VERSION), None, Some(VERSION)]);
        values.forget(2);
        assert_eq!((values.get(2), values.version(2), values.len()), (None, None, 3));
        // Its memory is used again.
        values.reset(2);
        assert_eq!((values.len(), values.version(0), values.mark()), (2, None, 0));
    }

    #[test]
    fn what_an_attempt_has_read_is_taken_back() {
        let mut values = ForeignValues::new();
        values.reset(2);
        values.set(0, b"kept", VERSION);
        let mark = values.mark();
        values.set(1, b"of an attempt", VERSION);
        values.back_to(mark);
        assert_eq!(values.mark(), mark);
        values.set(1, b"new", VERSION);
        assert_eq!((values.get(0), values.get(1)), (Some(&b"kept"[..]), Some(&b"new"[..])));
    }

    #[test]
    fn memory_that_the_system_refuses_is_told() {
        let mut values = ForeignValues::new();
        assert!(values.make_room(10) && !values.make_room(isize::MAX.unsigned_abs()));
    }
}
