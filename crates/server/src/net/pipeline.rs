//! Commands in their order, and the replies to them: what a client's connection and another shard
//! have in common.
//!
//! ```text
//! input ──(executed in order)──> out
//! ```
//!
//! What executes commands takes a pipeline; a [`crate::net::party::Party`] says whose it is.
//!
//! Belongs to the shard's thread.

use crate::net::client::Client;
use crate::net::depends::Depends;
use crate::net::input::Input;
use crate::net::output::Output;
use nigh_store::Scarce;
use std::time::{Duration, Instant};

/// How long writes wait for memory that others still look at, such as a function on another shard.
const MOST_WAIT: Duration = Duration::from_secs(1);

/// Commands that arrive, and replies that wait to leave.
pub(crate) struct Pipeline {
    pub(crate) input: Input,
    pub(crate) out: Output,
    pub(crate) client: Client,
    /// Not to be executed further in this round: it waits for functions, a reader, or its end.
    pub(crate) stopped: bool,
    /// Stopped only until the functions of this turn have run.
    pub(crate) parked: bool,
    /// Its next command is put off: see [`crate::turn::budget`].
    pub(crate) is_put_off: bool,
    /// What the replies that wait depend on; of a client.
    pub(crate) depends: Depends,
    /// What it waits for, if another shard has to do something first.
    pub(crate) pending: Pending,
    /// Since when its next command has been waiting, turn after turn. It forgets that when a
    /// command is answered or sent; but those that came with one that waited in vain don't wait
    /// anew.
    pub(crate) lacks: Lacking,
    /// The command at hand is refused, since it waited in vain.
    pub(crate) waited_in_vain: bool,
}

/// Since when a command has lacked memory, and room in the journal, which are still to come back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lacking {
    pub(crate) memory: Option<Instant>,
    pub(crate) journal: Option<Instant>,
    /// When it found the journal full last.
    pub(crate) full_at: Option<Instant>,
}

impl Lacking {
    /// A command lacks this now. Room in the journal is waited for as long as the log gets on:
    /// memory that lacked before that, and lacks again behind it, is another wait.
    pub(crate) fn note(&mut self, scarce: Scarce, now: Instant) {
        match scarce {
            Scarce::Memory => _ = self.memory.get_or_insert(now),
            Scarce::Journal => {
                self.memory = None;
                self.journal.get_or_insert(now);
                self.full_at = Some(now);
            }
        }
    }

    /// Whether a command needn't run now: it found the journal full, that hasn't moved since, and
    /// it may wait on.
    #[inline]
    pub(crate) fn rests(
        self,
        now: Instant,
        journal_moved: Instant,
        journal_wait: Duration,
    ) -> bool {
        self.full_at.is_some_and(|at| journal_moved < at)
            && self.may_wait(now, journal_moved, journal_wait).journal
    }

    /// A command waits for memory [`MOST_WAIT`] at most, and for the journal until that hasn't
    /// moved for `journal_wait`.
    pub(crate) fn may_wait(
        self,
        now: Instant,
        journal_moved: Instant,
        journal_wait: Duration,
    ) -> MayWait {
        MayWait {
            memory: self.memory.is_none_or(|since| now - since < MOST_WAIT),
            journal: self.journal.is_none_or(|since| now - since.max(journal_moved) < journal_wait),
        }
    }
}

/// What a command may still wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MayWait {
    pub(crate) memory: bool,
    pub(crate) journal: bool,
}

impl MayWait {
    pub(crate) fn is_for(self, scarce: Scarce) -> bool {
        match scarce {
            Scarce::Memory => self.memory,
            Scarce::Journal => self.journal,
        }
    }
}

impl Pipeline {
    /// The command at hand is answered or sent, and waits no more.
    #[inline]
    pub(crate) fn has_waited(&mut self) {
        let is_refused = std::mem::take(&mut self.waited_in_vain);
        if !is_refused || !self.input.has_more() {
            self.lacks = Lacking::default();
        }
    }

    /// An empty one.
    pub(crate) fn new(client: Client, input: Input) -> Self {
        Self {
            input,
            out: Output::default(),
            client,
            stopped: false,
            parked: false,
            is_put_off: false,
            depends: Depends::default(),
            pending: Pending::Nothing,
            lacks: Lacking::default(),
            waited_in_vain: false,
        }
    }
}

