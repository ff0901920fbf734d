//! Commands that a shard does by parts, while memory for one of them is still to come.

mod common;

use common::{TestServer, request};
use nigh_resp::frame::Frame;

/// Shard 0 owns the partitions 0 and 2, shard 1 partition 1.
const SETTINGS: &[(&str, &str)] = &[
    ("shards", "2"),
    ("partitions", "3"),
    ("maxmemory", "96mb"),
    ("function-time-limit-ms", "20000"),
];

/// While it waits for a key, the turn of its shard goes on, and nothing that was overwritten comes back.
const AWAIT: &str = "#!js name=f\n\
    export function wait(db, args, [key]) { while (!db.exists(key)); }\n\
    wait.flags = ['no-writes'];";

/// One part of a MSET is done while the other waits for memory, and is overwritten by somebody else meanwhile: it
/// isn't done again when memory comes, so the later write stays. The reply is that of all parts.
#[test]
fn a_part_that_is_done_is_not_done_again() {
    let server = TestServer::with(SETTINGS);
    let mut client = server.connect();
    let loaded = client.ask(&[b"FUNCTION", b"LOAD", AWAIT.as_bytes()]);
    assert_eq!(loaded, Frame::Bulk(b"f".to_vec()));
    let [small, elsewhere, large] = &client.one_of_each();
    let value = vec![b'v'; 4 << 20];
    let mut waiting = server.connect_to_owner(elsewhere);
    let [mut filling, mut setting, mut other] = [small; 3].map(|key| server.connect_to_owner(key));

    waiting.send(format!("FCALL wait 1 {{{small}}}\r\n"));
    let refused = (0..100).find_map(|_| match filling.ask(&[b"SET", large.as_bytes(), &value]) {
        Frame::Error(text) => Some(text),
        _ => None,
    });
    assert!(refused.expect("memory ends").starts_with(b"TRYAGAIN"), "memory is to come back");

    setting.send(request(&[b"MSET", small.as_bytes(), b"first", large.as_bytes(), &value]));
    while other.text(&format!("GET {small}")) != "first" {
        std::thread::yield_now();
    }
    other.says(&format!("SET {small} between"), "+OK\r\n");
    for _ in 0..20 {
        // Turns in which the command comes again.
        assert_eq!(other.text(&format!("GET {small}")), "between");
    }
    other.says(&format!("SET {{{small}}} over"), "+OK\r\n");
    waiting.expect("$-1\r\n");
    setting.expect("+OK\r\n");
    assert_eq!(setting.text(&format!("GET {small}")), "between");
    assert_eq!(setting.number(&format!("STRLEN {large}")), 4 << 20);
}
