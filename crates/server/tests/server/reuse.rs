//! Slots and mailboxes that others have used: whoever comes next finds nothing of those who left.

use crate::common::{Client, TestServer};
use nigh_resp::frame::Frame;

const SPIN: &str = "#!js name=f\nexport function spin() { for (;;); }\nspin.flags = ['no-writes'];";

/// A server whose shards own a partition each, and a key of each.
fn server<const SHARDS: usize>(more: &[(&str, &str)]) -> (TestServer, [String; SHARDS]) {
    let shards = SHARDS.to_string();
    let own: &[(&str, &str)] =
        &[("shards", &shards), ("partitions", &shards), ("function-time-limit-ms", "3600000")];
    let server = TestServer::with(&[own, more].concat());
    let mut client = server.connect();
    let loaded = client.ask(&[b"FUNCTION", b"LOAD", SPIN.as_bytes()]);
    assert_eq!(loaded, Frame::Bulk(b"f".to_vec()));
    let keys = client.one_of_each();
    (server, keys)
}

/// Lets a connection's shard do nothing else, until `watcher` kills the function.
fn block(spinning: &mut Client, watcher: &mut Client) {
    spinning.send("FCALL spin 0\r\n");
    loop {
        let Frame::Array(stats) = watcher.ask(&[b"FUNCTION", b"STATS"]) else { panic!("a map") };
        if matches!(stats[1], Frame::Array(_)) {
            return;
        }
    }
}

fn unblock(spinning: &mut Client, watcher: &mut Client) {
    watcher.says("FUNCTION KILL", "+OK\r\n");
    assert!(spinning.reply().error().is_some(), "it was killed");
}

/// Clients go while the owner has their commands, others come and get their slots: the answers are
/// for nobody. One client would read what another one has asked for.
#[test]
fn an_answer_that_comes_too_late_is_given_to_nobody() {
    let (server, [here, there]) = &server::<2>(&[]);
    let mut spinning = server.connect_to_owner(here);
    let mut watcher = server.connect_to_owner(there);
    for round in 0..4 {
        let mut leavers: Vec<Client> = (0..4).map(|_| server.connect_to_owner(there)).collect();
        block(&mut spinning, &mut watcher);
        for leaver in &mut leavers {
            // The reply that it doesn't read makes its end a reset, which isn't waited for.
            leaver.send("PING\r\n");
            leaver.stream.peek(&mut [0; 7]).expect("PONG");
            leaver.send(format!("SET {{{here}}}s secret GET\r\nINCR {{{here}}}n\r\n"));
        }
        // Two turns: what they sent has left for the owner. Two more: they are gone.
        (0..2).for_each(|_| watcher.says("PING", "+PONG\r\n"));
        drop(leavers);
        (0..2).for_each(|_| watcher.says("PING", "+PONG\r\n"));
        let mut comers: Vec<Client> = (0..12).map(|_| server.connect()).collect();
        for comer in &mut comers {
            comer.send(format!("APPEND {{{here}}}a 12345\r\n"));
        }
        (0..2).for_each(|_| watcher.says("PING", "+PONG\r\n"));
        unblock(&mut spinning, &mut watcher);
        let mut lengths: Vec<i64> =
            comers.iter_mut().map(|comer| comer.reply().integer().expect("a length")).collect();
        lengths.sort_unstable();
        let expected: Vec<i64> = (1..=12).map(|n| 5 * (12 * round + n)).collect();
        assert_eq!(lengths, expected, "each its own reply");
        for comer in &mut comers {
            comer.says("ECHO mine", "$4\r\nmine\r\n");
        }
    }
}

/// Replies of one shard wait behind that of another, which comes late: as they come they are
/// counted, and a client for which too many wait is cut off then, not when there is something to
/// write.
#[test]
fn who_floods_is_cut_off_while_its_answers_come() {
    let more = [
        ("maxmemory", "256mb"),
        ("output-buffer-limit", "1048576"),
        ("output-buffer-pause", "67108864"),
    ];
    let (server, [first, second, third]) = &server::<3>(&more);
    let mut spinning = server.connect_to_owner(first);
    let mut watcher = server.connect_to_owner(third);
    let big = format!("{{{third}}}big");
    let stored = watcher.ask(&[b"SET", big.as_bytes(), &[b'v'; 300_000]]);
    assert_eq!(stored, Frame::Simple(b"OK".to_vec()));
    let mut flood = server.connect_to_owner(second);
    block(&mut spinning, &mut watcher);
    flood.send(format!("SET {first} 1\r\n{}", format!("GETEX {big}\r\n").repeat(20)));
    assert!(flood.is_closed(), "6 MB wait for a client that may have 1 MB");
    unblock(&mut spinning, &mut watcher);
    watcher.says(&format!("STRLEN {big}"), ":300000\r\n");
    assert_eq!(watcher.info("stats", "client_output_buffer_limit_disconnections"), "1");
}
