//! Writes that wait for room in the journal, whose thread of the log the tests play.

use super::*;
use crate::commands;
use nigh_shm::{JournalFile, JournalReader, JournalSpec, JournalWriter};
use nigh_store::{JOURNAL_FULL, ShardCompaction};
use std::sync::mpsc;

/// The stream of the tenant's only partition.
const STREAM: u32 = 1 << 8;
/// Turns in which nobody writes the log.
const TURNS: u64 = 50;

/// A tenant whose changes the first shard tells a journal of 1 MiB.
struct Journaled {
    shards: Shards,
    log: JournalReader,
    _dir: tempfile::TempDir,
}

impl Journaled {
    fn new() -> Journaled {
        let mut shards = Shards::of(&[1]);
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
        let store = state.tenants[TenantId(0)].keyspace.part_mut(0);
        let arena = Arc::clone(store.data_region());
        log.set_arena(STREAM, arena);
        store.set_journal(&ring, STREAM);
        let compaction = ShardCompaction::new(mpsc::channel().1, mpsc::sync_channel(1).0);
        state.logs = Logs::of(None, 0, Some((ring, compaction)));
        Journaled { shards, log, _dir: dir }
    }

    /// Writes until the journal is full.
    fn fill(&mut self) {
        let mut other = self.shards.connect(0, TenantId(0));
        let value = vec![b'x'; 10_000];
        let is_full = (0..1_000).any(|_| {
            self.shards.send(&mut other, &[vec![b"SET", b"other", &value]]);
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

    /// How often EXEC has run, and functions.
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
    assert_eq!(server.runs(), (1, 1), "nothing has moved");
    // Room for some, but not for these.
    server.write(1);
    server.wait(&mut exec);
    server.wait(&mut call);
    let (execs, calls) = server.runs();
    assert!(execs <= 3 && calls <= 3, "{execs} EXECs and {calls} calls ran");
    server.write(1_000);
    server.shards.expect(&mut exec, &done, "there is room");
    server.shards.expect(&mut call, &put, "there is room");
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
