//! Taking over an arena that another process left, at any moment of its work.
//!
//! 1. The index is the only truth: what it names is alive, all else is free. Segments are never
//!    searched.
//! 2. Everything is checked before anything is changed; a contradiction is an error with its
//!    offset.
//! 3. A change that the other writer had begun is ended: a commit by its intent, a growth by going
//!    on, the reuse of a slot by giving the slot back. None of that is damage.
//! 4. It may be cut off before any of its stores and done again: the incarnation is odd from the
//!    first to the last, memory is given back before the commit is ended (which needs some), and
//!    `committed` and the intent come last.
//! 5. No number is given again that somebody may have seen: the LSN is the largest of records,
//!    stamps, `committed` and the journal's.
//! 6. What the journal has beyond `committed` is done again behind the intent, before `committed`
//!    is stored; runs that its entries name are claimed before any memory is given back.

use crate::check::checker::{FormatChecker, Intent, WholeRecord};
use crate::check::survey::{Survey, survey};
use crate::error::{ArenaError, WriteError, io};
use crate::format::format_fault::FormatFault;
use crate::format::head::Head;
use crate::format::header_info::{HeaderInfo, header_of, incarnation_fault, length_fault};
use crate::format::layout::{
    CAPACITY_MIN, INCARNATION_OVER, entry, entry_reference, header, record as r,
};
use crate::format::record;
use crate::format::words::SharedWords;
use crate::index::moment;
use crate::index::{EntryPlace, Index, split_state};
use crate::qsbr::Domain;
use crate::recover::journal_left::{JournalLeft, StreamJournal};
use crate::recover::replay::{CheckedChange, ReplayError, Values};
use crate::region::Region;
use crate::space::Space;
use crate::write::create::{ArenaSpec, capacity_error, check_tenant};
use crate::write::maintain::UpkeepBudget;
use crate::write::writer::Writer;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

/// Looks for memory that is under way before a commit of the journal can be done again, and the
/// time between two: some seconds in all, for the thread that moves memory.
const WAITS_MAX: u32 = 100_000;
const WAIT_STEP: Duration = Duration::from_micros(50);

/// The findings of an adoption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Adoption {
    /// Keys, expired ones included.
    pub keys: u64,
    /// Keys with an expiry.
    pub expires: u64,
    /// Whether a commit of several keys had been interrupted, and was ended.
    pub redone_intent: bool,
    /// Commits of the journal that were done again.
    pub redone_commits: u64,
    /// Whether the index was growing, and goes on.
    pub continued_growth: bool,
    /// Number of this writer.
    pub incarnation: u64,
    /// The capacity that applies: as asked, but no more than the arena's addresses.
    pub capacity_bytes: u64,
}

impl Writer {
    /// Takes over an arena that an earlier process left.
    ///
    /// # Errors
    /// If it is damaged, somebody else's, in use by this process, or the system refuses.
    pub fn adopt(spec: &ArenaSpec, domain: &Arc<Domain>) -> Result<(Writer, Adoption), ArenaError> {
        Writer::adopt_beside(spec, domain, &StreamJournal::default())
    }

    /// The same, with what journals have of it: runs that they name are kept until
    /// [`Writer::set_journal`] or [`Writer::release_claims`], and what isn't committed is done
    /// again.
    ///
    /// # Errors
    /// As [`Writer::adopt`]; or if a journal contradicts the arena.
    pub fn adopt_beside(
        spec: &ArenaSpec,
        domain: &Arc<Domain>,
        journal: &StreamJournal<'_>,
    ) -> Result<(Writer, Adoption), ArenaError> {
        check_tenant(&spec.tenant)?;
        if spec.capacity_bytes < CAPACITY_MIN {
            return Err(capacity_error(spec));
        }
        let info = header_of(&spec.path)?;
        if info.incarnation == INCARNATION_OVER {
            return Err(ArenaError::Over { path: spec.path.clone() });
        }
        if let Some(fault) = incarnation_fault(info.incarnation) {
            return Err(fault.at(&spec.path));
        }
        info.check_owner(&spec.path, &spec.tenant, spec.partition, spec.partitions)?;
        let mut g = info.g;
        g.capacity_bytes = spec.capacity_bytes.min(g.address_bytes);
        let region = Arc::new(Region::open(&spec.path, g, domain)?);
        let damaged = |fault: FormatFault| fault.at(&spec.path);
        if let Some(fault) = length_fault(&g, region.end()) {
            return Err(damaged(fault));
        }
        back_index(&region, info.seed).map_err(|e| io(&spec.path, "taking memory", e))?;
        let found = survey(&region.words(), &g, region.end(), info.seed, &mut Err);
        let mut found = found.map_err(damaged)?;
        let left = JournalLeft::of(journal, found.counts.committed_lsn)?;
        found.claim_named((&region.words(), region.end()), &g, &left.claims).map_err(damaged)?;
        // Odd until all is ended: readers in other processes wait.
        region.words().store64(header::INCARNATION, incarnation(&info), Release);
        let space = Space::adopted(&region, &found);
        let space = space.map_err(|e| io(&spec.path, "taking memory", e))?;
        Writer::resume(spec, &info, (region, space), &found, &left)
    }

