//! Commands that a shard does by parts.

use super::exchange::{finish, server};
use super::logged::{Logged, OK};
use super::*;
use crate::commands;

#[test]
fn each_owner_is_asked_once_about_all_keys() {
    // One shard owns two of the three partitions.
    for shard in 0..SHARDS {
        let mut server = server(3, &[]);
        let mut client = server.connect(shard);
        let sets = [0, 1, 2].map(|partition| format!("SET {} v", server.key(partition)));
        server.says(&mut client, &sets.each_ref().map(String::as_str), &OK.repeat(3));
        server.says(&mut client, &["DBSIZE"], b":3\r\n");
        server.says(&mut client, &["FLUSHALL", "DBSIZE"], b"+OK\r\n:0\r\n");
    }
}

#[test]
fn a_reply_that_is_not_wanted_is_that_of_no_part() {
    // Own parts and others: of numbers, and of what all say OK to.
    let mut server = server(3, &[]);
    let keys = [0, 1, 2].map(|partition| server.key(partition)).join(" ");
    for shard in 0..SHARDS {
        let mut client = server.connect(shard);
        for command in [&format!("DEL {keys}"), "FLUSHALL", "DBSIZE"] {
            server.says(&mut client, &["CLIENT REPLY SKIP", command, "PING"], b"+PONG\r\n");
        }
    }
}

#[test]
fn what_goes_to_other_shards_is_counted_by_commands_and_parts() {
    // As calls, commands are counted where they run, and one by parts where its client is.
    let mut server = server(3, &[]);
    let mut client = server.connect(1);
    let set = format!("SET {} v", server.key(0));
    let del = format!("DEL {}", [0, 1, 2].map(|partition| server.key(partition)).join(" "));
    server.send(&mut client, &[&set, &set, &set, &del]);
    finish(&mut server, 1);
    let sent = |server: &Logged| server.shards.shards[1].work.state.stats.hops_out;
    assert_eq!(sent(&server), 3 + 2, "the own part isn't sent");
    server.shards.expect(&mut client, &[OK.repeat(3), b":1\r\n".to_vec()].concat(), "in order");
    assert_eq!(server.shards.shards[0].work.state.stats.hops_in, 3 + 2);
    let row = commands::resolve(b"del", || None).row().expect("a command");
    let calls = server
        .shards
        .shards
        .iter()
        .map(|shard| shard.work.state.stats.rows[usize::from(row)].calls);
    assert!(calls.eq([0, 1]));
}

#[test]
fn an_error_of_an_own_part_is_counted_and_a_slow_one_is_logged() {
    // Both were done only for parts of other shards. The key of the own part is too long.
    let mut config = Config::default();
    config.set("appendonly", "no").expect("a flag");
    config.set("slowlog-log-slower-than", "0").expect("a number");
    let mut server = Logged { shards: Shards::logged(&[2], config, None), logs: Vec::new() };
    let other = server.key(1);
    let keyspace = &server.shards.shards[0].work.state.tenants[TenantId(0)].keyspace;
    let long = |number: usize| format!("{number}{}", "x".repeat(70_000));
    let is_own = |key: &String| keyspace.partition_of(key.as_bytes()) == 0;
    let own = (0..100).map(long).find(is_own).expect("half of all are");
    let mut client = server.connect(0);
    let set = format!("MSET {own} v {other} v");
    server.says(&mut client, &[&set], b"-ERR key is longer than 65535 bytes\r\n");
    let state = &server.shards.shards[0].work.state;
    let row = commands::resolve(b"mset", || None).row().expect("a command");
    let counted = &state.stats.rows[usize::from(row)];
    assert_eq!((counted.calls, counted.failed, state.stats.error_replies), (1, 1, 1));
    let log = state.shared.slowlog();
    let logged = log.entries(TenantId(0)).filter(|entry| entry.args.len() == 5).count();
    assert_eq!(logged, 1, "all words of the client");
}

#[test]
fn a_quick_command_that_takes_long_is_logged() {
    // It was measured only if the log asked for less than a millisecond. Nobody adds up 30,000 keys
    // in one here, without optimisation.
    let mut config = Config::default();
    config.set("appendonly", "no").expect("a flag");
    config.set("slowlog-log-slower-than", "1000").expect("a number");
    let mut server = Logged { shards: Shards::logged(&[1], config, None), logs: Vec::new() };
    let mut client = server.connect(0);
    server.says(&mut client, &[&format!("EXISTS{}", " k".repeat(30_000))], b":0\r\n");
    let log = server.shards.shards[0].work.state.shared.slowlog();
    assert_eq!(log.entries(TenantId(0)).count(), 1);
}
