//! Expiries: EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, TTL, PTTL, EXPIRETIME, PEXPIRETIME, PERSIST.
//!
//! Thread: the shard that owns the store.

use crate::call::{Call, CommandResult, Refusal, invalid_expire_time};
use crate::error::NOT_AN_INTEGER;
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::text::arguments::{echo, integer, is_option};

const NX_AND_OTHERS: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
const GT_AND_LT: &str = "ERR GT and LT options at the same time are not compatible";

/// The condition under which EXPIRE takes a new expiry.
#[derive(Default)]
struct Condition {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl Condition {
    fn parse(args: &[&[u8]]) -> Result<Condition, Refusal> {
        let mut condition = Condition::default();
        for arg in args {
            let names = [
                ("NX", &mut condition.nx),
                ("XX", &mut condition.xx),
                ("GT", &mut condition.gt),
                ("LT", &mut condition.lt),
            ];
            match names.into_iter().find(|(name, _)| is_option(arg, name)) {
                Some((_, flag)) => *flag = true,
                None => {
                    let text = format!("ERR Unsupported option {}", echo(trimmed(arg), usize::MAX));
                    return Err(Refusal::Owned(text));
                }
            }
        }
        let Condition { nx, xx, gt, lt } = condition;
        if nx && (xx || gt || lt) {
            return Err(NX_AND_OTHERS.into());
        }
        if gt && lt {
            return Err(GT_AND_LT.into());
        }
        Ok(condition)
    }

    /// `current` is `None` for a key without expiry; `new` may lie before the epoch.
    fn holds(&self, current: Option<i64>, new: i64) -> bool {
        !(self.nx && current.is_some()
            || self.xx && current.is_none()
            || self.gt && current.is_none_or(|current| new <= current)
            || self.lt && current.is_some_and(|current| new >= current))
    }
}

/// The argument without the line breaks at its end, which Redis cuts off an error.
fn trimmed(mut arg: &[u8]) -> &[u8] {
    while let [rest @ .., b'\r' | b'\n'] = arg {
        arg = rest;
    }
    arg
}

pub(crate) fn expire<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let condition = Condition::parse(&call.args[3..])?;
    let amount = integer(call.arg(2)).ok_or(NOT_AN_INTEGER)?;
    let seconds = matches!(call.op, Op::Expire | Op::ExpireAt);
    let relative = matches!(call.op, Op::Expire | Op::PExpire);
    let now = i64::try_from(call.turn.now_ms).unwrap_or(i64::MAX);
    let when = if seconds { amount.checked_mul(1000) } else { Some(amount) }
        .and_then(|when| if relative { when.checked_add(now) } else { Some(when) })
        .ok_or_else(|| invalid_expire_time(call.op))?;
    let Some(record) = store.find(call.hash, call.key(), call.turn) else {
        out.int(0);
        return Ok(());
    };
    let current = i64::try_from(record.expiry_ms()).unwrap_or(i64::MAX);
    if !condition.holds((current != 0).then_some(current), when) {
        out.int(0);
        return Ok(());
    }
    match u64::try_from(when) {
        Ok(when) if when > call.turn.now_ms => store.set_expiry(record, when, call.turn)?,
        _ => store.remove(call.hash, call.key(), call.turn)?,
    }
    out.int(1);
    Ok(())
}

pub(crate) fn ttl<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let Some(record) = store.peek(call.hash, call.key(), call.turn) else {
        out.int(-2);
        return Ok(());
    };
    if record.expiry_ms() == 0 {
        out.int(-1);
        return Ok(());
    }
    let base = match call.op {
        Op::Ttl | Op::PTtl => call.turn.now_ms,
        _ => 0,
    };
    let milliseconds = record.expiry_ms().saturating_sub(base);
    let shown = match call.op {
        Op::Ttl | Op::ExpireTime => milliseconds.saturating_add(500) / 1000,
        _ => milliseconds,
    };
    out.int(i64::try_from(shown).unwrap_or(i64::MAX));
    Ok(())
}

pub(crate) fn persist<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    match store.find(call.hash, call.key(), call.turn) {
        Some(record) if record.expiry_ms() != 0 => {
            store.set_expiry(record, 0, call.turn)?;
            out.int(1);
        }
        _ => out.int(0),
    }
    Ok(())
}
