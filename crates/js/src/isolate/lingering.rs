//! Calls that were given up and haven't come back (fiber/mod.rs), and the calls that they keep from
//! running. The runtime's thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::caller::fcall::Tenant;
use crate::fiber::LINGERING_MAX;

/// In the place of a function's name: the top level of its library.
pub(crate) const TOP_LEVEL: &str = "";
/// Why a library isn't started while its last start lingers.
pub(crate) const STILL_STOPPING: &str = "its top level ran too long and is still being stopped";

/// Why nothing can run while the lingering calls are [`Lingering::are_too_many`].
pub(crate) fn crowded() -> String {
    format!(
        "no function can run here: {LINGERING_MAX} calls ran too long and are still being stopped; \
         try again later"
    )
}

/// A function, or the top level of a library, that is stuck in an isolate of its own.
pub(crate) struct StuckCall {
    pub(crate) tenant: Tenant,
    pub(crate) library: String,
    /// Or [`TOP_LEVEL`].
    pub(crate) function: String,
    /// Becomes true when its isolate is freed.
    pub(crate) gone: Arc<AtomicBool>,
}

impl StuckCall {
    fn is_there(&self) -> bool {
        !self.gone.load(Ordering::Acquire) // SYNC(wreck-gone)
    }
}

/// The stuck calls of a runtime.
#[derive(Default)]
pub(crate) struct Lingering {
    calls: Vec<StuckCall>,
}

impl Lingering {
    /// Adds a call, and removes those that have come back.
    pub(crate) fn push(&mut self, call: StuckCall) {
        self.calls.retain(StuckCall::is_there);
        self.calls.push(call);
    }

    /// Calls that haven't come back.
    pub(crate) fn count(&self) -> usize {
        self.calls.iter().filter(|call| call.is_there()).count()
    }

    /// Whether nothing can run until one of them has come back: a further one could not linger.
    pub(crate) fn are_too_many(&self) -> bool {
        !self.calls.is_empty() && self.count() >= LINGERING_MAX
    }

    /// Whether a call of a function, or a start of a library, is still being stopped.
    pub(crate) fn has(&self, tenant: Tenant, library: &str, function: &str) -> bool {
        self.calls.iter().any(|call| {
            let same =
                call.tenant == tenant && call.library == library && call.function == function;
            same && call.is_there()
        })
    }
}
