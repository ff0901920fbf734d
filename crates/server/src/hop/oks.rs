//! Replies that are all OK, as those to writes nearly always are: who gives them is kept, but no text.
//!
//! ```text
//! commands  SET a  SET b  SET c  SET d        a, b and d are another shard's
//! from      1      1      HERE   1            none has come: nothing leaves
//! ```
//!
//! 1. Replies leave in the order of the commands; those of one shard come in the order of what was sent to it.
//! 2. When the last has come that is to come, all leave, and nobody looks who gave which.
//! 3. What waits is bounded: [`MOST`].
//!
//! Belongs to the shard's thread, as part of [`crate::hop::later`].

use crate::hop::mailbox::MOST_SHARDS;
use nigh_resp::encode;
use smallvec::SmallVec;

/// The most that wait: a long pipeline.
pub(crate) const MOST: usize = 64;
/// Given here.
pub(crate) const HERE: u8 = u8::MAX;
const _: () = assert!(MOST_SHARDS <= HERE as usize, "no shard has that number");

/// As many OKs as wait at most.
static TEXT: [u8; MOST * encode::OK.len()] = repeated();

const fn repeated() -> [u8; MOST * encode::OK.len()] {
    let mut text = [0; MOST * encode::OK.len()];
    let mut at = 0;
    while at < text.len() {
        text[at] = encode::OK[at % encode::OK.len()];
        at += 1;
    }
    text
}

/// So many OKs: [`MOST`] at most.
pub(crate) fn text(count: usize) -> &'static [u8] {
    &TEXT[..count * encode::OK.len()]
}

/// Replies that wait.
#[derive(Debug, Default)]
pub(crate) struct Oks {
    /// Who gives each: a shard, or [`HERE`].
    pub(crate) from: SmallVec<[u8; MOST]>,
    /// By shard: those that came before their turn.
    pub(crate) early: SmallVec<[u8; 8]>,
}

impl Oks {
    /// Whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.from.is_empty()
    }

    /// One more is to come from a shard, or is given here; false if there are too many.
    #[inline]
    pub(crate) fn push(&mut self, from: u8) -> bool {
        let fits = self.from.len() < MOST;
        if fits {
            self.from.push(from);
        }
        fits
    }

    /// A shard has given so many. Writes what can go, and returns how many that are; `is_all` if nothing else is to come.
    pub(crate) fn came(&mut self, shard: u8, count: u8, is_all: bool, out: &mut Vec<u8>) -> usize {
        let mut leave = self.from.len();
        if is_all {
            self.from.clear();
            self.early.clear();
        } else {
            if self.early.len() <= usize::from(shard) {
                self.early.resize(usize::from(shard) + 1, 0);
            }
            self.early[usize::from(shard)] += count;
            let early = &mut self.early;
            let waits = |from: &u8| match early.get_mut(usize::from(*from)) {
                Some(came @ 1..) => {
                    *came -= 1;
                    false
                }
                _ => *from != HERE,
            };
            leave = self.from.iter().position(waits).unwrap_or(leave);
            self.from.drain(..leave);
        }
        out.extend_from_slice(text(leave));
        leave
    }
}
