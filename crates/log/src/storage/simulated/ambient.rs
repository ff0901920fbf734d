//! A clock and chance that a test drives: the same seed gives the same run.

use crate::storage::{Chance, Clock};
use std::sync::atomic::{AtomicU64, Ordering};

/// The step of the generator's state, and the factors of its mixing.
/// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
const MIX: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];

/// Chance by a seed.
#[derive(Debug)]
pub struct SimChance {
    state: AtomicU64,
}

impl SimChance {
    /// The chance of this seed.
    #[must_use]
    pub fn new(seed: u64) -> SimChance {
        SimChance { state: AtomicU64::new(seed) }
    }
}

impl Chance for SimChance {
    fn word(&self) -> u64 {
        let mut word = self.state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        word = (word ^ (word >> 30)).wrapping_mul(MIX[0]);
        word = (word ^ (word >> 27)).wrapping_mul(MIX[1]);
        word ^ (word >> 31)
    }
}

/// A number below `end`; 0 if that is 0.
pub fn below(chance: &dyn Chance, end: u64) -> u64 {
    chance.word().checked_rem(end).unwrap_or(0)
}

/// True once in `times`.
pub fn once_in(chance: &dyn Chance, times: u64) -> bool {
    below(chance, times) == 0
}

/// A clock that stands until the test moves it.
#[derive(Debug)]
pub struct SimClock {
    unix_us: AtomicU64,
    rising_us: AtomicU64,
}

impl SimClock {
    /// A clock that shows this time.
    #[must_use]
    pub fn new(unix_ms: u64) -> SimClock {
        SimClock { unix_us: AtomicU64::new(unix_ms * 1000), rising_us: AtomicU64::new(0) }
    }

    /// Time goes on.
    pub fn advance_us(&self, us: u64) {
        self.unix_us.fetch_add(us, Ordering::Relaxed);
        self.rising_us.fetch_add(us, Ordering::Relaxed);
    }

    /// The machine's clock steps, forth or back.
    pub fn set_unix_ms(&self, unix_ms: u64) {
        self.unix_us.store(unix_ms * 1000, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn unix_ms(&self) -> u64 {
        self.unix_us.load(Ordering::Relaxed) / 1000
    }

    fn rising_us(&self) -> u64 {
        self.rising_us.load(Ordering::Relaxed)
    }
}
