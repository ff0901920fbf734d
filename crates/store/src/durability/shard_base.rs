//! The owner's part of a base that is written while it serves: a walk over all records, then the
//! keys that stand on what was before.
//!
//! ```text
//! place ── some lines of the index ──> keys ──> each one's record as it is now ──> Again
//! all streams walked ──> keys that stand on changes of before the base ──> Again ... none is left ──> BaseEnds
//! ```
//!
//! 1. The walk meets each key that is there all the time. One that comes or changes meanwhile is in
//!    the journal: in the same queue, in its place. It goes by the order of the lines, so that a
//!    replay finds room for what comes.
//! 2. A key that a long value was moved or made to from a record that the walk hadn't met stands on
//!    what the chain doesn't have: the last part finds it by its root.
//!
//! The shard's thread. Rules: docs/formats/log.md, Bases.

use crate::durability::looks::{Arenas, Files, Walked};
use nigh_shm::LineWalk;
use std::collections::VecDeque;

/// Home lines of the index that are looked at for keys, at a time.
const LINES_PER_LOOK: u32 = 32;
/// A key of a base needs nothing before the chain's first file; what is appended lies in that, or
/// behind it.
pub(super) const BASE_FILES: Files = Files { victim: 0, newest: 1 };

/// A base at one shard.
pub(super) struct BaseWalk {
    /// Streams, each with its last LSN when the base began.
    streams: Vec<(u32, u64)>,
    /// The stream that is walked, and how far; behind the last one come keys that stand on others.
    at: usize,
    place: LineWalk,
    keys: VecDeque<(u32, Box<[u8]>)>,
}

impl BaseWalk {
    pub(super) fn new(streams: Vec<(u32, u64)>) -> BaseWalk {
        BaseWalk { streams, at: 0, place: LineWalk::default(), keys: VecDeque::new() }
    }

    /// The next key; `None` if none is at hand.
    pub(super) fn next_key(&mut self) -> Option<(u32, Box<[u8]>)> {
        self.keys.pop_front()
    }

    /// Looks for more keys. If there are no more, the base ends.
    pub(super) fn look(&mut self, arenas: &mut dyn Arenas) -> Walked {
        let Some((stream, _)) = self.streams.get(self.at) else {
            return self.look_at_standing(arenas);
        };
        match arenas.walk(*stream, &mut self.place, LINES_PER_LOOK, &mut self.keys) {
            Walked::AllOver => (self.at, self.place) = (self.at + 1, LineWalk::default()),
            Walked::More => {}
            bad @ Walked::Bad(_) => return bad,
        }
        Walked::More
    }

    fn look_at_standing(&mut self, arenas: &mut dyn Arenas) -> Walked {
        for (stream, lsn) in &self.streams {
            let keys = arenas.rooted_in(BASE_FILES.victim, *stream, *lsn);
            self.keys.extend(keys.into_iter().map(|key| (*stream, key)));
        }
        if self.keys.is_empty() { Walked::AllOver } else { Walked::More }
    }
}
