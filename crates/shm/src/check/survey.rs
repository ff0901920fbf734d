//! All that an arena's header and index name, and what uses which slot: what adoption goes by, and
//! `nigh check`.
//!
//! ```text
//! header ─► tables ─► entries ─► records, runs      each of these claims its slots; a slot that
//!       └─► intent ─► list ────► records, runs      is claimed for two things is a contradiction
//! ```
//!
//! 1. Adoption refuses a file at the first contradiction, and `nigh check` lists them all. It is
//!    the same walk: what the one calls whole the other takes, unless memory or owner stand against
//!    it.
//! 2. The leftovers of an interrupted writer are none: an unfinished commit, growth or reuse of a
//!    slot, an entry in both tables, a stale word of an old table, a begun LSN or a stamp above the
//!    committed one. Adoption ends it (see `adopt`).
//! 3. Nothing is changed.

use crate::check::checker::{Counts, FormatChecker, Intent, WholeRecord};
use crate::format::format_fault::{FormatFault, ensure};
use crate::format::layout::{
    Geometry, PAGE_BYTES, header, inline_record_bytes, record as r, round_up,
};
use crate::format::sum;
use crate::format::words::SharedWords;
use crate::index::{Table, split_state};
use crate::journal::named_values::NamedRun;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Acquire;

/// Takes a contradiction: an error ends the survey, else it goes on with what comes next.
pub(crate) type Judge<'a> = &'a mut dyn FnMut(FormatFault) -> Result<(), FormatFault>;

/// The use of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Use {
    #[default]
    Free,
    /// Header and tables of slots.
    Fixed,
    Segment,
    Run,
}

/// The tables and the commit that name records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedBy {
    OldTable,
    CurrentTable,
    Intent,
}

/// A slot, and the bytes of the records in it by what names them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotUse {
    pub(crate) what: Use,
    /// Published records; one that stands in both tables counts twice.
    pub(crate) records: u32,
    bytes: [u32; 3],
}

impl SlotUse {
    /// Bytes of published records, likewise.
    pub(crate) fn live(&self) -> u32 {
        self.bytes[NamedBy::OldTable as usize] + self.bytes[NamedBy::CurrentTable as usize]
    }

    /// Bytes of the records of an unfinished commit.
    pub(crate) fn held(&self) -> u32 {
        self.bytes[NamedBy::Intent as usize]
    }
}

/// A run that holds a value, and how many records name it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunUse {
    pub(crate) slots: u32,
    /// The longest length that a record names.
    pub(crate) end: u64,
    pub(crate) live: u32,
    pub(crate) held: u32,
    /// An entry of the journal names it.
    pub(crate) is_named: bool,
    /// The value of one of them can't lie in a segment.
    pub(crate) must: bool,
    /// The checksum of one of them is wrong, so that its length may be: pages may be missing.
    pub(crate) is_bad: bool,
}

impl RunUse {
    /// Bytes of its pages: one at least, whatever its records say.
    pub(crate) fn bytes(&self) -> u64 {
        round_up(self.end.max(1), PAGE_BYTES)
    }
}

/// The contents of an arena.
pub(crate) struct Survey {
    /// `None` if the header names no table.
    pub(crate) current: Option<Table>,
    /// The table that is being emptied.
    pub(crate) old: Option<Table>,
    pub(crate) growing: bool,
    /// Entries that name a record; one that stands in both tables counts twice.
    pub(crate) entries: u64,
    pub(crate) expires: u64,
    pub(crate) newest_lsn: u64,
    /// Entries of the current table that are not EMPTY.
    pub(crate) load: u64,
    /// Bytes of the records of all entries.
    pub(crate) record_bytes: u64,
    /// The same, and the bytes of their runs.
    pub(crate) live_bytes: u64,
    /// Bytes of the records of an unfinished commit.
    intent_bytes: u64,
    /// The same, and the bytes of their runs.
    pub(crate) held_bytes: u64,
    pub(crate) intent: Option<Intent>,
    pub(crate) counts: Counts,
    pub(crate) slots: Vec<SlotUse>,
    /// Runs of values by their first slots.
    pub(crate) runs: HashMap<u32, RunUse>,
}

