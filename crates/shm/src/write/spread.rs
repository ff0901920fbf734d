//! A larger table at once, in an arena that is being built.
//!
//! A log's base has its keys in the order of the table that they stood in. In a smaller one they
//! fill neighbouring lines, though each key has a hash of its own; and while the index moves to a
//! larger one, line by line, new keys may take all places of those that are to come. Keys of a live
//! arena come in no such order.
//!
//! 1. The arena has no name yet: nobody reads it, and no turn waits.
//! 2. All entries, and the keys that found no room, find places in the new table.
//! 3. It takes a small share of the arena at most, unless as many keys want more.
//!
//! The arena's writer only.

use crate::error::WriteError;
use crate::format::layout::{LINE_BYTES, TABLE_SHIFT_MAX, entry_reference, entry_tag};
use crate::index::Index;
use crate::index::growth::lines_for;
use crate::write::commit::all_fit;
use crate::write::grow::GUESS_SHARE;
use crate::write::writer::Writer;

impl Writer {
    /// Sees to room for keys that found none, in an arena that is being built.
    ///
    /// # Errors
    /// [`WriteError::TooManyKeysWithOneHash`] if the arena has its name, or no table parts the
    /// keys; or that memory is short. Nothing has changed then.
    #[cold]
    pub(crate) fn spread(&mut self, keys: &[u32]) -> Result<(), WriteError> {
        if self.region.temporary().is_none() {
            return Err(WriteError::TooManyKeysWithOneHash);
        }
        let mut entries = Vec::new();
        self.index.each(&self.words, &mut |_, e| entries.push(e));
        let hashes = entries.iter().map(|&e| entry_tag(e)).chain(keys.iter().copied());
        let hashes: Vec<u32> = hashes.collect();
        let share = self.space.geometry().capacity_bytes / GUESS_SHARE / LINE_BYTES;
        let most = share.max(2 * lines_for(hashes.len() as u64)).min(1 << TABLE_SHIFT_MAX);
        let sizes = (0..TABLE_SHIFT_MAX).map(|more| self.index.current().lines << more);
        let mut sizes = sizes.take_while(|&lines| lines <= most);
        let lines = sizes.find(|&lines| all_fit(&hashes, lines, &mut self.promised));
        let lines = lines.ok_or(WriteError::TooManyKeysWithOneHash)?;
        let table = self.take_table(lines, false)?;
        let mut index = Index::new(table);
        for e in entries {
            let room = index.room(&self.words, entry_tag(e)).expect("each finds a place");
            index.insert(&self.words, room, entry_tag(e), entry_reference(e));
        }
        for table in self.index.switch(&self.words, index).into_iter().flatten() {
            self.space.retire_table(table.slot, table.bytes());
        }
        self.expire_line = 0;
        self.forget_prepared();
        self.rebuilds.larger += 1;
        Ok(())
    }
}
