//! The use of each slot of an arena of edition 1: a slot that is used for two things is damage.
//!
//! 1. Header and tables of slots, an index table, a segment, and a run of a value share no slot.
//!    Several records may name one run, if they say the same of it.
//! 2. The records that one table, or one commit, names in a segment are together no longer than its
//!    used part. So there are no more of them than fit in the file.
//!
//! Any thread.

use super::arena1::Edition1;
use super::layout1::{PAGE_BYTES, in_memory};
use super::record1::Whole1;
use crate::error::ArenaError;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Use1 {
    #[default]
    Free,
    /// Header and tables of slots.
    Fixed,
    Segment,
    Run,
}

/// A table or a commit that names a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By1 {
    OldTable,
    CurrentTable,
    Intent,
}

/// A slot, and the bytes of the records in it by what names them.
#[derive(Clone, Copy, Default)]
struct SlotUse1 {
    what: Use1,
    bytes: [u64; 3],
}

/// The claims to slots so far.
pub(super) struct Claims {
    slots: Vec<SlotUse1>,
    /// Runs of values by their first slots: slots, and bytes of pages.
    runs: HashMap<u64, (u64, u64)>,
}

impl Claims {
    /// Of an arena of so many slots, in whose first ones lie header and tables.
    pub(super) fn new(slots: u64, fixed: u64) -> Claims {
        let mut slots = vec![SlotUse1::default(); in_memory(slots)];
        slots.iter_mut().take(in_memory(fixed)).for_each(|slot| slot.what = Use1::Fixed);
        Claims { slots, runs: HashMap::new() }
    }

    /// Claims slots for a run or a table, which lies in the arena; says what one is used for
    /// already.
    pub(super) fn run(&mut self, slot: u64, slots: u64) -> Result<(), Use1> {
        let range = &mut self.slots[in_memory(slot)..in_memory(slot + slots)];
        if let Some(taken) = range.iter().find(|slot| slot.what != Use1::Free) {
            return Err(taken.what);
        }
        range.iter_mut().for_each(|slot| slot.what = Use1::Run);
        Ok(())
    }

    /// Claims the slots of a record and of its run.
    pub(super) fn record(
        &mut self,
        arena: &Edition1,
        whole: &Whole1,
        by: By1,
    ) -> Result<(), ArenaError> {
        let (offset, file) = (whole.offset, &arena.file);
        let number = arena.header.division.slot_of(offset);
        let slot = &mut self.slots[in_memory(number)];
        if !matches!(slot.what, Use1::Free | Use1::Segment) {
            let found = format!("{:?}", slot.what);
            return Err(file.damaged(offset, "slot of a record", "a segment", found));
        }
        let (used, most) = (&mut slot.bytes[by as usize], arena.tail(number));
        let sum = *used + whole.head.bytes();
        if sum > most {
            let what = "bytes of live records of a segment";
            return Err(file.damaged(offset, what, format!("at most {most}"), sum));
        }
        (*used, slot.what) = (sum, Use1::Segment);
        let Some(run) = whole.run else { return Ok(()) };
        let said = (run.slots, u64::from(whole.head.value_len).next_multiple_of(PAGE_BYTES));
        if self.runs.get(&run.slot) != Some(&said) {
            let taken =
                |what| file.damaged(offset, "slots of a run", "its own", format!("{what:?}"));
            self.run(run.slot, run.slots).map_err(taken)?;
            self.runs.insert(run.slot, said);
        }
        Ok(())
    }
}
