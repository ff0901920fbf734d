//! What a client was told on one connection holds for what it sends on another, whichever shard that one is at.

mod common;

use common::{Client, TestServer, request};
use nigh_resp::frame::Frame;
use std::time::Duration;

/// Calls of a pipeline: some turns of some tenths of a second. Each is so long that a turn reads some 400 of them,
/// which are enough for a batch of their own before the shard reads from the next client.
const CALLS: usize = 1200;
const PADDING: &str = "something that makes it longer";

fn load(client: &mut Client, source: &str) {
    let reply = client.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", source.as_bytes()]);
    assert!(matches!(reply, Frame::Bulk(_)), "{reply:?}");
}

/// A library is replaced, and a setting changed, while another shard is in the middle of a long turn. The client is
/// told so, and then completes a command of which that shard knew a part when its turn began: it is read in this
/// turn, and yet runs the new function and shows the new setting.
#[test]
fn what_is_read_in_a_turn_meets_what_changed_since_it_began() {
    let server = TestServer::with(&[("shards", "2"), ("partitions", "2")]);
    let [here, there] = server.connect().one_of_each();
    let mut changing = server.connect_to_owner(&here);
    let [mut busy, mut calling] = [0; 2].map(|_| server.connect_to_owner(&there));
    let slow = "#!js name=slow\n\
        export function slow() { let n = 0; while (n < 2e6) n++; return 0; }\n\
        slow.flags = ['no-writes'];";
    load(&mut changing, slow);
    for round in 0..3 {
        let version = |n: u32| {
            format!(
                "#!js name=v\nexport function version() {{ return {n}; }}\nversion.flags = ['no-writes'];"
            )
        };
        load(&mut changing, &version(round + 100));
        calling.says("FCALL version 0", &format!(":{}\r\n", round + 100));
        busy.send(format!("FCALL slow 0 '{PADDING}'\r\n").repeat(CALLS));
        std::thread::sleep(Duration::from_millis(20));
        // The shard learns of a part in a turn, so it will read the rest in the next one.
        let call =
            [request(&[b"FCALL", b"version", b"0"]), request(&[b"CONFIG", b"GET", b"timeout"])]
                .concat();
        calling.send(&call[..5]);
        busy.expect(":0\r\n");
        std::thread::sleep(Duration::from_millis(5));
        load(&mut changing, &version(round + 200));
        changing.says(&format!("CONFIG SET timeout {}", round + 1000), "+OK\r\n");
        calling.send(&call[5..]);
        assert_eq!(calling.reply(), Frame::Integer(i64::from(round) + 200));
        let timeout = Frame::Bulk((round + 1000).to_string().into_bytes());
        assert_eq!(calling.reply(), Frame::Array(vec![Frame::Bulk(b"timeout".to_vec()), timeout]));
        busy.expect(":0\r\n".repeat(CALLS - 1));
    }
}
