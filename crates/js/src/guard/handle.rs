//! Asks a runtime from another thread what runs in it, and ends it. Any thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::call_watch::CallWatch;
use crate::caller::runtime_stats::Running;
use crate::stop::cause::Reason;

/// Asks a runtime from another thread what runs in it, and ends it.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The watch of the isolate that the runtime has now.
    watch: Arc<Mutex<Arc<CallWatch>>>,
}

impl Handle {
    pub(crate) fn new(watch: Arc<CallWatch>) -> Handle {
        Handle { watch: Arc::new(Mutex::new(watch)) }
    }

    /// Follows the runtime to its new isolate, also with a Shutdown that came until now.
    pub(crate) fn follow(&self, watch: Arc<CallWatch>) {
        let mut own = self.watch();
        watch.succeed(&own);
        *own = watch;
    }

    fn watch(&self) -> MutexGuard<'_, Arc<CallWatch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call that runs now, if any.
    #[must_use]
    pub fn get(&self) -> Option<Running> {
        self.watch().running()
    }

    /// Ends the call that runs now, if any, within some milliseconds, and says which one that is.
    /// Returns at once. The call writes nothing. A [`Reason::Kill`] never hits a later call: if the
    /// call ends by itself meanwhile, nothing happens.
    pub fn terminate(&self, reason: Reason) -> Option<Running> {
        self.watch().terminate(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Mapped;

    #[test]
    fn a_shutdown_holds_for_the_next_isolate_too() {
        // It comes while the runtime replaces an isolate that it has lost: the old watch has it,
        // and the new one takes it over when the handle follows.
        let watch = || {
            let mapped = Arc::new(Mapped::new().unwrap());
            Arc::new(CallWatch::new(std::ptr::null_mut(), mapped, None))
        };
        let handle = Handle::new(watch());
        let next = watch();
        assert_eq!(handle.terminate(Reason::Shutdown), None);
        handle.follow(Arc::clone(&next));
        assert!(next.is_closing());
    }
}
