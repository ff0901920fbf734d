//! Memory that went bad, mended by what the log has.
//!
//! The arena's writer only.

use crate::format::head::Head;
use crate::format::layout::{record as r, stamp_offset};
use crate::format::record::reference_of;
use crate::format::words::SharedWords;
use crate::journal::layout::Effect;
use crate::journal::payload::StreamChange;
use crate::qsbr::Pin;
use crate::recover::replay::{ReplayError, Values, checked};
use crate::write::writer::Writer;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Why a record isn't mended. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MendError {
    /// The change's bytes are wrong, or memory is short.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The record has lost its key, so whoever wrote or removed that since didn't meet it; and some
    /// key with that part of the hash was removed since.
    #[error("its key may have been removed since it was written: set it anew")]
    MayBeRemoved,
}

impl MendError {
    /// Whether a later try can't succeed.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, MendError::Replay(ReplayError::Record { .. }))
    }
}

impl Writer {
    /// Puts the record of a log's PUT in place of its key's, if that has the same number: the same
    /// version with right bytes. It is no change, as moving a record is none. Returns whether it
    /// did.
    ///
    /// # Errors
    /// [`MendError`].
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn mend(&mut self, pin: &Pin<'_>, change: &StreamChange<'_>) -> Result<bool, MendError> {
        self.check_pin(pin);
        if change.effect != Effect::Put {
            return Ok(false);
        }
        let it = checked(change, Values::Given)?;
        let hash = self.hash(it.key);
        let found = self.locate_version(it.key, Some(change.lsn));
        let of = |reference: u32| u64::from(reference) * r::UNIT;
        let old = |writer: &Writer, reference| Head::load(&writer.words, of(reference));
        // The record was found to be bad before. A number that it has lost may have become one that
        // its key can have.
        let is_it = |reference| {
            let head = old(self, reference);
            head.lsn == change.lsn || self.had_number(of(reference), &head, change.lsn)
        };
        let Some(place) = found.filter(|place| is_it(place.reference)) else { return Ok(false) };
        let has_key = self.index.locate(&self.words, hash, it.key).found.is_some();
        if !has_key && self.words.load64(stamp_offset(hash), Relaxed) > change.lsn {
            return Err(MendError::MayBeRemoved);
        }
        let Some((to, head)) = self.restore(&it, hash, Values::Given)? else { return Ok(false) };
        let bad = old(self, place.reference);
        self.words.store32(to + r::PREV, bad.prev, Release);
        self.index.replace(&self.words, &place, hash, reference_of(to));
        self.space.charge(to, &head);
        self.expires += u64::from(head.expiry_ms != 0);
        self.let_go([of(place.reference)]);
        self.pay_if_due();
        Ok(true)
    }
}
