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
