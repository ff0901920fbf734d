//! What the log has to do with all partitions of a keyspace: commits that may have read others, and
//! compaction.
//!
//! Thread: the owner's.

use std::collections::VecDeque;

use nigh_shm::{Effect, LineWalk, MendError, Record, Standing, StreamChange, WriteError, Writer};

use crate::commit::write_set::KeyWrite;
use crate::durability::looks::{Arenas, Files, Walked};
use crate::durability::orders::{Placed, RightBytes};
use crate::durability::shard_compaction::ShardCompaction;
use crate::keyspace::Keyspace;
use crate::open::durable::streams_of::{DEFAULT_NUMBER, SYSTEM_NUMBER};
use crate::turn::Turn;

/// Bytes that a log has beside each record: docs/formats/log.md, "A change".
const CHANGE_HEADER_BYTES: u64 = 24;

impl Keyspace {
    /// Commits a write set of a call that may have read all partitions: after a power cut it isn't
    /// there without what it read. So the log has it only behind the other shards' logs.
    ///
    /// # Errors
    ///
    /// As [`crate::Store::commit_writes`].
    pub fn commit_call(
        &mut self,
        partition: usize,
        writes: &[KeyWrite<'_>],
        turn: &Turn<'_>,
    ) -> Result<(), WriteError> {
        if self.parts.len() > 1 {
            let own = self.owners[partition];
            let others = (0..).zip(self.parts.iter().zip(&self.owners));
            let needs = others.filter(|(_, (_, owner))| **owner != own);
            let needs = needs.filter_map(|(number, (store, _))| {
                let begun = store.reader().begun_lsn();
                let is_durable = store.reader().durable_lsn() >= begun;
                (!is_durable).then_some((DEFAULT_NUMBER << 8 | number, begun))
            });
            let needs: Vec<(u32, u64)> = needs.collect();
            self.parts[partition].data.set_needs(&needs);
        }
        self.parts[partition].commit_writes(writes, turn)
    }

    /// What is due of the compaction of the shard's log in this turn; the journal has this tail.
    /// Whether there is more to do.
    pub fn compact(
        &mut self,
        compaction: &mut ShardCompaction,
        tail: u64,
        turn: &Turn<'_>,
    ) -> bool {
        compaction.turn(tail, &mut OwnedArenas { keyspace: self, turn })
    }

    /// Bytes that the live records have in a log, of the arenas that this shard owns: the
    /// libraries' are among them.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let owned = self.parts.iter().filter(|store| store.is_owner());
        let all = owned.map(|store| store.stats()).flat_map(|stats| [stats.data, stats.system]);
        all.map(|arena| arena.used_bytes + arena.keys * CHANGE_HEADER_BYTES).sum()
    }

    /// The writer of a stream; `None` if it isn't here.
    fn writer_of(&self, stream: u32) -> Option<&Writer> {
        let (tenant, partition) = (stream >> 8, (stream & 0xFF) as usize);
        let store = self.parts.get(partition).filter(|store| store.is_owner())?;
        match tenant {
            SYSTEM_NUMBER => Some(&store.libraries.writer),
            DEFAULT_NUMBER => Some(&store.data),
            _ => None,
        }
    }

    fn writer_of_mut(&mut self, stream: u32) -> Option<&mut Writer> {
        let (tenant, partition) = (stream >> 8, (stream & 0xFF) as usize);
        let store = self.parts.get_mut(partition).filter(|store| store.is_owner())?;
        match tenant {
            SYSTEM_NUMBER => Some(&mut store.libraries.writer),
            DEFAULT_NUMBER => Some(&mut store.data),
            _ => None,
        }
    }
}

/// The arenas that a shard owns, within a turn.
struct OwnedArenas<'a, 't> {
    keyspace: &'a mut Keyspace,
    turn: &'a Turn<'t>,
}

impl Arenas for OwnedArenas<'_, '_> {
    fn standing(&mut self, files: Files, stream: u32, key: &[u8], lsn: Option<u64>) -> Standing {
        // What isn't here any more has no live record.
        let Some(writer) = self.keyspace.writer_of_mut(stream) else { return Standing::Other };
        if lsn.is_some_and(|lsn| writer.is_whole_behind(key, lsn, files.victim)) {
            return Standing::Other;
        }
        let standing = writer.standing(self.turn.pin, key, lsn);
        if let Standing::Whole(it) = &standing {
            writer.reroot(key, it.lsn, files.newest);
        }
        standing
    }

    fn ask_for(&self, keys: &mut dyn Iterator<Item = (u32, &[u8])>) {
        let looks = keys.filter_map(|(stream, key)| {
            let writer = self.keyspace.writer_of(stream)?;
            Some((writer, writer.hash(key)))
        });
        let looks: Vec<(&Writer, u32)> = looks.collect();
        Writer::prefetch(looks.into_iter());
    }

    fn mend(&mut self, right: &RightBytes) -> Result<bool, MendError> {
        let RightBytes { stream, lsn, payload } = right;
        let change = StreamChange { lsn: *lsn, effect: Effect::Put, payload, rest: &[] };
        let writer = self.keyspace.writer_of_mut(*stream);
        writer.map_or(Ok(false), |writer| writer.mend(self.turn.pin, &change))
    }

    fn placed(&mut self, placed: &Placed) {
        if let Some(writer) = self.keyspace.writer_of_mut(placed.stream) {
            writer.root_placed(&placed.key, placed.lsn, placed.file);
        }
    }

    fn rooted_in(&self, file: u64, stream: u32, lsn: u64) -> Vec<Box<[u8]>> {
        self.keyspace.writer_of(stream).map(|it| it.rooted_in(file, lsn)).unwrap_or_default()
    }

    fn walk(
        &self,
        stream: u32,
        place: &mut LineWalk,
        lines: u32,
        keys: &mut VecDeque<(u32, Box<[u8]>)>,
    ) -> Walked {
        let (tenant, partition) = (stream >> 8, (stream & 0xFF) as usize);
        let Some(store) = self.keyspace.parts.get(partition).filter(|store| store.is_owner())
        else {
            return Walked::AllOver;
        };
        let reader = match tenant {
            SYSTEM_NUMBER => &store.libraries.reader,
            _ => store.reader(),
        };
        let mut bad = None;
        let take = &mut |hash: u32, record: Record<'_>| match record.key() {
            key if reader.hash(key) == hash => keys.push_back((stream, key.into())),
            key => bad = Some(key.into()),
        };
        let is_over = reader.walk(self.turn.pin, place, lines, take);
        match bad {
            Some(key) => Walked::Bad(key),
            None if is_over => Walked::AllOver,
            None => Walked::More,
        }
    }
}
