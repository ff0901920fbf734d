//! How much of a connection's work may be under way at other shards, in units.
//!
//! 1. A command under way takes units of its connection's allowance until its reply comes. One
//!    whose reply is always short takes one unit. Any other takes as many as the connection's last
//!    long reply is of `output-buffer-pause`, and all of them before there was one. So a client
//!    that doesn't read can't make an owner copy without end.
//! 2. Replies may grow from one command to the next, and the owner may have begun both by then. So
//!    a long one takes [`LEAST_LONG`] units at least, whatever the last one took.
//! 3. One more may be sent while any unit is free. So one is allowed beside any number of brief
//!    ones, however long its reply.
//!
//! Belongs to the shard's thread.

/// All of it: a fourth of a mailbox's credits with two shards.
const UNITS: usize = 512;
/// The least that a command with a long reply takes: so 32 of them are under way at most.
const LEAST_LONG: usize = UNITS / 32;

/// A connection's allowance.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Units that a command with a long reply takes.
    each_long: usize,
    /// Such commands that are under way.
    long_sent: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { each_long: UNITS, long_sent: 0 }
    }
}

impl Allowance {
    /// Units that are taken when `sent` commands are under way.
    fn taken(&self, sent: usize) -> usize {
        sent.saturating_sub(self.long_sent) + self.long_sent * self.each_long
    }

    /// Whether one more may be sent when `sent` are under way: while any unit is free.
    #[inline]
    pub(crate) fn allows(&self, sent: usize) -> bool {
        self.taken(sent) < UNITS
    }

    /// One with a long reply was sent.
    pub(crate) fn sent_long(&mut self) {
        self.long_sent += 1;
    }

    /// The reply to a command that isn't brief came, of so many bytes; `pause` is
    /// `output-buffer-pause`, in bytes.
    #[inline]
    pub(crate) fn long_came(&mut self, bytes: usize, pause: usize) {
        self.long_sent -= 1;
        self.each_long = (bytes.saturating_mul(UNITS) / pause.max(1)).clamp(LEAST_LONG, UNITS);
    }

    /// Whether a connection that waits goes on: half of the units are free.
    pub(crate) fn is_half_free(&self, sent: usize) -> bool {
        self.taken(sent) <= UNITS / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a kind may be sent at once when nothing is under way.
    fn room(allowance: &mut Allowance, is_brief: bool) -> usize {
        assert_eq!(allowance.long_sent, 0);
        let mut sent = 0;
        while allowance.allows(sent) {
            sent += 1;
            allowance.long_sent += usize::from(!is_brief);
        }
        allowance.long_sent = 0;
        sent
    }

    /// A command is sent, and its long reply comes.
    fn answer(allowance: &mut Allowance, bytes: usize) {
        allowance.sent_long();
        allowance.long_came(bytes, 1 << 20);
    }

    #[test]
    fn as_many_are_under_way_as_the_last_long_reply_lets() {
        // After 500 writes, 511 reads of 20 MB went to the owner at once, which copied 10 GB while
        // all others waited.
        let mut allowance = Allowance::default();
        assert_eq!((room(&mut allowance, true), room(&mut allowance, false)), (UNITS, 1));
        for (bytes, most) in [(100, 32), (32 << 10, 32), (100 << 10, 11), (20 << 20, 1), (0, 32)] {
            answer(&mut allowance, bytes);
            assert_eq!(room(&mut allowance, false), most, "after a reply of {bytes} bytes");
            assert_eq!(room(&mut allowance, true), UNITS, "a brief one takes a unit");
        }
        // Both kinds share the window.
        allowance.sent_long();
        assert!(allowance.allows(UNITS - LEAST_LONG) && !allowance.allows(UNITS - LEAST_LONG + 1));
    }

    #[test]
    fn a_waiting_connection_goes_on_in_the_end() {
        // Whatever was sent, once nothing is under way one more is allowed.
        let mut allowance = Allowance::default();
        for bytes in [1, 1 << 30, 0, 5, usize::MAX] {
            allowance.sent_long();
            assert!(!allowance.is_half_free(UNITS));
            allowance.long_came(bytes, 1 << 14);
            assert!(allowance.is_half_free(UNITS / 2) && !allowance.is_half_free(UNITS / 2 + 1));
            assert!(allowance.allows(0));
        }
    }

    #[test]
    fn each_long_reply_gives_back_its_place_once() {
        let (mut allowance, mut under_way) = (Allowance::default(), 0);
        for step in 0..10_000_usize {
            if allowance.allows(under_way) && step % 7 != 6 {
                allowance.sent_long();
                under_way += 1;
            } else if under_way > 0 {
                allowance.long_came(100, 1 << 20);
                under_way -= 1;
            }
            assert_eq!(allowance.long_sent, under_way, "step {step}");
            assert!(under_way <= UNITS / LEAST_LONG);
        }
    }
}
