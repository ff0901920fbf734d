//! What a start does with each stream: the decisions of docs/formats/journal.md, Adoption 6 and 11.
//!
//! ```text
//!            log: ... L        journal: F .. J        arena: committed C .. A
//! continues: no F, or F ≤ L + 1      usable: it lacks nothing, or the journal has what it lacks
//! ```
//!
//! 1. A stream is served only if its arena, or log and journal together, have all that was told.
//! 2. The log goes on with a stream only if it and the journal have all that memory has; else a
//!    base is written first.
//!
//! Pure: any thread.

/// What was found of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamFacts {
    /// The last LSN in the log; `None` if no chain counts for it.
    pub(crate) log_last: Option<u64>,
    /// First and last LSN in the journals.
    pub(crate) journal: Option<(u64, u64)>,
    /// Committed LSN and last LSN of its arena; `None` if that can't be adopted.
    pub(crate) arena: Option<ArenaLsns>,
}

/// The LSNs of an arena that can be adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArenaLsns {
    /// All changes up to here were committed.
    pub(crate) committed: u64,
    /// The last one that the arena knows of.
    pub(crate) last: u64,
}

/// Where a stream's keys come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Its arena, in which the journal is redone.
    Arena,
    /// The log, and the journal behind it.
    Log,
    /// Nothing is there: it is new.
    New,
}

/// What a start does with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPlan {
    pub(crate) origin: Origin,
    /// The journal's entries are behind the log without a gap: they may be written to it.
    pub(crate) continues: bool,
    /// The chain doesn't have all that memory has: a base is written before it counts.
    pub(crate) needs_base: bool,
}

impl StreamFacts {
    /// The plan; `None` if neither memory nor the log has all: the log is an older copy.
    pub(crate) fn plan(&self) -> Option<StreamPlan> {
        let log = self.log_last.unwrap_or(0);
        let continues = self.journal.is_none_or(|(first, _)| first <= log + 1);
        let journal_last = self.journal.map_or(0, |(_, last)| last);
        let usable = self.arena.filter(|arena| match self.journal {
            // The journal is redone in it from its committed LSN on.
            Some((first, last)) => arena.committed + 1 >= first && arena.committed.max(last) >= log,
            None => arena.last >= log,
        });
        let origin = match (usable, self.log_last) {
            (Some(_), _) => Origin::Arena,
            (None, Some(_)) if continues => Origin::Log,
            (None, None) if self.journal.is_none() && self.arena.is_none() => Origin::New,
            _ => return None,
        };
        let has_more = usable.is_some_and(|arena| arena.last > log.max(journal_last));
        let needs_base = !continues || has_more || self.log_last.is_none();
        Some(StreamPlan { origin, continues, needs_base })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(
        log_last: Option<u64>,
        journal: Option<(u64, u64)>,
        arena: Option<(u64, u64)>,
    ) -> StreamFacts {
        let arena = arena.map(|(committed, last)| ArenaLsns { committed, last });
        StreamFacts { log_last, journal, arena }
    }

    fn plan(facts: StreamFacts) -> Option<(Origin, bool, bool)> {
        facts.plan().map(|plan| (plan.origin, plan.continues, plan.needs_base))
    }

    /// After a kill the arena has all that was told; what the log lacks is in the journal.
    #[test]
    fn a_kill_needs_neither_replay_nor_base() {
        for log in 5..=9 {
            for (committed, last) in [(7, 7), (8, 9), (9, 9)] {
                let found = facts(Some(log), Some((6, 9)), Some((committed, last)));
                assert_eq!(plan(found), Some((Origin::Arena, true, false)), "{found:?}");
            }
        }
    }

    /// After a power cut or another boot there is only the log.
    #[test]
    fn without_arenas_the_log_is_replayed() {
        assert_eq!(plan(facts(Some(9), None, None)), Some((Origin::Log, true, false)));
        // Its arena went, the journal stayed.
        assert_eq!(plan(facts(Some(5), Some((6, 9)), None)), Some((Origin::Log, true, false)));
        // The arena is of an earlier time than the log.
        assert_eq!(plan(facts(Some(9), None, Some((4, 4)))), Some((Origin::Log, true, false)));
    }

    /// A copy of the log that is older than memory must not take newer memory's place.
    #[test]
    fn an_older_log_is_not_taken_for_all() {
        assert_eq!(plan(facts(Some(3), Some((6, 9)), None)), None);
        assert_eq!(plan(facts(Some(3), Some((6, 9)), Some((2, 2)))), None);
        // Memory has all: the log begins anew from it.
        let found = facts(Some(3), Some((6, 9)), Some((9, 9)));
        assert_eq!(plan(found), Some((Origin::Arena, false, true)));
        assert_eq!(plan(facts(Some(3), None, Some((9, 9)))), Some((Origin::Arena, true, true)));
    }

    /// Arenas of a server without a log get one by a base; nothing at all is a new store.
    #[test]
    fn a_first_log_begins_with_what_is_there() {
        assert_eq!(plan(facts(None, None, Some((4, 4)))), Some((Origin::Arena, true, true)));
        assert_eq!(plan(facts(None, None, None)), Some((Origin::New, true, true)));
        assert_eq!(plan(facts(None, Some((1, 2)), None)), None, "what the journal has is lost");
    }

    /// Whatever is found: a served stream has every LSN that log, journal or arena tells of, or the
    /// start refuses.
    #[test]
    fn nothing_that_was_told_is_left_out() {
        let some = |n: u64| (n < 4).then_some(n);
        let pairs = || (0..5).flat_map(|a| (a..5).map(move |b| (a, b)));
        for log in (0..5).map(some) {
            for journal in pairs().map(|(f, j)| (f > 0 && j < 4).then_some((f, j))) {
                for arena in pairs().map(|(c, a)| (a < 4).then_some((c, a))) {
                    let found = facts(log, journal, arena);
                    let Some(plan) = found.plan() else { continue };
                    let told = log.unwrap_or(0).max(journal.map_or(0, |(_, last)| last));
                    let has = |lsn: u64| {
                        let journaled = journal.is_some_and(|(f, j)| (f..=j).contains(&lsn));
                        let logged = log.is_some_and(|last| lsn <= last);
                        let in_arena = arena.is_some_and(|(committed, _)| lsn <= committed);
                        let whole = journal.is_none() && arena.is_some_and(|(_, last)| lsn <= last);
                        match plan.origin {
                            Origin::Arena => in_arena || whole || journaled,
                            Origin::Log => logged || journaled,
                            Origin::New => false,
                        }
                    };
                    assert!((1..=told).all(has), "{found:?} {plan:?}");
                }
            }
        }
    }
}
