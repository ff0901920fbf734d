//! Several keys deleted at once without tombstones, for an arena in which those find no room.
//!
//! ```text
//! append an empty intent | begun, intent | stamp and remove each | committed, intent := 0 | retire
//! ```
//!
//! 1. A reader sees all of the deletions or none: while the intent stands, single keys are read by
//!    the committed number too, and readers of several keys wait for that number or have one from
//!    before.
//! 2. The intent names nothing, so a kill in the middle leaves those that were removed until then
//!    removed, and the others there. A commit of tombstones is whole after a kill too: it is to be
//!    tried first.
//! 3. It needs no room but the intent's, of the fewest bytes that a record has. If not even those
//!    are there, a reader of a single key may see some of them removed before others.
//!
//! The arena's writer only.

use crate::format::record::{self, RecordRef};
use crate::qsbr::Pin;
use crate::write::journal::Stored;
use crate::write::writer::Writer;

impl Writer {
    /// Forgets tombstones that won't be committed and were staged last, in this order, and takes
    /// back their room: else those of one commit that finds none for all would leave none for the
    /// next, however short.
    ///
    /// # Panics
    /// If one of them was committed or abandoned before.
    pub fn take_back(&mut self, tombstones: &[RecordRef]) {
        for tombstone in tombstones.iter().rev() {
            self.abandon(std::slice::from_ref(tombstone));
            // Nobody has seen it: no reader follows a reference to one, and none is lent out.
            self.space.unreserve(tombstone.offset());
        }
    }

    /// Deletes keys that are there. Never fails for lack of memory.
    ///
    /// # Panics
    /// If the pin is another domain's, or one of the keys isn't there.
    pub fn delete_together(&mut self, pin: &Pin<'_>, keys: &[(u32, &[u8])]) {
        self.check_pin(pin);
        if keys.is_empty() {
            return;
        }
        self.advance_growth(u32::try_from(keys.len()).unwrap_or(u32::MAX).saturating_mul(2));
        let mut unpublished = std::mem::take(&mut self.unpublished);
        self.change_unnamed(keys.len() as u64, Stored::Removals(keys), |writer, first| {
            for (lsn, &(hash, key)) in (first..).zip(keys) {
                let place = writer.index.locate(&writer.words, hash, key).found;
                let place = place.expect("only keys that are there are deleted together");
                unpublished.push(writer.take_out(&place, hash, lsn));
            }
        });
        self.let_go(unpublished.drain(..));
        self.unpublished = unpublished;
        self.pay_if_due();
    }

    /// A change of so many numbers under an intent that names nothing, if there is room for that.
    /// `store` gets the first number, and does the stores between begun and committed.
    pub(super) fn change_unnamed(
        &mut self,
        numbers: u64,
        stored: Stored<'_>,
        store: impl FnOnce(&mut Writer, u64),
    ) {
        let first = self.lsn + 1;
        let intent = self.append_intent(&[], None, true).ok();
        if let Some(intent) = intent {
            record::seal(&self.words, intent.offset(), first);
        }
        self.lsn += numbers;
        let reference = intent.map_or(0, |intent| intent.reference);
        self.change(reference, stored, |writer| store(writer, first));
        self.abandon(intent.as_slice());
    }
}
