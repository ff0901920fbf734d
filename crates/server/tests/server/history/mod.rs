//! Histories of concurrent clients, and whether they are strictly serialisable: whether each
//! operation can be given a moment between its call and its return at which it took effect at once,
//! for all operations in one order.
//!
//! ```text
//! clients ── operations with times ─┬─> one_key: GET, SET, INCR … of a key (linearizability)
//!                                   └─> whole: MGET, MSET, EXEC … of all keys of a partition
//! ```
//!
//! The search is Wing and Gong's (1993) with Lowe's memory of what was tried (2017), as in
//! Porcupine: operations are tried in the order of their calls, an operation that returned without
//! having been placed turns back, and a set of placed operations with a state is tried once.

#![allow(unreachable_pub, dead_code, reason = "a module of tests; each test file uses its part")]

pub mod one_key;
pub mod whole;

use std::collections::HashSet;
use std::hash::Hash;

/// Of what never returns: it may take effect at any time from its call on, or not at all.
pub const NEVER: u64 = u64::MAX;

/// An operation with the moments of its call and its return.
#[derive(Debug, Clone)]
pub struct Operation<D> {
    pub did: D,
    pub called: u64,
    pub returned: u64,
    /// The operation of the same client that took effect before.
    pub behind: Option<usize>,
}

/// Steps after which a history is given up as too hard: far more than a right one takes.
const MOST_STEPS: u64 = 50_000_000;

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
    fn new<D>(operations: &[Operation<D>]) -> Self {
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

/// Whether all operations that returned fit into one order, from a first state on. `step` gives the
/// state after an operation, or `None` if it can't have happened in a state.
pub fn fits<S: Clone + Eq + Hash, D>(
    operations: &[Operation<D>],
    first: S,
    step: impl Fn(&S, &D) -> Option<S>,
) -> bool {
    let mut events = Events::new(operations);
    let mut placed = vec![0u64; operations.len().div_ceil(64)];
    let mut tried = HashSet::new();
    let mut path: Vec<(usize, S)> = Vec::new();
    let mut left = operations.iter().filter(|operation| operation.returned < NEVER).count();
    let (mut state, mut node) = (first, events.next[HEAD]);
    for _ in 0..MOST_STEPS {
        if left == 0 {
            return true;
        }
        let (index, is_return) = events.what[node];
        if is_return {
            let Some((back, before)) = path.pop() else { return false };
            let index = events.what[back].0;
            state = before;
            placed[index / 64] &= !(1 << (index % 64));
            left += usize::from(operations[index].returned < NEVER);
            events.put_back(events.returns[index]);
            events.put_back(back);
            node = events.next[back];
            continue;
        }
        let operation = &operations[index];
        let is_placed = |index: usize| placed[index / 64] >> (index % 64) & 1 == 1;
        let after = step(&state, &operation.did).filter(|_| operation.behind.is_none_or(is_placed));
        if let Some(after) = after {
            placed[index / 64] |= 1 << (index % 64);
            if tried.insert((placed.clone(), after.clone())) {
                left -= usize::from(operation.returned < NEVER);
                path.push((node, std::mem::replace(&mut state, after)));
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
