//! Whole values of one key: GET, SET, SETNX, SETEX, PSETEX, GETSET, GETDEL, GETEX.
//!
//! Options are read from left to right, as in Redis. An option that contradicts an earlier one is a
//! syntax error. An expiry may be repeated, and the last one counts.
//!
//! Thread: the shard that owns the store.

use crate::call::{Call, CommandResult, Refusal, invalid_expire_time};
use crate::error::{NOT_AN_INTEGER, SYNTAX};
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::text::arguments::{integer, is_option};

/// The unit and the base of an expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Clock {
    seconds: bool,
    absolute: bool,
}

const EX: Clock = Clock { seconds: true, absolute: false };
const PX: Clock = Clock { seconds: false, absolute: false };
const EXAT: Clock = Clock { seconds: true, absolute: true };
const PXAT: Clock = Clock { seconds: false, absolute: true };

/// The options of SET or GETEX.
#[derive(Default)]
struct SetOptions<'a> {
    nx: bool,
    xx: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expiry: Option<(Clock, &'a [u8])>,
}

impl<'a> SetOptions<'a> {
    fn parse(args: &[&'a [u8]], of_set: bool) -> Result<SetOptions<'a>, Refusal> {
        let mut options = SetOptions::default();
        let mut rest = args.iter();
        while let Some(&arg) = rest.next() {
            let is = |name| is_option(arg, name);
            let lasting = options.keep_ttl || options.persist;
            if of_set && is("NX") && !options.xx {
                options.nx = true;
            } else if of_set && is("XX") && !options.nx {
                options.xx = true;
            } else if of_set && is("GET") {
                options.get = true;
            } else if of_set && is("KEEPTTL") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else if !of_set && is("PERSIST") && options.expiry.is_none() {
                options.persist = true;
            } else {
                let clocks = [("EX", EX), ("PX", PX), ("EXAT", EXAT), ("PXAT", PXAT)];
                let clock = clocks.into_iter().find(|(name, _)| is(name)).map(|(_, clock)| clock);
                let (Some(clock), false) = (clock, lasting) else { return Err(SYNTAX.into()) };
                if options.expiry.is_some_and(|(earlier, _)| earlier != clock) {
                    return Err(SYNTAX.into());
                }
                let text = rest.next().ok_or(SYNTAX)?;
                options.expiry = Some((clock, text));
            }
        }
        Ok(options)
    }
}

/// Unix ms of an expiry that SET, SETEX, PSETEX or GETEX gives.
fn expiry_ms(clock: Clock, text: &[u8], call: Call<'_, '_, '_>) -> Result<u64, Refusal> {
    let amount = integer(text).ok_or(NOT_AN_INTEGER)?;
    let milliseconds = if clock.seconds { amount.checked_mul(1000) } else { Some(amount) };
    let base = if clock.absolute { 0 } else { call.turn.now_ms };
    milliseconds
        .and_then(|milliseconds| u64::try_from(milliseconds).ok())
        .filter(|milliseconds| *milliseconds > 0)
        .map(|milliseconds| milliseconds + base)
        .filter(|at| i64::try_from(*at).is_ok())
        .ok_or_else(|| invalid_expire_time(call.op))
}

pub(crate) fn get<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    match store.read(call.hash, call.key(), call.turn) {
        Some(record) => out.value(&store.reader, record),
        None => out.null(),
    }
    Ok(())
}

pub(crate) fn set<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let options = SetOptions::parse(&call.args[3..], true)?;
    let expiry = match options.expiry {
        Some((clock, text)) => expiry_ms(clock, text, call)?,
        None => 0,
    };
    let (key, turn) = (call.key(), call.turn);
    let old = if options.get {
        store.read(call.hash, key, turn)
    } else if options.nx || options.xx || options.keep_ttl {
        store.find(call.hash, key, turn)
    } else {
        None
    };
    let refused = (options.nx && old.is_some()) || (options.xx && old.is_none());
    if !refused {
        let kept = old.filter(|_| options.keep_ttl).map_or(expiry, |old| old.expiry_ms());
        store.put(call.hash, key, &[call.arg(2)], kept, turn)?;
    }
    match old {
        Some(old) if options.get => out.value(&store.reader, old),
        _ if options.get || refused => out.null(),
        _ => out.ok(),
    }
    Ok(())
}

pub(crate) fn set_nx<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    if store.find(call.hash, call.key(), call.turn).is_some() {
        out.int(0);
        return Ok(());
    }
    store.put(call.hash, call.key(), &[call.arg(2)], 0, call.turn)?;
    out.int(1);
    Ok(())
}

pub(crate) fn set_ex<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let clock = if call.op == Op::SetEx { EX } else { PX };
    let expiry = expiry_ms(clock, call.arg(2), call)?;
    store.put(call.hash, call.key(), &[call.arg(3)], expiry, call.turn)?;
    out.ok();
    Ok(())
}

pub(crate) fn get_ex<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let options = SetOptions::parse(&call.args[2..], false)?;
    let Some(record) = store.read(call.hash, call.key(), call.turn) else {
        out.null();
        return Ok(());
    };
    if let Some((clock, text)) = options.expiry {
        let expiry = expiry_ms(clock, text, call)?;
        if expiry <= call.turn.now_ms {
            store.remove(call.hash, call.key(), call.turn)?;
        } else {
            store.set_expiry(record, expiry, call.turn)?;
        }
    } else if options.persist && record.expiry_ms() != 0 {
        store.set_expiry(record, 0, call.turn)?;
    }
    out.value(&store.reader, record);
    Ok(())
}

pub(crate) fn get_set<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let old = store.read(call.hash, call.key(), call.turn);
    store.put(call.hash, call.key(), &[call.arg(2)], 0, call.turn)?;
    match old {
        Some(old) => out.value(&store.reader, old),
        None => out.null(),
    }
    Ok(())
}

pub(crate) fn get_del<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    match store.read(call.hash, call.key(), call.turn) {
        Some(record) => {
            store.remove(call.hash, call.key(), call.turn)?;
            out.value(&store.reader, record);
        }
        None => out.null(),
    }
    Ok(())
}
