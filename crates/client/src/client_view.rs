//! A snapshot of a few keys, in which the caller decides by one value what to read next.
//!
//! 1. Each partition that is read has one moment; it is taken with the first key of it.
//! 2. A view that is over stays over, whatever its caller makes of the error.
//!
//! One attempt, on one thread.

use nigh_shm::{ArenaError, RestingView, TooNew, View};

use crate::local_side::{LocalSide, is_over_here};

/// Most attempts at one view: each ends only if its memory was reused, one of its keys removed, or
/// a key's time is over.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

/// The keys of a tenant, those of each partition at one moment.
pub struct ClientView<'a> {
    side: &'a LocalSide,
    steps: &'a mut ViewSteps,
}

/// A view between two of its reads: it keeps its moments, and borrows nothing of its client.
pub struct ViewSteps {
    /// The number of the link whose memory it reads.
    pub(crate) link_number: u64,
    /// The views of the partitions that were read.
    pub(crate) views: Vec<Option<RestingView>>,
    pub(crate) outcome: AttemptState,
    /// Attempts that were over.
    pub(crate) attempts: u32,
}

/// How an attempt stands.
pub(crate) enum AttemptState {
    /// What was read counts.
    Whole,
    /// Too much has changed.
    TooNew,
    /// This key is over by this process's clock only: its owner is to judge it.
    Judge(Vec<u8>),
    /// This process has no memory for so many bytes of a value.
    NoRoom(usize),
    /// An arena can't be read.
    Failed(ArenaError),
}

impl<'a> ClientView<'a> {
    pub(crate) fn of(side: &'a LocalSide, steps: &'a mut ViewSteps) -> ClientView<'a> {
        steps.views.resize(side.arenas().partitions(), None);
        ClientView { side, steps }
    }

    /// The value that a key had at the moment; `None` if there was no such key.
    ///
    /// # Errors
    /// [`TooNew`]: the attempt is over. Return it, and the view begins again.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, TooNew> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// The same into memory that is used again: its content is replaced. False if there was no such
    /// key.
    ///
    /// # Errors
    /// As [`ClientView::get`].
    pub fn get_into(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool, TooNew> {
        self.read(key, |view| view.get(key, into))
    }

    /// Whether there was such a key.
    ///
    /// # Errors
    /// As [`ClientView::get`].
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, TooNew> {
        self.read(key, |view| view.expiry(key))
    }

    /// Reads by the view of a key's partition.
    fn read(
        &mut self,
        key: &[u8],
        read: impl FnOnce(&mut View<'a>) -> Result<Option<u64>, TooNew>,
    ) -> Result<bool, TooNew> {
        let steps = &mut *self.steps;
        if !matches!(steps.outcome, AttemptState::Whole) {
            return Err(TooNew);
        }
        let partition = self.side.arenas().partition(key);
        let arena = self.side.arenas().arena(partition);
        let begun = match steps.views[partition] {
            Some(resting) => Ok(Some(arena.resume_view(resting))),
            None => arena.begin_view(),
        };
        let mut view = match begun {
            Ok(Some(view)) => view,
            Ok(None) => return Err(steps.end_with(AttemptState::TooNew)),
            Err(error) => return Err(steps.end_with(AttemptState::Failed(error))),
        };
        let expiry_ms = read(&mut view);
        let denied = view.denied();
        steps.views[partition] = Some(view.rest());
        match expiry_ms {
            Ok(Some(expiry_ms)) if is_over_here(expiry_ms) => {
                Err(steps.end_with(AttemptState::Judge(key.to_vec())))
            }
            Ok(found) => Ok(found.is_some()),
            Err(TooNew) => {
                Err(steps.end_with(denied.map_or(AttemptState::TooNew, AttemptState::NoRoom)))
            }
        }
    }
}

impl ViewSteps {
    /// The moments of the partitions that were read.
    pub(crate) fn moments(&self) -> impl Iterator<Item = (usize, u64)> {
        let views = self.views.iter().enumerate();
        views.filter_map(|(partition, view)| Some((partition, view.as_ref()?.lsn())))
    }

    /// The attempt is over.
    pub(crate) fn end_with(&mut self, outcome: AttemptState) -> TooNew {
        self.outcome = outcome;
        TooNew
    }
}
