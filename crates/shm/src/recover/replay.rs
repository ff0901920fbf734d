//! Doing changes again that a journal or a log has, with the numbers that they have.
//!
//! ```text
//! change ── sums compared ── its key's record is as new: skipped
//!                        └── staged, all of a commit ── places promised ── published, one by one
//! ```
//!
//! Two arenas are brought up to date so: one that was adopted, with what its journal has beyond
//! it, where runs that changes name are still there ([`Values::Named`]); and one that is being
//! built from a log, whose changes have their values ([`Values::Given`]).
//!
//! 1. Nobody reads meanwhile, and nobody is told: no number is given, no moment begins, no journal
//!    hears of it. A kill in the middle is for the next start, which does all again.
//! 2. A change is done if its key has no record with its number or a newer one. So doing changes
//!    again alters nothing, and an older version that a log has once more is skipped.
//! 3. A commit for which there is no memory is refused as a whole.
//! 4. Sources of a commit are looked up before any of its changes is published.
//! 5. The bytes of a change are compared with their sums once, before its turn: then its part of
//!    the index can be asked for ahead.
//!
//! The arena's writer only.

use crate::error::WriteError;
use crate::format::head::{Head, RunName};
use crate::format::layout::{entry, entry_reference, entry_tag, header, record as r};
use crate::format::record;
use crate::format::sum;
use crate::format::words::SharedWords;
use crate::index::{EntryPlace, Table, moment};
use crate::journal::layout::Effect;
use crate::journal::named_values::NamedRun;
use crate::journal::payload::{Payload, PayloadBase, StreamChange};
use crate::write::append::Append;
use crate::write::writer::{LINES_PER_WRITE, Writer};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Why a commit could not be done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The arena refused it, as it may refuse every write. Nothing has changed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its bytes are wrong. Nothing has changed.
    #[error("change {lsn}: {what}")]
    Record {
        /// The change's number.
        lsn: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// The outcome of a commit that was done again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Replayed {
    /// Places of changes in the commit that stand on a version which isn't there: their keys were
    /// removed.
    pub dangling: Vec<usize>,
}

/// A change whose bytes are those that were written, and which an arena is to do again.
#[derive(Debug, Clone, Copy)]
pub struct CheckedChange<'a> {
    /// The number of the arena in this process.
    arena: u32,
    lsn: u64,
    effect: Effect,
    /// Of its key; 0 if it clears.
    hash: u32,
    /// `None` if it clears.
    parts: Option<Payload<'a>>,
}

impl<'a> CheckedChange<'a> {
    /// Its number.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// The key that it changes; `None` if it clears all.
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.parts.map(|parts| parts.key)
    }
}

/// Where values in runs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// In the change.
    Given,
    /// In this arena, in the run that the change names.
    Named,
}

/// A change that is staged.
enum Restored<'a> {
    Put {
        e: u64,
        head: Head,
    },
    Gone {
        hash: u32,
        key: &'a [u8],
        lsn: u64,
    },
    Clear {
        lsn: u64,
    },
    /// The arena has it, or a newer one.
    Known,
}

impl Writer {
    /// Does a commit of a log again, in an arena that is being built ([`Writer::build`]). Commits
    /// come in the log's order; values in runs are in the changes.
    ///
    /// # Errors
    /// If its bytes are wrong, or memory is short. Nothing has changed then; with
    /// [`WriteError::Busy`], try again after [`Writer::maintain`].
    ///
    /// # Panics
    /// If the writer has a journal.
    pub fn replay(&mut self, changes: &[StreamChange<'_>]) -> Result<Replayed, ReplayError> {
        let checked = changes.iter().map(|change| self.check_change(change));
        self.replay_checked(&checked.collect::<Result<Vec<_>, _>>()?)
    }

    /// The same with changes that were checked before.
    ///
    /// # Errors
    /// As of [`Writer::replay`].
    ///
    /// # Panics
    /// If the writer has a journal, or another one checked a change.
    pub fn replay_checked(
        &mut self,
        changes: &[CheckedChange<'_>],
    ) -> Result<Replayed, ReplayError> {
        let number = self.region.number();
        assert!(changes.iter().all(|change| change.arena == number), "a change of another arena");
        let newest = changes.iter().map(|change| change.lsn).max().unwrap_or(0);
        let replayed = self.apply(changes, Values::Given)?;
        self.lsn = self.lsn.max(newest);
        Ok(replayed)
    }

    /// A log's change for this arena, whose bytes are compared with their sums.
    ///
    /// # Errors
    /// If its bytes are wrong.
    pub fn check_change<'a>(
        &self,
        change: &StreamChange<'a>,
    ) -> Result<CheckedChange<'a>, ReplayError> {
        self.checked(change, Values::Given)
    }

