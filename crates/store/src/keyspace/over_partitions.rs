//! Commands over several partitions.
//!
//! Thread: the shard's.

use crate::apply::keys::{check_flush_mode, counts};
use crate::call::length;
use crate::keyspace::Keyspace;
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::split_mix::SplitMix;
use crate::text::arguments::cursor;
use crate::turn::Turn;

impl Keyspace {
    /// Applies a command that reads the whole keyspace, or keys of several partitions, here: views
    /// will do.
    ///
    /// # Panics
    ///
    /// If [`Op::span`] doesn't say that it can, or there are fewer arguments than its arity.
    pub fn apply_over_views<R: ReplySink>(
        &mut self,
        op: Op,
        args: &[&[u8]],
        turn: &Turn<'_>,
        out: &mut R,
    ) {
        match op {
            Op::MGet => {
                out.array(args.len() - 1);
                for key in &args[1..] {
                    let partition = self.partition_of(key);
                    self.parts[partition].apply(Op::Get, &[b"get", key], turn, out);
                }
            }
            Op::Exists | Op::Touch => {
                let counts = args[1..].iter().map(|key| {
                    let partition = self.partition_of(key);
                    i64::from(counts(&mut self.parts[partition], op, key, turn))
                });
                let count = counts.sum();
                out.int(count);
            }
            Op::Keys => {
                let mut keys = Vec::new();
                let parts = self.parts.iter();
                parts.for_each(|store| store.collect_keys(args[1], turn, &mut keys));
                out.array(keys.len());
                keys.into_iter().for_each(|key| out.bulk(key));
            }
            Op::Scan => {
                // A cursor that is none is refused by whatever store.
                let at = cursor(args[1]).unwrap_or(0) % self.parts.len() as u64;
                let at = usize::try_from(at).unwrap_or(0);
                self.parts[at].apply(op, args, turn, out);
            }
            Op::RandomKey => {
                let mut random = SplitMix(turn.random);
                let partition = self.pick(&mut random);
                // Numbers of its own: by those that chose the partition, only some of its keys
                // could be met.
                let turn = Turn { random: random.next(), ..*turn };
                self.parts[partition].apply(op, args, &turn, out);
            }
            _ => unreachable!("{} reads one partition", op.name()),
        }
    }

    /// A partition, each as likely as it has keys.
    fn pick(&self, random: &mut SplitMix) -> usize {
        let keys = |store: &Store| store.reader().keys();
        let all: u64 = self.parts.iter().map(keys).sum();
        let mut left = random.below(all.max(1));
        let found = self.parts.iter().position(|store| {
            let is_here = left < keys(store);
            left = left.saturating_sub(keys(store));
            is_here
        });
        found.unwrap_or(0)
    }

    /// About how many bytes of values the reply to a command will have, which is told before it
    /// runs: what is longest and cheap to know. `args` are as many as its arity wants.
    #[must_use]
    pub fn reply_bytes(&self, op: Op, args: &[&[u8]], turn: &Turn<'_>) -> usize {
        let of_key = |key: &[u8]| {
            let hash = self.hash(key);
            self.parts[self.partition(key, hash)].value_bytes(hash, key, turn)
        };
        match op {
            Op::Get | Op::GetSet | Op::GetDel | Op::GetEx | Op::GetRange | Op::SubStr => {
                of_key(args[1])
            }
            Op::Set if args.len() > 3 => of_key(args[1]),
            Op::MGet => args[1..].iter().map(|key| of_key(key)).sum(),
            _ => 0,
        }
    }

    /// Applies a command about the whole keyspace to the partitions that are owned here: DBSIZE,
    /// FLUSHALL, FLUSHDB.
    pub fn apply_to_owned<R: ReplySink>(
        &mut self,
        op: Op,
        args: &[&[u8]],
        turn: &Turn<'_>,
        out: &mut R,
    ) {
        match op {
            Op::DbSize => {
                let keys: u64 = self.owned().map(|store| store.keys()).sum();
                out.int(length(usize::try_from(keys).unwrap_or(usize::MAX)));
            }
            Op::FlushAll | Op::FlushDb => match check_flush_mode(args) {
                Ok(()) => {
                    self.owned().for_each(|store| store.flush(turn));
                    out.ok();
                }
                Err(text) => out.error(text),
            },
            _ => unreachable!("{op:?} isn't about all keys: see `Op::span`"),
        }
    }

    /// Keys with a prefix, about `count` per step, for the `db.scan` of functions: see
    /// [`Store::scan_keys`].
    pub fn scan_keys(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        turn: &Turn<'_>,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        let at = usize::try_from(cursor % self.parts.len() as u64).unwrap_or(0);
        self.parts[at].scan_keys(prefix, cursor, count, turn, found)
    }
}
