//! A snapshot of a few keys, in which the caller decides by one value what to read next.
//!
//! 1. Each partition that is read has one moment; it is taken with the first key of it.
//! 2. A view that is over stays over, whatever its caller makes of the error.
//!
//! One attempt, on one thread.

use nigh_shm::{ArenaError, TooNew, View};

use crate::local_side::{LocalSide, is_over_here};

/// Most attempts at one view: each ends only if its memory was reused, one of its keys removed, or
/// a key's time is over.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

/// The keys of a tenant, those of each partition at one moment.
pub struct ClientView<'a> {
    side: &'a LocalSide,
    views: Vec<Option<View<'a>>>,
    outcome: Outcome,
}

/// How an attempt stands.
pub(crate) enum Outcome {
    /// What was read counts.
    Whole,
    /// Too much has changed.
    TooNew,
    /// This key is over by this process's clock only: its owner is to judge it.
    Judge(Vec<u8>),
    /// An arena can't be read.
    Failed(ArenaError),
}

impl<'a> ClientView<'a> {
    pub(crate) fn begin(side: &'a LocalSide) -> ClientView<'a> {
        let views = (0..side.arenas().partitions()).map(|_| None).collect();
        ClientView { side, views, outcome: Outcome::Whole }
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
        let expiry_ms = self.partition_of(key)?.get(key, into);
        self.note(key, expiry_ms)
    }

    /// Whether there was such a key.
    ///
    /// # Errors
    /// As [`ClientView::get`].
    pub fn exists(&mut self, key: &[u8]) -> Result<bool, TooNew> {
        let expiry_ms = self.partition_of(key)?.expiry(key);
        self.note(key, expiry_ms)
    }

    /// The moments of the partitions that were read, and how the attempt stands.
    pub(crate) fn end(self) -> (Vec<(usize, u64)>, Outcome) {
        let views = self.views.iter().enumerate();
        let moments = views.filter_map(|(at, view)| view.as_ref().map(|it| (at, it.lsn())));
        (moments.collect(), self.outcome)
    }

    /// The view of a key's partition.
    fn partition_of(&mut self, key: &[u8]) -> Result<&mut View<'a>, TooNew> {
        if !matches!(self.outcome, Outcome::Whole) {
            return Err(TooNew);
        }
        let side: &'a LocalSide = self.side;
        let partition = side.arenas().partition(key);
        if self.views[partition].is_none() {
            match side.arenas().arena(partition).begin_view() {
                Ok(Some(view)) => self.views[partition] = Some(view),
                Ok(None) => self.outcome = Outcome::TooNew,
                Err(error) => self.outcome = Outcome::Failed(error),
            }
        }
        self.views[partition].as_mut().ok_or(TooNew)
    }

    fn note(&mut self, key: &[u8], expiry_ms: Result<Option<u64>, TooNew>) -> Result<bool, TooNew> {
        match expiry_ms {
            Ok(Some(expiry_ms)) if is_over_here(expiry_ms) => {
                self.outcome = Outcome::Judge(key.to_vec());
                Err(TooNew)
            }
            Ok(found) => Ok(found.is_some()),
            Err(TooNew) => {
                self.outcome = Outcome::TooNew;
                Err(TooNew)
            }
        }
    }
}
