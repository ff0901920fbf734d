//! How many commands a connection may have at other shards at a time, of which replies are still to
//! come.
//!
//! 1. An allowance begins with few commands and grows by one with each reply. It shrinks when
//!    replies are long: `output-buffer-pause` bytes of them may be under way. So a client that
//!    doesn't read can't make an owner copy without end. (The idea is TCP's: RFC 5681.)
//! 2. Commands whose replies may be long have an allowance of their own. Short replies, such as OK
//!    to a write, don't say that long ones will be short.
//! 3. That allowance is [`MOST_LONG`] at most. Replies may get longer from one to the next, when
//!    the owner has begun them already.
//!
//! Belongs to the shard's thread.

/// Commands that a new connection may have: before it is known how long its replies are.
const FIRST: usize = 8;
/// Of those, the ones whose replies may be long.
const FIRST_LONG: usize = 1;
/// The most: a fourth of a mailbox's credits with two shards.
const MOST: usize = 512;
/// The most of those whose replies may be long.
const MOST_LONG: usize = 32;

/// An allowance.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Of all commands.
    all: usize,
    /// Of those whose replies may be long, and how many are under way.
    long: usize,
    long_sent: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { all: FIRST, long: FIRST_LONG, long_sent: 0 }
    }
}

impl Allowance {
    /// Whether one more may be sent when `sent` are under way.
    #[inline]
    pub(crate) fn allows(&self, sent: usize, is_brief: bool) -> bool {
        sent < self.all && (is_brief || self.long_sent < self.long)
    }

    /// One with a long reply was sent.
    pub(crate) fn sent_long(&mut self) {
        self.long_sent += 1;
    }

    /// The replies to some commands came, `bytes` together; `pause` bytes may be under way.
    #[inline]
    pub(crate) fn came(&mut self, commands: usize, bytes: usize, is_brief: bool, pause: usize) {
        let most = (pause / (bytes / commands.max(1)).max(1)).max(1);
        if is_brief {
            self.all = (self.all + commands).min(most).min(MOST);
        } else {
            self.long_sent -= commands;
            self.long = (self.long + commands).min(most).min(MOST_LONG);
        }
    }

    /// Whether a connection that waits goes on: half of what it may have has come.
    pub(crate) fn is_half_free(&self, sent: usize) -> bool {
        sent <= self.all / 2 && self.long_sent <= self.long / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a kind may be sent at once.
    fn room(allowance: &mut Allowance, is_brief: bool) -> usize {
        let before = allowance.long_sent;
        let mut sent = before;
        while allowance.allows(sent, is_brief) {
            sent += 1;
            allowance.long_sent += usize::from(!is_brief);
        }
        allowance.long_sent = before;
        sent - before
    }

    #[test]
    fn short_replies_dont_let_long_ones_through() {
        // After 500 writes, 511 reads of 20 MB went to the owner at once, which copied 10 GB while
        // all others waited.
        let mut allowance = Allowance::default();
        assert_eq!((room(&mut allowance, true), room(&mut allowance, false)), (FIRST, FIRST_LONG));
        (0..1000).for_each(|_| allowance.came(1, 5, true, 1 << 20));
        assert_eq!((room(&mut allowance, true), room(&mut allowance, false)), (MOST, FIRST_LONG));
        for _ in 0..1000 {
            allowance.sent_long();
            allowance.came(1, 100, false, 1 << 20);
        }
        assert_eq!((room(&mut allowance, true), room(&mut allowance, false)), (MOST, MOST_LONG));
        allowance.sent_long();
        allowance.came(1, 20 << 20, false, 1 << 20);
        assert_eq!((room(&mut allowance, true), room(&mut allowance, false)), (MOST, 1));
    }

    #[test]
    fn each_reply_gives_back_its_own_place_once() {
        // What is under way is counted anew by the test, for mixes of both kinds and requests of
        // several commands.
        let (mut allowance, mut long_sent) = (Allowance::default(), 0);
        for step in 0..10_000_usize {
            let may = allowance.allows(0, false);
            assert_eq!(may, long_sent < allowance.long, "step {step}");
            if may && step % 7 != 6 {
                allowance.sent_long();
                long_sent += 1;
            } else if long_sent > 0 && step % 3 != 0 {
                let commands = long_sent.min(1 + step % 2);
                allowance.came(commands, 100 * commands, false, 1 << 20);
                long_sent -= commands;
            } else {
                allowance.came(1, 5, true, 1 << 20);
            }
            assert_eq!(allowance.long_sent, long_sent, "step {step}");
        }
        assert_eq!(allowance.long, MOST_LONG);
    }

    #[test]
    fn who_waits_goes_on_in_the_end() {
        // Whatever was sent, once nothing is under way one more is allowed.
        let mut allowance = Allowance::default();
        for bytes in [1, 1 << 30, 0, 5] {
            allowance.sent_long();
            assert!(!allowance.is_half_free(MOST));
            allowance.came(1, bytes, false, 1 << 14);
            allowance.came(3, bytes, true, 1 << 14);
            assert!(allowance.is_half_free(0));
            assert!(allowance.allows(0, true) && allowance.allows(0, false));
        }
    }
}
