//! One path for every change, and the journal that is told of it.
//!
//! ```text
//! staged, numbered ── journal ── begun ── stores ── committed ── what was unpublished is let go
//! ```
//!
//! 1. Everything that alters a key goes through [`Writer::change`]: writes, removals by whatever
//!    reason, clearing, commits of several, and the end of one that was interrupted. Moving records
//!    (cleaning, growth) is no change.
//! 2. The journal is told of a whole commit before the first of its stores, in the order of its
//!    numbers.
//! 3. Replaying what it was told, commit by commit, makes the same keys with the same numbers. A
//!    commit for which there is no memory is refused as a whole, a clearing too.
//! 4. A value in a run is told by what is new in it: it stands on the version before ("based"). All
//!    others are told whole.
//!
//! The arena's writer only.

use crate::format::head::Head;
use crate::format::layout::{entry_reference, record as r};
use crate::format::record::RecordRef;
use crate::format::words::SharedWords;
use crate::index::moment;
use crate::qsbr::Pin;
use crate::write::append::Append;
use crate::write::journal::{Base, Journal, NumberedChange, ReplayError, Stored, What};
use crate::write::writer::Writer;
use std::sync::atomic::Ordering::Relaxed;

impl Writer {
    /// Has every commit told to a journal from now on.
    pub fn set_journal(&mut self, journal: Box<dyn Journal>) {
        self.journal = Some(journal);
    }

    /// Makes a change that is staged and numbered, up to the writer's LSN: tells the journal, and
    /// has `store` do the stores between begun and committed.
    #[inline]
    pub(crate) fn change<T>(
        &mut self,
        intent: u32,
        stored: Stored<'_>,
        store: impl FnOnce(&mut Writer) -> T,
    ) -> T {
        if self.journal.is_some() {
            self.tell(stored);
        }
        moment::begin(&self.words, self.lsn, intent);
        let unpublished = store(self);
        moment::end(&self.words, self.lsn, intent);
        unpublished
    }

    #[cold]
    fn tell(&mut self, stored: Stored<'_>) {
        let mut journal = self.journal.take();
        let mut changes = Vec::new();
        match stored {
            Stored::Removals(keys) => {
                let delete = |(lsn, &(_, key))| NumberedChange { lsn, what: What::Delete { key } };
                changes.extend((self.lsn - keys.len() as u64 + 1..).zip(keys).map(delete));
            }
            Stored::Entries { clears, entries } => {
                let count = entries.len() as u64 + u64::from(clears);
                let mut lsn = self.lsn - count;
                if clears {
                    lsn += 1;
                    changes.push(NumberedChange { lsn, what: What::Clear });
                }
                for &e in entries {
                    lsn += 1;
                    changes.push(NumberedChange { lsn, what: self.told(entry_reference(e)) });
                }
            }
        }
        journal.iter_mut().for_each(|journal| journal.commit(&changes));
        self.journal = journal;
    }

    /// The change that publishing a staged record makes.
    fn told<'a>(&'a self, reference: u32) -> What<'a> {
        let offset = u64::from(reference) * r::UNIT;
        let head = Head::load(&self.words, offset);
        let (key, expiry_ms) = (self.key_of(reference), head.expiry_ms);
        if head.is_tombstone() {
            return What::Delete { key };
        }
        let value = self.bytes_of(offset, &head);
        match self.based.get(&reference) {
            None => What::Put { key, value, expiry_ms },
            Some(Base { key: from, lsn, len }) => {
                let bytes = &value[*len as usize..];
                What::Extend { key, from, base_lsn: *lsn, base_len: *len, bytes, expiry_ms }
            }
        }
    }

    /// The base of a value that is made from a record's; `None` if that record is staged and
    /// stands on nothing.
    pub(crate) fn base_of(&self, reference: u32) -> Option<Base> {
        let head = Head::load(&self.words, u64::from(reference) * r::UNIT);
        if head.lsn == 0 {
            return self.based.get(&reference).cloned();
        }
        Some(Base { key: self.key_of(reference).into(), lsn: head.lsn, len: head.value_len })
    }

    /// A record is no longer staged.
    #[inline]
    pub(crate) fn forget_base(&mut self, head: &Head, reference: u32) {
        if head.flags & r::FLAG_BASED != 0 {
            self.based.remove(&reference);
        }
    }

    /// The key of a published or staged record.
    pub(crate) fn key_of<'p>(&self, reference: u32) -> &'p [u8] {
        let offset = u64::from(reference) * r::UNIT;
        let len = self.words.load32(offset + r::KEY_LEN, Relaxed) & 0xFFFF;
        // SAFETY: a published or staged record of this arena: its segment is not reused while this
        // writer is in one of its calls; the slice doesn't leave that call.
        unsafe { self.words.bytes(offset + r::KEY, len as usize) }
    }

    /// Does a commit again that a journal was told, in an arena that has all before it.
    ///
    /// # Errors
    /// If the commit doesn't follow on the arena's newest, or memory is short. Nothing has changed
    /// then.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn replay(
        &mut self,
        pin: &Pin<'_>,
        changes: &[NumberedChange<'_>],
    ) -> Result<(), ReplayError> {
        self.check_pin(pin);
        for (change, expected) in changes.iter().zip(self.lsn + 1..) {
            let found = change.lsn;
            if found != expected {
                return Err(ReplayError::Gap { expected, found });
            }
        }
        let clears = changes.first().is_some_and(|change| change.what == What::Clear);
        if clears && changes.len() == 1 {
            // Not key by key, as where memory is short: each deletion would take a number.
            return Ok(self.clear_at_once().map_err(|e| self.refused(e))?);
        }
        let mut staged = Vec::new();
        let all = changes[usize::from(clears)..].iter().try_for_each(|change| {
            staged.push(self.stage_again(change)?);
            Ok(())
        });
        let done = all.and_then(|()| Ok(self.commit(pin, clears, &staged)?));
        if done.is_err() {
            self.abandon(&staged);
        }
        done
    }

    fn stage_again(&mut self, change: &NumberedChange<'_>) -> Result<RecordRef, ReplayError> {
        let lsn = change.lsn;
        match change.what {
            What::Clear => Err(ReplayError::ClearsLater { lsn }),
            What::Delete { key } => Ok(self.stage_delete(self.hash(key), key)?),
            What::Put { key, value, expiry_ms } => {
                Ok(self.stage(self.hash(key), key, &[value], expiry_ms)?)
            }
            What::Extend { key, from, base_lsn, base_len, bytes, expiry_ms } => {
                let found = self.index.locate(&self.words, self.hash(from), from).found;
                let reference = found.map(|place| place.reference).filter(|&reference| {
                    let head = Head::load(&self.words, u64::from(reference) * r::UNIT);
                    (head.lsn, head.value_len) == (base_lsn, base_len)
                });
                let missing = ReplayError::NoBase { lsn, base_lsn, base_len };
                let reference = reference.ok_or(missing)?;
                let some = [bytes];
                let parts: &[&[u8]] = if bytes.is_empty() { &[] } else { &some };
                let append = Append::string(self.hash(key), key, parts, expiry_ms);
                let grows = !bytes.is_empty();
                Ok(self.stage_based(reference, Append { grows, urgent: !grows, ..append })?)
            }
        }
    }
}
