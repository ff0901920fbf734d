//! Histories of one key. Since keys are independent (linearizability is local: Herlihy and Wing,
//! TOPLAS 1990), each key's history of operations of one key is checked for itself.

use super::{Operation, fits};

/// What a client asked of one key, and was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// GET: the value.
    Read(Option<i64>),
    /// SET.
    Write(i64),
    /// DEL: whether there was something.
    Delete(bool),
    /// GETSET: the value before.
    Swap(i64, Option<i64>),
    /// SET NX: whether it was set.
    Create(i64, bool),
    /// INCR: the value after.
    Add(i64),
}

/// The state after an operation, or `None` if it can't have happened in this state.
fn step(state: Option<i64>, did: &Did) -> Option<Option<i64>> {
    match *did {
        Did::Read(value) => (value == state).then_some(state),
        Did::Write(value) => Some(Some(value)),
        Did::Delete(was) => (was == state.is_some()).then_some(None),
        Did::Swap(value, before) => (before == state).then_some(Some(value)),
        Did::Create(value, true) => state.is_none().then_some(Some(value)),
        Did::Create(_, false) => state.is_some().then_some(state),
        Did::Add(after) => (state.unwrap_or(0) + 1 == after).then_some(Some(after)),
    }
}

/// Whether one key's history, from the empty key on, is linearizable.
pub fn is_linearizable(operations: &[Operation<Did>]) -> bool {
    fits(operations, None, |state, did| step(*state, did))
}
