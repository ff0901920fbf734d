//! Writes that wait for room in the journal, whose thread of the log the tests play.

use super::logged::{Logged, OK};
use super::*;
use crate::commands;
use nigh_shm::{JournalFile, JournalReader, JournalSpec, JournalWriter};
use nigh_store::{JOURNAL_FULL, ShardCompaction};
use std::sync::mpsc;

/// The stream of the tenant's only partition.
const STREAM: u32 = 1 << 8;
/// Turns in which nobody writes the log.
const TURNS: u64 = 50;

/// A tenant of which the first shard tells a journal of 1 MiB the changes of its last partition.
struct Journaled {
    shards: Shards,
    /// A key in that partition.
    key: String,
    log: JournalReader,
    _dir: tempfile::TempDir,
}

impl Journaled {
    fn new() -> Journaled {
        Journaled::of(1)
    }

    /// With so many partitions, the last of which is the first shard's.
    fn of(partitions: usize) -> Journaled {
        let server = Logged { shards: Shards::of(&[partitions]), logs: Vec::new() };
        let key = server.key(partitions - 1);
        let mut shards = server.shards;
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let spec = JournalSpec {
            shard: 0,
            ring_bytes: 1 << 20,
            log_id: [1; 16],
            boot_id: [2; 16],
            holds_values: false,
        };
        let file = Arc::new(JournalFile::create(dir.path(), &spec).expect("a journal"));
        let (ring, mut log) = (JournalWriter::new(&file), JournalReader::new(&file));
        let state = &mut shards.shards[0].work.state;
        let store = state.tenants[TenantId(0)].keyspace.part_mut(partitions - 1);
        let arena = Arc::clone(store.data_region());
        log.set_arena(STREAM, arena);
        store.set_journal(&ring, STREAM);
        let compaction = ShardCompaction::new(mpsc::channel().1, mpsc::sync_channel(1).0);
        state.logs = Logs::of(None, 0, Some((ring, compaction)));
        Journaled { shards, key, log, _dir: dir }
    }

    /// Writes until the journal is full.
    fn fill(&mut self) {
        let mut other = self.shards.connect(0, TenantId(0));
        let value = vec![b'x'; 10_000];
        let is_full = (0..1_000).any(|_| {
            self.shards.send(&mut other, &[vec![b"SET", self.key.as_bytes(), &value]]);
            (0..2).for_each(|_| self.shards.turn_one(0, false));
            let would_wait = other.stream.read_to_end(&mut other.came).is_err();
            would_wait && std::mem::take(&mut other.came).is_empty()
        });
        assert!(is_full);
    }

    /// The log's thread writes so many entries.
    fn write(&mut self, entries: usize) {
        for _ in 0..entries {
            self.log.advance().expect("whole entries");
        }
        let position = self.log.position();
        self.log.written(position);
    }

    /// Turns of the first shard; nothing comes.
    fn wait(&mut self, client: &mut Peer) {
        (0..TURNS).for_each(|_| self.shards.turn_one(0, false));
        let _ = client.stream.read_to_end(&mut client.came);
        assert_eq!(client.came.escape_ascii().to_string(), "", "it waits for the journal");
    }

    /// How often EXEC has run to its end, and functions, which also run in vain.
    fn runs(&self) -> (u64, u64) {
        let state = &self.shards.shards[0].work.state;
        let row = commands::resolve(b"exec", || None).row().expect("a command");
        (state.stats.rows[usize::from(row)].calls, state.engines[0].stats().calls)
    }
}

/// What comes behind a wait for the journal: both have much to do each time that they run.
fn waiting(server: &mut Journaled) -> [(Peer, Vec<u8>); 2] {
    let mut call = server.shards.connect(0, TenantId(0));
    let source = b"#!words name=w\nput\n".as_slice();
    server.shards.send(&mut call, &[vec![b"FUNCTION", b"LOAD", source]]);
    server.shards.expect(&mut call, b"$1\r\nw\r\n", "it is loaded");
    let mut exec = server.shards.connect(0, TenantId(0));
    let value = vec![b'v'; 100_000];
    let queued = [vec![b"MULTI".as_slice()], vec![b"SET", b"large", &value], vec![b"INCR", b"n"]];
    server.shards.send(&mut exec, &queued);
    server.shards.expect(&mut exec, b"+OK\r\n+QUEUED\r\n+QUEUED\r\n", "it is queued");
    server.fill();
    server.shards.send(&mut exec, &[vec![b"EXEC"]]);
    server.shards.send(&mut call, &[vec![b"FCALL", b"put", b"1", b"large", &value]]);
    [(exec, b"*2\r\n+OK\r\n:1\r\n".to_vec()), (call, b"+put\r\n".to_vec())]
}

