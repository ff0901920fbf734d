//! The moment of a change, and a moment at which others read.
//!
//! ```text
//! writer: begun := last ── (intent) ── stamps ── prev, entry ── … ── committed := last ── (intent := 0) ── retire
//! reader: begun, intent ── committed ≥ begun, or an intent ── clock ── committed again ── keys
//! ```
//!
//! 1. Everything that alters what a key says is a change and has a number, removals too; between
//!    `begin` and `end` nothing else of the arena is numbered.
//! 2. A removal's stamp is stored before its entry goes; a record's `prev` before its entry.
//! 3. Nothing that a change unpublishes is retired before its `end`: a reader that has read
//!    `committed` before may still read it.
//!
//! 4. A reader's moment S is a committed number. What was current at S is the newest version of a
//!    key with a number up to S; or nothing, if no removal since has left its stamp.
//!
//! Generic over the shared words, so that models run it. `begin`, `end` and what is stored between
//! them: the arena's writer. The rest: any thread with a pin from before the moment was sampled.

use crate::format::layout::{entry_reference, entry_tag, header, record as r, stamp_offset};
use crate::format::words::SharedWords;
use crate::index::{self, EntryPlace, Index, Located, Table};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Looks at a commit that is under way before a reader gives up: some microseconds.
const LOOKS_MAX: u32 = 1_000;
/// Versions of a key that a reader goes back.
pub(crate) const VERSIONS_MAX: u32 = 256;

/// A moment of an arena, for as many keys as its reader likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MomentSample {
    /// Changes numbered up to here are seen.
    pub(crate) lsn: u64,
    /// The time by which expiry is judged, Unix ms.
    pub(crate) clock_ms: u64,
}

/// So much has changed since a moment that a key can't be told as it was then: take another moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooNew;

/// A commit begins, of changes up to number `last`; of several, with the reference of their intent,
/// else 0.
#[inline]
pub(crate) fn begin<W: SharedWords>(words: &W, last: u64, intent: u32) {
    // SYNC(moment): before the first store of the commit (each is a Release store).
    words.store64(header::BEGUN_LSN, last, Release);
    if intent != 0 {
        // SYNC(intent): the list and all its records are written before.
        words.store32(header::INTENT, intent, Release);
    }
}

/// It ends.
#[inline]
pub(crate) fn end<W: SharedWords>(words: &W, last: u64, intent: u32) {
    // SYNC(moment): behind the last store of the commit.
    words.store64(header::COMMITTED_LSN, last, Release);
    if intent != 0 {
        words.store32(header::INTENT, 0, Release);
    }
}

/// A key with this hash is about to go, by change `lsn`.
#[inline]
fn stamp<W: SharedWords>(words: &W, hash: u32, lsn: u64) {
    words.store64(stamp_offset(hash), lsn, Release);
}

/// Stores the entry of a record where its key stands or could, within a change that has begun.
/// Returns the reference that it replaced.
#[inline]
pub(crate) fn put<W: SharedWords>(
    words: &W,
    index: &mut Index,
    at: &Located,
    e: u64,
) -> Option<u32> {
    let (hash, reference) = (entry_tag(e), entry_reference(e));
    let Some(place) = at.found else {
        let room = at.room.expect("room was made, or promised before the intent was stored");
        index.insert(words, room, hash, reference);
        return None;
    };
    words.store32(u64::from(reference) * r::UNIT + r::PREV, place.reference, Release);
    index.replace(words, &place, hash, reference);
    Some(place.reference)
}

/// Stamps and removes an entry, by change `lsn`, which has begun.
#[inline]
pub(crate) fn remove<W: SharedWords>(
    words: &W,
    index: &mut Index,
    (place, hash): (&EntryPlace, u32),
    lsn: u64,
) {
    stamp(words, hash, lsn);
    index.remove(words, place);
}

