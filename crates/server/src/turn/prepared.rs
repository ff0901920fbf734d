//! Decoded commands on their way to execution: plain data of the shard's thread.

use crate::commands::Resolved;
use crate::tenant::TenantId;
use nigh_store::Op;

/// Input from which a command is measured by itself: copying it may take a millisecond.
pub(crate) const LARGE_INPUT_BYTES: usize = 256 << 10;

/// A decoded command on its way to execution.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Prepared {
    /// Position of its party in `active`.
    pub(crate) party: usize,
    /// Position in the connection's batch.
    pub(crate) index: usize,
    pub(crate) resolved: Resolved,
    pub(crate) tenant: TenantId,
    /// Hash of the first key, if the command is quick, or would be elsewhere.
    pub(crate) hash: u32,
    pub(crate) quick: Option<Op>,
    /// The partition of that key.
    pub(crate) partition: usize,
    /// One that would be quick at the shard of its partition, which is another.
    pub(crate) is_away: bool,
    /// A function call with enough arguments.
    pub(crate) is_call: bool,
}

impl Prepared {
    /// A command whose key isn't looked up.
    #[inline]
    pub(crate) fn new(party: usize, index: usize, resolved: Resolved, tenant: TenantId) -> Self {
        Self { party, index, resolved, tenant, ..Self::default() }
    }

    /// Hash and partition of the first key, if it was looked up.
    pub(crate) fn key(&self) -> Option<(u32, u16)> {
        let partition = u16::try_from(self.partition).expect("a tenant has at most 64 partitions");
        (self.is_away || self.quick.is_some()).then_some((self.hash, partition))
    }
}
