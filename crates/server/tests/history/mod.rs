//! Histories of concurrent clients, and whether they are linearizable: whether each operation can be given a
//! moment between its call and its return at which it took effect at once, for all operations in one order.
//!
//! Since keys are independent (linearizability is local: Herlihy and Wing, TOPLAS 1990), each key's history
//! is checked for itself. The search is Wing and Gong's (1993) with Lowe's memory of what was tried (2017), as
//! in Porcupine: operations are tried in the order of their calls, an operation that returned without having
//! been placed turns back, and a set of placed operations with a state is tried once.

#![allow(unreachable_pub, reason = "a module of tests")]

use std::collections::HashSet;

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

/// An operation with the moments of its call and its return.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub did: Did,
    pub called: u64,
    pub returned: u64,
}

/// Steps after which a history is given up as too hard: far more than a right one takes.
const MOST_STEPS: u64 = 50_000_000;

/// The state after an operation, or `None` if it can't have happened in this state.
fn step(state: Option<i64>, did: Did) -> Option<Option<i64>> {
    match did {
        Did::Read(value) => (value == state).then_some(state),
        Did::Write(value) => Some(Some(value)),
        Did::Delete(was) => (was == state.is_some()).then_some(None),
        Did::Swap(value, before) => (before == state).then_some(Some(value)),
        Did::Create(value, true) => state.is_none().then_some(Some(value)),
        Did::Create(_, false) => state.is_some().then_some(state),
        Did::Add(after) => (state.unwrap_or(0) + 1 == after).then_some(Some(after)),
    }
}

/// Calls and returns in the order of time, as a list from which placed operations are taken out.
struct Events {
    /// Operation and whether it is its return, by node; node 0 is the head.
    what: Vec<(usize, bool)>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Node of each operation's return.
    returns: Vec<usize>,
}

const HEAD: usize = 0;

impl Events {
    fn new(operations: &[Operation]) -> Self {
        let mut order: Vec<(u64, bool, usize)> = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            assert!(operation.called <= operation.returned, "it returns after its call");
            order.push((operation.called, false, index));
            order.push((operation.returned, true, index));
        }
        // A call at the moment of a return may have been before it.
        order.sort_unstable();
        let nodes = order.len() + 1;
        let mut returns = vec![0; operations.len()];
        let mut what = vec![(usize::MAX, false)];
        for (_, is_return, index) in order {
            if is_return {
                returns[index] = what.len();
            }
            what.push((index, is_return));
        }
        let next = (1..=nodes).map(|node| node % nodes).collect();
        let previous = (0..nodes).map(|node| (node + nodes - 1) % nodes).collect();
        Self { what, next, previous, returns }
    }

    fn take(&mut self, node: usize) {
        let (previous, next) = (self.previous[node], self.next[node]);
        self.next[previous] = next;
        self.previous[next] = previous;
    }

    fn put_back(&mut self, node: usize) {
        let (previous, next) = (self.previous[node], self.next[node]);
        self.next[previous] = node;
        self.previous[next] = node;
    }
}

/// Whether one key's history, from the empty key on, is linearizable.
pub fn is_linearizable(operations: &[Operation]) -> bool {
    let mut events = Events::new(operations);
    let mut placed = vec![0u64; operations.len().div_ceil(64)];
    let mut tried = HashSet::new();
    let mut path: Vec<(usize, Option<i64>)> = Vec::new();
    let (mut state, mut node) = (None, events.next[HEAD]);
    for _ in 0..MOST_STEPS {
        if events.next[HEAD] == HEAD {
            return true;
        }
        let (index, is_return) = events.what[node];
        if is_return {
            let Some((back, before)) = path.pop() else { return false };
            let index = events.what[back].0;
            state = before;
            placed[index / 64] &= !(1 << (index % 64));
            events.put_back(events.returns[index]);
            events.put_back(back);
            node = events.next[back];
            continue;
        }
        if let Some(after) = step(state, operations[index].did) {
            placed[index / 64] |= 1 << (index % 64);
            if tried.insert((placed.clone(), after)) {
                path.push((node, state));
                state = after;
                events.take(node);
                events.take(events.returns[index]);
                node = events.next[HEAD];
                continue;
            }
            placed[index / 64] &= !(1 << (index % 64));
        }
        node = events.next[node];
    }
    panic!("a history of {} operations is too hard", operations.len());
}
