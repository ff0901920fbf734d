//! Histories of all keys of one partition: reads and writes of several keys, each at one moment.
//!
//! 1. Each value is written once, so a read says which write it saw.
//! 2. A key with an expiry may go at any time from its due time on, and not before: that is an
//!    operation of its own, which never returns.
//! 3. An operation on several partitions is one operation of each.

use super::{NEVER, Operation, fits};

/// A part of what an operation did at its moment, in order. Keys are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// GET, or one key of MGET or of a function: the value.
    Read(usize, Option<u64>),
    /// SET, or one key of MSET.
    Set(usize, u64),
    /// DEL: whether there was something.
    Delete(usize, bool),
    /// EXISTS, of all keys in the mask: how many there are.
    Count(u64, u64),
    /// FLUSHALL.
    Clear,
    /// The key's time is over, if it still has this value.
    Expire(usize, u64),
}

/// What an operation did: its parts at one moment.
pub type Acts = Vec<Act>;

/// Values of the keys by number.
type State = Vec<Option<u64>>;

/// The expiry of what an operation sets: from `due` on it may go.
pub fn expiry(key: usize, value: u64, due: u64) -> Operation<Acts> {
    Operation { did: vec![Act::Expire(key, value)], called: due, returned: NEVER, behind: None }
}

fn step(state: &State, acts: &Acts) -> Option<State> {
    let mut state = state.clone();
    for act in acts {
        match *act {
            Act::Read(key, value) if state[key] == value => {}
            Act::Set(key, value) => state[key] = Some(value),
            Act::Delete(key, was) if state[key].is_some() == was => state[key] = None,
            Act::Count(mask, count) => {
                let there = |key: &usize| mask >> key & 1 == 1 && state[*key].is_some();
                if (0..state.len()).filter(there).count() as u64 != count {
                    return None;
                }
            }
            Act::Clear => state.fill(None),
            Act::Expire(key, value) if state[key] == Some(value) => state[key] = None,
            Act::Read(..) | Act::Delete(..) | Act::Expire(..) => return None,
        }
    }
    Some(state)
}

/// Whether a partition's history, from no keys on, is strictly serialisable.
pub fn is_serialisable(operations: &[Operation<Acts>], keys: usize) -> bool {
    fits(operations, vec![None; keys], step)
}

/// The same of each key alone: only its parts of each operation. Counts of several keys say nothing
/// of one.
pub fn is_serialisable_by_key(operations: &[Operation<Acts>], keys: usize) -> bool {
    (0..keys).all(|only| {
        let of_key = |act: &Act| match *act {
            Act::Read(key, _) | Act::Set(key, _) | Act::Delete(key, _) | Act::Expire(key, _) => {
                key == only
            }
            Act::Clear => true,
            Act::Count(mask, _) => mask == 1 << only,
        };
        let part = |operation: &Operation<Acts>| Operation {
            did: operation.did.iter().copied().filter(of_key).collect(),
            ..operation.clone()
        };
        is_serialisable(&operations.iter().map(part).collect::<Vec<_>>(), keys)
    })
}