/// Reads the index and all that it names.
pub(crate) fn survey<W: SharedWords>(
    words: &W,
    g: &Geometry,
    end: u64,
    seed: u32,
    judge: Judge<'_>,
) -> Result<Survey, FormatFault> {
    let mut checker = FormatChecker::new(words, g, end, seed);
    let mut survey = Survey::new(g);
    survey.read_tables(words, g, &checker, judge)?;
    survey.counts = or_else(checker.counts(), judge)?.unwrap_or_default();
    for (table, by) in [(survey.old, NamedBy::OldTable), (survey.current, NamedBy::CurrentTable)] {
        if let Some(table) = table {
            checker.records(table, &mut |whole| {
                let taken = whole.and_then(|whole| survey.publish(words, g, &whole, by));
                or_else(taken, judge).map(|_| ())
            })?;
        }
    }
    if let Some(table) = survey.current {
        let lines = (0..table.lines).map(|line| words.line(table.line_offset(line)));
        survey.load = lines.map(|line| line.iter().filter(|&&e| e != 0).count() as u64).sum();
    }
    survey.intent = or_else(checker.intent(), judge)?.flatten();
    if let Some(intent) = survey.intent.take() {
        if let Some(table) = intent.clear.filter(|&table| survey.current != Some(table)) {
            let taken = survey.claim_run(table.slot, g.slots_for(table.bytes())).map_err(|what| {
                FormatFault::new(table.offset, "slots of a table", "its own", format!("{what:?}"))
            });
            or_else(taken, judge)?;
        }
        for whole in intent.list.iter().chain([&intent.record]) {
            or_else(survey.hold(words, g, whole), judge)?;
        }
        survey.intent = Some(intent);
    }
    survey.count_runs();
    Ok(survey)
}

/// The result, or the judge's word on the contradiction.
fn or_else<T>(found: Result<T, FormatFault>, judge: Judge<'_>) -> Result<Option<T>, FormatFault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(fault) => judge(fault).map(|()| None),
    }
}

impl Survey {
    /// The largest number that any reader may have seen, or may yet see, of a change.
    pub(crate) fn lsn(&self) -> u64 {
        let intent =
            self.intent.iter().flat_map(|intent| intent.list.iter().chain([&intent.record]));
        let named = intent.map(|whole| whole.head.lsn).fold(self.newest_lsn, u64::max);
        named.max(self.counts.committed_lsn).max(self.counts.removal_lsn)
    }

    fn new(g: &Geometry) -> Survey {
        let mut slots = vec![SlotUse::default(); g.slots as usize];
        for slot in &mut slots[..g.first_slot as usize] {
            slot.what = Use::Fixed;
        }
        Survey {
            current: None,
            old: None,
            growing: false,
            entries: 0,
            expires: 0,
            newest_lsn: 0,
            load: 0,
            record_bytes: 0,
            live_bytes: 0,
            intent_bytes: 0,
            held_bytes: 0,
            intent: None,
            counts: Counts::default(),
            slots,
            runs: HashMap::new(),
        }
    }

    /// The tables that the header names, with their slots.
    fn read_tables<W: SharedWords>(
        &mut self,
        words: &W,
        g: &Geometry,
        checker: &FormatChecker<'_, W>,
        judge: Judge<'_>,
    ) -> Result<(), FormatFault> {
        let (epoch, word) = split_state(words.load64(header::INDEX_STATE, Acquire));
        self.growing = epoch & 1 == 1;
        let mut claim = |at, word| {
            let table = checker.table(at, word).and_then(|table| {
                let (slots, taken) = (g.slots_for(table.bytes()), |what| {
                    FormatFault::new(
                        table.offset,
                        "slots of a table",
                        "its own",
                        format!("{what:?}"),
                    )
                });
                self.claim_run(table.slot, slots).map(|()| table).map_err(taken)
            });
            or_else(table, judge)
        };
        let old = words.load32(header::OLD, Acquire);
        let old = if epoch & 1 == 1 { claim(header::OLD, old)? } else { None };
        let current = claim(header::CURRENT, word)?;
        (self.old, self.current) = (old, current);
        Ok(())
    }

    /// An entry of the index names a record.
    fn publish<W: SharedWords>(
        &mut self,
        words: &W,
        g: &Geometry,
        whole: &WholeRecord,
        by: NamedBy,
    ) -> Result<(), FormatFault> {
        if let Some(run) = self.claim(words, g, whole, by)? {
            run.live += 1;
        }
        self.entries += 1;
        self.expires += u64::from(whole.head.expiry_ms != 0);
        self.newest_lsn = self.newest_lsn.max(whole.head.lsn);
        self.record_bytes += whole.head.bytes();
        Ok(())
    }

