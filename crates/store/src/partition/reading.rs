//! Finding records: in the overlay first, then in the arena.
//!
//! 1. A view never decides that a key's time is over. It notes the [`Lack`], and the owner is
//!    asked.
//! 2. A command that reads several keys at a view reads all of them at one moment.
//!
//! Thread: the shard that owns the store, or the view.

use nigh_shm::Record;
use nigh_shm::layout::is_over;

use crate::partition::counters::Lack;
use crate::partition::store::Store;
use crate::turn::Turn;

impl Store {
    /// The key's record, if it has one whose time isn't over.
    #[inline]
    pub(crate) fn find<'p>(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'p>,
    ) -> Option<Record<'p>> {
        if !self.data.is_here() {
            return self.find_in_view(hash, key, turn);
        }
        let record = self.look(hash, key, turn)?;
        if is_over(record.expiry_ms(), turn.now_ms) {
            self.drop_expired(hash, key, turn);
            return None;
        }
        Some(record)
    }

    /// [`Store::find`] where another thread writes: at the command's moment, if it has one.
    fn find_in_view<'p>(&mut self, hash: u32, key: &[u8], turn: &Turn<'p>) -> Option<Record<'p>> {
        let found = match &self.moment {
            Some(moment) => self
                .reader
                .get_at(turn.pin, moment, hash, key)
                .map(|found| (found, moment.clock_ms())),
            None => self.reader.get_alone(turn.pin, hash, key),
        };
        let Ok((found, clock_ms)) = found else {
            self.counters.lacks = self.counters.lacks.max(Lack::Moment);
            return None;
        };
        let record = found?;
        // The owner deletes it, if it is over by the owner's clock too.
        if is_over(record.expiry_ms(), turn.now_ms.max(clock_ms)) {
            self.counters.lacks = Lack::Clock;
            return None;
        }
        Some(record)
    }

    /// Takes the moment at which the view's next command reads; false if there is none now.
    pub fn take_moment(&mut self, turn: &Turn<'_>) -> bool {
        self.moment = self.reader.moment(turn.pin);
        self.moment.is_some()
    }

    /// Ends the view's moment, and returns what commands have lacked since the last call.
    #[inline]
    pub fn take_lack(&mut self) -> Lack {
        self.moment = None;
        std::mem::take(&mut self.counters.lacks)
    }

    /// [`Store::peek`] for commands that use the value, which makes the key young.
    #[inline]
    pub(crate) fn read<'p>(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'p>,
    ) -> Option<Record<'p>> {
        let record = self.peek(hash, key, turn);
        if record.is_some() {
            self.usage.touch_read(hash);
        }
        record
    }

    /// [`Store::find`] for commands that read: counts hits and misses.
    #[inline]
    pub(crate) fn peek<'p>(
        &mut self,
        hash: u32,
        key: &[u8],
        turn: &Turn<'p>,
    ) -> Option<Record<'p>> {
        let record = self.find(hash, key, turn);
        if record.is_some() {
            self.counters.hits += 1;
        } else if self.counters.lacks == Lack::Nothing {
            self.counters.misses += 1;
        }
        record
    }

    /// The key's record, dead or alive; what the transaction has staged comes first.
    #[inline]
    pub(crate) fn look<'p>(&self, hash: u32, key: &[u8], turn: &Turn<'p>) -> Option<Record<'p>> {
        if let Some(overlay) = &self.overlay {
            if let Some(reference) = overlay.get(key) {
                return self.reader.record(turn.pin, reference?);
            }
            if overlay.is_cleared() {
                return None;
            }
        }
        self.reader.get(turn.pin, hash, key)
    }

    /// Length of the key's value, 0 if it has none. Doesn't count as a use of the key.
    pub(crate) fn value_bytes(&self, hash: u32, key: &[u8], turn: &Turn<'_>) -> usize {
        self.look(hash, key, turn).map_or(0, |record| record.value_len() as usize)
    }

    #[cold]
    fn drop_expired(&mut self, hash: u32, key: &[u8], turn: &Turn<'_>) {
        // A staged record stays until the transaction ends. It counts as missing anyway.
        let staged = self.overlay.as_ref().is_some_and(|overlay| overlay.get(key).is_some());
        if !staged && self.data.expire(turn.pin, hash, key) {
            self.counters.expired += 1;
        }
    }

    /// Number of keys. Counts keys whose time is over until a command or the upkeep meets them.
    pub(crate) fn keys(&self) -> u64 {
        match &self.overlay {
            Some(overlay) => overlay.keys(self.data.keys()),
            None => self.data.keys(),
        }
    }
}
