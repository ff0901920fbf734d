//! The pace of active expiry.
//!
//! Active expiry goes round the index and deletes the keys whose time is over and that no command
//! meets.
//!
//! 1. A round takes [`ROUND_MS`] of the clock, for any size of the index, however often the
//!    shard turns. A step is short enough not to be felt: it leaves lines out behind long records.
//!    Those are still due, at once.
//! 2. A round over a small index is faster, by [`LEAST_LINES`]. So DBSIZE counts no key whose time
//!    was over 100 ms ago, as in Redis.
//!
//! Thread: the shard that owns the store.

/// Time for one round: a dead key holds its memory about this long.
const ROUND_MS: u64 = 10_000;
/// Home lines in one step, each up to 8 records: some 100 µs.
const LINES_PER_STEP: u64 = 128;

/// Least lines swept in [`ROUND_MS`]: a step every 100 ms.
const LEAST_LINES: u64 = ROUND_MS / 100 * LINES_PER_STEP;

/// The state of active expiry against the clock.
#[derive(Default)]
pub(crate) struct Sweep {
    last_ms: u64,
    /// Lines that are due by now and not swept, in 1/[`ROUND_MS`] of a line.
    due: u64,
    /// The last step has left lines out.
    has_left: bool,
}

impl Sweep {
    /// Lines to sweep now, of an index of `lines`. The first call only sets the clock.
    pub(crate) fn step(&mut self, now_ms: u64, lines: u64) -> u32 {
        let elapsed = match std::mem::replace(&mut self.last_ms, now_ms) {
            0 => 0,
            last => now_ms.saturating_sub(last).min(ROUND_MS),
        };
        let whole_round = lines * ROUND_MS;
        self.due = (self.due + elapsed * lines.max(LEAST_LINES)).min(whole_round);
        let step = (self.due / ROUND_MS).min(LINES_PER_STEP);
        self.due -= step * ROUND_MS;
        self.has_left = false;
        u32::try_from(step).expect("bounded by LINES_PER_STEP")
    }

    /// So many lines of the step weren't swept.
    pub(crate) fn give_back(&mut self, lines: u32) {
        self.due += u64::from(lines) * ROUND_MS;
        self.has_left = lines > 0;
    }

    /// True if a step's work or more is due, or a step has left some.
    pub(crate) fn is_behind(&self) -> bool {
        self.has_left || self.due >= LINES_PER_STEP * ROUND_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round takes as long, whether the shard turns a thousand times a second or once in five
    /// seconds.
    #[test]
    fn a_round_takes_its_time_at_any_rate_of_turns() {
        for turn_ms in [1, 7, 100, 5000] {
            let (mut sweep, mut swept, mut now) = (Sweep::default(), 0, 1);
            sweep.step(now, 1 << 16);
            while now <= ROUND_MS {
                now += turn_ms;
                swept += sweep.step(now, 1 << 16);
                while sweep.is_behind() {
                    swept += sweep.step(now, 1 << 16);
                }
            }
            assert!((62_000..=104_000).contains(&swept), "{swept} lines at {turn_ms} ms");
        }
    }

    /// A small index is swept at each tick. Its dead keys were once counted for up to ten seconds.
    #[test]
    fn a_small_index_is_swept_at_each_tick() {
        for lines in [1, 64, 128] {
            let mut sweep = Sweep::default();
            sweep.step(1, lines);
            for tick in 1..100 {
                assert_eq!(u64::from(sweep.step(1 + 100 * tick, lines)), lines, "{lines} lines");
                assert!(!sweep.is_behind() || lines == LINES_PER_STEP);
            }
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
