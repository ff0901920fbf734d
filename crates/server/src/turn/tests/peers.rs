//! What a shard leaves of other shards' commands, and what of its own answers to its clients.

use super::exchange::{ALLOWANCE, finish, server, under_way};
use super::logged::{Logged, OK};
use super::*;
use crate::commands;
use nigh_store::SyncMode;

/// How often the owner has run a command.
fn runs(server: &Logged, name: &str) -> u64 {
    let row = commands::resolve(name.as_bytes(), || None).row().expect("a command");
    server.shards.shards[0].work.state.stats.rows[usize::from(row)].calls
}

/// A turn of the owner, within which another shard notes a change at its seat.
fn turn_with_note(server: &mut Logged) {
    let note = |work: &mut Work| work.state.notes = work.state.notes.wrapping_sub(1);
    server.shards.turn_after(0, false, note);
}

/// Sets a key to a value of this length, by parts: a socket takes no more at once.
fn put_long(server: &mut Logged, client: &mut Peer, key: &str, bytes: usize) {
    for part in 1..=bytes / 100_000 {
        let append = format!("APPEND {key} {}", "v".repeat(100_000));
        server.says(client, &[&append], format!(":{}\r\n", part * 100_000).as_bytes());
    }
}

#[test]
fn commands_wait_until_what_changed_before_them_is_looked_at() {
    // The owner reads them in a turn that began before the change. What was left so isn't left once
    // more, though something else changes in the next turn; and nothing is read beside it.
    let mut server = server(1, &[]);
    let mut clients = [(); 2].map(|()| server.connect(1));
    server.send(&mut clients[0], &["INCR n"]);
    finish(&mut server, 1);
    turn_with_note(&mut server);
    assert_eq!(runs(&server, "incr"), 0);
    assert!(server.shards.shards[0].work.has_work(), "it has come");
    server.send(&mut clients[1], &["INCR n"]);
    finish(&mut server, 1);
    turn_with_note(&mut server);
    assert_eq!(runs(&server, "incr"), 1);
    for (client, reply) in clients.iter_mut().zip([b":1\r\n", b":2\r\n"]) {
        server.shards.expect(client, reply, "in their order");
    }
}

#[test]
fn nothing_runs_for_a_shard_that_has_many_replies_to_take() {
    // It takes none while the owner goes on: so the owner copies no more than 4 MiB and a turn's.
    let mut server = server(1, &[("output-buffer-pause", "1mb")]);
    let mut writer = server.connect(0);
    put_long(&mut server, &mut writer, "k", 1_000_000);
    // Reads behind a write: the owner answers them.
    let mut clients = [(); 12].map(|()| server.connect(1));
    for client in &mut clients {
        server.send(client, &["SET n 1", "GET k"]);
    }
    finish(&mut server, 1);
    (0..50).for_each(|_| server.shards.turn_one(0, false));
    let work = &mut server.shards.shards[0].work;
    let left = work.peers.get_mut(1).expect("it isn't in the turn").requests.len();
    assert!((10..=14).contains(&left), "{left} requests are left");
    assert!(!work.has_work(), "nothing is to do before some are taken");
    // One turn in which there is room again, and something else has changed.
    finish(&mut server, 1);
    turn_with_note(&mut server);
    let peer = server.shards.shards[0].work.peers.get_mut(1).expect("it isn't in the turn");
    assert!(peer.requests.len() < left, "what was left isn't left once more");
    let mut value = bulk(&[b'v'; 1_000_000]);
    value.splice(0..0, OK.iter().copied());
    for client in &mut clients {
        server.shards.expect(client, &value, "it has its reply");
    }
}

#[test]
fn a_connection_waits_for_room_at_another_shard() {
    // Each DEL has two parts there. Others have as much under way as a mailbox takes.
    let mut server = server(3, &[]);
    let (near, far) = (server.key(0), server.key(2));
    let del = format!("DEL {near} {far}");
    let mut others = [(); 4].map(|()| server.connect(1));
    for client in &mut others {
        server.send(client, &vec![del.as_str(); ALLOWANCE / 2]);
        finish(&mut server, 1);
        assert_eq!(under_way(&mut server, client).0, ALLOWANCE);
    }
    let [mut brief, mut parts] = [(); 2].map(|()| server.connect(1));
    server.send(&mut brief, &[&format!("PERSIST {near}"), "PING"]);
    server.send(&mut parts, &[&format!("MSET {near} 5 {far} 6"), "PING"]);
    finish(&mut server, 1);
    for client in [&brief, &parts] {
        assert!(matches!(under_way(&mut server, client).1, Pending::Room { .. }));
    }
    for client in &mut others {
        server.shards.expect(client, &b":0\r\n".repeat(ALLOWANCE / 2), "in their order");
    }
    server.shards.expect(&mut brief, b":0\r\n+PONG\r\n", "there is room");
    server.shards.expect(&mut parts, b"+OK\r\n+PONG\r\n", "there is room");
    server.says(
        &mut brief,
        &[&format!("GET {near}"), &format!("GET {far}")],
        b"$1\r\n5\r\n$1\r\n6\r\n",
    );
}

