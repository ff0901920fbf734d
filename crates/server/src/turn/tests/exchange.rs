//! Commands of one shard's clients at another shard.

use super::logged::{Logged, OK};
use super::*;
use crate::commands::{Resolved, resolve};
use crate::hop::mailbox::DEFAULT_BODY_BYTES;
use crate::hop::message::MessageKind;
use crate::hop::message::commands::{Known, message};

/// What a connection may have at other shards at a time, if all replies are short.
pub(super) const ALLOWANCE: usize = 512;

/// A turn takes less.
const LONG: Duration = Duration::from_secs(1);

/// Replies to so many INCRs of a key, and to a PING behind them.
fn counted(numbers: std::ops::RangeInclusive<usize>) -> Vec<u8> {
    (numbers.map(|number| format!(":{number}\r\n")).collect::<String>() + "+PONG\r\n").into_bytes()
}

/// A server without logs, of one tenant.
pub(super) fn server(partitions: usize, settings: &[(&str, &str)]) -> Logged {
    let mut config = Config::default();
    config.set("appendonly", "no").expect("a flag");
    settings.iter().for_each(|(name, value)| config.set(name, value).expect("a setting"));
    Logged { shards: Shards::logged(&[partitions], config, None), logs: Vec::new() }
}

/// Lets one shard alone have turns until it has nothing to do: each has its time.
pub(super) fn finish(server: &mut Logged, shard: usize) {
    let is_over = (0..1_000).any(|_| {
        server.shards.turn_one(shard, false);
        !server.shards.shards[shard].work.has_work()
    });
    assert!(is_over);
}

/// Lets so many seconds pass.
fn pass_s(server: &mut Logged, seconds: u64) {
    for _ in 0..seconds {
        server.shards.now_ms += 1_000;
        server.shards.turn(true);
    }
}

/// How long a key wasn't used, in seconds, about.
fn idle_s(server: &mut Logged, client: &mut Peer, key: &str) -> u64 {
    server.send(client, &[&format!("OBJECT IDLETIME {key}")]);
    for _ in 0..10 {
        server.shards.turn(false);
        let _ = client.stream.read_to_end(&mut client.came);
    }
    let reply = String::from_utf8(std::mem::take(&mut client.came)).expect("text");
    reply.trim_end().strip_prefix(':').and_then(|text| text.parse().ok()).expect("a number")
}

/// How much a client has at other shards, and what it waits for.
pub(super) fn under_way(server: &mut Logged, client: &Peer) -> (usize, Pending) {
    let work = &mut server.shards.shards[client.shard].work;
    let connection = work.slab.get_mut(client.slot).expect("it is there");
    (connection.later.sent, connection.pipe.pending)
}

#[test]
fn a_connection_has_no_more_at_other_shards_than_its_allowance() {
    let mut server = server(1, &[]);
    let mut client = server.connect(1);
    server.send(&mut client, &[["INCR n"; 600].as_slice(), &["PING"]].concat());
    finish(&mut server, 1);
    assert_eq!(under_way(&mut server, &client), (ALLOWANCE, Pending::Allowance));
    // The owner's answers are taken in one go, and what they took is kept for the next ones.
    finish(&mut server, 0);
    let work = &mut server.shards.shards[1].work;
    work.take_answers();
    assert_eq!(work.answers.len(), 8);
    assert_eq!(under_way(&mut server, &client), (0, Pending::Nothing));
    server.shards.expect(&mut client, &counted(1..=600), "in their order");
}

#[test]
fn commands_whose_replies_are_short_share_a_request() {
    // Of the others one is under way, as long as nobody knows how long its reply is.
    for (command, requests) in [
        ("SET k v", 2),
        ("SET k v EX 100", 2),
        ("INCR n", 2),
        ("SET k v GET", 1),
        ("SET k v EX 100 get", 1),
        ("GETDEL k", 1),
    ] {
        let mut server = server(1, &[]);
        let mut client = server.connect(1);
        server.send(&mut client, &[command; 32]);
        finish(&mut server, 1);
        let sent = if requests > 1 { 32 } else { 1 };
        assert_eq!(under_way(&mut server, &client).0, sent, "{command}");
        assert_eq!(server.shards.shards[1].work.mailbox.stats.depth, requests, "{command}");
    }
}

#[test]
fn a_command_by_parts_counts_by_them() {
    // Each of these goes to two partitions of the other shard.
    let mut server = server(3, &[]);
    let del = format!("DEL {} {}", server.key(0), server.key(2));
    let mut client = server.connect(1);
    server.send(&mut client, &[vec![del.as_str(); 400], vec!["PING"]].concat());
    finish(&mut server, 1);
    assert_eq!(under_way(&mut server, &client), (ALLOWANCE, Pending::Allowance));
    let replies = [b":0\r\n".repeat(400), b"+PONG\r\n".to_vec()].concat();
    server.shards.expect(&mut client, &replies, "in their order");
}

