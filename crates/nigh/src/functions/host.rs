//! The store as functions see it, in one turn of all owners.
//!
//! 1. A write set within one partition is all or nothing; one that spans several is so in each.
//! 2. If there is no room in the first partition, nothing was done, and the call may run again. In
//!    a later one nothing is to be done twice: the call fails, and says so.
//!
//! The thread that has the owners' locks.

use super::whole_turn::PartTurn;
use nigh_js::{CallWrite, Host};
use nigh_shm::{JournalWriter, WriteError};
use nigh_store::KeyWrite;
use std::collections::BTreeMap;

/// Stands in a reply for what the host keeps in `refusal`: no caller sees it.
const REFUSED: &str = "ERR the write was refused";

/// Why a call's writes weren't done.
pub(super) enum CallRefusal {
    /// None of them was.
    Whole(WriteError),
    /// Those of the partitions before were.
    Rest(WriteError),
}

/// The store, for one call.
pub(super) struct StoreOfCall<'a, 't> {
    /// All partitions, in order.
    pub(super) parts: &'a mut [PartTurn<'t>],
    pub(super) journals: &'a [JournalWriter],
    pub(super) refusal: Option<CallRefusal>,
}

impl Host for StoreOfCall<'_, '_> {
    fn commit(&mut self, writes: &[CallWrite<'_>]) -> Result<(), String> {
        let mut sets: BTreeMap<usize, Vec<KeyWrite<'_>>> = BTreeMap::new();
        for write in writes.iter().map(store_write) {
            let partition = self.parts[0].keyspace.partition_of(write.key());
            sets.entry(partition).or_default().push(write);
        }
        for (number, (partition, set)) in sets.into_iter().enumerate() {
            let PartTurn { keyspace, turn } = &mut self.parts[partition];
            let done = keyspace.commit_call(partition, &set, turn);
            // The call may end on another thread.
            self.journals[partition].hand_over();
            if let Err(error) = done {
                let is_first = number == 0;
                let refusal = if is_first { CallRefusal::Whole } else { CallRefusal::Rest };
                self.refusal = Some(refusal(error));
                return Err(REFUSED.to_owned());
            }
        }
        Ok(())
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        let PartTurn { keyspace, turn } = &self.parts[0];
        keyspace.scan_keys(prefix, cursor, count, turn, found)
    }
}

fn store_write<'a>(write: &CallWrite<'a>) -> KeyWrite<'a> {
    match *write {
        CallWrite::Put { key, value, expiry_ms } => KeyWrite::Put { key, value, expiry_ms },
        CallWrite::Delete { key } => KeyWrite::Delete { key },
        CallWrite::Expire { key, expiry_ms } => KeyWrite::Expire { key, expiry_ms },
    }
}
