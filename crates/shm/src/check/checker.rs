//! The check of an arena's bytes, for adoption, `nigh check` and readers in other processes.
//!
//! 1. Nothing is believed: each offset and length is compared with its bounds before it is used.
//! 2. Bytes are copied out before they are looked at, so that a writer at work can only make a
//!    finding.
//! 3. Each check ends: probes, tables and lists are bounded by the file.

use crate::format::format_fault::{FormatFault, ensure, hex, sum_fault};
use crate::format::head::{Head, RunName};
use crate::format::layout::{
    COUNT_END, GENERATIONS, Geometry, LINE_BYTES, LSN_END, REF_MOVED, TABLE_LINES_MIN,
    TABLE_SHIFT_MAX, entry_reference, entry_tag, header, record as r,
};
use crate::format::sum;
use crate::format::words::SharedWords;
use crate::index::Table;
use crate::journal::named_values::NamedRun;
use std::sync::atomic::Ordering::Acquire;

/// Lines of the index whose records are asked for ahead of the walk: some 20 records, whose cache
/// misses overlap.
const LINES_AHEAD: u64 = 4;
/// Bytes of a key that are asked for with its record's header.
const KEY_BYTES_ASKED: u64 = 15;

/// A record that was found to be whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeRecord {
    pub(crate) offset: u64,
    pub(crate) head: Head,
    pub(crate) run: Option<RunName>,
}

/// A commit of several keys that was interrupted.
pub(crate) struct Intent {
    pub(crate) record: WholeRecord,
    /// The table that takes the index's place first.
    pub(crate) clear: Option<Table>,
    /// In order; no two have one key.
    pub(crate) list: Vec<WholeRecord>,
}

/// Counts of a header that go on with the next writer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) committed_lsn: u64,
    /// The largest of all stamps.
    pub(crate) removal_lsn: u64,
    pub(crate) appended_bytes: u64,
    pub(crate) relocated_bytes: u64,
    pub(crate) cleaned_segments: u64,
}

/// Checks what lies behind the fixed part of the header.
pub(crate) struct FormatChecker<'a, W> {
    words: &'a W,
    g: &'a Geometry,
    /// End of the file: nothing behind it is touched.
    end: u64,
    seed: u32,
    key: Vec<u8>,
}

