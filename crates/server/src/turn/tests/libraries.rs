//! How much a shard does when libraries change.

use super::*;
use crate::handlers::payload;
use crate::state::libraries::{Broken, ChangedLibraries};
use std::sync::atomic::Ordering::Relaxed;

const TENANT: TenantId = TenantId(0);

/// Two shards, of which the first one has the libraries; and a client there.
struct Loading {
    shards: Shards,
    client: Peer,
}

impl Loading {
    fn new() -> Loading {
        let mut shards = Shards::of(&[1]);
        let client = shards.connect(0, TENANT);
        Loading { shards, client }
    }

    /// Sends a command about libraries to the first shard; the other one has a turn then.
    fn says(&mut self, words: &[&str], reply: &str) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let story = String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        self.shards.send(&mut self.client, &[words]);
        self.shards.turn_one(0, false);
        let _ = self.client.stream.read_to_end(&mut self.client.came);
        let came = std::mem::take(&mut self.client.came).escape_ascii().to_string();
        assert_eq!(came, reply.escape_default().to_string(), "{story}");
        self.shards.turn_one(1, false);
    }

    /// Loads a library with these functions, or replaces it.
    fn load(&mut self, name: &str, words: &str) {
        let source = format!("#!words name={name}\n{words}\n");
        let reply = format!("${}\r\n{name}\r\n", name.len());
        self.says(&["FUNCTION", "LOAD", "REPLACE", &source], &reply);
    }

    /// What the other shard has loaded and compared since it was asked last.
    fn counts(&mut self) -> (u64, u64) {
        let counts = &self.shards.shards[1].counts;
        (counts.loads.swap(0, Relaxed), counts.looks.swap(0, Relaxed))
    }

    /// Numbers of libraries that run at the other shard, and that don't.
    fn libraries(&self) -> (usize, usize) {
        let libraries = &self.shards.shards[1].work.state.tenants[TENANT].libraries;
        (libraries.len(), libraries.broken.len())
    }
}

#[test]
fn a_change_of_one_library_leaves_the_others_alone() {
    // All sources were compared, and all libraries loaded again that another shard could load and
    // this one couldn't: each may take two seconds, in which the shard does nothing else.
    let mut loading = Loading::new();
    for n in 0..20 {
        loading.load(&format!("broken{n}"), &format!("breakable{n}"));
        loading.load(&format!("well{n}"), &format!("well{n}"));
    }
    assert_eq!(loading.libraries(), (20, 20));
    loading.counts();
    loading.load("another", "echo");
    assert_eq!(loading.counts(), (1, 0));
    loading.load("another", "echo count");
    assert_eq!(loading.counts(), (1, 1));
    loading.load("broken7", "well");
    assert_eq!(loading.counts(), (1, 0), "it has changed itself");
    loading.says(&["FUNCTION", "DELETE", "well7"], "+OK\r\n");
    assert_eq!(loading.counts(), (0, 0));
    assert_eq!(loading.libraries(), (21, 19));
    loading.says(&["FUNCTION", "FLUSH"], "+OK\r\n");
    assert_eq!((loading.counts().0, loading.libraries()), (0, (0, 0)));
}

#[test]
fn a_library_is_loaded_when_what_kept_it_from_that_is_gone() {
    let mut loading = Loading::new();
    loading.load("first", "echo count");
    // As if the first shard had not been able to load the first library.
    let Shard { work, participant, .. } = &mut loading.shards.shards[0];
    {
        let pin = participant.pin();
        let turn = Turn { now_ms: 1_000, pin: &pin, random: 1 };
        let librarian = work.state.tenants[TENANT].keyspace.librarian_mut();
        let source = b"#!words name=second\nput count\n";
        librarian.put_library(b"second", source, &turn).expect("room");
        work.state.shared.libraries_changed(TENANT, &ChangedLibraries::of("second"));
    }
    participant.quiescent();
    loading.shards.turn_one(1, false);
    assert_eq!(loading.libraries(), (1, 1));
    loading.load("third", "put_third");
    loading.counts();
    loading.load("first", "echo");
    assert_eq!((loading.counts().0, loading.libraries()), (2, (3, 0)));
}

#[test]
fn many_that_change_at_once_are_loaded_bit_by_bit() {
    // FUNCTION RESTORE ends after command-time-limit-ms. The other shards then loaded all that it
    // has, however long each takes there.
    let mut loading = Loading::new();
    let sources = (0..10).map(|n| (format!("l{n}"), format!("#!words name=l{n}\nword{n}\n")));
    let sources: Vec<(String, String)> = sources.collect();
    let libraries = sources.iter().map(|(name, source)| (name.as_bytes(), source.as_bytes()));
    let payload = payload::write(&libraries.collect::<Vec<_>>());
    loading.shards.shards[1].work.state.hot.command_time = Duration::ZERO;
    loading.counts();
    loading.shards.send(&mut loading.client, &[vec![b"FUNCTION", b"RESTORE", &payload]]);
    loading.shards.turn_one(0, false);
    for turn in 1..=10 {
        loading.shards.turn_one(1, false);
        assert_eq!((loading.counts().0, loading.libraries()), (1, (turn, 10 - turn)));
    }
    assert!(!loading.shards.shards[1].work.state.has_notes(), "there is no more to do");
}

#[test]
fn libraries_are_listed_with_redis_fields_only() {
    // A library that is kept but doesn't run had a field more, before its code. Clients that read
    // by position took it for the code, others refused the whole list.
    let mut loading = Loading::new();
    let libraries = &mut loading.shards.shards[0].work.state.tenants[TENANT].libraries;
    let broken = Broken { engine: 0, reason: "why".to_owned(), blocked_by: None };
    libraries.broken.insert("l".to_owned(), broken);
    let head = "*1\r\n*N\r\n$12\r\nlibrary_name\r\n$1\r\nl\r\n$6\r\nengine\r\n$5\r\nWORDS\r\n\
                $9\r\nfunctions\r\n*0\r\n";
    let (code, state) =
        ("$12\r\nlibrary_code\r\n$0\r\n\r\n", "$11\r\nnot_running\r\n$3\r\nwhy\r\n");
    let mut lists = |options: &[&str], count: usize, rest: &str| {
        let reply = head.replace('N', &count.to_string()) + rest;
        loading.says(&[&["FUNCTION", "LIST"], options].concat(), &reply);
    };
    lists(&[], 6, "");
    lists(&["WITHCODE"], 8, code);
    lists(&["WITHSTATE"], 8, state);
    lists(&["WITHSTATE", "WITHCODE"], 10, &[code, state].concat());
}

#[test]
fn a_payload_with_a_wrong_name_leaves_the_library_that_its_source_names() {
    let mut loading = Loading::new();
    loading.load("well", "echo");
    let other = b"#!words name=well\ncount\n".as_slice();
    let payload = payload::write(&[(b"another", other)]);
    let restore = vec![b"FUNCTION".as_slice(), b"RESTORE", &payload, b"REPLACE"];
    let call = vec![b"FCALL".as_slice(), b"echo", b"0", b"x"];
    loading.shards.send(&mut loading.client, &[restore, call]);
    let replies = b"-ERR DUMP payload version or checksum are wrong\r\n+x\r\n";
    loading.shards.expect(&mut loading.client, replies, "it is as it was");
}
