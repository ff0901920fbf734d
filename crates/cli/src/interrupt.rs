//! SIGINT and SIGTERM, caught: a command ends between two steps, and leaves nothing half done.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Whether one of the signals has come.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the signals are only noted.
    pub(crate) fn catch() -> Interrupt {
        let wanted = Arc::new(AtomicBool::new(false));
        note(&wanted);
        Interrupt(wanted)
    }

    /// The same by this flag. A second signal ends the process at once: its next step may wait for
    /// another process, without end.
    pub(crate) fn catch_first(wanted: &Arc<AtomicBool>) {
        for signal in SIGNALS {
            // Before the note, so that it finds what the signal before has left.
            let _ = flag::register_conditional_default(signal, Arc::clone(wanted));
        }
        note(wanted);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn note(wanted: &Arc<AtomicBool>) {
    for signal in SIGNALS {
        // Without this no data is lost.
        let _ = flag::register(signal, Arc::clone(wanted));
    }
}
