//! Entries into user code, as plain values: whoever carries one out needs nothing else. (A fiber
//! may be gone when its entry ends: see fiber.rs.) The thread of the isolate.

use std::sync::Arc;

use crate::ffi;

/// What V8 is to do.
pub(crate) enum Entry {
    /// Run the calls that lie in the io memory.
    Run {
        /// A live context of the isolate of this thread.
        context: *mut ffi::RawContext,
        /// Unix ms.
        now_ms: f64,
    },
    /// Compile and evaluate a module.
    Install(Box<Install>),
}

/// A module, and where it goes.
pub(crate) struct Install {
    /// A live context of the isolate of this thread.
    pub(crate) context: *mut ffi::RawContext,
    pub(crate) name: String,
    pub(crate) source: Arc<[u8]>,
    pub(crate) first_id: u32,
}

/// What V8 said.
pub(crate) enum Outcome {
    /// To [`Entry::Run`]: one of `ffi::OUTCOME_…`.
    Ran(i32),
    /// To [`Entry::Install`].
    Installed(Box<ffi::Fault>),
}

impl Entry {
    /// Runs user code on this stack, until it ends or is stopped.
    pub(crate) fn perform(self) -> Outcome {
        match self {
            Entry::Run { context, now_ms } => {
                // SAFETY: a live context, on its thread; the runtime has filled in request and
                // inputs.
                Outcome::Ran(unsafe { ffi::nigh_run(context, now_ms) })
            }
            Entry::Install(install) => {
                let mut fault = Box::new(ffi::Fault::new());
                let name = ffi::Slice::of(install.name.as_bytes());
                let source = ffi::Slice::of(&install.source);
                let (context, first_id) = (install.context, install.first_id);
                // SAFETY: a live context, on its thread; the slices live during the call.
                unsafe {
                    ffi::nigh_module_install(context, name, source, first_id, &raw mut *fault);
                }
                Outcome::Installed(fault)
            }
        }
    }
}
