//! How much the work of a turn may take, so that no client waits long for its turn: time, and bytes
//! of long replies.
//!
//! ```text
//! turn:  connections put off │ all other connections │ other shards      a budget for each part
//!                   ^                   │
//!                   └── puts off ───────┘
//! ```
//!
//! 1. Each part of a turn has a budget of its own, so none of them keeps another from its work. The
//!    first command of a part always runs: every turn gets on.
//! 2. When its time is used up, a part runs no further command.
//! 3. When its bytes are used up, a part runs no further command with a long reply; others go on. A
//!    client that doesn't read makes the shard copy what its socket doesn't take, and fresh memory
//!    costs a millisecond for some MiB: a thousand clients that asked for 10 MB each kept all
//!    others waiting for nine seconds.
//! 4. A connection whose command was put off waits in `Ready::put_off`, where all go on in their
//!    order.
//! 5. The clock is read where it is read anyway: around windows, and around commands that are
//!    measured by themselves; else only after commands whose time depends on what they are given
//!    ([`may_take_long`]).
//!
//! Belongs to the shard's thread.

use crate::state::PART_TIME;
use nigh_store::Op;
use std::time::{Duration, Instant};

/// Replies from this length on count: shorter ones are the sockets' daily bread.
pub(crate) const LONG_REPLY_BYTES: usize = 64 << 10;
/// Bytes of long replies that a part of a turn has: some milliseconds of copying.
const LONG_REPLIES_BYTES: usize = 4 << 20;
/// Arguments from which on a command is one of many keys.
const MANY_ARGS: usize = 64;

/// What is left of a part's time and bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    began: Instant,
    long_bytes: usize,
    is_over: bool,
    is_full: bool,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, long_bytes: 0, is_over: false, is_full: false }
    }

    /// Whether some of it is used up, so that commands are to be looked at before they run.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_over | self.is_full
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether a command whose reply has about so many bytes is put off.
    pub(crate) fn puts_off(&self, reply_bytes: impl FnOnce() -> usize) -> bool {
        self.is_over || self.is_full && reply_bytes() >= LONG_REPLY_BYTES
    }

    /// It is `now`: is the time over?
    #[inline]
    pub(crate) fn look(&mut self, now: Instant) {
        self.is_over |= now.saturating_duration_since(self.began) >= PART_TIME;
    }

    /// A command has a reply of so many bytes.
    #[inline]
    pub(crate) fn count_reply(&mut self, bytes: usize) {
        if bytes >= LONG_REPLY_BYTES {
            self.long_bytes += bytes;
            self.is_full = self.long_bytes >= LONG_REPLIES_BYTES;
        }
    }
}

/// How many function calls are run at once: as many as take no longer than a part's time, by what
/// the last ones took.
#[derive(Debug)]
pub(crate) struct CallsAtOnce(usize);

impl CallsAtOnce {
    /// Few calls, until it is known how long they take.
    const FIRST: usize = 8;

    pub(crate) fn new() -> Self {
        Self(Self::FIRST)
    }

    /// How many there may be, of at most `most`.
    pub(crate) fn get(&self, most: usize) -> usize {
        self.0.min(most)
    }

    /// So many took so long, where `most` is what a batch holds.
    pub(crate) fn took(&mut self, calls: usize, time: Duration, most: usize) {
        if time >= PART_TIME {
            self.0 = (calls / 2).max(1);
        } else if calls >= self.0 && time < PART_TIME / 4 {
            self.0 = (2 * self.0).min(most);
        }
    }
}

/// Whether the time of a command that counts as quick depends on what it is given: many keys, or a
/// value that it writes anew or computes with.
#[inline]
pub(crate) fn may_take_long(op: Op, args: usize) -> bool {
    args >= MANY_ARGS || matches!(op, Op::Append | Op::SetRange | Op::IncrByFloat)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_time_of_a_part_ends() {
        // Ten commands of a millisecond each: the fifth is the next turn's.
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mut ran = 0;
        while !budget.puts_off(|| 0) {
            ran += 1;
            budget.look(start + Duration::from_millis(ran));
        }
        assert_eq!((ran, budget.is_used()), (4, true));
        assert!(!Budget::new(start + PART_TIME).is_used());
    }

    #[test]
    fn long_replies_wait_and_short_ones_go_on() {
        let mut budget = Budget::new(Instant::now());
        (0..1_000_000).for_each(|_| budget.count_reply(LONG_REPLY_BYTES - 1));
        assert!(!budget.is_used(), "short replies don't count");
        (0..4).for_each(|_| {
            assert!(!budget.puts_off(|| 10 * MIB), "the first is let through, however long");
            budget.count_reply(MIB);
        });
        assert!(budget.is_used() && budget.puts_off(|| LONG_REPLY_BYTES));
        assert!(!budget.puts_off(|| LONG_REPLY_BYTES - 1));
    }

    #[test]
    fn slow_calls_are_run_a_few_at_once() {
        // 512 calls of 40 ms were one batch, for which all others waited 20 seconds.
        let each = |calls: &mut CallsAtOnce, ns: u64| {
            let ran = calls.get(512);
            calls.took(ran, Duration::from_nanos(ns * ran as u64), 512);
        };
        let mut calls = CallsAtOnce::new();
        (0..10).for_each(|_| each(&mut calls, 200));
        assert_eq!(calls.get(512), 512);
        (0..10).for_each(|_| each(&mut calls, 40_000_000));
        assert_eq!(calls.get(512), 1);
        (0..10).for_each(|_| each(&mut calls, 200));
        assert_eq!(calls.get(512), 512);
    }
}
