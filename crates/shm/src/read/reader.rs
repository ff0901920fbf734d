//! Readers inside the server: they find records without lock, and lend them out as long as a pin
//! lasts.
//!
//! 1. A record that the index names while a pin is held stays unchanged as long as that pin.
//! 2. A [`RecordRef`] is followed only if its slot's generation is even (in use) and still the
//!    same: then the slot was not retired before this pin, so it is not reused before the pin's
//!    end.
//!
//! Any thread with a participant of the arena's domain.

use crate::format::head::{Head, RunName};
use crate::format::layout::{header, record as r};
use crate::format::record::{Record, RecordRef, ValueRef};
use crate::format::words::{MappedWords, SharedWords};
use crate::index::moment::{self, MomentSample, TooNew};
use crate::index::{self, Table, split_state};
use crate::qsbr::Pin;
use crate::region::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A moment of an arena, good for the turn in which it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    sample: MomentSample,
    turn: u64,
    arena: u32,
}

impl Moment {
    /// The time by which to judge what was read at it, Unix ms.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.sample.clock_ms
    }
}

/// Finds records of one arena.
#[derive(Clone)]
pub struct Reader {
    pub(crate) region: Arc<Region>,
    pub(crate) words: MappedWords,
    pub(crate) slot_shift: u32,
    seed: u32,
    partition: u32,
}

impl Reader {
    pub(crate) fn new(region: &Arc<Region>, seed: u32) -> Reader {
        let words = region.words();
        Reader {
            partition: words.load32(header::PARTITION, Relaxed),
            words,
            slot_shift: region.geometry().slot_shift,
            region: Arc::clone(region),
            seed,
        }
    }

