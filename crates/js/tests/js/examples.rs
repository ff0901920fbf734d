//! The libraries of `examples/functions/`, loaded and called as their comments say.

use crate::common::Bench;
use nigh_js::Call;

const GRAPH: &str = include_str!("../../../../examples/functions/graph.js");
const COUNTER: &str = include_str!("../../../../examples/functions/counter.js");
const PROJECTION: &str = include_str!("../../../../examples/functions/projection.js");
const INFERENCE: &str = include_str!("../../../../examples/functions/inference.js");
const SHOP: &str = include_str!("../../../../examples/functions/shop.js");

/// A runtime with one library, whole as it lies on disk.
fn example(source: &str) -> Bench {
    let mut bench = Bench::new();
    let library = bench.runtime.load(bench.tenant, source.as_bytes()).unwrap();
    for function in &library.functions {
        assert!(function.description.is_some(), "{} has no comment", function.name);
    }
    bench.runtime.install(bench.tenant, &library, source.as_bytes()).unwrap();
    bench
}

/// The error that `reply` is, without the place where it was thrown.
fn error(reply: &str) -> &str {
    let text = reply.strip_prefix('-').unwrap_or_else(|| panic!("no error: {reply}"));
    text.split(" (function ").next().unwrap()
}

/// FCALL of `line`: function, number of keys, keys, arguments.
fn fcall_as(bench: &mut Bench, line: &str, resp3: bool, read_only: bool) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let keys: usize = line.split(' ').nth(1).unwrap().parse().unwrap();
    let (keys, args) = words[2..].split_at(keys);
    let call = Call { function: words[0], keys, args, resp3, read_only, ..Call::default() };
    bench.run(&[call]).remove(0)
}

fn fcall(bench: &mut Bench, line: &str) -> String {
    fcall_as(bench, line, false, false)
}

fn fcall_ro(bench: &mut Bench, line: &str) -> String {
    fcall_as(bench, line, false, true)
}

