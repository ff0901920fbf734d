//! The upkeep of a store, once per turn.
//!
//! Thread: the shard that owns the store.

use nigh_shm::UpkeepBudget;

use crate::partition::store::Store;
use crate::turn::Turn;

/// What [`crate::Store::maintain`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintenance {
    /// More work can be done right away: call again without sleeping.
    pub more: bool,
    /// Something waits for other shards to announce, or for memory: call again soon.
    pub waiting: bool,
    /// Keys that were removed because their time was over.
    pub expired: u32,
}

impl Store {
    /// Once per turn, outside of transactions: the arenas' upkeep and a step of active expiry,
    /// both bounded.
    ///
    /// # Panics
    ///
    /// In a transaction.
    pub fn maintain(&mut self, turn: &Turn<'_>) -> Maintenance {
        assert!(self.transaction.is_none(), "upkeep inside a transaction");
        let behind_keys = self.maintain_recency(turn);
        if !self.data.is_here() {
            return Maintenance::default();
        }
        let data =
            self.data.maintain(UpkeepBudget { now_ms: turn.now_ms, ..UpkeepBudget::default() });
        self.counters.expired += u64::from(data.expired);
        let system = match self.libraries.writer.is_here() {
            true => self.libraries.writer.maintain(UpkeepBudget::default()),
            false => nigh_shm::Upkeep::default(),
        };
        let mut expired = 0;
        if self.data.expires() != 0 {
            let lines = self.sweep.step(turn.now_ms, self.data.stats().index_lines);
            if lines > 0 {
                expired = self.data.expire_step(turn.pin, turn.now_ms, lines);
                self.counters.expired += u64::from(expired);
            }
        }
        let behind = self.data.expires() != 0 && self.sweep.is_behind();
        Maintenance {
            more: data.more || system.more || behind || behind_keys,
            waiting: data.waiting || system.waiting,
            expired,
        }
    }

    /// Whether writes are about to find no memory before this turn's end gives some back: then the
    /// other commands are better left for the next turn.
    #[inline]
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.data.is_here() && self.data.wants_turn()
    }

    /// Whether memory comes back, or could by cleaning: if not, what is refused now is refused for
    /// good.
    #[must_use]
    pub fn is_gaining(&self) -> bool {
        self.data.is_here() && self.data.is_gaining()
    }

    /// What [`Store::take_busy`] would say.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.counters.busy
    }

    /// Whether a command since the last call was refused only because memory comes back after this
    /// turn: it has changed nothing, and is to be applied again in the next turn. Its reply says
    /// [`crate::BUSY`].
    #[inline]
    pub fn take_busy(&mut self) -> bool {
        std::mem::take(&mut self.counters.busy)
    }
}
