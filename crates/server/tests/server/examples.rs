//! The libraries of `examples/functions/` on a real server, called by the lines that their comments
//! and `examples/README.md` offer to try.

use crate::common::{Client, TestServer};
use nigh_resp::frame::Frame;

const EXAMPLES: &[(&str, &str)] = &[
    ("graph", include_str!("../../../../examples/functions/graph.js")),
    ("counter", include_str!("../../../../examples/functions/counter.js")),
    ("projection", include_str!("../../../../examples/functions/projection.js")),
    ("inference", include_str!("../../../../examples/functions/inference.js")),
    ("shop", include_str!("../../../../examples/functions/shop.js")),
];
const README: &str = include_str!("../../../../examples/README.md");

/// The commands that a source's comments offer: `//   redis-cli FCALL …`, a remark after two
/// spaces.
fn offered(source: &str) -> Vec<&str> {
    let lines = source.lines().filter_map(|line| line.strip_prefix("//   redis-cli FCALL"));
    lines.map(|line| line.trim_start().split("  ").next().unwrap()).collect()
}

fn load(client: &mut Client, name: &str, source: &str) {
    let reply = client.ask(&[b"FUNCTION", b"LOAD", source.as_bytes()]);
    assert_eq!(reply, Frame::Bulk(name.as_bytes().to_vec()));
}

/// What the comments offer works as it stands; only Bob, who comes late for the cake, gets an
/// error.
#[test]
fn every_offered_line_works() {
    for (name, source) in EXAMPLES {
        let server = TestServer::with(&[("function-time-limit-ms", "5000")]);
        let mut client = server.connect();
        load(&mut client, name, source);
        let lines = offered(source);
        assert!(!lines.is_empty(), "{name} offers nothing to try");
        for rest in lines {
            let words: Vec<&[u8]> = rest.split(' ').map(str::as_bytes).collect();
            // What is left of `FCALL` and `FCALL_RO` after the prefix is cut off.
            let (command, args): (&[u8], _) = if words[0] == b"_RO" {
                (b"FCALL_RO", &words[1..])
            } else {
                (b"FCALL", &words[..])
            };
            let reply = client.ask(&[&[command], args].concat());
            let failed = matches!(reply, Frame::Error(_));
            assert_eq!(failed, rest.contains("bob"), "{name}: {rest}: {reply:?}");
        }
    }
}

/// All five live in one server; the table of the README can be typed row by row.
#[test]
fn the_readme_can_be_typed() {
    let server = TestServer::with(&[("function-time-limit-ms", "5000")]);
    let mut client = server.connect();
    for (name, source) in EXAMPLES {
        load(&mut client, name, source);
    }
    let commands: Vec<&str> =
        README.split('`').skip(1).step_by(2).filter(|text| text.starts_with("FCALL")).collect();
    let commands: Vec<&str> = commands.into_iter().filter(|text| text.contains(' ')).collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let reply = client.ask(&words);
        assert!(!matches!(reply, Frame::Error(_)), "{command}: {reply:?}");
    }
}

/// A basket that fails in the middle leaves every key as it was, for every client.
#[test]
fn a_basket_that_fails_changes_nothing() {
    let server = TestServer::with(&[("function-time-limit-ms", "5000")]);
    let mut client = server.connect();
    load(&mut client, "shop", EXAMPLES[4].1);
    client.says("FCALL restock 0 apple 5 30", ":5\r\n");
    client.says("FCALL restock 0 cake 0 450", ":0\r\n");
    let reply = client.ask(&[b"FCALL", b"buy", b"0", b"bob", b"apple", b"5", b"cake", b"1"]);
    assert!(matches!(reply, Frame::Error(_)), "{reply:?}");
    let mut other = server.connect();
    other.says("EXISTS shop:till shop:receipts shop:receipt:1", ":0\r\n");
    other.says(
        "FCALL_RO shelf 0",
        "*4\r\n$5\r\napple\r\n*2\r\n:5\r\n:30\r\n$4\r\ncake\r\n*2\r\n:0\r\n:450\r\n",
    );
}
