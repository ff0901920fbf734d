//! Commands over several partitions.
//!
//! ```text
//! Span::Views   MGET, EXISTS, TOUCH, KEYS, SCAN, RANDOMKEY    read here, over owned stores and views
//! Span::Owners  DBSIZE, FLUSHALL, FLUSHDB                     each owner on its own; the server joins
//! ```
//!
//! Thread: the shard's.

use crate::apply::keys::{check_flush_mode, counts};
use crate::call::length;
use crate::error::write_error_text;
use crate::keyspace::Keyspace;
use crate::op::Op;
use crate::partition::store::Store;
use crate::reply_sink::ReplySink;
use crate::split_mix::SplitMix;
use crate::text::arguments::cursor;
use crate::text::glob::Glob;
use crate::turn::Turn;
use nigh_shm::{PartitionNumber, WriteError};

impl Keyspace {
    /// Applies a command of [`crate::Span::Views`] here. It reads the whole keyspace, or keys of
    /// several partitions.
    ///
    /// # Panics
    ///
    /// If the command has another [`Op::span`], or fewer arguments than its arity.
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
                let pattern = match Glob::of_keys(args[1]) {
                    Ok(pattern) => pattern,
                    Err(text) => return out.error(text),
                };
                let mut keys = Vec::new();
                let parts = self.parts.iter();
                parts.for_each(|store| store.collect_keys(pattern.as_ref(), turn, &mut keys));
                out.array(keys.len());
                keys.into_iter().for_each(|key| out.bulk(key));
            }
            Op::Scan => {
                // Every store refuses an invalid cursor.
                let at = cursor(args[1]).unwrap_or(0);
                let at = self.partition_at(at);
                self.parts[at].apply(op, args, turn, out);
            }
            Op::RandomKey => {
                let mut random = SplitMix(turn.random);
                let partition = self.pick(&mut random);
                // New random numbers: those that chose the partition would meet only some of its
                // keys.
                let turn = Turn { random: random.next(), ..*turn };
                self.parts[partition].apply(op, args, &turn, out);
            }
            _ => unreachable!("{} reads one partition", op.name()),
        }
    }

    /// A random partition, each as likely as its share of the keys.
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

    /// About how many bytes of values the reply to a command will have, before it runs. Counts what
    /// may be long and is cheap to know. There are at least as many `args` as the command's arity.
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

    /// Applies a command of [`crate::Span::Owners`] to the partitions that this shard owns: DBSIZE,
    /// FLUSHALL, FLUSHDB. A flush that the journal had no room for may be applied again as a whole:
    /// [`Keyspace::take_busy`].
    pub fn apply_to_owned<R: ReplySink>(&mut self, op: Op, args: &[&[u8]], out: &mut R) {
        match op {
            Op::DbSize => {
                let keys: u64 = self.owned().map(|store| store.keys()).sum();
                out.int(length(usize::try_from(keys).unwrap_or(usize::MAX)));
            }
            Op::FlushAll | Op::FlushDb => match check_flush_mode(args) {
                Ok(()) => match self.flush_owned() {
                    Ok(()) => out.ok(),
                    Err(error) => out.error(write_error_text(&error)),
                },
                Err(text) => out.error(text),
            },
            _ => unreachable!("{op:?} isn't about all keys: see `Op::span`"),
        }
    }

    /// Empties the own partitions in order, up to one that refuses and notes that. Those that are
    /// empty by then stay so; the others are as they were.
    fn flush_owned(&mut self) -> Result<(), WriteError> {
        self.owned()
            .try_for_each(|store| store.flush().inspect_err(|error| store.note_refused(error)))
    }

    /// A step of a walk by prefix over all partitions: see [`Store::scan_keys`].
    pub fn scan_keys(
        &self,
        prefix: &[u8],
        cursor: u64,
        count: u32,
        turn: &Turn<'_>,
        found: &mut dyn FnMut(&[u8]),
    ) -> u64 {
        self.parts[self.partition_at(cursor)].scan_keys(prefix, cursor, count, turn, found)
    }

    /// The partition in which a walk goes on.
    fn partition_at(&self, cursor: u64) -> usize {
        let number = PartitionNumber::of_cursor(cursor, self.parts.len() as u64);
        usize::try_from(number.partition).unwrap_or(0)
    }
}
