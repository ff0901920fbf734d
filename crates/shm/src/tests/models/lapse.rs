//! What the shipped functions leave out, in a story that is told a second time: their words answer
//! a load, or a fence, as if it weren't there.
//!
//! One view, which one thread has.

use crate::format::layout::header;
use std::sync::{Arc, Mutex};

/// A mistake of the functions over a view.
#[derive(Clone)]
pub(super) struct Lapse {
    kind: Kind,
    /// What the view remembers.
    memory: Arc<Mutex<Memory>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    /// A word isn't loaded again: so it is never seen to have changed.
    Forgets(u64),
    /// A word isn't looked at: it is zero.
    Blind(u64),
    /// `reuses` is loaded behind the moment.
    ReusesLate,
    NoFences,
}

#[derive(Default)]
struct Memory {
    first: Option<u64>,
    committed_loads: u64,
}

impl Lapse {
    fn of(kind: Kind) -> Lapse {
        Lapse { kind, memory: Arc::default() }
    }

    pub(super) fn none() -> Lapse {
        Lapse::of(Kind::None)
    }

    pub(super) fn forgets(word: u64) -> Lapse {
        Lapse::of(Kind::Forgets(word))
    }

    pub(super) fn blind(word: u64) -> Lapse {
        Lapse::of(Kind::Blind(word))
    }

    pub(super) fn reuses_late() -> Lapse {
        Lapse::of(Kind::ReusesLate)
    }

    pub(super) fn no_fences() -> Lapse {
        Lapse::of(Kind::NoFences)
    }

    pub(super) fn has_no_fences(&self) -> bool {
        self.kind == Kind::NoFences
    }

    /// The answer to a load.
    pub(super) fn load(&self, at: u64, load: impl Fn(u64) -> u64) -> u64 {
        let memory = || self.memory.lock().unwrap();
        match self.kind {
            Kind::Blind(word) if word == at => 0,
            Kind::Forgets(word) if word == at => {
                // No load of loom's under the lock: there other threads go on.
                let first = memory().first;
                let answer = first.unwrap_or_else(|| load(at));
                memory().first = Some(answer);
                answer
            }
            Kind::ReusesLate if at == header::COMMITTED_LSN => {
                let answer = load(at);
                let loads = memory().committed_loads + 1;
                memory().committed_loads = loads;
                // The moment is there at the second look.
                if loads.is_multiple_of(2) {
                    let reuses = load(header::REUSES);
                    memory().first = Some(reuses);
                }
                answer
            }
            // How many there have been since.
            Kind::ReusesLate if at == header::REUSES => {
                memory().first.map_or(0, |first| load(at).wrapping_sub(first))
            }
            _ => load(at),
        }
    }
}