#[test]
fn what_waits_for_the_journal_runs_again_only_when_that_has_moved() {
    // EXEC and calls of functions ran anew in each turn, in vain: the shard did little else until
    // the disk got on.
    let mut server = Journaled::new();
    let [(mut exec, done), (mut call, put)] = waiting(&mut server);
    server.wait(&mut exec);
    server.wait(&mut call);
    assert_eq!(server.runs(), (0, 1), "nothing has moved");
    // Room for some, but not for these.
    server.write(1);
    server.wait(&mut exec);
    server.wait(&mut call);
    let (execs, calls) = server.runs();
    assert!(execs == 0 && calls <= 3, "{execs} EXECs and {calls} calls ran");
    server.write(1_000);
    server.shards.expect(&mut exec, &done, "there is room");
    server.shards.expect(&mut call, &put, "there is room");
}

#[test]
fn a_write_that_waits_for_the_journal_is_counted_once() {
    // It was counted each time that it ran, as a command that failed, though its client was told OK
    // in the end.
    let mut server = Journaled::new();
    let mut client = server.shards.connect(0, TenantId(0));
    server.fill();
    let value = vec![b'v'; 100_000];
    let key = server.key.clone();
    server.shards.send(&mut client, &[vec![b"MSET", key.as_bytes(), &value, b"b", &value]]);
    server.wait(&mut client);
    server.write(1_000);
    server.shards.expect(&mut client, b"+OK\r\n", "there is room");
    let stats = &server.shards.shards[0].work.state.stats;
    let row = commands::resolve(b"mset", || None).row().expect("a command");
    let counted = &stats.rows[usize::from(row)];
    assert_eq!((counted.calls, counted.failed, stats.error_replies), (1, 0, 0));
}

#[test]
fn what_waits_for_the_journal_is_told_in_the_end() {
    let mut server = Journaled::new();
    server.shards.at = Some(Instant::now());
    let [(mut exec, _), (mut call, _)] = waiting(&mut server);
    server.wait(&mut exec);
    server.wait(&mut call);
    server.shards.ahead += Duration::from_secs(1);
    let aborted = format!("-EXECABORT Transaction discarded because of: {JOURNAL_FULL}\r\n");
    server.shards.expect(&mut exec, aborted.as_bytes(), "it has waited for journal-wait-ms");
    let refused = format!("-{JOURNAL_FULL}\r\n");
    server.shards.expect(&mut call, refused.as_bytes(), "it has waited for journal-wait-ms");
}

#[test]
fn what_waits_for_the_journal_goes_on_when_there_is_none() {
    let mut server = Journaled::new();
    let [(mut exec, done), (mut call, put)] = waiting(&mut server);
    server.wait(&mut exec);
    server.wait(&mut call);
    let state = &mut server.shards.shards[0].work.state;
    state.tenants[TenantId(0)].keyspace.leave_log(0, SHARDS);
    state.logs.detach();
    server.shards.expect(&mut exec, &done, "CONFIG SET appendonly no");
    server.shards.expect(&mut call, &put, "CONFIG SET appendonly no");
}

/// Keys of one of the first shard's partitions.
fn keys_of(server: &Journaled, partition: usize) -> impl Iterator<Item = String> + use<> {
    let keyspace = &server.shards.shards[0].work.state.tenants[TenantId(0)].keyspace;
    let lies = |name: &String| keyspace.partition_of(name.as_bytes()) == partition;
    let names: Vec<_> = (0..10_000).map(|number| format!("k{number}")).filter(lies).collect();
    names.into_iter()
}

