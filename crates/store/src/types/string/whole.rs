//! SET with options, SETNX, SETEX, PSETEX, GETEX: the options and expiries that they share.
//!
//! Options are read from left to right; one that contradicts an earlier one is a syntax error,
//! repeating one of the expiries is not (the last counts), as in Redis.
//!
//! Thread: the shard that owns the store.

use crate::call::{Call, Outcome, Refusal, invalid_expire_time};
use crate::error::{NOT_AN_INTEGER, SYNTAX};
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::Reply;
use crate::text::arguments::{integer, is_option};

/// How an expiry is meant.
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
struct Options<'a> {
    nx: bool,
    xx: bool,
    get: bool,
    keep_ttl: bool,
    persist: bool,
    expiry: Option<(Clock, &'a [u8])>,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a [u8]], of_set: bool) -> Result<Options<'a>, Refusal> {
        let mut options = Options::default();
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

/// Unix ms that an expiry of SET and its kin names.
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

impl Store {
    pub(crate) fn set<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        let options = Options::parse(&call.args[3..], true)?;
        let expiry = match options.expiry {
            Some((clock, text)) => expiry_ms(clock, text, call)?,
            None => 0,
        };
        let (key, turn) = (call.key(), call.turn);
        let old = if options.get {
            self.read(call.hash, key, turn)
        } else if options.nx || options.xx || options.keep_ttl {
            self.find(call.hash, key, turn)
        } else {
            None
        };
        let refused = (options.nx && old.is_some()) || (options.xx && old.is_none());
        if !refused {
            let kept = old.filter(|_| options.keep_ttl).map_or(expiry, |old| old.expiry_ms());
            self.put(call.hash, key, &[call.arg(2)], kept, turn)?;
        }
        match old {
            Some(old) if options.get => out.value(&self.reader, old),
            _ if options.get || refused => out.null(),
            _ => out.ok(),
        }
        Ok(())
    }

    pub(crate) fn set_nx<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        if self.find(call.hash, call.key(), call.turn).is_some() {
            out.int(0);
            return Ok(());
        }
        self.put(call.hash, call.key(), &[call.arg(2)], 0, call.turn)?;
        out.int(1);
        Ok(())
    }

    pub(crate) fn set_ex<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        let clock = if call.op == Op::SetEx { EX } else { PX };
        let expiry = expiry_ms(clock, call.arg(2), call)?;
        self.put(call.hash, call.key(), &[call.arg(3)], expiry, call.turn)?;
        out.ok();
        Ok(())
    }

    pub(crate) fn get_ex<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        let options = Options::parse(&call.args[2..], false)?;
        let Some(record) = self.read(call.hash, call.key(), call.turn) else {
            out.null();
            return Ok(());
        };
        if let Some((clock, text)) = options.expiry {
            let expiry = expiry_ms(clock, text, call)?;
            if expiry <= call.turn.now_ms {
                self.remove(call.hash, call.key(), call.turn);
            } else {
                self.set_expiry(record, expiry, call.turn)?;
            }
        } else if options.persist && record.expiry_ms() != 0 {
            self.set_expiry(record, 0, call.turn)?;
        }
        out.value(&self.reader, record);
        Ok(())
    }
}