#[test]
fn commands_with_long_replies_are_under_way_together_when_they_turned_out_short() {
    // Of the first, nobody knows how long its reply is.
    let mut server = server(1, &[]);
    let mut client = server.connect(1);
    server.says(&mut client, &["GETDEL k"], b"$-1\r\n");
    server.send(&mut client, &["GETDEL k"; 40]);
    finish(&mut server, 1);
    assert_eq!(under_way(&mut server, &client), (32, Pending::Allowance));
    server.shards.expect(&mut client, &b"$-1\r\n".repeat(40), "in their order");
}

#[test]
fn what_follows_a_change_of_the_libraries_waits_for_the_answer() {
    // What functions there are says where a call goes: all that is behind the change waits, also
    // when the owner has answered what is in front of it.
    let mut server = server(1, &[("output-buffer-pause", "16kb")]);
    let mut client = server.connect(1);
    let value = "v".repeat(20_000);
    server.says(&mut client, &["GETDEL k", &format!("SET k {value}")], b"$-1\r\n+OK\r\n");
    server.send(&mut client, &["SET n 1", "GET k", "FUNCTION FLUSH", "INCR n"]);
    finish(&mut server, 1);
    assert_eq!(under_way(&mut server, &client), (3, Pending::Answers));
    server.shards.turn_one(0, false);
    finish(&mut server, 1);
    assert_eq!(under_way(&mut server, &client), (1, Pending::Answers));
    let replies = [OK, &bulk(value.as_bytes()), b"+OK\r\n:2\r\n"].concat();
    server.shards.expect(&mut client, &replies, "in their order");
}

/// Has so many errors of another shard on their way to a client that the owner answers them in
/// several turns, and the first of these.
fn answer_some(server: &mut Logged, client: &mut Peer, before: &str, commands: usize) {
    let mut other = server.connect(0);
    server.says(&mut other, &["SET k text"], OK);
    server.send(client, &[vec![before], vec!["INCR k"; commands]].concat());
    finish(server, 1);
    assert_eq!(under_way(server, client).0, ALLOWANCE);
    server.shards.turn_one(0, false);
    finish(server, 1);
}

#[test]
fn a_client_whose_replies_are_not_wanted_goes_on() {
    // No reply says so: it has waited for its allowance, of which more than half is free.
    let mut server = server(1, &[("output-buffer-pause", "16kb")]);
    let (mut client, mut other) = (server.connect(1), server.connect(0));
    answer_some(&mut server, &mut client, "CLIENT REPLY OFF", 700);
    assert!(under_way(&mut server, &client).0 > ALLOWANCE / 2, "it goes on");
    server.says(&mut other, &["SET k 0"], OK);
    server.send(&mut client, &["SET done v"]);
    let is_done = (0..100).any(|_| {
        server.shards.turn(false);
        server.send(&mut other, &["EXISTS done"]);
        server.shards.turn(false);
        let _ = other.stream.read_to_end(&mut other.came);
        std::mem::take(&mut other.came) == b":1\r\n"
    });
    assert!(is_done);
}

#[test]
fn replies_leave_before_all_have_come() {
    let mut server = server(1, &[("output-buffer-pause", "20kb")]);
    let mut client = server.connect(1);
    answer_some(&mut server, &mut client, "PING", ALLOWANCE);
    assert!(under_way(&mut server, &client).0 > 0);
    let _ = client.stream.read_to_end(&mut client.came);
    assert!(client.came.len() > 16 << 10, "{} bytes came", client.came.len());
}

#[test]
fn a_client_that_has_closed_and_wants_no_reply_is_gone_when_all_is_done() {
    let mut server = server(1, &[]);
    let mut client = server.connect(1);
    server.send(&mut client, &["CLIENT REPLY OFF", "INCR n"]);
    finish(&mut server, 1);
    client.stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    let work = &mut server.shards.shards[1].work;
    work.slab.get_mut(client.slot).expect("it is there").pipe.input.readable = true;
    work.ready.queue(client.slot);
    finish(&mut server, 1);
    assert_eq!(under_way(&mut server, &client).0, 1);
    finish(&mut server, 0);
    finish(&mut server, 1);
    assert_eq!(server.shards.shards[1].work.slab.len(), 0);
}

#[test]
fn write_sets_of_several_calls_are_taken_in_one_turn() {
    // Each call writes here, and has the owner of the other key write there.
    let mut server = server(2, &[]);
    let mut loader = server.connect(0);
    server.shards.send(&mut loader, &[vec![b"FUNCTION", b"LOAD", b"#!words name=w\nspread\n"]]);
    server.shards.expect(&mut loader, b"$1\r\nw\r\n", "it is loaded");
    server.shards.turn(false);
    let (near, far) = (server.key(1), server.key(0));
    let mut clients = [(); 3].map(|()| server.connect(1));
    for client in &mut clients {
        server.send(client, &[&format!("FCALL spread 2 {near} {far} v")]);
    }
    finish(&mut server, 1);
    for client in &mut clients {
        server.shards.expect(client, b"+spread\r\n", "it is written");
    }
    server.says(
        &mut loader,
        &[&format!("GET {near}"), &format!("GET {far}")],
        &bulk(b"v").repeat(2),
    );
}

