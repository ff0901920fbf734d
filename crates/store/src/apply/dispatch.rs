//! From an [`Op`] to the code that does it.
//!
//! GET and plain SET are decided first and inlined into the caller: one hash, one probe, no
//! allocation. Everything else is one jump away.
//!
//! Thread: the shard that owns the store.

use nigh_shm::WriteError;

use crate::call::{Call, Outcome, Refusal};
use crate::error::write_error_text;
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::Reply;
use crate::turn::Turn;
use nigh_shm::layout::is_over;

impl Store {
    /// Applies a command and answers it. `args[0]` is the command's name.
    ///
    /// # Panics
    ///
    /// If there are fewer arguments than the command's arity; the command table checks that.
    #[inline]
    pub fn apply<R: Reply>(&mut self, op: Op, args: &[&[u8]], turn: &Turn<'_>, out: &mut R) {
        let hash = match op.first_key() {
            0 => 0,
            at => args.get(at).map_or(0, |key| self.reader.hash(key)),
        };
        self.apply_hashed(op, args, hash, turn, out);
    }

    /// [`Store::apply`] with the hash of the first key, as [`Store::hash`] gives it; 0 if the
    /// command has none.
    ///
    /// # Panics
    ///
    /// As [`Store::apply`].
    #[inline]
    pub fn apply_hashed<R: Reply>(
        &mut self,
        op: Op,
        args: &[&[u8]],
        hash: u32,
        turn: &Turn<'_>,
        out: &mut R,
    ) {
        match (op, args) {
            (Op::Get, [_, key, ..]) if self.transaction.is_none() && self.data.is_here() => {
                // Straight from the reader: a record that several paths bring goes through memory,
                // which costs a GET some 5 %.
                match self.reader.get(turn.pin, hash, key) {
                    Some(record) if !is_over(record.expiry_ms(), turn.now_ms) => {
                        self.counters.hits += 1;
                        self.touch_read(hash);
                        out.value(&self.reader, record);
                    }
                    Some(_) => self.apply_other(Call { op, args, hash, turn }, out),
                    None => {
                        self.counters.misses += 1;
                        out.null();
                    }
                }
            }
            (Op::Set, [_, key, value]) => match self.set_plainly(hash, key, value, turn) {
                Ok(()) => out.ok(),
                Err(error) => {
                    self.note_refused(&error);
                    out.error(write_error_text(&error));
                }
            },
            _ => self.apply_other(Call { op, args, hash, turn }, out),
        }
    }

    #[inline]
    fn set_plainly(
        &mut self,
        hash: u32,
        key: &[u8],
        value: &[u8],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        if !self.evicts() {
            return self.put(hash, key, &[value], 0, turn);
        }
        self.with_room(key.len() + value.len(), turn, |store| {
            store.put(hash, key, &[value], 0, turn)
        })
    }

    #[inline(never)]
    fn apply_other<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) {
        let outcome = if self.evicts() && call.op.takes_memory() {
            // One that fails has changed and answered nothing, so it can be done again.
            self.with_room(self.bytes_of(call), call.turn, |store| store.apply_op(call, out))
        } else {
            self.apply_op(call, out)
        };
        match outcome {
            Ok(()) => {}
            Err(Refusal::Text(text)) => out.error(text),
            Err(Refusal::Owned(text)) => out.error(&text),
            Err(Refusal::Write(error)) => {
                self.note_refused(&error);
                out.error(write_error_text(&error));
            }
        }
    }

    /// About how many bytes a write takes: those of its arguments, and of the value that it may
    /// copy.
    fn bytes_of(&self, call: Call<'_, '_, '_>) -> usize {
        let copies = matches!(call.op, Op::Append | Op::SetRange | Op::Copy);
        let record = copies.then(|| self.look(call.hash, call.key(), call.turn)).flatten();
        let copied = match record {
            Some(record) if call.op == Op::Append => {
                let stays = self.data.extends_in_place(&record, call.arg(2).len());
                if stays { 0 } else { record.value_len() as usize }
            }
            Some(record) => record.value_len() as usize,
            None => 0,
        };
        call.args.iter().map(|arg| arg.len()).sum::<usize>() + copied
    }

    fn apply_op<R: Reply>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> Outcome {
        match call.op {
            Op::Get => {
                match self.read(call.hash, call.key(), call.turn) {
                    Some(record) => out.value(&self.reader, record),
                    None => out.null(),
                }
                Ok(())
            }
            Op::Set => self.set(call, out),
            Op::SetNx => self.set_nx(call, out),
            Op::SetEx | Op::PSetEx => self.set_ex(call, out),
            Op::GetSet => self.get_set(call, out),
            Op::GetDel => self.get_del(call, out),
            Op::GetEx => self.get_ex(call, out),
            Op::MGet => self.mget(call, out),
            Op::MSet | Op::MSetNx => self.mset(call, out),
            Op::Append => self.append(call, out),
            Op::StrLen => self.strlen(call, out),
            Op::GetRange | Op::SubStr => self.get_range(call, out),
            Op::SetRange => self.set_range(call, out),
            Op::Incr | Op::Decr | Op::IncrBy | Op::DecrBy => self.increment(call, out),
            Op::IncrByFloat => self.increment_float(call, out),
            Op::Del | Op::Unlink => self.del(call, out),
            Op::Exists | Op::Touch => self.exists(call, out),
            Op::Type => self.type_of(call, out),
            Op::Rename | Op::RenameNx => self.rename(call, out),
            Op::Copy => self.copy(call, out),
            Op::RandomKey => self.random_key(call, out),
            Op::Keys => self.keys_matching(call, out),
            Op::Scan => self.scan(call, out),
            Op::Expire | Op::PExpire | Op::ExpireAt | Op::PExpireAt => self.expire(call, out),
            Op::Ttl | Op::PTtl | Op::ExpireTime | Op::PExpireTime => self.ttl(call, out),
            Op::Persist => self.persist(call, out),
            Op::Object => self.object(call, out),
            Op::MemoryUsage => self.memory_usage(call, out),
            Op::DbSize => {
                out.int(i64::try_from(self.keys()).unwrap_or(i64::MAX));
                Ok(())
            }
            Op::FlushDb | Op::FlushAll => self.flush_all(call, out),
        }
    }
}
