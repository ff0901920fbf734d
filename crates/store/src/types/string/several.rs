//! GETSET, GETDEL, MGET, MSET, MSETNX. (GET and plain SET are in the parent.)
//!
//! Thread: the shard that owns the store.

use crate::call::{AHEAD, Call, Outcome, Refusal};
use crate::commit::write_set::{Change, Changes};
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::Reply;

impl Store {
    pub(crate) fn get_set<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        let old = self.read(call.hash, call.key(), call.turn);
        self.put(call.hash, call.key(), &[call.arg(2)], 0, call.turn)?;
        match old {
            Some(old) => out.value(&self.reader, old),
            None => out.null(),
        }
        Ok(())
    }

    pub(crate) fn get_del<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        match self.read(call.hash, call.key(), call.turn) {
            Some(record) => {
                self.remove(call.hash, call.key(), call.turn);
                out.value(&self.reader, record);
            }
            None => out.null(),
        }
        Ok(())
    }

    pub(crate) fn mget<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        let keys = &call.args[1..];
        out.array(keys.len());
        for chunk in keys.chunks(AHEAD) {
            let hashes = self.hashes(call, chunk.iter().copied());
            for (key, hash) in chunk.iter().zip(hashes) {
                match self.read(hash, key, call.turn) {
                    Some(record) => out.value(&self.reader, record),
                    None => out.null(),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn mset<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        let name = call.op.name();
        let (pairs, rest) = call.args[1..].as_chunks::<2>();
        if !rest.is_empty() {
            let text = format!("ERR wrong number of arguments for '{name}' command");
            return Err(Refusal::Owned(text));
        }
        let only_new = call.op == Op::MSetNx;
        if only_new && self.any_exists(pairs, call) {
            out.int(0);
            return Ok(());
        }
        if let [[key, value]] = pairs {
            self.put(call.hash, key, &[value], 0, call.turn)?;
        } else {
            let mut changes = Changes::new();
            let staged = pairs.chunks(AHEAD).try_for_each(|chunk| {
                let hashes = self.hashes(call, chunk.iter().map(|[key, _]| *key));
                chunk.iter().zip(hashes).try_for_each(|([key, value], hash)| {
                    let record = Some(self.data.stage(hash, key, &[value], 0)?);
                    changes.push(Change { hash, key, record });
                    Ok(())
                })
            });
            self.finish(staged, &changes, call.turn)?;
        }
        if only_new {
            out.int(1);
        } else {
            out.ok();
        }
        Ok(())
    }

    fn any_exists(&mut self, pairs: &[[&[u8]; 2]], call: Call<'_, '_, '_>) -> bool {
        pairs.chunks(AHEAD).any(|chunk| {
            let hashes = self.hashes(call, chunk.iter().map(|[key, _]| *key));
            chunk
                .iter()
                .zip(hashes)
                .any(|([key, _], hash)| self.find(hash, key, call.turn).is_some())
        })
    }
}
