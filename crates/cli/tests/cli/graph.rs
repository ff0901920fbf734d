//! Counts of the graph function against an independent computation from the file.

use nigh_client::Frame;
use std::collections::HashMap;
use std::io::Read;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
/// Nodes of the graph are 0 to this one.
const LAST_NODE: u32 = 4038;

/// The file as lists of neighbours. This reads it without the code under test.
fn lists() -> HashMap<u32, Vec<u32>> {
    let file = std::fs::File::open(format!("{DATA}/data/facebook_combined.txt.gz")).expect("data");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a whole file");
    let mut lists: HashMap<u32, Vec<u32>> = HashMap::new();
    for line in text.lines() {
        let mut numbers = line.split_whitespace().map(|word| word.parse().expect("a number"));
        let (Some(from), Some(to)) = (numbers.next(), numbers.next()) else { panic!("{line}") };
        lists.entry(from).or_default().push(to);
    }
    lists
}

/// Paths of length 1..depth from `node`, by walking all of them.
fn paths(lists: &HashMap<u32, Vec<u32>>, node: u32, depth: u32) -> i64 {
    let friends = lists.get(&node).map_or(&[][..], Vec::as_slice);
    let further = |friend: &u32| if depth > 1 { paths(lists, *friend, depth - 1) } else { 0 };
    friends.iter().map(|friend| 1 + further(friend)).sum()
}

/// Every node at depth 1 and 2, and the published starts at depth 3: the function in the store
/// counts exactly the paths that are in the file.
#[test]
fn functions_count_what_is_in_the_file() {
    let lists = lists();
    let starts = std::fs::read_to_string(format!("{DATA}/data/graph_starts.txt")).expect("data");
    let starts: Vec<u32> = starts.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(starts.len(), 200);
    let folder = crate::support::folder();
    // Where a machine is slow, a start with many paths takes longer than calls may.
    let flags = ["--function-time-limit-ms", "10000"];
    let server = crate::support::Server::start_with(folder.path(), &flags);
    let mut connection = server.connect();
    let sets = lists.iter().map(|(node, friends)| {
        let value = friends.iter().flat_map(|friend| friend.to_le_bytes()).collect();
        [b"SET".to_vec(), node.to_string().into_bytes(), value]
    });
    for reply in connection.pipeline(sets).expect("the server is up") {
        assert_eq!(reply, Frame::Simple(b"OK".to_vec()));
    }
    let source = std::fs::read_to_string(format!("{DATA}/functions/graph.js")).expect("a library");
    let loaded = connection.call(["FUNCTION", "LOAD", &source]).expect("the server is up");
    assert_eq!(loaded, Frame::Bulk(b"graph".to_vec()));
    let all: Vec<u32> = (0..=LAST_NODE).collect();
    for (depth, nodes) in [(1, &all), (2, &all), (3, &starts)] {
        let calls = nodes.iter().map(|node| {
            ["FCALL".into(), "countFriends".into(), "0".into(), node.to_string(), depth.to_string()]
        });
        let replies = connection.pipeline(calls).expect("the server is up");
        for (node, reply) in nodes.iter().zip(replies) {
            let expected = Frame::Integer(paths(&lists, *node, depth));
            assert_eq!(reply, expected, "node {node}, depth {depth}");
        }
    }
}
