//! Values that are numbers: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT. The expiry stays.
//!
//! Thread: the shard that owns the store.

use crate::call::{Call, CommandResult};
use crate::error::{NOT_A_FLOAT, NOT_AN_INTEGER};
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::text::arguments::integer;
use crate::text::extended::Extended;

const OVERFLOW: &str = "ERR increment or decrement would overflow";
const DECREMENT_OVERFLOW: &str = "ERR decrement would overflow";
const NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";

pub(crate) fn increment<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let increment = match call.op {
        Op::Incr => 1,
        Op::Decr => -1,
        Op::IncrBy => integer(call.arg(2)).ok_or(NOT_AN_INTEGER)?,
        _ => {
            let decrement = integer(call.arg(2)).ok_or(NOT_AN_INTEGER)?;
            decrement.checked_neg().ok_or(DECREMENT_OVERFLOW)?
        }
    };
    let (old, expiry) = match store.find(call.hash, call.key(), call.turn) {
        Some(record) => (integer(record.value()).ok_or(NOT_AN_INTEGER)?, record.expiry_ms()),
        None => (0, 0),
    };
    let new = old.checked_add(increment).ok_or(OVERFLOW)?;
    let mut digits = itoa::Buffer::new();
    let value = digits.format(new).as_bytes();
    store.put(call.hash, call.key(), &[value], expiry, call.turn)?;
    out.int(new);
    Ok(())
}

pub(crate) fn increment_float<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let record = store.find(call.hash, call.key(), call.turn);
    let expiry = record.map_or(0, |record| record.expiry_ms());
    let old = record.map_or(&b"0"[..], |record| record.value());
    let old = Extended::parse(old).ok_or(NOT_A_FLOAT)?;
    let increment = Extended::parse(call.arg(2)).ok_or(NOT_A_FLOAT)?;
    let sum = old.add(increment).ok_or(NOT_FINITE)?;
    let mut text = Vec::new();
    sum.print(&mut text);
    store.put(call.hash, call.key(), &[&text], expiry, call.turn)?;
    out.bulk(&text);
    Ok(())
}