impl<'a, W: SharedWords> FormatChecker<'a, W> {
    pub(crate) fn new(words: &'a W, g: &'a Geometry, end: u64, seed: u32) -> FormatChecker<'a, W> {
        FormatChecker {
            words,
            g,
            end: end.min(words.len()).min(g.address_bytes),
            seed,
            key: Vec::new(),
        }
    }

    /// The table that a word of the header names.
    pub(crate) fn table(&self, at: u64, word: u32) -> Result<Table, FormatFault> {
        let (slot, shift) = (word >> 6, word & 63);
        let lines = TABLE_LINES_MIN.ilog2()..=TABLE_SHIFT_MAX;
        ensure(lines.contains(&shift), || {
            FormatFault::new(at, "log2 of a table's lines", "3 to 26", shift)
        })?;
        let table = Table::new(slot, 1 << shift, self.g.slot_shift);
        let run =
            RunName { slot, slots: self.g.slots_for(table.bytes()), generation: 0, checksum: 0 };
        let inside = table.offset.checked_add(table.bytes()).is_some_and(|end| end <= self.end);
        ensure(inside && run.place_fault(self.g).is_none(), || {
            FormatFault::new(
                at,
                "place of a table",
                format!("a run below {}", self.end),
                table.offset,
            )
        })?;
        self.in_use(slot)?;
        Ok(table)
    }

    /// A slot that something names does not wait to be reused.
    fn in_use(&self, slot: u32) -> Result<(), FormatFault> {
        let at = self.g.generation_offset(slot);
        let generation = self.words.load32(at, Acquire);
        ensure(generation & 1 == 0, || {
            FormatFault::new(at, "generation of a slot in use", "an even number", generation)
        })
    }

    /// The counts since the arena was made.
    pub(crate) fn counts(&self) -> Result<Counts, FormatFault> {
        let count = |at, what| {
            let found = self.words.load64(at, Acquire);
            ensure(found < COUNT_END, || FormatFault::new(at, what, "less than 2^62", found))?;
            Ok(found)
        };
        let lsn = |at, what| {
            let found = self.words.load64(at, Acquire);
            ensure(found < LSN_END, || FormatFault::new(at, what, "less than 2^53", found))?;
            Ok(found)
        };
        let mut removal_lsn = lsn(header::CLEAR_STAMP, "stamp of a clearing")?;
        for at in (header::BYTES..GENERATIONS).step_by(8) {
            removal_lsn = removal_lsn.max(lsn(at, "stamp of a removal")?);
        }
        Ok(Counts {
            committed_lsn: lsn(header::COMMITTED_LSN, "committed LSN")?,
            removal_lsn,
            appended_bytes: count(header::APPENDED_BYTES, "bytes appended")?,
            relocated_bytes: count(header::RELOCATED_BYTES, "bytes moved to clean segments")?,
            cleaned_segments: count(header::CLEANED_SEGMENTS, "segments emptied")?,
        })
    }

    /// Tells what each entry of a table names, and which entry is none; until `f` has seen enough.
    pub(crate) fn records(
        &mut self,
        table: Table,
        f: &mut dyn FnMut(Result<WholeRecord, FormatFault>) -> Result<(), FormatFault>,
    ) -> Result<(), FormatFault> {
        (0..LINES_AHEAD.min(table.lines)).for_each(|line| self.ask_for(table, line));
        for line in 0..table.lines {
            if line + LINES_AHEAD < table.lines {
                self.ask_for(table, line + LINES_AHEAD);
            }
            let line = table.line_offset(line);
            for (at, e) in (line..).step_by(8).zip(self.words.line(line)) {
                let (reference, tag) = (entry_reference(e), entry_tag(e));
                if reference > REF_MOVED {
                    let whole = self.record(at, reference, Some(tag));
                    f(whole.and_then(|whole| self.reached(table, tag, at, line).map(|()| whole)))?;
                } else if tag != 0 {
                    f(Err(FormatFault::new(at, "tag of an entry without a record", 0, tag)))?;
                }
            }
        }
        Ok(())
    }

    /// Whether a search for a hash comes to a line of the table, in which its entry stands at `at`.
    fn reached(&self, table: Table, hash: u32, at: u64, line: u64) -> Result<(), FormatFault> {
        for passed in table.probe(hash) {
            if passed == line {
                return Ok(());
            }
            if self.words.line(passed).contains(&0) {
                break;
            }
        }
        let expected = format!("where a search from line {} comes to", table.home(hash));
        let found = format!("line {}", (line - table.offset) / LINE_BYTES);
        Err(FormatFault::new(at, "place of an entry", expected, found))
    }

    /// Asks for the cache lines of the headers and keys that a line's entries name. Any offset may
    /// be asked for.
    fn ask_for(&self, table: Table, line: u64) {
        for e in self.words.line(table.line_offset(line)) {
            let offset = u64::from(entry_reference(e)) * r::UNIT;
            self.words.prefetch(offset);
            self.words.prefetch(offset + r::KEY + KEY_BYTES_ASKED);
        }
    }

    /// The record at a reference that stands at `from`. With a tag it must be a published one's.
    pub(crate) fn record(
        &mut self,
        from: u64,
        reference: u32,
        tag: Option<u32>,
    ) -> Result<WholeRecord, FormatFault> {
        let offset = u64::from(reference) * r::UNIT;
        let first = self.g.slot_offset(self.g.first_slot);
        ensure(offset >= first && offset + r::HEADER_BYTES <= self.end, || {
            FormatFault::new(from, "reference", format!("{first} to {}", self.end), offset)
        })?;
        let slot = self.g.slot_of(offset);
        let tail_at = self.g.tail_offset(slot);
        let tail = u64::from(self.words.load32(tail_at, Acquire)) * r::UNIT;
        let covers = |bytes: u64| {
            let used = offset + bytes - self.g.slot_offset(slot);
            ensure(used <= tail && tail <= self.g.slot_bytes(), || {
                let expected = format!("{used} to {}", self.g.slot_bytes());
                FormatFault::new(tail_at, "tail of a segment", expected, tail)
            })
        };
        // First of all: what no tail covers may be a hole, and reading one takes memory.
        covers(r::HEADER_BYTES)?;
        let head = Head::load(self.words, offset);
        if let Some(what) = head.fault(self.g, offset) {
            return Err(FormatFault::new(offset, what, "what arena.md says", format!("{head:?}")));
        }
        ensure(offset + head.bytes() <= self.end, || {
            FormatFault::new(
                offset,
                "end of a record",
                format!("at most {}", self.end),
                head.bytes(),
            )
        })?;
        covers(head.bytes())?;
        self.in_use(slot)?;
        if let Some(tag) = tag {
            self.published(&head, offset, tag)?;
        }
        Ok(WholeRecord { offset, head, run: self.run(&head, offset)? })
    }

    fn published(&mut self, head: &Head, offset: u64, tag: u32) -> Result<(), FormatFault> {
        ensure(head.kind == r::KIND_STRING && !head.is_tombstone(), || {
            FormatFault::new(offset, "kind of a published record", "a string", format!("{head:?}"))
        })?;
        let hash = self.hash(head, offset);
        ensure(hash == tag, || FormatFault::new(offset, "hash of a key", tag, hash))
    }

    /// The hash of a record's key.
    fn hash(&mut self, head: &Head, offset: u64) -> u32 {
        self.key.resize(head.key_len.into(), 0);
        self.words.copy_out(offset + r::KEY, &mut self.key);
        crate::format::hash::hash(self.seed, &self.key)
    }

    fn run(&self, head: &Head, offset: u64) -> Result<Option<RunName>, FormatFault> {
        if !head.has_run() {
            return Ok(None);
        }
        let run = RunName::load(self.words, offset, head);
        let named = NamedRun { run, value_len: head.value_len, key_len: head.key_len };
        self.named_run(&named, offset + head.value_at())?;
        Ok(Some(run))
    }

    /// Whether a run is what its name, which stands at `at`, says.
    pub(crate) fn named_run(&self, named: &NamedRun, at: u64) -> Result<(), FormatFault> {
        let NamedRun { run, value_len, .. } = named;
        if let Some(what) = run.fault(self.g, *value_len) {
            return Err(FormatFault::new(at, what, "what arena.md says", format!("{run:?}")));
        }
        let end = self.g.slot_offset(run.slot) + u64::from((*value_len).max(1));
        ensure(end <= self.end, || {
            FormatFault::new(at, "end of a run", format!("at most {}", self.end), end)
        })?;
        self.in_use(run.slot)?;
        let generation = self.words.load32(self.g.generation_offset(run.slot), Acquire);
        ensure(generation == run.generation, || {
            FormatFault::new(at, "generation of a run", generation, run.generation)
        })
    }

    /// The commit that the header's intent names, if it names one.
    pub(crate) fn intent(&mut self) -> Result<Option<Intent>, FormatFault> {
        let reference = self.words.load32(header::INTENT, Acquire);
        if reference == 0 {
            return Ok(None);
        }
        let record = self.record(header::INTENT, reference, None)?;
        let head = &record.head;
        let count = head.value_len / 4;
        let is_list = head.kind == r::KIND_INTENT && head.key_len == 0;
        ensure(is_list && head.value_len.is_multiple_of(4) && count > 0, || {
            FormatFault::new(record.offset, "intent", "a list of references", format!("{head:?}"))
        })?;
        let at = match record.run {
            Some(run) => self.g.slot_offset(run.slot),
            None => record.offset + head.value_at(),
        };
        let mut list = Vec::new();
        for from in (1..count).map(|i| at + u64::from(i) * 4) {
            list.push(self.listed(from)?);
        }
        let clear = match self.words.load32(at, Acquire) {
            0 => None,
            word => Some(self.table(at, word)?),
        };
        for whole in list.iter().chain([&record]) {
            self.sum(whole)?;
        }
        Ok(Some(Intent { record, clear, list }))
    }

    /// Whether a record, and its run, have the sums that they name.
    pub(crate) fn sum(&self, whole: &WholeRecord) -> Result<(), FormatFault> {
        let WholeRecord { offset, head, run } = whole;
        let found = sum::expected(self.words, *offset, head);
        ensure(found == head.checksum, || sum_fault(*offset, head, found))?;
        let Some(run) = run else { return Ok(()) };
        let at = self.g.slot_offset(run.slot);
        let found = sum::of_bytes(self.words, at, head.value_len.into());
        ensure(found == run.checksum, || {
            FormatFault::new(at, "checksum of a value", hex(found), hex(run.checksum))
        })
    }

    /// The record that a word of an intent's list names.
    fn listed(&mut self, from: u64) -> Result<WholeRecord, FormatFault> {
        let reference = self.words.load32(from, Acquire);
        ensure(reference > REF_MOVED, || {
            FormatFault::new(from, "reference in an intent", "a record's", reference)
        })?;
        let whole = self.record(from, reference, None)?;
        let kind = whole.head.kind;
        ensure(kind == r::KIND_STRING, || {
            FormatFault::new(whole.offset, "kind of a record", "a string", kind)
        })?;
        Ok(whole)
    }
}
