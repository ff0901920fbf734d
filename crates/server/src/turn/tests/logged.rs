//! Shards with logs, whose threads the tests play: they say what is on disk, and how the logs are.

use super::*;
use nigh_shm::{DurableWord, Reader};
use nigh_store::{LogHealth, SyncMode};

pub(super) const OK: &[u8] = b"+OK\r\n";
pub(super) const NULL: &[u8] = b"$-1\r\n";

/// Shards with logs, of one tenant.
pub(super) struct Logged {
    pub(super) shards: Shards,
    pub(super) logs: Vec<Arc<LogStatus>>,
}

impl Logged {
    pub(super) fn of(partitions: usize, mode: SyncMode) -> Logged {
        let mut config = Config::default();
        config.set("appendonly", "yes").expect("a flag");
        config.set("appendfsync", mode.name()).expect("a mode");
        let logs: Vec<_> = (0..SHARDS).map(|_| Arc::new(LogStatus::new(mode))).collect();
        let shards = Shards::logged(&[partitions], config, Some(logs.clone().into()));
        Logged { shards, logs }
    }

    /// The arenas that a shard's log is about.
    pub(super) fn arenas(&self, shard: usize) -> Vec<Reader> {
        let keyspace = &self.shards.shards[shard].work.state.tenants[TenantId(0)].keyspace;
        let own = keyspace.parts().iter().filter(|store| store.is_owner());
        let data = own.map(|store| store.reader().clone());
        data.chain((shard == 0).then(|| keyspace.librarian().library_reader().clone())).collect()
    }

    /// A shard's log syncs all.
    pub(super) fn sync(&mut self, shard: usize) {
        for arena in self.arenas(shard) {
            DurableWord::of(arena.region()).store(arena.begun_lsn());
        }
        self.shards.shards[shard].work.state.shared.tell_synced();
        let _ = self.logs[shard].take_wanted();
    }

    pub(super) fn sync_all(&mut self) {
        (0..SHARDS).for_each(|shard| self.sync(shard));
    }

    /// How a shard's log is from now on.
    pub(super) fn tell(&mut self, shard: usize, health: LogHealth, cause: &str) {
        self.logs[shard].tell_health(health, cause.to_owned());
        self.shards.shards[shard].work.state.shared.tell_synced();
        self.shards.turn(false);
    }

    pub(super) fn connect(&mut self, shard: usize) -> Peer {
        self.shards.connect(shard, TenantId(0))
    }

    /// Loads the library `w`, which is on disk then.
    pub(super) fn load(&mut self, peer: &mut Peer, source: &str) {
        self.shards.send(peer, &[vec![b"FUNCTION", b"LOAD", source.as_bytes()]]);
        for _ in 0..3 {
            self.shards.turn(false);
            self.sync_all();
        }
        self.shards.expect(peer, b"$1\r\nw\r\n", "FUNCTION LOAD");
    }

    /// Sends commands of words, without an answer.
    pub(super) fn send(&mut self, peer: &mut Peer, commands: &[&str]) {
        let words = commands.iter().map(|line| line.split(' ').map(str::as_bytes).collect());
        let commands: Vec<Vec<&[u8]>> = words.collect();
        self.shards.send(peer, &commands);
    }

    /// Sends them, and has these replies without any sync.
    pub(super) fn says(&mut self, peer: &mut Peer, commands: &[&str], expected: &[u8]) {
        self.send(peer, commands);
        self.shards.expect(peer, expected, &commands.join(", "));
    }

    /// Nothing comes, whatever else the shards do.
    pub(super) fn is_silent(&mut self, peer: &mut Peer, story: &str) {
        for _ in 0..20 {
            self.shards.turn(false);
            let _ = peer.stream.read_to_end(&mut peer.came);
            self.shards.shards[peer.shard].work.ready.queue(peer.slot);
        }
        assert!(peer.came.is_empty(), "{story}: {}", peer.came.escape_ascii());
    }

    /// At most the beginning of these replies comes.
    pub(super) fn is_silent_but(&mut self, peer: &mut Peer, most: &[u8]) {
        for _ in 0..20 {
            self.shards.turn(false);
            let _ = peer.stream.read_to_end(&mut peer.came);
        }
        assert!(most.starts_with(&peer.came), "{}", peer.came.escape_ascii());
    }

    /// Nothing comes until a shard has synced, and then these replies.
    pub(super) fn after_sync(
        &mut self,
        shard: usize,
        peer: &mut Peer,
        commands: &[&str],
        expected: &[u8],
    ) {
        self.send(peer, commands);
        let story = commands.join(", ");
        self.is_silent(peer, &story);
        assert!(self.logs[shard].is_wanted(), "{story}: the log is told");
        self.sync(shard);
        self.shards.expect(peer, expected, &story);
    }

    /// Gives a connection that moves to its shard.
    pub(super) fn move_over(&mut self, peer: &mut Peer) {
        for _ in 0..100 {
            self.shards.turn(false);
            let moving = std::mem::take(&mut self.shards.shards[peer.shard].work.moving);
            if let Some((shard, mut connection)) = moving.into_iter().next() {
                let work = &mut self.shards.shards[shard].work;
                connection.pipe.pending = crate::net::pipeline::Pending::Nothing;
                connection.slot = work.slab.reserve();
                (peer.shard, peer.slot) = (shard, connection.slot);
                work.slab.put(connection);
                work.ready.queue(peer.slot);
                return;
            }
        }
        panic!("it doesn't move");
    }

    /// Whether a client's connection is gone.
    pub(super) fn is_closed(&mut self, peer: &mut Peer) -> bool {
        self.shards.turn(false);
        self.shards.turn(false);
        peer.stream.read_to_end(&mut peer.came).is_ok()
    }

    /// A key of a partition.
    pub(super) fn key(&self, partition: usize) -> String {
        let keyspace = &self.shards.shards[0].work.state.tenants[TenantId(0)].keyspace;
        let key = |number: usize| format!("k{number}");
        let lies = |name: &String| keyspace.partition_of(name.as_bytes()) == partition;
        (0..10_000).map(key).find(lies).expect("each partition has keys")
    }
}