#[test]
fn a_turn_takes_a_bounded_number_of_commands_of_other_shards() {
    let mut server = server(1, &[]);
    let mut clients = [(); 3].map(|()| server.connect(1));
    for client in &mut clients {
        server.send(client, &[["INCR n"; ALLOWANCE].as_slice(), &["PING"]].concat());
        finish(&mut server, 1);
    }
    let taken = |server: &Logged| server.shards.shards[0].work.state.stats.hops_in;
    server.shards.turn_one(0, false);
    assert!((1024..1024 + 16).contains(&taken(&server)), "{} commands", taken(&server));
    for (at, client) in clients.iter_mut().enumerate() {
        let numbers = 1 + at * ALLOWANCE..=(at + 1) * ALLOWANCE;
        server.shards.expect(client, &counted(numbers), "in their order");
    }
    assert_eq!(taken(&server), 3 * ALLOWANCE as u64);
}

#[test]
fn a_turn_takes_nothing_behind_so_many_bytes_of_requests() {
    let mut server = server(1, &[]);
    let Resolved::Row(row) = resolve(b"SET", || None) else { panic!("there is a SET") };
    let client = server.connect(1);
    let work = &mut server.shards.shards[1].work;
    let manner = work.slab.get_mut(client.slot).expect("it is there").pipe.client.run_manner();
    let set = |bytes: usize| {
        let words = [b"SET".as_slice(), b"k", &vec![b'v'; bytes]];
        message(TenantId(0), Known { row, key: None }, words.into_iter())
    };
    let nobody = u64::from(u32::MAX);
    for request in [set(DEFAULT_BODY_BYTES - set(0).len()), set(5), set(5)] {
        let kind = MessageKind::Commands(manner).code();
        work.mailbox.send(0, nobody, kind, &[&request]).expect("room");
    }
    work.mailbox.flush();
    for taken in [1, 3] {
        server.shards.turn_one(0, false);
        assert_eq!(server.shards.shards[0].work.state.stats.hops_in, taken);
    }
}

#[test]
fn a_request_that_is_done_in_several_turns_has_all_its_replies() {
    // More bytes of replies than a turn may leave: the turn ends within a request.
    let mut server = server(1, &[("output-buffer-pause", "16kb")]);
    let (mut client, mut other) = (server.connect(1), server.connect(0));
    server.says(&mut other, &["SET k text"], OK);
    server.send(&mut client, &[["INCR k"; ALLOWANCE].as_slice(), &["PING"]].concat());
    finish(&mut server, 1);
    server.shards.turn_one(0, false);
    let work = &mut server.shards.shards[0].work;
    let peer = work.peers.get_mut(1).expect("it isn't in the turn");
    assert!(!peer.requests.is_empty(), "it has them still");
    assert!(work.has_work() && !work.mailbox.has_mail());
    let error = b"-ERR value is not an integer or out of range\r\n";
    let replies = [error.repeat(ALLOWANCE), b"+PONG\r\n".to_vec()].concat();
    server.shards.expect(&mut client, &replies, "all of them");
    server.shards.turn(false);
    assert!(!server.shards.shards[0].work.has_work());
}

#[test]
fn a_request_of_which_a_turn_does_a_part_is_answered_in_the_end() {
    // The owner looks at its clock behind each DEL. The time of its turns is over when they begin.
    let mut server = server(1, &[]);
    let mut client = server.connect(1);
    server.send(&mut client, &["DEL k"; 9]);
    finish(&mut server, 1);
    (server.shards.at, server.shards.ahead) = (Instant::now().checked_sub(LONG), Duration::ZERO);
    server.shards.turn_one(0, false);
    let peer = server.shards.shards[0].work.peers.get_mut(1).expect("it isn't in the turn");
    assert_eq!(peer.requests.len(), 1, "it isn't answered");
    assert!((1..9).contains(&peer.ends.len()), "{} commands are done", peer.ends.len());
    server.shards.expect(&mut client, &b":0\r\n".repeat(9), "in their order");
}

#[test]
fn what_a_long_reply_took_is_given_back_on_both_sides() {
    let mut server = server(1, &[]);
    let (mut client, mut other) = (server.connect(1), server.connect(0));
    let value = "v".repeat(100_000);
    server.says(&mut other, &[&format!("SET k {value}")], OK);
    // It is behind a write, so the owner answers it.
    let replies = [OK, &bulk(value.as_bytes())].concat();
    server.says(&mut client, &["SET n 1", "GET k"], &replies);
    let peer = server.shards.shards[0].work.peers.get_mut(1).expect("it isn't in the turn");
    assert!(peer.pipe.out.bytes().capacity() < value.len());
    let copied = server.shards.shards[0].work.state.stats.copied_bytes;
    assert!((100_000..100_100).contains(&copied), "{copied} bytes");
    let answers = &server.shards.shards[1].work.answers;
    assert!(!answers.is_empty());
    assert!(answers.iter().all(|(_, answer)| answer.capacity() < value.len()));
}

