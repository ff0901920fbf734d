//! Commands for keys of any type: DEL, UNLINK, EXISTS, TOUCH, TYPE, RENAME, RENAMENX, COPY; and for
//! all keys: DBSIZE, FLUSHDB, FLUSHALL.
//!
//! Thread: the shard that owns the store.

use smallvec::SmallVec;

use crate::call::{AHEAD, Call, CommandResult, Refusal, length};
use crate::commit::write_set::{Change, Changes};
use crate::error::{NO_SUCH_KEY, NOT_AN_INTEGER, SYNTAX};
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::text::arguments::{integer, is_option};
use crate::turn::Turn;

const SAME_OBJECT: &str = "ERR source and destination objects are the same";
const DB_INDEX: &str = "ERR DB index is out of range";
const NO_INT: &str = "ERR value is out of range, value must between -2147483648 and 2147483647";

pub(crate) fn del<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let keys = &call.args[1..];
    let mut found: SmallVec<[(u32, &[u8]); AHEAD]> = SmallVec::new();
    for chunk in keys.chunks(AHEAD) {
        let hashes = store.hashes(call, chunk.iter().copied());
        for (key, hash) in chunk.iter().zip(hashes) {
            if store.find(hash, key, call.turn).is_some() {
                found.push((hash, key));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    if store.in_transaction() {
        for &(hash, key) in &found {
            store.remove(hash, key, call.turn)?;
        }
    } else {
        store.delete_all(&found, call.turn)?;
    }
    out.int(length(found.len()));
    Ok(())
}

pub(crate) fn exists<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let mut count = 0;
    for chunk in call.args[1..].chunks(AHEAD) {
        let hashes = store.hashes(call, chunk.iter().copied());
        for (key, hash) in chunk.iter().zip(hashes) {
            count += i64::from(is_there(store, call.op, hash, key, call.turn));
        }
    }
    out.int(count);
    Ok(())
}

/// Whether EXISTS or TOUCH counts a key.
pub(crate) fn counts(store: &mut Store, op: Op, key: &[u8], turn: &Turn<'_>) -> bool {
    is_there(store, op, store.hash(key), key, turn)
}

fn is_there(store: &mut Store, op: Op, hash: u32, key: &[u8], turn: &Turn<'_>) -> bool {
    match op {
        // Makes the key young even if the client's reads don't.
        Op::Touch => store.peek(hash, key, turn).inspect(|_| store.touch(hash)).is_some(),
        _ => store.peek(hash, key, turn).is_some(),
    }
}

pub(crate) fn type_of<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let record = store.peek(call.hash, call.key(), call.turn);
    out.simple(if record.is_some() { "string" } else { "none" });
    Ok(())
}

pub(crate) fn rename<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let (from, to, turn) = (call.key(), call.arg(2), call.turn);
    let only_new = call.op == Op::RenameNx;
    let record = store.find(call.hash, from, turn).ok_or(NO_SUCH_KEY)?;
    let hash = store.reader.hash(to);
    if from == to || (only_new && store.find(hash, to, turn).is_some()) {
        if only_new {
            out.int(0);
        } else {
            out.ok();
        }
        return Ok(());
    }
    let reference = record.reference();
    let moved = store.data.stage_moved_run(turn.pin, reference, hash, to, record.expiry_ms())?;
    let mut changes = Changes::new();
    changes.push(Change { hash, key: to, record: Some(moved) });
    changes.push(Change { hash: call.hash, key: from, record: None });
    store.finish(Ok(()), &changes, turn)?;
    if only_new {
        out.int(1);
    } else {
        out.ok();
    }
    Ok(())
}

pub(crate) fn copy<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let (from, to, turn) = (call.key(), call.arg(2), call.turn);
    let replace = parse_copy_options(&call.args[3..])?;
    if from == to {
        return Err(SAME_OBJECT.into());
    }
    let Some(record) = store.read(call.hash, from, turn) else {
        out.int(0);
        return Ok(());
    };
    let hash = store.reader.hash(to);
    if store.find(hash, to, turn).is_some() && !replace {
        out.int(0);
        return Ok(());
    }
    store.put(hash, to, &[record.value()], record.expiry_ms(), turn)?;
    out.int(1);
    Ok(())
}

pub(crate) fn db_size<R: ReplySink>(store: &Store, out: &mut R) -> CommandResult {
    out.int(i64::try_from(store.keys()).unwrap_or(i64::MAX));
    Ok(())
}

pub(crate) fn flush_all<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    check_flush_mode(call.args)?;
    store.flush()?;
    out.ok();
    Ok(())
}

/// Refuses an unknown option of FLUSHALL or FLUSHDB. SYNC and ASYNC do the same here.
pub(crate) fn check_flush_mode(args: &[&[u8]]) -> Result<(), &'static str> {
    match args {
        [_] => Ok(()),
        [_, how] if is_option(how, "SYNC") || is_option(how, "ASYNC") => Ok(()),
        _ => Err(SYNTAX),
    }
}

/// Whether COPY has the option REPLACE. There is one database, so `DB 0` changes nothing.
fn parse_copy_options(args: &[&[u8]]) -> Result<bool, Refusal> {
    let mut replace = false;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if is_option(arg, "REPLACE") {
            replace = true;
        } else if is_option(arg, "DB") {
            let index = integer(rest.next().ok_or(SYNTAX)?).ok_or(NOT_AN_INTEGER)?;
            match i32::try_from(index) {
                Ok(0) => {}
                Ok(_) => return Err(DB_INDEX.into()),
                Err(_) => return Err(NO_INT.into()),
            }
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(replace)
}
