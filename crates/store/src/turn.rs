//! One turn of the shard's loop, as the store sees it.
//!
//! Thread: any; it is plain data.

use nigh_shm::Pin;

/// One turn of the shard's loop: its time, its pin and its seed.
#[derive(Clone, Copy)]
pub struct Turn<'a> {
    /// Unix time, ms; the same during the whole turn.
    pub now_ms: u64,
    /// The records that the store returns live as long as this.
    pub pin: &'a Pin<'a>,
    /// Seed of the turn's random choices.
    pub random: u64,
}