/// What a pipeline waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    Nothing,
    /// Answers of the owner.
    Answers,
    /// Room for so many bytes in the mailbox of the shard in whose queue it stands
    /// ([`crate::turn::held`]).
    Room {
        bytes: usize,
    },
    /// Answers to half of what it may have at other shards at a time.
    Allowance,
    /// To be moved to this shard.
    Move(usize),
    /// Snapshots as new as this ticket.
    Ticket(u64),
    /// They are there: the command that asked for them runs next.
    Refreshed,
    /// The check of a source.
    Check,
    /// Changes to be on disk, or for a time that the client has said.
    Synced,
    /// That is over: the command that asked for it runs next, and says whether they are.
    Waited {
        durable: bool,
    },
    /// The owners of these partitions, a bit for each, to stand still.
    Still(u64),
    /// Nothing: but the next command couldn't be told what it read, before these stood still; or
    /// with one partition, which only the owner tells.
    Unstable(u64),
}

impl Pending {
    /// Whether commands run.
    pub(crate) fn lets_go_on(self) -> bool {
        matches!(self, Self::Nothing | Self::Refreshed | Self::Waited { .. } | Self::Unstable(_))
    }

    /// Whether the next command couldn't be told what it read.
    pub(crate) fn is_unstable(self) -> bool {
        matches!(self, Self::Unstable(_))
    }

    /// Of a command that has waited, whether all is on disk that had begun before.
    pub(crate) fn waited(self) -> Option<bool> {
        match self {
            Self::Waited { durable } => Some(durable),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_the_journal_are_waited_for_by_clocks_of_their_own() {
        // Once there was one clock. A write that had waited for memory was refused as soon as the
        // journal was full, though the log was at work; and the other way round it waited on.
        let now = Instant::now() + Duration::from_secs(100);
        let ago = |ms| Some(now - Duration::from_millis(ms));
        let told = |memory, journal, moved_ms| {
            let lacking = Lacking { memory, journal, ..Lacking::default() };
            let moved = now - Duration::from_millis(moved_ms);
            let MayWait { memory, journal } =
                lacking.may_wait(now, moved, Duration::from_millis(300));
            (memory, journal)
        };
        assert_eq!(told(None, None, 9_000), (true, true));
        assert_eq!(told(ago(2_000), None, 9_000), (false, true));
        assert_eq!(told(None, ago(2_000), 9_000), (true, false));
        assert_eq!(told(ago(2_000), ago(2_000), 200), (false, true));
        assert_eq!(told(ago(900), ago(2_000), 301), (true, false));
    }

    #[test]
    fn what_found_the_journal_full_rests_until_that_moves_or_the_wait_is_over() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let rests = |lacks: Lacking, now, moved| lacks.rests(at(now), at(moved), at(300) - began);
        let mut lacks = Lacking::default();
        assert!(!rests(lacks, 10, 0), "it hasn't run yet");
        lacks.note(Scarce::Journal, at(10));
        assert!(rests(lacks, 11, 9) && !rests(lacks, 11, 10), "it moved at the turn's end");
        assert!(rests(lacks, 309, 9) && !rests(lacks, 310, 9), "it is refused");
        lacks.note(Scarce::Journal, at(20));
        assert!(rests(lacks, 21, 10) && !rests(lacks, 21, 20), "it has run again");
        lacks.note(Scarce::Memory, at(30));
        assert!(!rests(lacks, 31, 20), "memory comes back without the journal");
    }

    #[test]
    fn memory_that_lacks_before_and_behind_the_journal_is_waited_for_anew() {
        // A write lacked memory for a moment, then waited for a slow disk, then lacked memory for a
        // moment: it was told TRYAGAIN, as if it had lacked memory all the time.
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let may_wait = |lacks: Lacking, ms| lacks.may_wait(at(ms), at(ms), Duration::from_secs(1));
        let mut lacks = Lacking::default();
        lacks.note(Scarce::Memory, at(0));
        lacks.note(Scarce::Journal, at(1));
        lacks.note(Scarce::Journal, at(5_000));
        lacks.note(Scarce::Memory, at(5_001));
        assert!(may_wait(lacks, 5_002).memory, "it lacks some since a millisecond");
        lacks.note(Scarce::Memory, at(6_000));
        assert!(!may_wait(lacks, 6_001).memory, "it lacks some since a second");
        assert_eq!(lacks.journal, Some(at(1)));
    }
}
