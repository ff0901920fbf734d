//! Entries into user code, as plain values. A carrier performs one without its fiber, which may be
//! gone when the entry ends (see [`crate::fiber`]). The thread of the isolate.

use std::sync::Arc;

use crate::ffi;

/// A task for V8.
pub(crate) enum UserCode {
    /// Run the calls of the request in the io memory.
    Run {
        /// A live context of the isolate of this thread.
        context: *mut ffi::RawContext,
        /// Unix ms.
        now_ms: f64,
    },
    /// Compile and evaluate a module.
    Install(Box<Install>),
}

/// A module, and its place.
pub(crate) struct Install {
    /// A live context of the isolate of this thread.
    pub(crate) context: *mut ffi::RawContext,
    /// Name of the library.
    pub(crate) name: String,
    pub(crate) source: Arc<[u8]>,
    /// Its functions get the numbers from here on.
    pub(crate) first_id: u32,
}

/// How V8 ended a task.
pub(crate) enum UserOutcome {
    /// To [`UserCode::Run`]: one of `ffi::OUTCOME_…`.
    Ran(i32),
    /// To [`UserCode::Install`].
    Installed(Box<ffi::Fault>),
}

impl UserCode {
    /// Runs user code on this stack, until it ends or is stopped.
    pub(crate) fn perform(self) -> UserOutcome {
        match self {
            UserCode::Run { context, now_ms } => {
                // SAFETY: a live context, on its thread; the runtime has filled in request and
                // inputs.
                UserOutcome::Ran(unsafe { ffi::nigh_run(context, now_ms) })
            }
            UserCode::Install(install) => {
                let mut fault = Box::new(ffi::Fault::new());
                let name = ffi::Slice::of(install.name.as_bytes());
                let source = ffi::Slice::of(&install.source);
                let (context, first_id) = (install.context, install.first_id);
                // SAFETY: a live context, on its thread; the slices live during the call.
                unsafe {
                    ffi::nigh_module_install(context, name, source, first_id, &raw mut *fault);
                }
                UserOutcome::Installed(fault)
            }
        }
    }
}
