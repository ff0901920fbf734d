//! What goes on while a function on another shard holds memory back.

use crate::common::{TestServer, request};
use nigh_resp::frame::Frame;

const SETTINGS: &[(&str, &str)] = &[
    ("shards", "2"),
    ("partitions", "2"),
    ("maxmemory", "64mb"),
    ("function-time-limit-ms", "3600000"),
];

const SPIN: &str = "#!js name=f\nexport function spin() { for (;;); }\nspin.flags = ['no-writes'];";

/// A function that doesn't end keeps all that is overwritten from being used again. Writes wait for
/// that; whoever wants to look, and to end the function, doesn't.
#[test]
fn who_ends_the_function_that_holds_memory_needs_none() {
    let server = TestServer::with(SETTINGS);
    let mut client = server.connect();
    let loaded = client.ask(&[b"FUNCTION", b"LOAD", SPIN.as_bytes()]);
    assert_eq!(loaded, Frame::Bulk(b"f".to_vec()));
    let [here, there] = &client.one_of_each();
    let mut spinning = server.connect_to_owner(there);
    let [mut writing, mut other] = [here; 2].map(|key| server.connect_to_owner(key));
    spinning.send(format!("FCALL spin 1 {there}\r\n"));
    let value = vec![b'v'; 1 << 10];
    let mut overwrite = || writing.ask(&[b"SET", here.as_bytes(), &value]);
    let refused = (0..1_000_000).find_map(|_| match overwrite() {
        Frame::Error(text) => Some(text),
        _ => None,
    });
    assert!(refused.expect("memory ends").starts_with(b"TRYAGAIN"), "memory is to come back");
    // While a write waits, for a second at most, others are answered.
    let is_answered = (0..10).any(|_| {
        writing.send(request(&[b"SET", here.as_bytes(), &value]));
        other.says("PING", "+PONG\r\n");
        assert_eq!(other.text(&format!("GET {here}")).len(), value.len());
        let waits = writing.is_silent();
        writing.reply();
        waits
    });
    assert!(is_answered, "who needs no memory waits for it");
    other.says("FUNCTION KILL", "+OK\r\n");
    let reply = spinning.reply();
    let text = String::from_utf8_lossy(reply.error().expect("an error")).into_owned();
    assert!(text.starts_with("ERR Script killed by user with FUNCTION KILL."), "{text}");
    let set = request(&[b"SET", here.as_bytes(), b"at last"]);
    let done = (0..100).any(|_| {
        writing.send(&set);
        writing.reply() == Frame::Simple(b"OK".as_slice().into())
    });
    assert!(done, "memory has come back");
}
