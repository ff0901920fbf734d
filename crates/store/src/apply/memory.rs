//! MEMORY USAGE: the memory of a key.
//!
//! Thread: the shard that owns the store, or the view.

use crate::call::{Call, CommandResult};
use crate::error::{NOT_AN_INTEGER, SYNTAX};
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::text::arguments::{integer, is_option};

/// Bytes of the record, of the run that holds its value, and its share of the index. SAMPLES has no
/// effect on strings.
pub(crate) fn memory_usage<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let (options, rest) = call.args[3..].as_chunks::<2>();
    for [name, count] in options {
        if !is_option(name, "SAMPLES") {
            return Err(SYNTAX.into());
        }
        if integer(count).ok_or(NOT_AN_INTEGER)? < 0 {
            return Err(SYNTAX.into());
        }
    }
    if !rest.is_empty() {
        return Err(SYNTAX.into());
    }
    let Some(record) = store.find(call.hash, call.arg(2), call.turn) else {
        out.null();
        return Ok(());
    };
    let (own, index) = store.reader.footprint(&record);
    // The writer publishes the number of keys once per turn. This key is there in any case.
    let bytes = own + index / store.reader.keys().max(1);
    out.int(i64::try_from(bytes).unwrap_or(i64::MAX));
    Ok(())
}