#[test]
fn a_part_that_is_done_is_not_done_again_when_the_journal_has_room() {
    // One part of MSET is done while the other waits for the journal, and is overwritten meanwhile.
    let mut server = Journaled::of(3);
    let (small, large) = (keys_of(&server, 0).next().expect("one"), server.key.clone());
    let [mut setting, mut other] = [0, 0].map(|shard| server.shards.connect(shard, TenantId(0)));
    server.fill();
    let value = vec![b'v'; 100_000];
    let words = [b"MSET".as_slice(), small.as_bytes(), b"first", large.as_bytes(), &value];
    server.shards.send(&mut setting, &[words.to_vec(), vec![b"PING"]]);
    server.wait(&mut setting);
    let get = vec![vec![b"GET".as_slice(), small.as_bytes()]];
    server.shards.send(&mut other, &get);
    server.shards.expect(&mut other, &bulk(b"first"), "this part is done");
    server.shards.send(&mut other, &[vec![b"SET", small.as_bytes(), b"between"]]);
    server.shards.expect(&mut other, OK, "it doesn't wait");
    // The command comes again, and there is too little room still.
    server.write(1);
    server.wait(&mut setting);
    server.write(1_000);
    server.shards.expect(&mut setting, b"+OK\r\n+PONG\r\n", "there is room");
    server.shards.send(&mut other, &get);
    server.shards.expect(&mut other, &bulk(b"between"), "it wasn't done again");
    server.shards.send(&mut other, &[vec![b"STRLEN", large.as_bytes()]]);
    server.shards.expect(&mut other, b":100000\r\n", "the other part is done");
}

/// Fills the journal up to the room that is kept for what removes keys, and that too.
fn fill_wholly(server: &mut Journaled) {
    let keys: Vec<_> = keys_of(server, 2).filter(|key| *key != server.key).take(2_000).collect();
    let mut client = server.shards.connect(0, TenantId(0));
    for some in keys.chunks(100) {
        let sets = some.iter().map(|key| vec![b"SET".as_slice(), key.as_bytes(), b"v"]);
        server.shards.send(&mut client, &sets.collect::<Vec<_>>());
        server.shards.expect(&mut client, &OK.repeat(some.len()), "there is room");
    }
    server.fill();
    // What tells that all are gone is shorter than what tells of one key.
    let gone = keys.iter().map(|key| vec![b"DEL".as_slice(), key.as_bytes()]);
    for commands in [gone.collect(), vec![vec![b"FLUSHALL".as_slice()]; 9]] {
        let mut client = server.shards.connect(0, TenantId(0));
        let is_full = commands.into_iter().any(|command| {
            server.shards.send(&mut client, &[command]);
            (0..3).for_each(|_| server.shards.turn(false));
            let would_wait = client.stream.read_to_end(&mut client.came).is_err();
            would_wait && std::mem::take(&mut client.came).is_empty()
        });
        assert!(is_full);
    }
}

#[test]
fn a_flush_waits_for_the_journal() {
    // It comes again as a whole, so other shards aren't told before.
    let mut server = Journaled::of(3);
    let mut client = server.shards.connect(0, TenantId(0));
    fill_wholly(&mut server);
    server.shards.send(&mut client, &[vec![b"FLUSHALL"], vec![b"DBSIZE"]]);
    let sent = |server: &Journaled| server.shards.shards[0].work.state.stats.hops_out;
    let before = sent(&server);
    server.wait(&mut client);
    assert_eq!(sent(&server), before, "nothing is sent before the own part is done");
    server.write(10_000);
    server.shards.expect(&mut client, b"+OK\r\n:0\r\n", "there is room");
}

#[test]
fn commands_by_parts_that_came_together_wait_in_vain_together() {
    // The second one doesn't wait anew, and neither for ever.
    for command in ["MSET", "FLUSHALL"] {
        let mut server = Journaled::of(3);
        server.shards.at = Some(Instant::now());
        let (small, large) = (keys_of(&server, 0).next().expect("one"), server.key.clone());
        let mut client = server.shards.connect(0, TenantId(0));
        fill_wholly(&mut server);
        let value = vec![b'v'; 10_000]; // so much is read at once
        let mset = [b"MSET".as_slice(), small.as_bytes(), b"v", large.as_bytes(), &value];
        let words = if command == "MSET" { mset.to_vec() } else { vec![command.as_bytes()] };
        server.shards.send(&mut client, &[words.clone(), words, vec![b"PING"]]);
        server.wait(&mut client);
        server.shards.ahead += Duration::from_secs(1);
        let refused = format!("-{JOURNAL_FULL}\r\n").repeat(2) + "+PONG\r\n";
        server.shards.expect(&mut client, refused.as_bytes(), command);
    }
}