    /// An unfinished commit names a record.
    fn hold<W: SharedWords>(
        &mut self,
        words: &W,
        g: &Geometry,
        whole: &WholeRecord,
    ) -> Result<(), FormatFault> {
        if let Some(run) = self.claim(words, g, whole, NamedBy::Intent)? {
            run.held += 1;
        }
        self.intent_bytes += whole.head.bytes();
        Ok(())
    }

    /// Claims the slots of a record and of its run, and counts its bytes.
    fn claim<W: SharedWords>(
        &mut self,
        words: &W,
        g: &Geometry,
        whole: &WholeRecord,
        by: NamedBy,
    ) -> Result<Option<&mut RunUse>, FormatFault> {
        let WholeRecord { offset, head, run } = whole;
        let number = g.slot_of(*offset);
        let slot = &mut self.slots[number as usize];
        ensure(matches!(slot.what, Use::Free | Use::Segment), || {
            FormatFault::new(*offset, "slot of a record", "a segment", format!("{:?}", slot.what))
        })?;
        // Records don't overlap, and none is named twice by one table or list.
        let tail = u64::from(words.load32(g.tail_offset(number), Acquire)) * r::UNIT;
        let (most, used) = (tail.min(g.slot_bytes()), &mut slot.bytes[by as usize]);
        let sum = u64::from(*used) + head.bytes();
        ensure(sum <= most, || {
            let expected = format!("at most {most}");
            FormatFault::new(*offset, "bytes of live records of a segment", expected, sum)
        })?;
        slot.what = Use::Segment;
        slot.records += u32::from(by != NamedBy::Intent);
        *used = u32::try_from(sum).expect("at most a slot");
        let Some(run) = run else { return Ok(None) };
        let named = NamedRun { run: *run, value_len: head.value_len, key_len: head.key_len };
        let known = self.name_run(g, &named, *offset)?;
        known.is_bad |= sum::expected(words, *offset, head) != head.checksum;
        Ok(Some(known))
    }

    /// Something at an offset names a run.
    fn name_run(
        &mut self,
        g: &Geometry,
        named: &NamedRun,
        offset: u64,
    ) -> Result<&mut RunUse, FormatFault> {
        let NamedRun { run, value_len, key_len } = named;
        if self.runs.get(&run.slot).is_none_or(|known| known.slots != run.slots) {
            self.claim_run(run.slot, run.slots).map_err(|what| {
                FormatFault::new(offset, "slots of a run", "its own", format!("{what:?}"))
            })?;
            self.runs.insert(run.slot, RunUse { slots: run.slots, ..RunUse::default() });
        }
        let known = self.runs.get_mut(&run.slot).expect("it is there, or was put there");
        known.end = known.end.max((*value_len).into());
        let inline = inline_record_bytes((*key_len).into(), *value_len as usize);
        known.must |= g.wants_run(inline, (*value_len).into());
        Ok(known)
    }

    /// Claims the runs that entries of the journal name.
    pub(crate) fn claim_named<W: SharedWords>(
        &mut self,
        (words, end): (&W, u64),
        g: &Geometry,
        claims: &[NamedRun],
    ) -> Result<(), FormatFault> {
        let checker = FormatChecker::new(words, g, end, 0);
        for named in claims {
            let at = g.slot_offset(named.run.slot);
            checker.named_run(named, at)?;
            let known = self.name_run(g, named, at)?;
            known.is_named = true;
        }
        self.count_runs();
        Ok(())
    }

    /// Counts the bytes of runs.
    fn count_runs(&mut self) {
        (self.live_bytes, self.held_bytes) = (self.record_bytes, self.intent_bytes);
        for run in self.runs.values() {
            self.live_bytes += if run.live > 0 { run.bytes() } else { 0 };
            self.held_bytes += if run.held > 0 { run.bytes() } else { 0 };
        }
    }

    /// Claims slots for a run; says what one is used for already.
    fn claim_run(&mut self, slot: u32, slots: u32) -> Result<(), Use> {
        let range = &mut self.slots[slot as usize..(slot + slots) as usize];
        if let Some(taken) = range.iter().find(|s| s.what != Use::Free) {
            return Err(taken.what);
        }
        range.iter_mut().for_each(|s| s.what = Use::Run);
        Ok(())
    }
}
