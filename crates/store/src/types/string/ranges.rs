//! Parts of values: APPEND, STRLEN, GETRANGE, SUBSTR, SETRANGE. The expiry stays.
//!
//! A record is immutable. Bytes that are added at the end of a long value go behind it, into the
//! same run. Any other change writes the whole value anew, once, from its parts.
//!
//! Thread: the shard that owns the store.

use smallvec::SmallVec;
use std::ops::Range;

use crate::call::{Call, CommandResult, Refusal, length};
use crate::error::{NOT_AN_INTEGER, VALUE_TOO_LONG};
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::text::arguments::integer;
use crate::types::string::MAX_VALUE_BYTES;

const OFFSET: &str = "ERR offset is out of range";

/// Fills a gap before a SETRANGE: one part per 64 KiB, at most 8,192 parts.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// `before + added`, if a value may be so long.
fn checked_length(before: u64, added: usize) -> Result<u64, Refusal> {
    before
        .checked_add(added as u64)
        .filter(|total| *total <= MAX_VALUE_BYTES)
        .ok_or(Refusal::Text(VALUE_TOO_LONG))
}

pub(crate) fn append<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let added = call.arg(2);
    let Some(record) = store.find(call.hash, call.key(), call.turn) else {
        store.put(call.hash, call.key(), &[added], 0, call.turn)?;
        out.int(length(added.len()));
        return Ok(());
    };
    let total = checked_length(record.value_len().into(), added.len())?;
    store.extend(call.hash, record, &[added], call.turn)?;
    out.int(i64::try_from(total).expect("bounded by the longest value"));
    Ok(())
}

pub(crate) fn strlen<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let record = store.read(call.hash, call.key(), call.turn);
    out.int(record.map_or(0, |record| length(record.value().len())));
    Ok(())
}

pub(crate) fn get_range<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let start = integer(call.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let end = integer(call.arg(3)).ok_or(NOT_AN_INTEGER)?;
    let Some(record) = store.read(call.hash, call.key(), call.turn) else {
        out.bulk(b"");
        return Ok(());
    };
    let value = record.value();
    match part(start, end, value.len()) {
        Some(range) if range == (0..value.len()) => out.value(&store.reader, record),
        Some(range) => out.bulk(&value[range]),
        None => out.bulk(b""),
    }
    Ok(())
}

fn offset_of(call: Call<'_, '_, '_>) -> Result<u64, Refusal> {
    let offset = integer(call.arg(2)).ok_or(NOT_AN_INTEGER)?;
    Ok(u64::try_from(offset).map_err(|_| OFFSET)?)
}

fn checked_range(offset: u64, new: usize) -> Result<Range<usize>, Refusal> {
    checked_length(offset, new)?;
    let offset = usize::try_from(offset).expect("bounded by the longest value");
    Ok(offset..offset + new)
}

/// What a SETRANGE writes of the value; `None` if it is refused or writes nothing.
pub(crate) fn range_to_set(call: Call<'_, '_, '_>) -> Option<Range<usize>> {
    let new = call.arg(3).len();
    let range = checked_range(offset_of(call).ok()?, new).ok()?;
    (new > 0).then_some(range)
}

pub(crate) fn set_range<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let offset = offset_of(call)?;
    let new = call.arg(3);
    let record = store.find(call.hash, call.key(), call.turn);
    let old = record.map_or(&b""[..], |record| record.value());
    if new.is_empty() {
        out.int(length(old.len()));
        return Ok(());
    }
    let Range { start: offset, end } = checked_range(offset, new.len())?;
    let mut parts: SmallVec<[&[u8]; 8]> = SmallVec::new();
    let extended = record.filter(|_| offset >= old.len());
    if extended.is_none() {
        parts.push(&old[..offset.min(old.len())]);
    }
    let mut gap = offset.saturating_sub(old.len());
    while gap > 0 {
        let zeros = &ZEROS[..gap.min(ZEROS.len())];
        parts.push(zeros);
        gap -= zeros.len();
    }
    parts.push(new);
    match extended {
        Some(record) => store.extend(call.hash, record, &parts, call.turn)?,
        None => {
            parts.push(&old[end.min(old.len())..]);
            let expiry_ms = record.map_or(0, |record| record.expiry_ms());
            store.put(call.hash, call.key(), &parts, expiry_ms, call.turn)?;
        }
    }
    out.int(length(end.max(old.len())));
    Ok(())
}

/// The part of a value from `start` to `end`, both included, counted from the end if negative.
fn part(start: i64, end: i64, len: usize) -> Option<Range<usize>> {
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let len = length(len);
    let from_end = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    let position = |at: i64| usize::try_from(at).expect("between 0 and the length");
    (start <= end && len > 0).then(|| position(start)..position(end) + 1)
}
