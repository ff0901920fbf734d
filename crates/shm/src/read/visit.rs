//! Looking at some of the keys: what an owner that evicts chooses from.
//!
//! Any thread with a pin.

use crate::format::layout::{
    PAGE_BYTES, REF_MOVED, entry_reference, entry_tag, inline_record_bytes, round_up,
    run_record_bytes,
};
use crate::format::record::Record;
use crate::format::words::SharedWords;
use crate::qsbr::Pin;
use crate::read::reader::Reader;
use std::sync::atomic::Ordering::Acquire;

impl Reader {
    /// Visits the entries of a line of the index that `random` chooses: the hash of each.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn visit_line(&self, pin: &Pin<'_>, random: u64, visit: &mut dyn FnMut(u32)) {
        self.check_pin(pin);
        let entries = self.words.line(self.any_line(random));
        for entry in entries.into_iter().filter(|&entry| entry_reference(entry) > REF_MOVED) {
            visit(entry_tag(entry));
        }
    }

    /// Asks for the line that [`Reader::visit_line`] will visit for this number.
    pub fn prefetch_any_line(&self, random: u64) {
        self.words.prefetch(self.any_line(random));
    }

    /// Where the line of the index lies that `random` chooses.
    fn any_line(&self, random: u64) -> u64 {
        let (current, old) = self.tables();
        let line = random % (current.lines + old.map_or(0, |table| table.lines));
        match old {
            Some(old) if line >= current.lines => old.line_offset(line - current.lines),
            _ => current.line_offset(line),
        }
    }

    /// Visits the entries among which a key of this hash would find its place: the hash of each.
    ///
    /// # Panics
    /// If the pin is another domain's.
    pub fn visit_probe(&self, pin: &Pin<'_>, hash: u32, visit: &mut dyn FnMut(u32)) {
        self.check_pin(pin);
        for at in self.current().probe(hash) {
            let entries = self.words.line(at);
            for entry in entries.into_iter().filter(|&entry| entry_reference(entry) > REF_MOVED) {
                visit(entry_tag(entry));
            }
        }
    }

    /// Some record whose key has this hash. Few keys share one, and this doesn't tell which of them
    /// it is.
    ///
    /// # Panics
    /// If the pin is another domain's.
    #[must_use]
    pub fn any_of_hash<'p>(&self, pin: &'p Pin<'_>, hash: u32) -> Option<Record<'p>> {
        self.check_pin(pin);
        let (current, old) = self.tables();
        for table in [old, Some(current)].into_iter().flatten() {
            for at in table.probe(hash) {
                let line = self.words.line(at);
                let named = |entry: &&u64| {
                    entry_tag(**entry) == hash && entry_reference(**entry) > REF_MOVED
                };
                if let Some(&entry) = line.iter().find(named) {
                    // SYNC(index-publish)
                    self.words.fence(Acquire);
                    return Some(self.lend(pin, entry_reference(entry)));
                }
                if line.contains(&0) {
                    break;
                }
            }
        }
        None
    }

    /// Bytes of memory that a record takes, with its value's run if it has one, and that the
    /// index's current table takes.
    #[must_use]
    pub fn footprint(&self, record: &Record<'_>) -> (u64, u64) {
        let (key, value) = (record.key().len(), u64::from(record.value_len()));
        let own = match record.has_run() {
            true => run_record_bytes(key) + round_up(value, PAGE_BYTES),
            false => inline_record_bytes(key, record.value_len() as usize),
        };
        (own, self.current().bytes())
    }
}
