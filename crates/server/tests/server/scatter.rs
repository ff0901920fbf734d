//! Commands that a shard does by parts, while memory for one of them is still to come.

use crate::common::{TestServer, request};
use nigh_resp::frame::Frame;

/// Shard 0 owns the partitions 0 and 2, shard 1 partition 1.
const SETTINGS: &[(&str, &str)] = &[
    ("shards", "2"),
    ("partitions", "3"),
    ("maxmemory", "96mb"),
    ("function-time-limit-ms", "20000"),
];

/// While it waits for a key, the turn of its shard goes on, and nothing that was overwritten comes
/// back.
const AWAIT: &str = "#!js name=f\n\
    const there = (db, key) => { let at = 0; do { const page = db.scan(key, at); if (page.keys.length) return true; at = page.cursor; } while (at !== 0); return false; };\n\
    export function wait(db, args, [key]) { while (!there(db, key)); }\n\
    wait.flags = ['no-writes'];";

/// One part of a MSET is done while the other waits for memory, and is overwritten by somebody else
/// meanwhile: it isn't done again when memory comes, so the later write stays. The reply is that of
/// all parts.
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
    // A write waits for memory for a second: on a busy machine the story may take longer. Then the
    // MSET is refused, but what it has done isn't done again either, and the story is told once
    // more.
    let is_told = (0..20).any(|number| {
        let over = format!("{{{small}}}over{number}");
        waiting.send(format!("FCALL wait 1 {over}\r\n"));
        let refused =
            (0..100).find_map(|_| match filling.ask(&[b"SET", large.as_bytes(), &value]) {
                Frame::Error(text) => Some(text),
                _ => None,
            });
        assert!(refused.expect("memory ends").starts_with(b"TRYAGAIN"), "memory is to come back");

        setting.send(request(&[b"MSET", small.as_bytes(), b"first", large.as_bytes(), &value]));
        while other.text(&format!("GET {small}")) != "first" {
            std::thread::yield_now();
        }
        // Turns in which the command comes again.
        other.send(format!("SET {small} between\r\n{}", format!("GET {small}\r\n").repeat(5)));
        other.expect(format!("+OK\r\n{}", "$7\r\nbetween\r\n".repeat(5)));
        (0..3).for_each(|_| assert_eq!(other.text(&format!("GET {small}")), "between"));
        other.says(&format!("SET {over} 1"), "+OK\r\n");
        waiting.expect("$-1\r\n");
        let reply = setting.reply();
        assert_eq!(setting.text(&format!("GET {small}")), "between");
        if let Some(text) = reply.error() {
            assert!(text.starts_with(b"TRYAGAIN"), "{reply:?}");
            return false;
        }
        assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
        true
    });
    assert!(is_told, "no MSET got its memory in time");
    assert_eq!(setting.number(&format!("STRLEN {large}")), 4 << 20);
}
