//! The connections that wait until changes are on disk: plain data of the shard's thread.
//! [`crate::turn::unsynced`] keeps the rules.

use crate::handlers::waiting::Asked;
use crate::net::depends::Need;
use crate::net::slab::Occupant;
use crate::tenant::TenantId;
use std::time::Instant;

/// What a client wants to wait for.
pub(crate) struct Wish {
    pub(crate) who: Occupant,
    pub(crate) tenant: TenantId,
    pub(crate) needs: Vec<Need>,
    pub(crate) asked: Asked,
    pub(crate) until: Option<Instant>,
}

/// Those that wait.
#[derive(Default)]
pub(crate) struct SyncedLists {
    /// Connections that keep replies.
    pub(crate) keeping: Vec<Occupant>,
    /// How many of them keep replies for the mode's sake alone, at most: those that are gone may be
    /// counted until the next look.
    pub(crate) by_mode: usize,
    /// What clients have asked to wait for.
    pub(crate) wishes: Vec<Wish>,
    /// When the first of them has waited for long enough.
    pub(crate) next_end: Option<Instant>,
    /// The count of what logs had told at the last look.
    pub(crate) seen: u64,
    /// The shards whose logs are told at the turn's end, a bit for each.
    pub(crate) wanted: u64,
}

impl SyncedLists {
    /// Whether nobody waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keeping.is_empty() && self.wishes.is_empty()
    }

    /// Has the next turn look, whether or not the logs have told anything.
    pub(crate) fn look_again(&mut self) {
        self.seen = self.seen.wrapping_sub(1);
    }
}
