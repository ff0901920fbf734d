//! The function calls of a turn that wait for the batch, and how many each party has among them.
//!
//! 1. A party's count is the number of its calls in the queue: both change only here.
//! 2. Positions of parties are those of this turn: the queue is empty when a turn ends.
//!
//! Belongs to the shard's thread.

use crate::commands::Row;
use crate::tenant::TenantId;

/// An FCALL that waits for the batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitingCall {
    /// Position of its party among the active ones.
    pub(crate) party: usize,
    /// Position in the connection's batch.
    pub(crate) index: usize,
    /// FCALL or FCALL_RO.
    pub(crate) row: Row,
    pub(crate) tenant: TenantId,
}

/// Calls in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct CallQueue {
    calls: Vec<WaitingCall>,
    /// By position of the party.
    counts: Vec<usize>,
}

impl CallQueue {
    #[inline]
    pub(crate) fn push(&mut self, call: WaitingCall) {
        if self.counts.len() <= call.party {
            self.counts.resize(call.party + 1, 0);
        }
        self.counts[call.party] += 1;
        self.calls.push(call);
    }

    #[inline]
    pub(crate) fn has(&self, party: usize) -> bool {
        self.counts.get(party).is_some_and(|&calls| calls > 0)
    }

    pub(crate) fn calls(&self) -> &[WaitingCall] {
        &self.calls
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// The first calls have run.
    pub(crate) fn remove_first(&mut self, calls: usize) {
        self.calls.drain(..calls).for_each(|call| self.counts[call.party] -= 1);
    }

    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&WaitingCall) -> bool) {
        self.calls.retain(|call| {
            let stays = stays(call);
            self.counts[call.party] -= usize::from(!stays);
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A party with calls has none any more when the last of them has run or was taken back.
    #[test]
    fn a_party_has_calls_until_its_last_is_gone() {
        let mut queue = CallQueue::default();
        let row = crate::commands::resolve(b"fcall", || None).row().expect("a command");
        for (party, index) in [(3, 0), (0, 0), (3, 1), (0, 1)] {
            queue.push(WaitingCall { party, index, row, tenant: TenantId(0) });
        }
        queue.remove_first(1);
        assert_eq!((queue.has(0), queue.has(1), queue.has(3), queue.len()), (true, false, true, 3));
        queue.retain(|call| call.party != 3);
        assert_eq!((queue.has(0), queue.has(3), queue.len()), (true, false, 2));
        queue.remove_first(2);
        assert!(queue.is_empty() && !queue.has(0));
    }
}