/// Stamps and removes all entries, by change `lsn`, which has begun: `new` is the index then, which
/// nobody knows of yet. Returns the tables that were the index.
pub(crate) fn clear<W: SharedWords>(
    words: &W,
    index: &mut Index,
    new: Index,
    lsn: u64,
) -> [Option<Table>; 2] {
    words.store64(header::CLEAR_STAMP, lsn, Release);
    index.switch(words, new)
}

/// A moment of now; `None` if a commit is under way for too long.
pub(crate) fn sample<W: SharedWords>(words: &W) -> Option<MomentSample> {
    sample_within(words, LOOKS_MAX.min(W::TRIES_MAX))
}

/// The same in so many looks.
pub(crate) fn sample_within<W: SharedWords>(words: &W, looks: u32) -> Option<MomentSample> {
    for _ in 0..looks {
        // SYNC(moment): begun before intent before committed: a commit of which entries may be seen
        // is one of those up to `committed`, or begun and not yet committed, which its intent or
        // its number tells.
        let begun = words.load64(header::BEGUN_LSN, Acquire);
        let intent = words.load32(header::INTENT, Acquire);
        let lsn = words.load64(header::COMMITTED_LSN, Acquire);
        if intent == 0 && lsn < begun {
            std::hint::spin_loop();
            continue;
        }
        let clock_ms = words.load64(header::CLOCK, Acquire);
        if words.load64(header::COMMITTED_LSN, Acquire) == lsn {
            return Some(MomentSample { lsn, clock_ms });
        }
    }
    None
}

/// The version of a key that was current at a moment.
pub(crate) fn find<W: SharedWords>(
    words: &W,
    slot_shift: u32,
    moment: &MomentSample,
    (hash, key): (u32, &[u8]),
) -> Result<Option<u32>, TooNew> {
    let mut next = index::find(words, slot_shift, hash, key);
    for _ in 0..VERSIONS_MAX {
        let Some(reference) = next else { return absent(words, moment, hash).map(|()| None) };
        let at = u64::from(reference) * r::UNIT;
        if words.load64(at + r::LSN, Relaxed) <= moment.lsn {
            return Ok(Some(reference));
        }
        // SYNC(index-publish): stored before the entry was.
        let prev = words.load32(at + r::PREV, Relaxed);
        next = (prev != 0).then_some(prev);
    }
    Err(TooNew)
}

/// Of a key that isn't there now, or has come since: whether it was absent at the moment too.
pub(crate) fn absent<W: SharedWords>(
    words: &W,
    moment: &MomentSample,
    hash: u32,
) -> Result<(), TooNew> {
    // SYNC(moment): a removal that the probe has seen had left its stamp before.
    words.fence(Acquire);
    let newest = words.load64(stamp_offset(hash), Acquire);
    let cleared = words.load64(header::CLEAR_STAMP, Acquire);
    if newest.max(cleared) <= moment.lsn { Ok(()) } else { Err(TooNew) }
}

/// The version of a single key that is current, and the time by which to judge it; 0 if it isn't to
/// be judged. While several keys are being committed it is that of the moment before.
pub(crate) fn find_alone<W: SharedWords>(
    words: &W,
    slot_shift: u32,
    (hash, key): (u32, &[u8]),
) -> Result<(Option<u32>, u64), TooNew> {
    let mut clock_ms = 0;
    let mut found = index::find(words, slot_shift, hash, key);
    let expires =
        |reference| words.load64(u64::from(reference) * r::UNIT + r::EXPIRY, Relaxed) != 0;
    if found.is_some_and(expires) {
        // The time comes first: by a later one its owner may have found the key over, and told so.
        clock_ms = words.load64(header::CLOCK, Acquire);
        found = index::find(words, slot_shift, hash, key);
    }
    // SYNC(intent): an entry of a commit of several was stored behind it.
    words.fence(Acquire);
    if words.load32(header::INTENT, Acquire) == 0 {
        return Ok((found, clock_ms));
    }
    let moment = sample(words).ok_or(TooNew)?;
    Ok((find(words, slot_shift, &moment, (hash, key))?, moment.clock_ms))
}
