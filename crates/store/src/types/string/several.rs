//! Values of several keys: MGET, MSET, MSETNX.
//!
//! Thread: the shard that owns the store.

use crate::call::{AHEAD, Call, CommandResult, Refusal};
use crate::commit::write_set::{Change, Changes};
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;

pub(crate) fn mget<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let keys = &call.args[1..];
    out.array(keys.len());
    for chunk in keys.chunks(AHEAD) {
        let hashes = store.hashes(call, chunk.iter().copied());
        for (key, hash) in chunk.iter().zip(hashes) {
            match store.read(hash, key, call.turn) {
                Some(record) => out.value(&store.reader, record),
                None => out.null(),
            }
        }
    }
    Ok(())
}

pub(crate) fn mset<R: ReplySink>(
    store: &mut Store,
    call: Call<'_, '_, '_>,
    out: &mut R,
) -> CommandResult {
    let name = call.op.name();
    let (pairs, rest) = call.args[1..].as_chunks::<2>();
    if !rest.is_empty() {
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Refusal::Owned(text));
    }
    let only_new = call.op == Op::MSetNx;
    if only_new && any_exists(store, pairs, call) {
        out.int(0);
        return Ok(());
    }
    if let [[key, value]] = pairs {
        store.put(call.hash, key, &[value], 0, call.turn)?;
    } else {
        let mut changes = Changes::new();
        let staged = pairs.chunks(AHEAD).try_for_each(|chunk| {
            let hashes = store.hashes(call, chunk.iter().map(|[key, _]| *key));
            chunk.iter().zip(hashes).try_for_each(|([key, value], hash)| {
                let record = Some(store.data.stage(hash, key, &[value], 0)?);
                changes.push(Change { hash, key, record });
                Ok(())
            })
        });
        store.finish(staged, &changes, call.turn)?;
    }
    if only_new {
        out.int(1);
    } else {
        out.ok();
    }
    Ok(())
}

fn any_exists(store: &mut Store, pairs: &[[&[u8]; 2]], call: Call<'_, '_, '_>) -> bool {
    pairs.chunks(AHEAD).any(|chunk| {
        let hashes = store.hashes(call, chunk.iter().map(|[key, _]| *key));
        chunk.iter().zip(hashes).any(|([key, _], hash)| store.find(hash, key, call.turn).is_some())
    })
}
