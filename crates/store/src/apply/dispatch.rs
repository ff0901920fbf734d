//! From an [`Op`] to the code that does it.
//!
//! ```text
//! GET, plain SET  ──> here, inlined into the caller: one hash, one probe, no allocation
//! any other       ──> room for it, if a policy evicts ──> types, keys, expiry, scan, ...
//! ```
//!
//! Thread: the shard that owns the store.

use nigh_shm::WriteError;
use nigh_shm::layout::is_over;

use crate::apply::{expiry, keys, memory, object, scan};
use crate::call::{Call, CommandResult, Refusal};
use crate::error::write_error_text;
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::turn::Turn;
use crate::types::string;

impl Store {
    /// Applies a command and answers it. `args[0]` is the command's name.
    ///
    /// # Panics
    ///
    /// If there are fewer arguments than the command's arity; the command table checks that.
    #[inline]
    pub fn apply<R: ReplySink>(&mut self, op: Op, args: &[&[u8]], turn: &Turn<'_>, out: &mut R) {
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
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "as a call, the record of a GET goes through memory: 5 % of its time"
    )]
    pub fn apply_hashed<R: ReplySink>(
        &mut self,
        op: Op,
        args: &[&[u8]],
        hash: u32,
        turn: &Turn<'_>,
        out: &mut R,
    ) {
        match (op, args) {
            (Op::Get, [_, key, ..]) if self.overlay.is_none() && self.data.is_here() => {
                // Straight from the reader. If several paths joined here, the record would go
                // through memory, which costs a GET some 5 %.
                match self.reader.get(turn.pin, hash, key) {
                    Some(record) if !is_over(record.expiry_ms(), turn.now_ms) => {
                        self.counters.hits += 1;
                        self.usage.touch_read(hash);
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
        if !self.usage.evicts() {
            return self.put(hash, key, &[value], 0, turn);
        }
        self.with_room(key.len() + value.len(), turn, |store| {
            store.put(hash, key, &[value], 0, turn)
        })
    }

    #[inline(never)]
    fn apply_other<R: ReplySink>(&mut self, call: Call<'_, '_, '_>, out: &mut R) {
        let outcome = if self.usage.evicts() && call.op.takes_memory() {
            // A command that fails has changed and answered nothing, so it can run again.
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

    /// About how many bytes a write takes: those of its arguments, those of the value that it may
    /// copy, and the zeros that it puts behind the value's end.
    fn bytes_of(&self, call: Call<'_, '_, '_>) -> usize {
        let copies = matches!(call.op, Op::Append | Op::SetRange | Op::Copy);
        let record = copies.then(|| self.look(call.hash, call.key(), call.turn)).flatten();
        let old = record.map_or(0, |record| record.value_len() as usize);
        let extended = match call.op {
            Op::Append => Some((old, call.arg(2).len())),
            Op::SetRange => {
                string::ranges::range_to_set(call).map(|range| (range.start, range.len()))
            }
            _ => None,
        };
        let beside = match (record, extended) {
            (Some(record), Some((offset, new)))
                if offset >= old && self.data.extends_in_place(&record, offset - old + new) =>
            {
                offset - old
            }
            (_, Some((offset, _))) => old.max(offset),
            (_, None) => old,
        };
        call.args.iter().map(|arg| arg.len()).sum::<usize>() + beside
    }

    fn apply_op<R: ReplySink>(&mut self, call: Call<'_, '_, '_>, out: &mut R) -> CommandResult {
        match call.op {
            Op::Get => string::whole::get(self, call, out),
            Op::Set => string::whole::set(self, call, out),
            Op::SetNx => string::whole::set_nx(self, call, out),
            Op::SetEx | Op::PSetEx => string::whole::set_ex(self, call, out),
            Op::GetSet => string::whole::get_set(self, call, out),
            Op::GetDel => string::whole::get_del(self, call, out),
            Op::GetEx => string::whole::get_ex(self, call, out),
            Op::MGet => string::several::mget(self, call, out),
            Op::MSet | Op::MSetNx => string::several::mset(self, call, out),
            Op::Append => string::ranges::append(self, call, out),
            Op::StrLen => string::ranges::strlen(self, call, out),
            Op::GetRange | Op::SubStr => string::ranges::get_range(self, call, out),
            Op::SetRange => string::ranges::set_range(self, call, out),
            Op::Incr | Op::Decr | Op::IncrBy | Op::DecrBy => {
                string::numbers::increment(self, call, out)
            }
            Op::IncrByFloat => string::numbers::increment_float(self, call, out),
            Op::Del | Op::Unlink => keys::del(self, call, out),
            Op::Exists | Op::Touch => keys::exists(self, call, out),
            Op::Type => keys::type_of(self, call, out),
            Op::Rename | Op::RenameNx => keys::rename(self, call, out),
            Op::Copy => keys::copy(self, call, out),
            Op::RandomKey => scan::random_key(self, call, out),
            Op::Keys => scan::keys_matching(self, call, out),
            Op::Scan => scan::scan(self, call, out),
            Op::Expire | Op::PExpire | Op::ExpireAt | Op::PExpireAt => {
                expiry::expire(self, call, out)
            }
            Op::Ttl | Op::PTtl | Op::ExpireTime | Op::PExpireTime => expiry::ttl(self, call, out),
            Op::Persist => expiry::persist(self, call, out),
            Op::Object => object::object(self, call, out),
            Op::MemoryUsage => memory::memory_usage(self, call, out),
            Op::DbSize => keys::db_size(self, out),
            Op::FlushDb | Op::FlushAll => keys::flush_all(self, call, out),
        }
    }
}
