//! Decoded commands on their way to execution, and the window in which their cache misses overlap.
//!
//! Belongs to the shard's thread.

use crate::commands::spec::FAST;
use crate::commands::{self, CommandSpec, Resolved, Row, Run};
use crate::observe::hotkeys::Sampler;
use crate::state::place::{self, Place};
use crate::tenant::TenantId;
use nigh_store::Op;

/// Commands whose cache misses overlap: more than the core's line-fill buffers, few enough that
/// lines fetched for the last are still in the second-level cache.
pub(crate) const WINDOW: usize = 64;
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

/// A key that a command of the window looks up here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyLook {
    pub(crate) hash: u32,
    pub(crate) tenant: TenantId,
    pub(crate) partition: usize,
}

/// The commands that run next. Buffers are kept from window to window.
pub(crate) struct Window {
    pub(crate) prepared: Vec<Prepared>,
    pub(crate) looks: Vec<KeyLook>,
    /// What ran quickly: how many calls of which command, in their order.
    pub(crate) quick_calls: Vec<(Row, u64)>,
    /// Windows that ran.
    pub(crate) windows_ran: u64,
    /// Chooses commands whose keys are counted.
    pub(crate) sampler: Sampler,
    /// By row: the operation, if it needs no more than arity, key and store.
    pub(crate) quick_ops: Vec<Option<Op>>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            prepared: Vec::with_capacity(WINDOW),
            looks: Vec::with_capacity(WINDOW),
            quick_calls: Vec::new(),
            windows_ran: 0,
            sampler: Sampler::default(),
            quick_ops: commands::table().iter().map(|spec| quick(spec, place::of(spec))).collect(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, prepared: Prepared) {
        if prepared.quick.is_some() {
            let Prepared { hash, tenant, partition, .. } = prepared;
            self.looks.push(KeyLook { hash, tenant, partition });
        }
        self.prepared.push(prepared);
    }
}

/// The operation of a command at `place`, if it needs no more than arity, key and store.
fn quick(spec: &CommandSpec, place: Place) -> Option<Op> {
    let Run::Data(op) = spec.run else { return None };
    // Writes of one key that Redis doesn't call fast, but that are.
    let is_fast = spec.has(FAST) || matches!(op, Op::Set | Op::SetEx | Op::PSetEx);
    // A read that runs at the owner only isn't for the window of another shard.
    let may_run_here = !op.only_reads() || place == Place::View;
    (op.first_key() == 1 && is_fast && may_run_here).then_some(op)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read is quick on any shard's view, unless its row must run at the owner.
    #[test]
    fn a_read_at_the_owner_is_not_quick() {
        let spec = commands::table().iter().find(|spec| spec.name == "get");
        let spec = spec.expect("GET is a command");
        assert_eq!(quick(spec, Place::View), Some(Op::Get));
        assert_eq!(quick(spec, Place::Owner), None);
    }
}
