//! What is in a change: record, base, and value, as `docs/formats/log.md` has them.
//!
//! ```text
//! PUT    record                              | value, if the record says RUN
//! BASED  base LSN, length, source | record   | source's key | value behind the base's length
//! GONE   record with TOMBSTONE
//! ```
//!
//! 1. Nothing is believed: each length is compared with what is there.
//! 2. A record's sum is compared by [`Payload::check_sum`], the sum of a value by its user.
//!
//! Pure functions: any thread.

use super::layout::{Effect, change as c};
use crate::format::head::{HEADER_LEN, Head, RunName};
use crate::format::layout::{LSN_END, VALUE_BYTES_MAX, record as r};
use crate::format::sum;

/// A change of a stream as a journal or a log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamChange<'a> {
    /// Its number.
    pub lsn: u64,
    /// What it does.
    pub effect: Effect,
    /// Its payload; or the beginning of it.
    pub payload: &'a [u8],
    /// The rest of the payload: bytes of a value, if they lie elsewhere.
    pub rest: &'a [u8],
}

impl<'a> StreamChange<'a> {
    /// The key that it changes; `None` if it clears all. `Err` if the payload is none.
    ///
    /// # Errors
    /// What is wrong with the payload.
    pub fn key(&self) -> Result<Option<&'a [u8]>, &'static str> {
        if self.effect == Effect::Clear {
            return Ok(None);
        }
        let (_, rest) = BasePrefix::split(self)?;
        let record = LooseRecord::split(rest)?;
        Ok(Some(record.key))
    }
}

/// What a change gives its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenValue<'a> {
    /// The value; `None`: it stays, and the key gets another expiry.
    pub value: Option<&'a [u8]>,
    /// When it expires, Unix ms; 0 if never.
    pub expiry_ms: u64,
}

impl<'a> StreamChange<'a> {
    /// What the key gets, if that can be told without another version: by a PUT, with the bytes of
    /// a value that it names; or by a BASED that changes nothing but the expiry.
    ///
    /// # Errors
    /// What is wrong with the payload.
    pub fn given_value(&self) -> Result<Option<GivenValue<'a>>, &'static str> {
        if !matches!(self.effect, Effect::Put | Effect::Based) {
            return Ok(None);
        }
        let payload = Payload::parse(self, false)?;
        let expiry_ms = payload.head.expiry_ms;
        let value = match payload.base {
            None if payload.run.is_some() => Some(payload.value),
            None => Some(payload.inline),
            Some(base) if base.source.is_none() && base.len == payload.head.value_len => None,
            Some(_) => return Ok(None),
        };
        Ok(Some(GivenValue { value, expiry_ms }))
    }
}

/// The version that a BASED change stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadBase<'a> {
    pub(crate) lsn: u64,
    pub(crate) len: u32,
    /// The key that has it, if it is another.
    pub(crate) source: Option<&'a [u8]>,
}

/// A record that lies outside of an arena.
#[derive(Debug, Clone, Copy)]
struct LooseRecord<'a> {
    head: Head,
    bytes: &'a [u8],
    key: &'a [u8],
    /// The value, or the name of its run.
    value: &'a [u8],
    rest: &'a [u8],
}

/// The parts of a payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload<'a> {
    pub(crate) head: Head,
    /// All bytes of the record.
    pub(crate) record: &'a [u8],
    pub(crate) key: &'a [u8],
    /// The value, if it lies in the record.
    pub(crate) inline: &'a [u8],
    pub(crate) run: Option<RunName>,
    pub(crate) base: Option<PayloadBase<'a>>,
    /// The value's bytes that come behind: all of a PUT with a run, those behind the base's length
    /// of a BASED; none of a change that names them.
    pub(crate) value: &'a [u8],
}

/// The first bytes of a BASED payload.
struct BasePrefix {
    lsn: u64,
    len: u32,
    source_len: u16,
    is_other: bool,
}

impl BasePrefix {
    /// The one of a change, if it has one, and what is behind it.
    fn split<'a>(
        change: &StreamChange<'a>,
    ) -> Result<(Option<BasePrefix>, &'a [u8]), &'static str> {
        if change.effect != Effect::Based {
            return Ok((None, change.payload));
        }
        let short = "a payload ends within the name of its base";
        let (base, rest) = change.payload.split_first_chunk::<16>().ok_or(short)?;
        let [lsn, rest_of_it] = [0, 1].map(|i| u64::from_le_bytes(base.as_chunks().0[i]));
        #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
        let (len, source_len, other) =
            (rest_of_it as u32, (rest_of_it >> 32) as u16, (rest_of_it >> 48) as u16);
        if other > 1 || other == 0 && source_len != 0 {
            return Err("a base names its source wrongly");
        }
        Ok((Some(BasePrefix { lsn, len, source_len, is_other: other == 1 }), rest))
    }
}