    fn resume(
        spec: &ArenaSpec,
        info: &HeaderInfo,
        (region, space): (Arc<Region>, Space),
        found: &Survey,
        left: &JournalLeft<'_>,
    ) -> Result<(Writer, Adoption), ArenaError> {
        let g = *region.geometry();
        let words = region.words();
        let current = found.current.expect("an arena without a table is refused");
        let index = Index::adopted(current, found.old, found.load, found.entries);
        let mut writer = Writer::assemble(region, space, index, info.seed);
        writer.incarnation = incarnation(info);
        words.store64(header::CAPACITY, g.capacity_bytes, Release);
        // What an earlier log had is nobody's promise.
        words.store64(header::DURABLE_LSN, 0, Release);
        if found.old.is_none() && words.load32(header::OLD, Relaxed) != 0 {
            words.store32(header::OLD, 0, Release);
        }
        writer.lsn = found.lsn().max(left.last_lsn);
        writer.appended = found.counts.appended_bytes;
        writer.cleaner.resume(&found.counts);
        writer.expires = found.expires;
        writer.drop_twins();
        writer.mark_live();
        let redone_commits = writer.redo(spec, found, left)?;
        writer.store_counters();
        writer.incarnation += 1;
        words.store64(header::INCARNATION, writer.incarnation, Release);
        let adoption = Adoption {
            keys: writer.keys(),
            expires: writer.expires,
            redone_intent: found.intent.is_some(),
            redone_commits,
            continued_growth: found.old.is_some(),
            incarnation: writer.incarnation,
            capacity_bytes: g.capacity_bytes,
        };
        Ok((writer, adoption))
    }

    /// An entry that stands in both tables was counted twice.
    fn drop_twins(&mut self) {
        let words = self.words;
        for reference in self.index.mark_moved_twins(&words) {
            let offset = u64::from(reference) * r::UNIT;
            let head = Head::load(&words, offset);
            self.space.discharge(offset, &head);
            self.expires -= u64::from(head.expiry_ms != 0);
        }
    }

    /// Marks what the index names, for the cleaner.
    pub(crate) fn mark_live(&mut self) {
        let (words, space) = (self.words, &mut self.space);
        // A twin was counted out, and is live all the same.
        space.forget_dead();
        self.index.each(&words, &mut |_, e| space.mark(u64::from(entry_reference(e)) * r::UNIT));
    }

    /// Ends a change that was interrupted. No key is newer then than what is committed. Returns how
    /// many commits of the journal were done again.
    fn redo(
        &mut self,
        spec: &ArenaSpec,
        found: &Survey,
        left: &JournalLeft<'_>,
    ) -> Result<u64, ArenaError> {
        let (words, last) = (self.words, self.lsn);
        let Some(intent) = &found.intent else {
            moment::begin(&words, last, 0);
            let redone = self.redo_journal(spec, left)?;
            moment::end(&words, last, 0);
            return Ok(redone);
        };
        // Once it is the index, it has all that was to be put.
        let clear = intent.clear.filter(|&table| table != self.index.current());
        let entries = self.entries_again(intent, clear.is_some());
        if let Some(table) = clear {
            let words_of = (table.offset..table.offset + table.bytes()).step_by(8);
            words_of.for_each(|at| words.store64(at, 0, Relaxed));
        }
        let places = match clear {
            Some(table) => self.fit_all(&entries, table),
            None => self.prepare_commit(false, &entries, true).map(drop),
        };
        places.map_err(|cause| {
            let path = spec.path.clone();
            ArenaError::Memory { path, doing: "end an interrupted commit", cause }
        })?;
        let reference = record::reference_of(intent.record.offset);
        moment::begin(&words, last, reference);
        // The intent has the number of the clearing, if there is one.
        let clear = clear.map(|table| (table, intent.record.head.lsn));
        let emptied = self.publish_within(clear, &entries);
        self.let_unpublished_go(emptied);
        let redone = self.redo_journal(spec, left)?;
        moment::end(&words, last, reference);
        let held = intent.list.iter().chain([&intent.record]);
        held.for_each(|w| self.space.release(w.offset, &w.head));
        Ok(redone)
    }

