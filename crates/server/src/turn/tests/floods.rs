//! Clients that ask for more than they read.

use super::logged::{Logged, OK};
use super::*;
use nigh_store::SyncMode;
use std::io::ErrorKind;

/// The least that `output-buffer-limit` may be.
const LIMIT: &str = "1048576";

#[test]
fn replies_beyond_the_limit_are_not_kept_for_the_disk() {
    // What is kept until the disk has it is copied: of one value, asked for so often behind a
    // write, gigabytes were, which ended the server.
    let mut server = Logged::of(1, SyncMode::Always);
    let (mut client, mut other) = (server.connect(0), server.connect(0));
    server.says(&mut other, &[&format!("CONFIG SET output-buffer-limit {LIMIT}")], OK);
    let value = "v".repeat(50_000);
    server.after_sync(0, &mut other, &[&format!("SET k {value}")], OK);
    server.send(&mut client, &["SET x 1", &format!("MGET{}", " k".repeat(60))]);
    assert!(server.is_closed(&mut client) && client.came.is_empty(), "no sync is waited for");
    server.says(&mut other, &["PING"], b"+PONG\r\n");
}

#[test]
fn the_own_part_of_a_read_by_owners_is_bounded() {
    // Another partition has a key that is over by our clock alone, so each owner reads its keys.
    // What this shard read of its own was copied, however long it was.
    let mut config = Config::default();
    config.set("appendonly", "no").expect("a flag");
    config.set("output-buffer-limit", LIMIT).expect("a size");
    let shards = Shards::logged(&[2], config, None);
    let mut server = Logged { shards, logs: Vec::new() };
    let (near, far) = (server.key(1), server.key(0));
    let (mut client, mut other) = (server.connect(1), server.connect(0));
    server.says(&mut client, &[&format!("SET {near} {}", "v".repeat(50_000))], OK);
    server.says(&mut other, &[&format!("SET {far} w PX 50")], OK);
    server.shards.now_ms += 100;
    server.send(&mut client, &[&format!("MGET{} {far}", format!(" {near}").repeat(60)), "PING"]);
    server.shards.turn_one(1, false);
    assert_eq!(server.shards.shards[1].work.state.stats.moved_reads, 1, "each owner reads");
    let error = format!(
        "-ERR the reply takes 3000605 bytes, and output-buffer-limit is {LIMIT}: ask for less at \
         a time\r\n+PONG\r\n"
    );
    server.shards.expect(&mut client, error.as_bytes(), "it is refused");
}

#[test]
fn before_auth_nothing_is_read_ahead() {
    // A stranger asks and asks, and reads no reply. What it sent was taken in nevertheless, up to
    // client-query-buffer-limit. It stays in the socket, and is answered when the replies are read.
    let mut config = Config::default();
    config.set("appendonly", "no").expect("a flag");
    config.set("requirepass", "secret").expect("a password");
    config.set("output-buffer-pause", "64kb").expect("a size");
    let mut shards = Shards::logged(&[1], config, None);
    let mut stranger = shards.connect(0, TenantId(0));
    let slot = stranger.slot;
    let taken_in = |work: &mut Work| {
        let pipe = &mut work.slab.get_mut(slot).expect("it is there").pipe;
        pipe.client.authenticated = false;
        pipe.client.settle();
        pipe.input.readable = true;
        pipe.input.bytes().len()
    };
    let all = format!("nonsense {}\r\n", "x".repeat(120)).repeat(64 << 10).into_bytes();
    let (mut sent, mut is_over) = (0, false);
    while !is_over {
        assert!(sent < all.len(), "the shard takes all");
        let is_full = match stranger.stream.write(&all[sent..]) {
            Ok(bytes) => {
                sent += bytes;
                false
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                true
            }
        };
        let work = &mut shards.shards[0].work;
        let taken_bytes = taken_in(work);
        assert!(taken_bytes < 128 << 10, "{taken_bytes} bytes are taken in");
        work.ready.queue(slot);
        shards.turn_one(0, false);
        is_over = is_full && !shards.shards[0].work.has_work();
    }
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let (asked, mut answered) = (lines(&all[..sent]), 0);
    let are_answered = (0..100 * asked).any(|_| {
        let _ = stranger.stream.read_to_end(&mut stranger.came);
        answered += lines(&std::mem::take(&mut stranger.came));
        shards.shards[0].work.ready.queue(slot);
        shards.turn_one(0, false);
        answered == asked
    });
    assert!(are_answered, "{answered} of {asked} commands");
}