#[test]
fn a_key_with_the_name_of_a_durable_function_is_no_call() {
    let mut server = Logged::of(1, SyncMode::EverySecond);
    let (mut loader, mut client) = (server.connect(0), server.connect(1));
    server.load(&mut loader, "#!words name=w\nsafe_put\n");
    server.says(&mut client, &["SET safe_put v"], OK);
}

#[test]
fn reads_are_done_here_again_behind_one_that_the_owner_was_asked_for() {
    // What it read changed too fast, even while the owner stood still.
    let mut server = server(1, &[]);
    let mut client = server.connect(1);
    let work = &mut server.shards.shards[1].work;
    work.slab.get_mut(client.slot).expect("it is there").pipe.pending = Pending::Unstable(1);
    for _ in 0..2 {
        server.says(&mut client, &["MGET k"], b"*1\r\n$-1\r\n");
        assert_eq!(server.shards.shards[1].work.state.stats.hops_out, 1);
    }
}

#[test]
fn others_see_what_a_client_has_sent_last() {
    // It has no answer yet.
    let mut server = server(1, &[]);
    let (mut client, mut other) = (server.connect(1), server.connect(1));
    server.send(&mut client, &["GETDEL k"]);
    finish(&mut server, 1);
    server.send(&mut other, &["CLIENT LIST"]);
    // As if the other shard had told, which has a turn of its own for that.
    let work = &mut server.shards.shards[1].work;
    work.slab.get_mut(other.slot).expect("it is there").pipe.pending = Pending::Refreshed;
    finish(&mut server, 1);
    let _ = other.stream.read_to_end(&mut other.came);
    let list = String::from_utf8_lossy(&other.came);
    assert!(list.contains("cmd=getdel"), "{list}");
}

#[test]
fn a_slow_command_names_its_client_at_another_shard() {
    // The owner logs it without knowing whose it is.
    let mut server = server(1, &[("slowlog-log-slower-than", "0")]);
    let (mut client, mut other) = (server.connect(1), server.connect(0));
    server.says(&mut client, &["CLIENT SETNAME sender", "SET k v"], &OK.repeat(2));
    server.send(&mut other, &["SLOWLOG GET"]);
    server.shards.turn(false);
    let _ = other.stream.read_to_end(&mut other.came);
    let log = String::from_utf8_lossy(&other.came);
    let (_, entry) = log.split_once("SET\r\n$1\r\nk\r\n").expect("the owner has logged it");
    assert!(entry.split('*').next().is_some_and(|rest| rest.contains("sender")), "{log}");
}

#[test]
fn a_client_that_lets_others_answer_more_than_it_may_have_is_cut_off() {
    // Its reads are under way together, since a reply was short. They aren't now.
    let mut server = server(1, &[("output-buffer-limit", "1mb")]);
    let (mut client, mut writer) = (server.connect(1), server.connect(0));
    server.says(&mut client, &["SET n 1", "GET k"], b"+OK\r\n$-1\r\n");
    put_long(&mut server, &mut writer, "k", 100_000);
    server.send(&mut client, &[["SET n 1"].as_slice(), &["GET k"; 30]].concat());
    finish(&mut server, 1);
    assert_eq!(under_way(&mut server, &client).0, 31);
    finish(&mut server, 0);
    let work = &mut server.shards.shards[1].work;
    work.take_answers();
    assert_eq!(work.state.stats.output_limit_disconnections, 1);
    let connection = work.slab.get_mut(client.slot).expect("it is there");
    let waiting = connection.pipe.out.waiting() + connection.later.bytes;
    assert!((1 << 20..(1 << 20) + 110_000).contains(&waiting), "{waiting} bytes wait");
    assert!(server.is_closed(&mut client));
    assert_eq!(server.shards.shards[1].work.slab.len(), 0, "its place is free");
}

#[test]
fn nobody_is_cut_off_for_less_than_it_may_have() {
    // A long reply waits behind one that another shard has still to give.
    let mut server = server(2, &[("output-buffer-limit", "1mb")]);
    let (near, far) = (server.key(1), server.key(0));
    let mut client = server.connect(1);
    put_long(&mut server, &mut client, &near, 300_000);
    server.send(
        &mut client,
        &[&format!("SET {far} v"), &format!("GET {far}"), &format!("GET {near}")],
    );
    let replies = [OK, b"$1\r\nv\r\n", &bulk(&[b'v'; 300_000])].concat();
    server.shards.expect(&mut client, &replies, "in their order");
}