const _: () = assert!(c::BASE_BYTES == 16);

impl<'a> LooseRecord<'a> {
    /// The record that begins here.
    fn split(bytes: &'a [u8]) -> Result<LooseRecord<'a>, &'static str> {
        let short = "a payload ends within its record";
        let (head, _) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(short)?;
        let head = Head::from_bytes(head);
        if head.value_len as usize > VALUE_BYTES_MAX {
            return Err("a record has an impossible length");
        }
        let in_memory = |n: u64| usize::try_from(n).map_err(|_| short);
        let (record, rest) = bytes.split_at_checked(in_memory(head.bytes())?).ok_or(short)?;
        let key = record.get(HEADER_LEN..).and_then(|key| key.get(..head.key_len.into()));
        let value = record.get(in_memory(head.value_at())?..).ok_or(short)?;
        let len = if head.has_run() { in_memory(r::RUN_BYTES)? } else { head.value_len as usize };
        Ok(LooseRecord {
            head,
            bytes: record,
            key: key.ok_or(short)?,
            value: value.get(..len).ok_or(short)?,
            rest,
        })
    }
}

impl<'a> Payload<'a> {
    /// The parts of a change that isn't a CLEAR. `named`: bytes of values in runs aren't there.
    pub(crate) fn parse(
        change: &StreamChange<'a>,
        named: bool,
    ) -> Result<Payload<'a>, &'static str> {
        let (base, rest) = BasePrefix::split(change)?;
        let LooseRecord { head, bytes, key, value, rest } = LooseRecord::split(rest)?;
        check_head(&head, change)?;
        let run = if head.has_run() { value.first_chunk().map(RunName::from_bytes) } else { None };
        let (base, behind) = match base {
            None => (None, rest),
            Some(it) => {
                if it.lsn == 0 || it.lsn >= change.lsn || it.len > head.value_len {
                    return Err("a base isn't an earlier and shorter version");
                }
                let short = "a payload ends within the key of its source";
                let (source, behind) = rest.split_at_checked(it.source_len.into()).ok_or(short)?;
                let source = it.is_other.then_some(source);
                (Some(PayloadBase { lsn: it.lsn, len: it.len, source }), behind)
            }
        };
        let value_bytes = match (&run, named) {
            (Some(_), false) => head.value_len - base.map_or(0, |base| base.len),
            _ => 0,
        };
        // The bytes stand in one piece: behind the record, or apart from it.
        let apart = behind.is_empty();
        let given = if apart { change.rest } else { behind };
        if given.len() != value_bytes as usize || !apart && !change.rest.is_empty() {
            return Err("a payload isn't as long as its value");
        }
        let inline = if run.is_some() { &[] } else { value };
        Ok(Payload { head, record: bytes, key, inline, run, base, value: given })
    }

    /// Whether the record of a PUT's payload says that its value lies in a run.
    pub(super) fn has_run(payload: &[u8]) -> bool {
        payload.first_chunk::<HEADER_LEN>().is_some_and(|head| Head::from_bytes(head).has_run())
    }

    /// Whether the record has the bytes that were written.
    pub(crate) fn check_sum(&self) -> Result<(), &'static str> {
        let body = self.record.get(HEADER_LEN..).unwrap_or_default();
        let is_right = sum::of_lent(body, &self.head) == self.head.checksum;
        if is_right { Ok(()) } else { Err("the checksum of its record is wrong") }
    }

    /// Bytes of the value that its base has; 0 without one.
    pub(crate) fn base_len(&self) -> u32 {
        self.base.map_or(0, |base| base.len)
    }
}

fn check_head(head: &Head, change: &StreamChange<'_>) -> Result<(), &'static str> {
    let based = r::FLAG_RUN | r::FLAG_BASED;
    let fits = match change.effect {
        Effect::Put => head.flags & !based == 0 && (head.has_run() || head.flags == 0),
        Effect::Based => head.flags == based,
        Effect::Gone => head.flags == r::FLAG_TOMBSTONE && head.value_len == 0,
        Effect::Clear => false,
    };
    if !fits || head.kind != r::KIND_STRING {
        return Err("a record's kind or flags aren't those of its change");
    }
    if head.prev != 0 {
        return Err("a record names an earlier one");
    }
    if head.lsn != change.lsn || head.lsn == 0 || head.lsn >= LSN_END {
        return Err("a record has another LSN than its change");
    }
    Ok(())
}
