//! The store as functions see it, in one turn of the owner.
//!
//! The thread that has the owner's lock.

use nigh_js::{CallWrite, Host};
use nigh_shm::{JournalWriter, WriteError};
use nigh_store::{KeyWrite, Store, Turn};

/// Stands in a reply for what the host keeps in `refusal`: no caller sees it.
const REFUSED: &str = "ERR the write was refused";

/// The store, for one call.
pub(super) struct StoreOfCall<'a, 't> {
    pub(super) store: &'a mut Store,
    pub(super) turn: &'a Turn<'t>,
    pub(super) journal: &'a JournalWriter,
    /// Why the call's writes weren't done.
    pub(super) refusal: Option<WriteError>,
}

impl Host for StoreOfCall<'_, '_> {
    fn commit(&mut self, writes: &[CallWrite<'_>]) -> Result<(), String> {
        let writes: Vec<KeyWrite<'_>> = writes.iter().map(store_write).collect();
        let done = self.store.commit_writes(&writes, self.turn);
        // The call may end on another thread.
        self.journal.hand_over();
        done.map_err(|error| {
            self.refusal = Some(error);
            REFUSED.to_owned()
        })
    }

    fn scan(
        &mut self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        self.store.scan_keys(prefix, cursor, count, self.turn, found)
    }
}

fn store_write<'a>(write: &CallWrite<'a>) -> KeyWrite<'a> {
    match *write {
        CallWrite::Put { key, value, expiry_ms } => KeyWrite::Put { key, value, expiry_ms },
        CallWrite::Delete { key } => KeyWrite::Delete { key },
        CallWrite::Expire { key, expiry_ms } => KeyWrite::Expire { key, expiry_ms },
    }
}