    /// The entries of an intent's list, but for keys that have a newer record.
    fn entries_again(&self, intent: &Intent, clears: bool) -> Vec<u64> {
        let words = &self.words;
        let named = |w: &WholeRecord| {
            // SAFETY: the survey has found this record whole, and nothing has been written since.
            let key = unsafe { words.bytes(w.offset + r::KEY, w.head.key_len.into()) };
            let hash = self.hash(key);
            let found = self.index.locate(words, hash, key).found;
            let lsn =
                |place: EntryPlace| Head::load(words, u64::from(place.reference) * r::UNIT).lsn;
            let is_newer = !clears && found.is_some_and(|it| lsn(it) > w.head.lsn);
            (!is_newer).then(|| entry(hash, record::reference_of(w.offset)))
        };
        intent.list.iter().filter_map(named).collect()
    }

    /// Does the journal's commits again that aren't committed in the arena. Between begun and
    /// committed of the adoption, so that a kill in the middle leaves all of them to the next.
    fn redo_journal(
        &mut self,
        spec: &ArenaSpec,
        left: &JournalLeft<'_>,
    ) -> Result<u64, ArenaError> {
        let mut redone = 0;
        left.each(&mut |journal, entry| {
            if entry.last_lsn() <= left.committed_lsn {
                return Ok(());
            }
            redone += 1;
            let changes =
                entry.raw_changes().map(|(_, change)| self.checked(&change, Values::Named));
            let changes = changes.collect::<Result<Vec<_>, _>>();
            let done = changes.and_then(|changes| self.apply_patiently(&changes));
            done.map_err(|error| match error {
                ReplayError::Write(cause) => {
                    let path = spec.path.clone();
                    ArenaError::Memory { path, doing: "do again what its journal has", cause }
                }
                ReplayError::Record { .. } => {
                    let what = "change of an entry";
                    FormatFault::new(entry.offset(), what, "one of the arena", error)
                        .at(journal.path())
                }
            })
        })?;
        Ok(redone)
    }

    /// Does a commit again; waits for memory that is under way.
    fn apply_patiently(&mut self, changes: &[CheckedChange<'_>]) -> Result<(), ReplayError> {
        for _ in 0..WAITS_MAX {
            match self.apply(changes, Values::Named) {
                Err(ReplayError::Write(WriteError::Busy)) => {
                    self.maintain(UpkeepBudget::default());
                    std::thread::sleep(WAIT_STEP);
                }
                other => return other.map(drop),
            }
        }
        Err(WriteError::Busy.into())
    }
}

/// Takes memory for the tables that the header names, of which the survey reads each line. They
/// have theirs, unless a flipped bit makes one longer: then a page that nobody can give would be a
/// fault.
fn back_index(region: &Region, seed: u32) -> Result<(), Errno> {
    let (words, g) = (region.words(), region.geometry());
    let checker = FormatChecker::new(&words, g, region.end(), seed);
    let (epoch, current) = split_state(words.load64(header::INDEX_STATE, Relaxed));
    let old = if epoch & 1 == 1 { words.load32(header::OLD, Relaxed) } else { 0 };
    // The survey refuses a word that names no table.
    for table in
        [current, old].map(|word| checker.table(header::INDEX_STATE, word)).iter().flatten()
    {
        region.try_back(table.offset, table.bytes())?;
    }
    Ok(())
}

/// Of a writer that adopts, until it has ended what the last one left.
fn incarnation(info: &HeaderInfo) -> u64 {
    (info.incarnation + 1) | 1
}
