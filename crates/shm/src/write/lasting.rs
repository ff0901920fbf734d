//! How long the keys with an expiry still last, as active expiry sees them: the mean of a round.
//!
//! 1. It costs no look at memory: the sweep reads each expiry anyhow.
//! 2. It is as old as the last round that has ended; before the first one it is 0.
//!
//! The arena's writer only.

/// See the header of this file.
#[derive(Default)]
pub(crate) struct Lasting {
    /// Of the keys that this round has met.
    met: u64,
    sum_ms: u128,
    mean_ms: u64,
}

impl Lasting {
    /// The round has met a key that lasts for so long.
    pub(super) fn met(&mut self, left_ms: u64) {
        self.met += 1;
        self.sum_ms += u128::from(left_ms);
    }

    /// The round ends, at the table's last line.
    pub(super) fn round_ends(&mut self) {
        let mean = self.sum_ms.checked_div(self.met.into()).unwrap_or(0);
        *self = Lasting { mean_ms: u64::try_from(mean).unwrap_or(u64::MAX), ..Lasting::default() };
    }

    /// The mean of the last round, milliseconds.
    pub(super) fn mean_ms(&self) -> u64 {
        self.mean_ms
    }
}
