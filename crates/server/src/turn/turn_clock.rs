//! The time of a shard's turns, Unix ms: by it keys are over.
//!
//! ```text
//! the machine's clock   ──────────┐        ┌──────── steps back
//! the turns' time       ──────────────── ─ ─ ─────── 15/16 as fast, until they meet
//! ```
//!
//! 1. It never goes back, also not behind the time that the server before judged by: a key that is
//!    over stays over.
//! 2. It never stands: a key with ten seconds left is gone within eleven, also behind a clock that
//!    stepped back by a year.
//!
//! The shard's thread.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Behind a step back, of so many ms one is left out.
const SLOWED: u64 = 16;

pub(crate) struct TurnClock {
    /// The machine's clock at an instant: read now and then, as instants tell the rest.
    machine: (Instant, Duration),
    latest_ms: u64,
    /// When the machine's clock was found behind, and the time of that turn.
    slowed: Option<(Instant, u64)>,
}

impl TurnClock {
    /// A clock that isn't behind this time.
    pub(crate) fn new(earliest_ms: u64) -> Self {
        Self { machine: machine(), latest_ms: earliest_ms, slowed: None }
    }

    /// Reads the machine's clock.
    pub(crate) fn read_machine(&mut self) {
        self.machine = machine();
    }

    /// The time of a turn that begins now, for all that happens in it.
    #[inline]
    pub(crate) fn begin_turn(&mut self, now: Instant) -> u64 {
        let machine_ms = self.machine_ms(now);
        if machine_ms < self.latest_ms {
            return self.go_slowly(now);
        }
        (self.latest_ms, self.slowed) = (machine_ms, None);
        machine_ms
    }

    #[cold]
    fn go_slowly(&mut self, now: Instant) -> u64 {
        let (since, from_ms) = *self.slowed.get_or_insert((now, self.latest_ms));
        let ran_ms = millis(now.saturating_duration_since(since));
        self.latest_ms = self.latest_ms.max(from_ms.saturating_add(ran_ms - ran_ms / SLOWED));
        self.latest_ms
    }

    pub(crate) fn latest_ms(&self) -> u64 {
        self.latest_ms
    }

    /// How far the time of the latest turn is ahead of the machine's clock.
    pub(crate) fn ahead_ms(&self, now: Instant) -> u64 {
        self.latest_ms.saturating_sub(self.machine_ms(now))
    }

    fn machine_ms(&self, now: Instant) -> u64 {
        millis(self.machine.1 + now.saturating_duration_since(self.machine.0))
    }
}

/// The machine's clock at an instant. It is read first: a pause between the two lets keys be over a
/// little late, never before their time.
fn machine() -> (Instant, Duration) {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Instant::now(), unix)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// A clock at an instant, at 1,000,000 s.
    fn clock() -> (TurnClock, Instant) {
        let at = Instant::now();
        (TurnClock { machine: (at, 1_000_000 * S), latest_ms: 0, slowed: None }, at)
    }

    #[test]
    fn it_is_the_machines() {
        let (mut clock, at) = clock();
        assert_eq!(clock.begin_turn(at), 1_000_000_000);
        assert_eq!(clock.begin_turn(at + S), 1_000_001_000);
        clock.machine = (at + S, 1_000_009 * S);
        assert_eq!(clock.begin_turn(at + 2 * S), 1_000_010_000, "it steps ahead with it");
        assert_eq!(clock.ahead_ms(at + 2 * S), 0);
    }

    /// The time stood behind a step back of the machine's clock, for as long as that had been
    /// ahead: a lock of ten seconds lasted for hours.
    #[test]
    fn behind_a_step_back_it_goes_on_and_never_back() {
        let (mut clock, at) = clock();
        let begin = clock.begin_turn(at);
        clock.machine = (at, 992_800 * S);
        assert_eq!(clock.begin_turn(at), begin);
        assert_eq!(clock.ahead_ms(at), 7_200_000);
        let times: Vec<u64> = (1..=32).map(|n| clock.begin_turn(at + n * S / 2)).collect();
        assert!(times.is_sorted());
        assert_eq!(times.last(), Some(&(begin + 15_000)), "15 of 16 s");
        assert_eq!(clock.ahead_ms(at + 16 * S), 7_199_000);
        // It meets the machine's 2 h × 16 later, and is that from then on.
        let met = at + 7_200 * 16 * S;
        assert_eq!(clock.begin_turn(met), clock.machine_ms(met));
        assert_eq!(clock.begin_turn(met + S), clock.machine_ms(met) + 1000);
        // A second step back counts from there.
        let latest = clock.begin_turn(met + S);
        clock.machine.1 -= 100 * S;
        assert_eq!(clock.begin_turn(met + S), latest);
        assert_eq!(clock.begin_turn(met + 17 * S), latest + 15_000);
    }

    /// What a server before has judged by may be ahead, by any time.
    #[test]
    fn it_begins_where_the_server_before_was() {
        let (mut clock, at) = clock();
        clock.latest_ms = u64::MAX - 1;
        assert_eq!(clock.begin_turn(at), u64::MAX - 1);
        assert_eq!(clock.begin_turn(at + 9 * S), u64::MAX);
    }
}
