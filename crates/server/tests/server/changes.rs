//! What a client was told on one connection holds for what it sends on another, whichever shard
//! that one is at.

use crate::common::{Client, TestServer, request};
use nigh_resp::frame::Frame;

/// Runs until there is a key, however slow the machine is. It looks by scanning: all else shows the
/// moment at which the call began.
const WAIT: &str = "#!js name=w\n\
    const there = (db, key) => { let at = 0; do { const page = db.scan(key, at); if (page.keys.length) return true; at = page.cursor; } while (at !== 0); return false; };\n\
    export function wait(db, args, [key]) { while (!there(db, key)); return 0; }\n\
    wait.flags = ['no-writes'];";

fn load(client: &mut Client, source: &str) {
    let reply = client.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", source.as_bytes()]);
    assert!(matches!(reply, Frame::Bulk(_)), "{reply:?}");
}

/// Many times what a turn may take, ms.
const LONG_MS: i64 = 500;

/// Waits until a function has run on another shard for so many ms.
fn wait_for_function(client: &mut Client, ms: i64) {
    loop {
        let Frame::Array(stats) = client.ask(&[b"FUNCTION", b"STATS"]) else { panic!("a map") };
        if stats[1].elements().is_some_and(|running| running[5].integer() >= Some(ms)) {
            return;
        }
    }
}

/// A library is replaced, and a setting changed, while another shard is in the middle of a long
/// turn. The client is told so, and then completes a command of which that shard knew a part when
/// its turn began: it is read in this turn, and yet runs the new function and shows the new
/// setting.
#[test]
fn what_is_read_in_a_turn_meets_what_changed_since_it_began() {
    let limit = ("function-time-limit-ms", "3600000");
    let server = TestServer::with(&[("shards", "2"), ("partitions", "2"), limit]);
    let [here, there] = server.connect().one_of_each();
    let mut changing = server.connect_to_owner(&here);
    let [mut busy, mut calling] = [0; 2].map(|_| server.connect_to_owner(&there));
    load(&mut changing, WAIT);
    for round in 0..3 {
        let version = |n: u32| {
            format!(
                "#!js name=v\nexport function version() {{ return {n}; }}\nversion.flags = ['no-writes'];"
            )
        };
        load(&mut changing, &version(round + 100));
        calling.says("FCALL version 0", &format!(":{}\r\n", round + 100));
        // Two turns: the second call is put off, since the first one takes long.
        let [first, second] = ["a", "b"].map(|end| format!("{{{here}}}{round}{end}"));
        busy.send(format!("FCALL wait 1 {first}\r\nFCALL wait 1 {second}\r\n"));
        wait_for_function(&mut changing, LONG_MS);
        // The shard learns of a part as the second turn begins, and reads behind the call that was
        // put off.
        let call =
            [request(&[b"FCALL", b"version", b"0"]), request(&[b"CONFIG", b"GET", b"timeout"])]
                .concat();
        calling.send(&call[..5]);
        changing.says(&format!("SET {first} 1"), "+OK\r\n");
        busy.expect(":0\r\n");
        wait_for_function(&mut changing, 0);
        load(&mut changing, &version(round + 200));
        changing.says(&format!("CONFIG SET timeout {}", round + 1000), "+OK\r\n");
        calling.send(&call[5..]);
        changing.says(&format!("SET {second} 1"), "+OK\r\n");
        assert_eq!(calling.reply(), Frame::Integer(i64::from(round) + 200));
        let timeout = Frame::Bulk((round + 1000).to_string().into_bytes());
        assert_eq!(calling.reply(), Frame::Array(vec![Frame::Bulk(b"timeout".to_vec()), timeout]));
        busy.expect(":0\r\n");
    }
}
