//! Changes of a log's frame, checked ahead of their turn.
//!
//! ```text
//! frame   . . . . [ being done ] [ checked, lines loaded, records asked for ] . . . .
//! ```
//!
//! A change waits for memory twice: for the index line of its key, and for the record that it
//! replaces. Those of many changes are waited for together.
//!
//! 1. What is wrong with a change is said when its turn comes: all before it was done.
//!
//! One thread for each chain.

use crate::open::durable::building::Building;
use nigh_log::FramedChange;
use nigh_shm::{CheckedChange, Effect, ReplayError, StreamChange};
use std::collections::BTreeMap;

/// Changes that are checked at a time: more waits than a core can have under way.
const CHANGES_AT_ONCE: usize = 64;
/// Changes that are done before those checked are forgotten, so that what is looked at stays in
/// the cache.
const CHANGES_KEPT: usize = 256;

/// The changes of a frame that are still to be done.
pub(super) struct ChangesAhead<'a> {
    /// Those that aren't checked yet.
    rest: &'a [FramedChange<'a>],
    /// Those that are; of streams that are built only.
    checked: Vec<CheckedChange<'a>>,
    /// The first that isn't done.
    next: usize,
    /// Why the change behind them can't be done.
    failed: Option<ReplayError>,
}

impl<'a> ChangesAhead<'a> {
    pub(super) fn new(changes: &'a [FramedChange<'a>]) -> ChangesAhead<'a> {
        let most = changes.len().min(CHANGES_KEPT + 2 * CHANGES_AT_ONCE);
        ChangesAhead { rest: changes, checked: Vec::with_capacity(most), next: 0, failed: None }
    }

    /// The next so many changes, which are of a stream that is built.
    ///
    /// # Errors
    /// If the bytes of one of them are wrong.
    pub(super) fn take(
        &mut self,
        building: &BTreeMap<u32, Building>,
        count: usize,
    ) -> Result<&[CheckedChange<'a>], ReplayError> {
        while self.checked.len() < self.next + count && !self.rest.is_empty() {
            self.check_more(building);
        }
        let (from, to) = (self.next, self.next + count);
        self.next = to;
        match (self.checked.get(from..to), self.failed) {
            (Some(changes), _) => Ok(changes),
            (None, Some(error)) => Err(error),
            (None, None) => unreachable!("a frame has all changes of its commits"),
        }
    }

    fn check_more(&mut self, building: &BTreeMap<u32, Building>) {
        if self.next >= CHANGES_KEPT {
            self.checked.drain(..self.next);
            self.next = 0;
        }
        let (now, rest) = self.rest.split_at(self.rest.len().min(CHANGES_AT_ONCE));
        self.rest = rest;
        for of_stream in now.chunk_by(|a, b| a.header.stream == b.header.stream) {
            let stream = of_stream.first().map(|first| first.header.stream);
            let Some(arena) = stream.and_then(|stream| building.get(&stream)) else { continue };
            let from = self.checked.len();
            for change in of_stream {
                match arena.check(&change_of(change)) {
                    Ok(checked) => self.checked.push(checked),
                    Err(error) => {
                        (self.failed, self.rest) = (Some(error), &[]);
                        return;
                    }
                }
            }
            arena.ask_for(&self.checked[from..]);
        }
    }
}

/// A change as an arena takes it.
fn change_of<'a>(change: &FramedChange<'a>) -> StreamChange<'a> {
    StreamChange {
        lsn: change.header.lsn,
        effect: Effect::of_byte(change.header.kind.byte()).expect("as in the journal"),
        payload: change.payload,
        rest: &[],
    }
}
