//! The upkeep of a store, once per turn.
//!
//! Thread: the shard that owns the store.

use nigh_shm::{Upkeep, UpkeepBudget};

use crate::partition::store::Store;
use crate::turn::Turn;

/// The outcome of [`crate::Store::maintain`].
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
        assert!(self.overlay.is_none(), "upkeep inside a transaction");
        let clocks_left = self.maintain_usage(turn);
        if !self.data.is_here() {
            return Maintenance::default();
        }
        let data =
            self.data.maintain(UpkeepBudget { now_ms: turn.now_ms, ..UpkeepBudget::default() });
        self.counters.expired += u64::from(data.expired);
        let system = match self.libraries.writer.is_here() {
            true => self.libraries.writer.maintain(UpkeepBudget::default()),
            false => Upkeep::default(),
        };
        let mut expired = 0;
        if self.data.expires() != 0 {
            let lines = self.sweep.step(turn.now_ms, self.data.stats().index_lines);
            if lines > 0 {
                let looked;
                (expired, looked) = self.data.expire_step(turn.pin, turn.now_ms, lines);
                self.sweep.give_back(lines - looked);
                self.counters.expired += u64::from(expired);
            }
        }
        let sweep_left = self.data.expires() != 0 && self.sweep.is_behind();
        Maintenance {
            more: data.more || system.more || sweep_left || clocks_left,
            waiting: data.waiting || system.waiting,
            expired,
        }
    }

    /// Whether writes are about to find no memory until this turn ends. The server then leaves
    /// further commands for the next turn.
    #[inline]
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.data.is_here() && self.data.wants_turn()
    }

    /// Whether memory comes back, or could by cleaning. If not, a refusal now is for good.
    #[must_use]
    pub fn is_gaining(&self) -> bool {
        self.data.is_here() && self.data.is_gaining()
    }
}