fn ids(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

#[test]
fn graph_counts_paths_and_finds_friends_of_friends() {
    // 1 -> 2, 3; 2 -> 3, 4; 3 -> 4; 4 -> a key that isn't stored.
    let mut bench = example(GRAPH);
    bench.put("1", ids(&[2, 3]));
    bench.put("2", ids(&[3, 4]));
    bench.put("3", ids(&[4]));
    assert_eq!(fcall_ro(&mut bench, "countFriends 0 1 1"), ":2\r\n");
    assert_eq!(fcall_ro(&mut bench, "countFriends 0 1 2"), ":5\r\n");
    assert_eq!(fcall_ro(&mut bench, "countFriends 0 1 3"), ":6\r\n");
    assert_eq!(fcall_ro(&mut bench, "countFriends 0 9 3"), ":0\r\n");
    assert_eq!(fcall_ro(&mut bench, "friendsOfFriends 0 1"), "*1\r\n*2\r\n:4\r\n:2\r\n");

    assert_eq!(fcall(&mut bench, "addFriends 1 4 9 1 9"), ":2\r\n");
    assert_eq!(bench.world.arenas[0].get(b"4").unwrap().0, ids(&[1, 9]));
    let refused = fcall(&mut bench, "addFriends 1 4 7 x");
    assert_eq!(error(&refused), "BADID 'x' is not the id of a node");
    assert_eq!(bench.world.arenas[0].get(b"4").unwrap().0, ids(&[1, 9]));
    let refused = fcall_ro(&mut bench, "addFriends 1 4 7");
    assert!(refused.starts_with("-ERR Can not execute a script with write flag"), "{refused}");
}

/// Three kinds of counter; what is refused leaves no trace. Without a limit, or with one that is no
/// number, everything was sold.
#[test]
fn counters_count_bound_and_limit() {
    let mut bench = example(COUNTER);
    assert_eq!(fcall(&mut bench, "hit 1 page:home"), ":1\r\n");
    assert_eq!(fcall(&mut bench, "hit 1 page:home 41"), ":42\r\n");
    bench.put("word", "abc");
    let wrong = fcall(&mut bench, "hit 1 word");
    assert_eq!(error(&wrong), "ERR value is not an integer or out of range");

    assert_eq!(fcall(&mut bench, "take 1 tickets 2 5"), ":3\r\n");
    assert_eq!(error(&fcall(&mut bench, "take 1 tickets 4 5")), "SOLDOUT 3 left");
    assert_eq!(bench.world.arenas[0].text("tickets").unwrap(), "2");
    assert_eq!(fcall(&mut bench, "take 1 tickets 3 5"), ":0\r\n");

    for given in ["take 1 tickets 2", "take 1 tickets 2 many", "take 1 tickets 2 5.5"] {
        let refused = fcall(&mut bench, given);
        assert!(error(&refused).contains("a limit is an integer"), "{refused}");
    }
    assert_eq!(bench.world.arenas[0].text("tickets").unwrap(), "5");

    assert_eq!(fcall(&mut bench, "allow 1 api:a 2 60000"), "*3\r\n:1\r\n:1\r\n:60000\r\n");
    bench.now_ms += 1000;
    assert_eq!(fcall(&mut bench, "allow 1 api:a 2 60000"), "*3\r\n:1\r\n:0\r\n:59000\r\n");
    assert_eq!(
        fcall_as(&mut bench, "allow 1 api:a 2 60000", true, false),
        "*3\r\n#f\r\n:0\r\n:59000\r\n"
    );
    bench.now_ms += 60_000;
    assert_eq!(fcall(&mut bench, "allow 1 api:a 2 60000"), "*3\r\n:1\r\n:1\r\n:60000\r\n");
}

#[test]
fn projection_reads_one_field_of_many() {
    // 256-byte rows; 4 bytes of each come back.
    let mut bench = example(PROJECTION);
    for (n, temperature) in [20.5, 21.5, 24.0].iter().enumerate() {
        let line = format!("record 1 reading:{n} {} {temperature}", n + 7);
        assert_eq!(fcall(&mut bench, &line), "$-1\r\n");
    }
    assert_eq!(
        fcall_ro(&mut bench, "column 3 reading:0 reading:9 reading:2 0"),
        "*3\r\n:7\r\n$-1\r\n:9\r\n"
    );
    assert_eq!(fcall_ro(&mut bench, "sum 0 reading: 5 0"), ":24\r\n");
    assert_eq!(
        fcall_as(&mut bench, "mean 0 reading: 5", true, true),
        "%2\r\n$4\r\nmean\r\n:22\r\n$4\r\nrows\r\n:3\r\n"
    );
    let beyond = fcall_ro(&mut bench, "column 1 reading:0 256");
    assert!(beyond.contains("outside of a value"), "{beyond}");
    let crooked = fcall_ro(&mut bench, "column 1 reading:0 3");
    assert_eq!(error(&crooked), "ERR offset 3 is not a multiple of 4");
}

#[test]
fn inference_classifies_by_weights_in_a_record() {
    // The same seed gives the same net; three probabilities add up to one.
    let mut bench = example(INFERENCE);
    assert_eq!(fcall(&mut bench, "loadWeights 1 wine:net 42"), ":88\r\n");
    assert_eq!(bench.world.arenas[0].get(b"wine:net").unwrap().0.len(), 88 * 4);
    let wine = "13.2 1.78 2.14 11.2 100 2.65 2.76 0.26 1.28 4.38 1.05 3.4 1050";
    assert_eq!(fcall(&mut bench, &format!("storeWine 1 wine:1 {wine}")), "$-1\r\n");
    assert_eq!(bench.world.arenas[0].get(b"wine:1").unwrap().0.len(), 13 * 8);

    let classes = fcall_ro(&mut bench, "classify 3 wine:net wine:1 wine:2");
    assert_eq!(classes, fcall_ro(&mut bench, "classify 3 wine:net wine:1 wine:2"));
    let reply = fcall_as(&mut bench, "probabilities 2 wine:net wine:1", true, true);
    let probabilities: Vec<f64> =
        reply.lines().skip(1).map(|line| line[1..].parse().unwrap()).collect();
    assert_eq!(probabilities.len(), 3);
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{reply}");

    let short = fcall(&mut bench, "storeWine 1 wine:3 1 2 3");
    assert!(short.starts_with("-ERR a wine has 13 measurements"), "{short}");
    let bare = fcall_ro(&mut bench, "classify 2 other:net wine:1");
    assert!(bare.starts_with("-NOWEIGHTS call loadWeights 1 other:net first"), "{bare}");
}

#[test]
fn shop_sells_a_basket_whole_or_not_at_all() {
    // Bob's basket fails at the cake, so his apple stays on the shelf and nothing is in the till.
    let mut bench = example(SHOP);
    assert_eq!(fcall(&mut bench, "restock 0 apple 5 30"), ":5\r\n");
    assert_eq!(fcall(&mut bench, "restock 0 cake 1 450"), ":1\r\n");
    let bought = fcall(&mut bench, "buy 0 ada apple 3 cake 1");
    assert!(bought.contains("Enjoy it, ada!"), "{bought}");
    assert_eq!(bench.world.arenas[0].text("shop:till").unwrap(), "540");
    assert_eq!(bench.world.log.last().unwrap().3, "receipt 1: ada paid 540");

    let before = bench.world.commits;
    let refused = fcall(&mut bench, "buy 0 bob apple 1 cake 1");
    assert!(refused.starts_with("-OUTOFSTOCK only 0 of 'cake' left"), "{refused}");
    let twice = fcall(&mut bench, "buy 0 bob apple 2 apple 1");
    assert!(twice.starts_with("-OUTOFSTOCK only 0 of 'apple' left"), "{twice}");
    let unknown = fcall(&mut bench, "buy 0 bob apple 1 pear 1");
    assert!(unknown.starts_with("-NOITEM we have never sold 'pear'"), "{unknown}");
    assert_eq!(bench.world.commits, before);
    assert_eq!(bench.world.arenas[0].text("shop:till").unwrap(), "540");

    assert_eq!(
        fcall_as(&mut bench, "shelf 0", true, true),
        "%2\r\n$5\r\napple\r\n*2\r\n:2\r\n:30\r\n$4\r\ncake\r\n*2\r\n:0\r\n:450\r\n"
    );
    assert!(fcall_ro(&mut bench, "receipt 0 1").contains("ada"));
    bench.now_ms += 31 * 24 * 3600 * 1000;
    assert_eq!(fcall_ro(&mut bench, "receipt 0 1"), "$-1\r\n");
}
