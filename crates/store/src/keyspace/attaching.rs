//! A shard's arenas and a log that begins or ends while they are served.
//!
//! 1. Both happen between two turns: no change is half made.
//! 2. An arena has the log's id before a chain of it counts: else a start without the log could
//!    serve it, and leave a log that returns.
//! 3. An arena leaves its log only when nobody reads the journal any more: runs that entries name
//!    may be used again behind that.
//!
//! Thread: the owner's.

use std::sync::Arc;

use nigh_shm::{DurableWord, JournalWriter, Writer};

use crate::durability::shard_compaction::ShardCompaction;
use crate::keyspace::Keyspace;
use crate::open::durable::attached::{AttachedShard, AttachedStream, LogBerth};
use crate::open::durable::streams_of::{DEFAULT_NUMBER, SYSTEM_NUMBER};

impl Keyspace {
    /// Begins a base of what a shard owns: all changes are told to its journal from now on, and
    /// `compaction` has all records appended.
    pub fn begin_base(
        &mut self,
        journal: &JournalWriter,
        compaction: &mut ShardCompaction,
        berth: &LogBerth,
    ) -> AttachedShard {
        let (mut streams, mut clock_ms) = (Vec::new(), 0);
        self.each_writer(berth, &mut |number, writer| {
            writer.set_log_id(&berth.log_id);
            writer.set_boot_id(&berth.boot_id);
            writer.begin_base(journal, number);
            clock_ms = clock_ms.max(writer.reader().clock_ms());
            let (last, arena) = (writer.lsn(), Arc::clone(writer.region()));
            let word = DurableWord::of(&arena);
            streams.push(AttachedStream { number, last, word, arena });
        });
        streams.sort_unstable_by_key(|it| it.number);
        compaction.begin_base(streams.iter().map(|it| (it.number, it.last)).collect());
        AttachedShard { shard: berth.shard, tail: journal.tail(), streams, clock_ms }
    }

    /// What a shard owns tells no journal any more, and belongs to no log.
    pub fn leave_log(&mut self, shard: usize, shards: usize) {
        let berth = LogBerth { log_id: [0; 16], boot_id: [0; 16], shard, shards };
        self.each_writer(&berth, &mut |_, writer| {
            writer.leave_journal();
            writer.set_log_id(&berth.log_id);
        });
    }

    fn each_writer(&mut self, berth: &LogBerth, f: &mut dyn FnMut(u32, &mut Writer)) {
        for (partition, store) in (0..).zip(&mut self.parts) {
            if !store.is_owner() || partition as usize % berth.shards != berth.shard {
                continue;
            }
            if store.libraries.writer.is_here() {
                f(SYSTEM_NUMBER << 8, &mut store.libraries.writer);
            }
            f(DEFAULT_NUMBER << 8 | partition, &mut store.data);
        }
    }
}
