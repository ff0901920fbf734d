//! One turn of the shard's loop, as the store sees it.
//!
//! Thread: any; it is plain data.

use nigh_shm::Pin;

/// One turn of the shard's loop: what time it is, and what keeps records alive.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// Unix time, ms; the same for all that happens in the turn.
    pub now_ms: u64,
    /// Records that the store hands out live as long as this.
    pub pin: &'a Pin<'a>,
    /// Seed of the turn's random choices.
    pub random: u64,
}
