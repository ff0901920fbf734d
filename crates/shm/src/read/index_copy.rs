//! All that the index names at one moment, to be read later.
//!
//! ```text
//! nobody writes:  index lines ── copy ──> references
//! later:          reference ──> record, as it was then        one pin all the while
//! ```
//!
//! 1. What the index named under a pin isn't used again before that pin's participant announces:
//!    so a copy is good for the turn in which it was taken, whatever is written meanwhile.
//!
//! Any thread with a pin.

use crate::format::layout::{REF_MOVED, entry_reference, record as r};
use crate::format::record::Record;
use crate::format::words::SharedWords;
use crate::qsbr::Pin;
use crate::read::reader::Reader;
use std::sync::atomic::Ordering::Acquire;

/// Entries of a line.
const LINE: usize = 8;
/// Records whose memory is asked for ahead: what a core keeps under way.
const AHEAD: usize = 8;

/// The records that an arena's index named, 4 bytes for each.
#[derive(Debug)]
pub struct IndexCopy {
    references: Vec<u32>,
    turn: u64,
    arena: u32,
}

impl IndexCopy {
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.references.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.references.is_empty()
    }
}

impl Reader {
    /// Copies what the index names. While it lasts, nobody else changes the index: else a key may
    /// be missing, or be there twice. Takes about a nanosecond for each entry, if `room` has as
    /// many words as there are keys, and eight more; their values don't matter.
    ///
    /// # Panics
    /// If the pin is another domain's.
    #[must_use]
    pub fn copy_index(&self, pin: &Pin<'_>, mut room: Vec<u32>) -> IndexCopy {
        self.check_pin(pin);
        let (current, old) = self.tables();
        let mut len = 0;
        for table in old.into_iter().chain([current]) {
            for line in 0..table.lines {
                if room.len() < len + LINE {
                    room.resize((2 * len).max(len + LINE), 0);
                }
                let to = &mut room[len..len + LINE];
                let mut found = 0;
                for entry in self.words.line(table.line_offset(line)) {
                    // Without a jump that a core would guess wrongly half of the time.
                    let reference = entry_reference(entry);
                    to[found] = reference;
                    found += usize::from(reference > REF_MOVED);
                }
                len += found;
            }
        }
        // SYNC(index-publish): the records were written before their entries were stored.
        self.words.fence(Acquire);
        room.truncate(len);
        IndexCopy { references: room, turn: pin.turn(), arena: self.region.number() }
    }

    /// A record of a copy, by its number; `None` behind the last one. The record is as it was when
    /// the copy was taken. Whether its time was over then is for the caller to say.
    ///
    /// # Panics
    /// If the pin is another domain's, or the copy another turn's or another arena's.
    #[must_use]
    pub fn record_of<'p>(
        &self,
        pin: &'p Pin<'_>,
        copy: &IndexCopy,
        number: usize,
    ) -> Option<Record<'p>> {
        self.check_pin(pin);
        // What the index named then is kept as long as this pin.
        assert!(copy.turn == pin.turn(), "a copy of another turn");
        assert!(copy.arena == self.region.number(), "a copy of another arena's index");
        if let Some(&ahead) = copy.references.get(number + AHEAD) {
            self.words.prefetch(u64::from(ahead) * r::UNIT);
        }
        let reference = *copy.references.get(number)?;
        Some(self.lend(pin, reference))
    }
}