    /// Sees to it that what some changes will look at is in the cache when their turn comes: waits
    /// for all their index lines at once, and asks for the records that they will replace.
    pub fn prefetch_changes(&self, changes: &[CheckedChange<'_>]) {
        let hashes = changes.iter().filter(|change| change.parts.is_some()).map(|it| it.hash);
        self.index.load_lines(&self.words, hashes.clone());
        hashes.for_each(|hash| self.index.prefetch_record(&self.words, hash));
    }

    /// All of a log was done again: the arena has all changes up to `last`.
    pub fn end_replay(&mut self, last: u64) {
        self.lsn = self.lsn.max(last);
        moment::begin(&self.words, self.lsn, 0);
        moment::end(&self.words, self.lsn, 0);
        self.store_counters();
    }

    /// A change whose bytes are compared with its sums.
    #[inline]
    pub(crate) fn checked<'a>(
        &self,
        change: &StreamChange<'a>,
        values: Values,
    ) -> Result<CheckedChange<'a>, ReplayError> {
        let (StreamChange { lsn, effect, .. }, arena) = (*change, self.region.number());
        if effect == Effect::Clear {
            return Ok(CheckedChange { arena, lsn, effect, hash: 0, parts: None });
        }
        let parts = checked(change, values)?;
        Ok(CheckedChange { arena, lsn, effect, hash: self.hash(parts.key), parts: Some(parts) })
    }

    /// Does a commit again.
    pub(crate) fn apply(
        &mut self,
        changes: &[CheckedChange<'_>],
        values: Values,
    ) -> Result<Replayed, ReplayError> {
        assert!(self.journal.is_none(), "what is done again is told to no journal");
        let mut replayed = Replayed::default();
        match changes {
            [CheckedChange { parts: Some(parts), effect, hash, .. }] => {
                if !self.apply_one(parts, *effect, *hash, values)? {
                    replayed.dangling.push(0);
                }
            }
            _ => replayed.dangling = self.apply_all(changes, values)?,
        }
        self.pay_if_due();
        Ok(replayed)
    }

    /// A commit of one change that doesn't clear. False if it stands on nothing.
    fn apply_one(
        &mut self,
        it: &Payload<'_>,
        effect: Effect,
        hash: u32,
        values: Values,
    ) -> Result<bool, ReplayError> {
        let lsn = it.head.lsn;
        self.advance_growth(LINES_PER_WRITE);
        let mut at = self.index.locate(&self.words, hash, it.key);
        if self.is_known(at.found, lsn) {
            return Ok(true);
        }
        if effect == Effect::Gone {
            self.remove_again(hash, it.key, lsn);
            return Ok(true);
        }
        if at.found.is_none() {
            let room = self.make_room(hash, at.room.is_some()).map_err(|e| self.refused(e))?;
            if room {
                at = self.index.locate(&self.words, hash, it.key);
            }
        }
        let Some((offset, head)) = self.restore(it, hash, values)? else {
            self.remove_again(hash, it.key, lsn);
            return Ok(false);
        };
        let old = self.enter(&at, entry(hash, record::reference_of(offset)), &head);
        self.let_go(old);
        Ok(true)
    }

    /// A commit of several, or one that clears. Returns the places of those that stand on nothing.
    fn apply_all(
        &mut self,
        changes: &[CheckedChange<'_>],
        values: Values,
    ) -> Result<Vec<usize>, ReplayError> {
        let (mut restored, mut dangling) = (Vec::with_capacity(changes.len()), Vec::new());
        let mut staged = Ok(());
        for (i, change) in changes.iter().enumerate() {
            match self.restore_held(change, values) {
                Ok((change, stands)) => {
                    restored.push(change);
                    dangling.extend((!stands).then_some(i));
                }
                Err(error) => staged = Err(error),
            }
            if staged.is_err() {
                break;
            }
        }
        let done = staged.and_then(|()| self.publish_again(&restored, values));
        for change in &restored {
            if let Restored::Put { e, head } = change {
                self.space.release(u64::from(entry_reference(*e)) * r::UNIT, head);
            }
        }
        done.map(|()| dangling)
    }

    /// Stages a change of several; false if it stands on nothing.
    fn restore_held<'a>(
        &mut self,
        change: &CheckedChange<'a>,
        values: Values,
    ) -> Result<(Restored<'a>, bool), ReplayError> {
        let CheckedChange { lsn, effect, hash, parts, .. } = *change;
        let Some(it) = &parts else { return Ok((Restored::Clear { lsn }, true)) };
        let key = it.key;
        if self.is_known(self.index.locate(&self.words, hash, key).found, lsn) {
            return Ok((Restored::Known, true));
        }
        if effect == Effect::Gone {
            return Ok((Restored::Gone { hash, key, lsn }, true));
        }
        let Some((offset, head)) = self.restore(it, hash, values)? else {
            return Ok((Restored::Gone { hash, key, lsn }, false));
        };
        self.space.hold(offset, &head);
        Ok((Restored::Put { e: entry(hash, record::reference_of(offset)), head }, true))
    }

    fn publish_again(
        &mut self,
        restored: &[Restored<'_>],
        values: Values,
    ) -> Result<(), ReplayError> {
        let put = |change: &Restored<'_>| match change {
            Restored::Put { e, .. } => Some(*e),
            _ => None,
        };
        let entries = self.last_of_each_key(restored.iter().filter_map(put).collect());
        let cleared = match restored.first() {
            // All that is there is older than the clearing.
            Some(&Restored::Clear { lsn }) if values == Values::Given => Some(lsn),
            _ => None,
        };
        let table = self.prepare_commit(cleared.is_some(), &entries, true);
        let table = table.map_err(|e| self.refused(e))?;
        if let (Some(table), Some(lsn)) = (table, cleared) {
            self.clear_again(table, lsn, &entries);
            return Ok(());
        }
        for change in restored {
            match change {
                Restored::Put { e, head } => {
                    let (hash, reference) = (entry_tag(*e), entry_reference(*e));
                    let at = self.index.locate(&self.words, hash, self.key_of(reference));
                    let old = self.enter(&at, *e, head);
                    self.let_go(old);
                }
                Restored::Gone { hash, key, lsn } => self.remove_again(*hash, key, *lsn),
                Restored::Clear { lsn } => self.remove_older(*lsn),
                Restored::Known => {}
            }
        }
        Ok(())
    }

    fn clear_again(&mut self, table: Table, lsn: u64, entries: &[u64]) {
        let emptied = self.clear_into(table, lsn, entries);
        self.let_all_go(emptied, entries);
    }

    /// Whether a key has a record with this number, or a newer one.
    fn is_known(&self, found: Option<EntryPlace>, lsn: u64) -> bool {
        found.is_some_and(|place| self.lsn_at(&place) >= lsn)
    }

    fn lsn_at(&self, place: &EntryPlace) -> u64 {
        self.words.load64(u64::from(place.reference) * r::UNIT + r::LSN, Relaxed)
    }

    /// Removes a key, unless it has a newer record.
    fn remove_again(&mut self, hash: u32, key: &[u8], lsn: u64) {
        let found = self.index.locate(&self.words, hash, key).found;
        let Some(place) = found.filter(|place| self.lsn_at(place) < lsn) else { return };
        let old = self.take_out(&place, hash, lsn);
        self.let_go([old]);
    }

    /// Removes all keys, but those that came behind the clearing.
    fn remove_older(&mut self, lsn: u64) {
        let (words, mut all) = (self.words, Vec::new());
        if words.load64(header::CLEAR_STAMP, Relaxed) < lsn {
            words.store64(header::CLEAR_STAMP, lsn, Release);
        }
        self.index.each(&words, &mut |_, e| all.push(e));
        for e in all {
            self.remove_again(entry_tag(e), self.key_of(entry_reference(e)), lsn);
        }
    }

    /// Writes the record of a change; `None` if it stands on a version that isn't there.
    pub(super) fn restore(
        &mut self,
        it: &Payload<'_>,
        hash: u32,
        values: Values,
    ) -> Result<Option<(u64, Head)>, ReplayError> {
        let (head, lsn) = (it.head, it.head.lsn);
        let wrong = |what| ReplayError::Record { lsn, what };
        let as_it_is = match it.run {
            Some(run) if values == Values::Named => {
                let named = NamedRun { run, value_len: head.value_len, key_len: head.key_len };
                if !self.space.has_run(&named) {
                    return Err(wrong("its run isn't there any more"));
                }
                true
            }
            Some(_) => false,
            None => !self.space.geometry().wants_run(head.bytes(), head.value_len.into()),
        };
        if as_it_is {
            return self.copy_record(it, values).map(Some);
        }
        let parts = if it.run.is_some() { it.value } else { it.inline };
        let append = Append::string(hash, it.key, std::slice::from_ref(&parts), head.expiry_ms);
        let Some(base) = it.base else {
            return Ok(Some(self.append(&append, lsn).map_err(|e| self.refused(e))?));
        };
        let Some(from) = self.find_base(it.key, &base) else { return Ok(None) };
        let sum = sum::more(self.value_sum(from), parts);
        if it.run.is_some_and(|run| run.checksum != sum) {
            return Err(wrong("its value, with its base's, has another sum than was written"));
        }
        let grows = !parts.is_empty();
        let parts = if grows { append.parts } else { &[] };
        let append = Append { parts, grows, urgent: !grows, in_run: true, ..append };
        let written = self.behind(from, append, |writer, append| writer.append(append, lsn));
        let (offset, head) = written.map_err(|e| self.refused(e))?;
        self.forget_base(&head, record::reference_of(offset));
        Ok(Some((offset, head)))
    }

    /// Writes a record as it is.
    fn copy_record(
        &mut self,
        it: &Payload<'_>,
        values: Values,
    ) -> Result<(u64, Head), ReplayError> {
        let bytes = it.record.len() as u64;
        let offset = self.space.reserve(bytes, values == Values::Named);
        let offset = offset.map_err(|e| self.refused(e))?;
        self.words.copy_in(offset, it.record);
        self.space.store_tail();
        self.appended += bytes;
        Ok((offset, it.head))
    }

    /// The record that a change stands on.
    fn find_base(&self, key: &[u8], base: &PayloadBase<'_>) -> Option<u32> {
        let source = base.source.unwrap_or(key);
        let found = self.index.locate(&self.words, self.hash(source), source).found;
        let reference = found?.reference;
        let head = Head::load(&self.words, u64::from(reference) * r::UNIT);
        ((head.lsn, head.value_len) == (base.lsn, base.len)).then_some(reference)
    }

    /// The sum of a record's value.
    fn value_sum(&self, reference: u32) -> u32 {
        let offset = u64::from(reference) * r::UNIT;
        let head = Head::load(&self.words, offset);
        match head.has_run() {
            true => RunName::load(&self.words, offset, &head).checksum,
            false => sum::more(0, self.bytes_of(offset, &head)),
        }
    }
}

/// The parts of a change whose sums are right.
pub(super) fn checked<'a>(
    change: &StreamChange<'a>,
    values: Values,
) -> Result<Payload<'a>, ReplayError> {
    let lsn = change.lsn;
    let wrong = |what| ReplayError::Record { lsn, what };
    let it = Payload::parse(change, values == Values::Named).map_err(wrong)?;
    it.check_sum().map_err(wrong)?;
    let whole = it.run.filter(|_| values == Values::Given && it.base.is_none());
    if whole.is_some_and(|run| sum::more(0, it.value) != run.checksum) {
        return Err(wrong("its value has another sum than was written"));
    }
    Ok(it)
}