#[test]
fn a_client_of_another_shard_may_leave_keys_as_old_as_they_are() {
    // Each read is behind a write, so the owner does it. Such a client's and another one's come in
    // one turn.
    let mut server = server(1, &[("maxmemory-policy", "allkeys-lru")]);
    let [mut quiet, mut plain] = [(); 2].map(|()| server.connect(1));
    let mut looker = server.connect(0);
    server.says(&mut looker, &["SET a 1", "SET b 2"], &OK.repeat(2));
    server.says(&mut quiet, &["CLIENT NO-TOUCH on"], OK);
    for _ in 0..2 {
        pass_s(&mut server, 100);
        server.send(&mut quiet, &["SET c 1", "GET a"]);
        server.send(&mut plain, &["SET d 1", "GET b"]);
        server.shards.expect(&mut quiet, b"+OK\r\n$1\r\n1\r\n", "it reads");
        server.shards.expect(&mut plain, b"+OK\r\n$1\r\n2\r\n", "it reads");
        assert!(idle_s(&mut server, &mut looker, "b") <= 1);
    }
    assert!(idle_s(&mut server, &mut looker, "a") > 150);
}

#[test]
fn a_reply_that_is_copied_may_be_as_long_as_a_clients_output() {
    // Replies of 16 KiB each, but for the last one, and what stands in front of them.
    let mut server = server(1, &[("output-buffer-limit", "1mb")]);
    let mut client = server.connect(1);
    let [long, rest] = [16_374, 16_369].map(|bytes| "v".repeat(bytes));
    let sets = [format!("SET a {long}"), format!("SET b {rest}"), format!("SET c {rest}v")];
    for set in &sets {
        server.says(&mut client, &[set], OK);
    }
    // Behind a write, whose reply isn't wanted, the owner answers.
    let get = |last: &str| format!("MGET{} {last}", " a".repeat(63));
    server.send(&mut client, &["CLIENT REPLY SKIP", "SET n 1", &get("b")]);
    let values = [b"*64\r\n".to_vec(), bulk(long.as_bytes()).repeat(63), bulk(rest.as_bytes())];
    assert_eq!(values.concat().len(), 1 << 20);
    server.shards.expect(&mut client, &values.concat(), "it has its reply");
    let error = "-ERR the reply takes 1048577 bytes, and output-buffer-limit is 1048576: ask for \
                 less at a time\r\n";
    let commands = ["CLIENT REPLY SKIP", "SET n 1", &get("c")];
    server.says(&mut client, &commands, error.as_bytes());
}

#[test]
fn a_read_by_owners_is_of_its_tenant_and_keeps_ages_if_asked() {
    // Another partition has a key that is over by our clock alone, so each owner reads its keys.
    // Long values are read from where they lie, which another tenant has too.
    let mut config = Config::default();
    config.set("appendonly", "no").expect("a flag");
    config.set("maxmemory-policy", "allkeys-lru").expect("a policy");
    let shards = Shards::logged(&[1, 2], config, None);
    let mut server = Logged { shards, logs: Vec::new() };
    let tenant = TenantId(1);
    let keyspace = &server.shards.shards[0].work.state.tenants[tenant].keyspace;
    let names = (0..1_000).map(|number| format!("k{number}"));
    let (far, near): (Vec<String>, Vec<String>) =
        names.partition(|name| keyspace.partition_of(name.as_bytes()) == 0);
    let (near, far, over) = (&near[0], &far[0], &far[1]);
    let [mut client, mut plain, mut looker] = [(); 3].map(|()| server.shards.connect(1, tenant));
    let value = "v".repeat(20_000);
    server.says(
        &mut client,
        &[&format!("SET {near} {value}"), &format!("SET {far} w")],
        &OK.repeat(2),
    );
    let read = format!("MGET {near} {far} {over} {near}");
    let long = bulk(value.as_bytes());
    let values = [b"*4\r\n".as_slice(), &long, b"$1\r\nw\r\n$-1\r\n", &long].concat();
    server.says(&mut client, &["CLIENT NO-TOUCH on"], OK);
    let mut read_later = |server: &mut Logged, client: &mut Peer| {
        pass_s(server, 100);
        server.says(client, &[&format!("SET {over} v PX 50")], OK);
        server.shards.now_ms += 100;
        server.says(client, &[&read], &values);
        idle_s(server, &mut looker, near)
    };
    assert!(read_later(&mut server, &mut client) > 50);
    server.says(&mut plain, &[&format!("GET {near}")], &long);
    assert!(idle_s(&mut server, &mut plain, near) <= 1);
    assert!(read_later(&mut server, &mut plain) <= 1);
    assert_eq!(server.shards.shards[1].work.state.stats.moved_reads, 2, "each owner reads");
}
