//! Calls that were given up and haven't come back (fiber.rs): what that costs the runtime, and whom
//! it refuses meanwhile. Belongs to the runtime's thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};

use crate::caller::fcall::Tenant;
use crate::error_reply::Cause;
use crate::fiber::Wreck;
use crate::fiber::baton::LINGERING_MAX;
use crate::io;
use crate::runtime::Runtime;

/// In the place of a function's name: the top level of its library.
pub(crate) const TOP_LEVEL: &str = "";
/// Why a library isn't started.
pub(crate) const STILL_STOPPING: &str = "its top level ran too long and is still being stopped";

/// Why nothing can run.
pub(crate) fn crowded() -> String {
    format!(
        "no function can run here: {LINGERING_MAX} calls ran too long and are still being stopped; \
         try again later"
    )
}

/// A function, or the top level of a library, that is stuck in an isolate of its own.
pub(crate) struct Lingering {
    tenant: Tenant,
    library: String,
    function: String,
    gone: Arc<AtomicBool>,
}

impl Runtime {
    /// A new isolate takes the place of the one that call `state` doesn't leave, with the request
    /// that lies there; all contexts went with that. Why the call was stopped. The function isn't
    /// run again while it lingers.
    pub(crate) fn lose_isolate(
        &mut self,
        state: i32,
        grave: &Sender<Wreck>,
        (tenant, library, function): (Tenant, String, String),
    ) -> Cause {
        let keep = self.tenants.iter().flat_map(|tenant| tenant.keyspace.keep()).collect();
        for tenant in std::mem::take(&mut self.alive) {
            self.tenants[tenant as usize].take_context();
        }
        let (old, end) = (self.isolate.io, self.request.end().max(io::REQUEST_AT));
        let inputs = old.bytes(io::INPUTS_AT, io::INPUTS_END - io::INPUTS_AT).to_vec();
        let request = old.bytes(io::REQUEST_AT, end - io::REQUEST_AT).to_vec();
        let (cause, gone) = self.isolate.replace(state, &self.limits, grave, keep);
        self.isolate.io.put(io::INPUTS_AT, &inputs);
        self.isolate.io.put(io::REQUEST_AT, &request);
        let watch = Arc::clone(&self.isolate.watchdog().watch);
        *self.handle.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
        self.stats.isolates_lost += 1;
        self.lingering.retain(Lingering::is_there);
        self.lingering.push(Lingering { tenant, library, function, gone });
        cause
    }

    /// The calls that haven't come back.
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.iter().filter(|it| it.is_there()).count()
    }

    /// Whether nothing can run until one of them has: there is no room for one more that doesn't.
    pub(crate) fn is_crowded(&self) -> bool {
        !self.lingering.is_empty() && self.lingering() >= LINGERING_MAX
    }

    /// Whether a call of a function, or a start of a library, is still being stopped.
    pub(crate) fn lingers(&self, tenant: Tenant, library: &str, function: &str) -> bool {
        self.lingering.iter().any(|it| {
            let same = it.tenant == tenant && it.library == library && it.function == function;
            same && it.is_there()
        })
    }
}

impl Lingering {
    fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Acquire) // SYNC(wreck-gone)
    }
}
