//! The keyspace as functions see it: what they scan, and where their writes go.
//!
//! ```text
//! write set ──by partition──> own: committed here
//!                             of other shards: a message each, which their owners commit
//! ```
//!
//! 1. A write set within one partition is all or nothing; one that spans several is so in each.
//! 2. The own parts come first: if there is no memory for them, nothing was sent. If memory is
//!    still to come for the first one, the call runs again; for a later one the reply says so, as
//!    nothing is to be done twice.
//! 3. Only a call that a client of this shard sent, in a batch of its own, leaves anything for
//!    other shards.
//!
//! Belongs to the shard's thread.

#[cfg(test)]
mod tests;

use crate::engine::{CallWrite, Host};
use crate::handlers::context::Context;
use crate::handlers::route::CROSS_SLOT;
use crate::hop::message::writes;
use crate::state::logs::Logs;
use crate::tenant::TenantId;
use nigh_shm::WriteError;
use nigh_store::{BUSY, KeyWrite, Keyspace, ReplySink, Turn, together_error_text};
use std::collections::BTreeMap;

/// The answer to a call whose function was another one when it was sent here.
const LIBRARY_CHANGED: &str = "TRYAGAIN the library was replaced while the call was on its way";

/// The keyspace as functions see it.
pub(crate) struct StoreHost<'a, 't> {
    pub(crate) tenant: TenantId,
    pub(crate) keyspace: &'a mut Keyspace,
    /// What they let the writes of this shard do.
    pub(crate) logs: &'a Logs,
    pub(crate) turn: &'a Turn<'t>,
    /// Write sets for partitions of other shards, as messages, since it was emptied.
    pub(crate) mail: Vec<(usize, Vec<u8>)>,
    /// Other shards can be sent what lies there.
    pub(crate) sends: bool,
    /// The partition of the transaction, which is within it.
    pub(crate) stays: Option<usize>,
}

impl StoreHost<'_, '_> {
    /// Commits what lies in one partition, or makes a message of it for the owner.
    fn commit_part(&mut self, partition: usize, writes: &[KeyWrite<'_>]) -> Result<(), String> {
        if self.keyspace.part(partition).is_owner() {
            let done = self.keyspace.commit_call(partition, writes, self.turn);
            self.logs.hand_over_journal();
            return done.map_err(|error| error_text(&error, writes).to_owned());
        }
        self.mail
            .push((self.keyspace.owner(partition), writes::write(self.tenant, partition, writes)));
        Ok(())
    }
}

impl Host for StoreHost<'_, '_> {
    fn commit(&mut self, writes: &[CallWrite<'_>]) -> Result<(), String> {
        if self.keyspace.is_busy() {
            // What comes after a call that will run again must not be there before it.
            return Err(BUSY.to_owned());
        }
        let mut parts: BTreeMap<usize, Vec<KeyWrite<'_>>> = BTreeMap::new();
        for write in writes.iter().map(store_write) {
            let partition = self.keyspace.partition_of(write.key());
            parts.entry(partition).or_default().push(write);
        }
        if self.stays.is_some_and(|home| parts.keys().any(|partition| *partition != home)) {
            return Err(format!("{CROSS_SLOT}: a transaction is within one partition"));
        }
        let (own, others): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|(partition, _)| self.keyspace.part(*partition).is_owner());
        if !self.sends && !others.is_empty() {
            return Err(LIBRARY_CHANGED.to_owned());
        }
        let only_deletes = own.iter().all(|(_, writes)| are_deletes(writes));
        if let Some(text) = self.logs.refusal(only_deletes).filter(|_| !own.is_empty()) {
            return Err(text.to_owned());
        }
        for (number, (partition, writes)) in own.iter().chain(&others).enumerate() {
            if let Err(text) = self.commit_part(*partition, writes) {
                if number > 0 {
                    // Others are done: the call can't wait for memory and run again.
                    self.keyspace.take_busy();
                }
                return Err(text);
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
        self.keyspace.scan_keys(prefix, cursor, count, self.turn, found)
    }
}

/// What a client is told of a write set that isn't committed.
fn error_text(error: &WriteError, writes: &[KeyWrite<'_>]) -> &'static str {
    together_error_text(error, are_deletes(writes))
}

fn are_deletes(writes: &[KeyWrite<'_>]) -> bool {
    writes.iter().all(|write| matches!(write, KeyWrite::Delete { .. }))
}

fn store_write<'a>(write: &CallWrite<'a>) -> KeyWrite<'a> {
    match *write {
        CallWrite::Put { key, value, expiry_ms } => KeyWrite::Put { key, value, expiry_ms },
        CallWrite::Delete { key } => KeyWrite::Delete { key },
        CallWrite::Expire { key, expiry_ms } => KeyWrite::Expire { key, expiry_ms },
    }
}

/// Commits a write set that another shard's function has left for a partition of this one.
pub(crate) fn commit_for_peer(context: &mut Context<'_, '_>, message: &[u8]) {
    let (partition, set) = writes::read(message);
    if let Some(text) = context.state.logs.refusal(are_deletes(&set)) {
        let text = text.to_owned();
        return context.error(&text);
    }
    let keyspace = &mut context.state.tenants[context.client.tenant].keyspace;
    match keyspace.commit_call(partition, &set, context.turn) {
        Ok(()) => context.reply().ok(),
        Err(error) => context.error(error_text(&error, &set)),
    }
}