    /// Hash of a key in this arena.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u32 {
        crate::format::hash::hash(self.seed, key)
    }

    /// The arena's mapping.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    #[inline]
    pub(crate) fn check_pin(&self, pin: &Pin<'_>) {
        assert!(pin.is_of(self.region.domain()), "a pin of another domain than the arena's");
    }

    #[inline]
    pub(crate) fn current(&self) -> Table {
        // SYNC(index-state)
        let state = self.words.load64(header::INDEX_STATE, Acquire);
        Table::from_word(split_state(state).1, self.slot_shift)
    }

    /// The table that is being emptied, if the index grows.
    pub(crate) fn tables(&self) -> (Table, Option<Table>) {
        index::tables(&self.words, self.slot_shift)
    }

    /// Asks for the index lines and records of look-ups that are about to come, of any arenas.
    #[inline]
    pub fn prefetch<'a>(looks: impl Iterator<Item = (&'a Reader, u32)> + Clone) {
        index::prefetch_records(looks.map(|(it, hash)| (&it.words, it.current(), hash)));
    }

    /// Finds a key. Whether it has expired is for the caller to say.
    ///
    /// # Panics
    /// If the pin is another domain's.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as a call it returns the record through memory")]
    pub fn get<'p>(&self, pin: &'p Pin<'_>, hash: u32, key: &[u8]) -> Option<Record<'p>> {
        self.check_pin(pin);
        let reference = index::find(&self.words, self.slot_shift, hash, key)?;
        Some(self.lend(pin, reference))
    }

    /// A record that the index named under this pin.
    #[inline]
    pub(crate) fn lend<'p>(&self, pin: &'p Pin<'_>, reference: u32) -> Record<'p> {
        let offset = u64::from(reference) * r::UNIT;
        let number = self.region.number();
        // SAFETY: the index named it while the pin was held, so its segment was not retired before,
        // and is reused only after the pin's participant has announced; same for its run.
        unsafe { Record::new(self.words, (self.seed, self.slot_shift), offset, pin.turn(), number) }
    }

    #[inline]
    fn generation(&self, slot: u32) -> u32 {
        // SYNC(generation)
        self.words.load32(self.region.geometry().generation_offset(slot), Acquire)
    }

    /// A record by its reference, published or staged; `None` if it was kept for too long.
    ///
    /// # Panics
    /// If the pin is another domain's, or the reference another arena's.
    #[must_use]
    pub fn record<'p>(&self, pin: &'p Pin<'_>, reference: RecordRef) -> Option<Record<'p>> {
        self.check_pin(pin);
        assert!(reference.arena == self.region.number(), "a record of another arena");
        let slot = self.region.geometry().slot_of(reference.offset());
        if reference.generation & 1 == 1 || self.generation(slot) != reference.generation {
            return None;
        }
        let head = Head::load(&self.words, reference.offset());
        if head.has_run() {
            let name = RunName::load(&self.words, reference.offset(), &head);
            if self.generation(name.slot) != name.generation {
                return None;
            }
        }
        let (offset, number) = (reference.offset(), self.region.number());
        // SAFETY: the reference was made from a record of this arena at that generation. Neither
        // its slot nor its run were retired when we looked, which was after the pin (invariant 2).
        Some(unsafe {
            Record::new(self.words, (self.seed, self.slot_shift), offset, pin.turn(), number)
        })
    }

    /// The value that was noted earlier in this turn. It stays as long as the participant that the
    /// pin borrows from doesn't announce.
    ///
    /// # Panics
    /// If it was noted in another turn, by another participant or in another arena.
    #[must_use]
    #[inline]
    pub fn bytes<'p>(&self, pin: &Pin<'p>, value: ValueRef) -> &'p [u8] {
        self.check_pin(pin);
        assert!(value.turn == pin.turn(), "a value of another turn: copy what outlives its turn");
        assert!(value.arena == self.region.number(), "a value of another arena");
        // SAFETY: the value was lent out by a record in this very turn of this participant, which
        // has not announced since; so it is neither reused nor unmapped.
        unsafe { self.words.bytes(value.offset, value.len()) }
    }

    /// A number that changes whenever the index begins or ends to move to another table; odd while
    /// keys move.
    #[must_use]
    pub fn index_epoch(&self) -> u32 {
        split_state(self.words.load64(header::INDEX_STATE, Acquire)).0
    }

    /// Bytes of memory that the arena may use.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.region.geometry().capacity_bytes
    }

    /// The latest time by which the writer has judged expiry, Unix ms.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.words.load64(header::CLOCK, Acquire)
    }

    /// The number of the newest change that the writer may be storing. What a read has found came
    /// with a change up to the number that is loaded behind it.
    #[inline]
    #[must_use]
    pub fn begun_lsn(&self) -> u64 {
        // SYNC(moment): stored before the first store of that change.
        self.words.load64(header::BEGUN_LSN, Acquire)
    }

    /// The changes up to this number are on disk for certain; 0 without a log.
    #[inline]
    #[must_use]
    pub fn durable_lsn(&self) -> u64 {
        // SYNC(durable)
        self.words.load64(header::DURABLE_LSN, Acquire)
    }

    /// Number of keys, as the writer last said.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.words.load64(header::KEYS, Relaxed)
    }

    /// Seed of the hash of keys.
    #[must_use]
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Which partition of the tenant the arena is.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// A moment of now, for reads of several keys; the pin has been held since before. `None` if a
    /// commit is under way for too long.
    ///
    /// # Panics
    /// If the pin is another domain's.
    #[must_use]
    pub fn moment(&self, pin: &Pin<'_>) -> Option<Moment> {
        self.check_pin(pin);
        let sample = moment::sample(&self.words)?;
        Some(Moment { sample, turn: pin.turn(), arena: self.region.number() })
    }

    /// The record that a key had at a moment. Whether its time is over is to be judged by the
    /// moment's clock.
    ///
    /// # Errors
    /// [`TooNew`]: take another moment, and read again what was read at this one.
    ///
    /// # Panics
    /// If the pin is another domain's, or the moment another turn's or another arena's.
    #[inline]
    pub fn get_at<'p>(
        &self,
        pin: &'p Pin<'_>,
        moment: &Moment,
        hash: u32,
        key: &[u8],
    ) -> Result<Option<Record<'p>>, TooNew> {
        self.check_pin(pin);
        // The version that was current then is kept as long as this pin.
        assert!(moment.turn == pin.turn(), "a moment of another turn: take one in each");
        assert!(moment.arena == self.region.number(), "a moment of another arena");
        let found = moment::find(&self.words, self.slot_shift, &moment.sample, (hash, key))?;
        Ok(found.map(|reference| self.lend(pin, reference)))
    }

    /// The record of a single key, and the time by which to judge it if it has an expiry.
    ///
    /// # Errors
    /// [`TooNew`]: try again.
    ///
    /// # Panics
    /// If the pin is another domain's.
    #[inline]
    pub fn get_alone<'p>(
        &self,
        pin: &'p Pin<'_>,
        hash: u32,
        key: &[u8],
    ) -> Result<(Option<Record<'p>>, u64), TooNew> {
        self.check_pin(pin);
        let (found, clock_ms) = moment::find_alone(&self.words, self.slot_shift, (hash, key))?;
        Ok((found.map(|reference| self.lend(pin, reference)), clock_ms))
    }

    /// Some record, each about as likely as another; `None` if there is none.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn random<'p>(&self, pin: &'p Pin<'_>, rng: &mut dyn FnMut() -> u64) -> Option<Record<'p>> {
        self.check_pin(pin);
        let reference = index::pick(&self.words, self.slot_shift, rng)?;
        Some(self.lend(pin, reference))
    }
}
