//! Writes that wait for a log that is late: see [`crate::state::logs`].
//!
//! 1. A write waits before anything of it has happened, and so does what its client sent behind it.
//!    It comes again in each turn; in the end the log has caught up, or the write is refused.
//!
//! Belongs to the shard's thread.

use crate::commands;
use crate::handlers::route::{self, Effect};
use crate::turn::prepared::Prepared;
use crate::turn::work::Work;

impl Work {
    /// Whether a command writes here, and the log is late: its party waits then.
    #[cold]
    pub(crate) fn waits_for_log(&mut self, prepared: &Prepared) -> bool {
        if !self.state.logs.is_late() {
            return false; // it is refused, if it is a write
        }
        let (party, tenant) = (&self.active[prepared.party], &self.state.tenants[prepared.tenant]);
        let args = party.input.words(prepared.index);
        let writes = match prepared.resolved.row().map(commands::of) {
            None => party.peer().is_some(), // a write set
            Some(spec) if !spec.takes(args.len()) => false,
            Some(spec) if prepared.is_call => spec.name == "fcall" && self.writes(prepared),
            Some(spec) => route::target(tenant, spec, &args).is_ok_and(|target| {
                route::effect_here(tenant, &party.client, spec, target) != Effect::Nothing
            }),
        };
        let pipe = &mut *self.active[prepared.party];
        (pipe.stopped, pipe.parked) = (pipe.stopped | writes, pipe.parked & !writes);
        writes
    }
}
