//! How fast active expiry goes over the index.
//!
//! Keys whose time is over and that nobody meets are found by going round the whole index. The
//! pace is a whole round in [`ROUND_MS`] of the clock, whatever the index's size and however often
//! the shard turns, in steps short enough not to be felt.
//!
//! Thread: the shard that owns the store.

/// Time for one round: a dead key holds its memory about this long.
const ROUND_MS: u64 = 10_000;
/// Home lines in one step, each up to 8 records: some 100 µs.
const LINES_PER_STEP: u64 = 128;

/// Where active expiry stands against the clock.
#[derive(Default)]
pub(crate) struct Sweep {
    last_ms: u64,
    /// Lines that should have been swept by now, in 1/[`ROUND_MS`] of a line.
    due: u64,
}

impl Sweep {
    /// Lines to sweep now, of an index of `lines`. The first call only sets the clock.
    pub(crate) fn step(&mut self, now_ms: u64, lines: u64) -> u32 {
        let elapsed = match std::mem::replace(&mut self.last_ms, now_ms) {
            0 => 0,
            last => now_ms.saturating_sub(last).min(ROUND_MS),
        };
        let whole_round = lines * ROUND_MS;
        self.due = (self.due + elapsed * lines).min(whole_round);
        let step = (self.due / ROUND_MS).min(LINES_PER_STEP);
        self.due -= step * ROUND_MS;
        u32::try_from(step).expect("bounded by LINES_PER_STEP")
    }

    /// True if a step's work or more is due.
    pub(crate) fn is_behind(&self) -> bool {
        self.due >= LINES_PER_STEP * ROUND_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the shard turns a thousand times a second or once in five, a round takes as long.
    #[test]
    fn a_round_takes_its_time_at_any_rate_of_turns() {
        for turn_ms in [1, 7, 100, 5000] {
            let (mut sweep, mut swept, mut now) = (Sweep::default(), 0, 1);
            sweep.step(now, 4096);
            while now <= ROUND_MS {
                now += turn_ms;
                swept += sweep.step(now, 4096);
                while sweep.is_behind() {
                    swept += sweep.step(now, 4096);
                }
            }
            assert!((3900..=6500).contains(&swept), "{swept} lines at {turn_ms} ms");
        }
    }

    /// A clock that stood still or went back sweeps nothing, one that leapt a round at most.
    #[test]
    fn odd_clocks_are_bounded() {
        let mut sweep = Sweep::default();
        assert_eq!(sweep.step(1000, 64), 0);
        assert_eq!(sweep.step(1000, 64), 0);
        assert_eq!(sweep.step(500, 64), 0);
        assert_eq!(sweep.step(u64::MAX, 64), 64);
        assert_eq!(sweep.step(u64::MAX, 64), 0);
    }
}
