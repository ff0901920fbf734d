//! Several clients at two shards read and write several keys at once; what they saw of a partition
//! must fit into one order of whole operations.
//!
//! ```text
//! clients ── SET, PXAT, DEL, MSET, EXEC, FLUSHALL ──> server of 1 or 2 partitions
//!    │    └─ GET, MGET, EXISTS, FCALL_RO, EXEC
//!    └── operations with the times of call and return, split by partition ──> history::whole
//! ```
//!
//! `NIGH_HISTORY_SECONDS` makes it as long as one likes.

use crate::asked::{Asked, KEYS, Random, Scene, told};
use crate::common::{Client, TestServer};
use crate::history::Operation;
use crate::history::whole::Act::{Clear, Count, Delete, Read, Set};
use crate::history::whole::{Act, Acts, expiry, is_serialisable, is_serialisable_by_key};
use std::time::{Duration, Instant, SystemTime};

fn op<const ACTS: usize>(did: [Act; ACTS], called: u64, returned: u64) -> Operation<Acts> {
    Operation { did: did.into(), called, returned, behind: None }
}

/// An operation that follows another of the same client, in one pipeline.
fn behind<const ACTS: usize>(before: usize, did: [Act; ACTS]) -> Operation<Acts> {
    Operation { behind: Some(before), ..op(did, 0, 9) }
}

/// Keys of the stories below.
const A: usize = 0;
const B: usize = 1;
const BOTH: u64 = 0b11;

/// Two writers and two readers whose moments differ, although each key has an order: the reason for
/// looking at all keys at once.
#[test]
fn histories_that_are_wrong_only_as_a_whole_are_found() {
    let wrong: [(&str, &[Operation<Acts>]); 7] = [
        (
            "two readers see two writes in two orders",
            &[
                op([Set(A, 1)], 0, 9),
                op([Set(B, 2)], 0, 9),
                op([Read(A, Some(1)), Read(B, None)], 0, 9),
                op([Read(A, None), Read(B, Some(2))], 0, 9),
            ],
        ),
        (
            "the second of two writes without the first",
            &[
                op([Set(A, 1)], 0, 1),
                op([Set(B, 2)], 2, 3),
                op([Set(A, 3)], 4, 5),
                op([Set(B, 4)], 6, 7),
                op([Read(A, Some(1)), Read(B, Some(4))], 3, 9),
            ],
        ),
        (
            "half of a commit",
            &[op([Set(A, 1), Set(B, 2)], 0, 5), op([Read(A, Some(1)), Read(B, None)], 1, 4)],
        ),
        (
            "a removal, but not the write before it",
            &[
                op([Set(A, 1)], 0, 1),
                op([Set(B, 2)], 2, 9),
                op([Read(B, Some(2))], 2, 3),
                op([Delete(A, true)], 4, 9),
                op([Read(A, None), Read(B, None)], 2, 9),
            ],
        ),
        (
            "half of a clearing",
            &[
                op([Set(A, 1), Set(B, 2)], 0, 1),
                op([Clear], 2, 6),
                op([Read(A, None), Read(B, Some(2))], 2, 6),
            ],
        ),
        (
            "a key over, then a write to another that a read with the key doesn't see",
            &[
                op([Set(A, 1), Set(B, 2)], 0, 1),
                expiry(A, 1, 5),
                op([Read(A, None)], 5, 6),
                op([Set(B, 3)], 7, 8),
                op([Read(A, Some(1)), Read(B, Some(3))], 7, 9),
            ],
        ),
        (
            "the moments of two pipelined reads of one client the wrong way round",
            &[
                op([Set(A, 1)], 0, 9),
                op([Set(B, 2)], 0, 9),
                op([Read(A, Some(1)), Read(B, Some(2))], 0, 9),
                behind(2, [Read(A, None), Read(B, Some(2))]),
            ],
        ),
    ];
    for (name, history) in wrong {
        assert!(!is_serialisable(history, 2), "{name} was not found");
        let by_key = is_serialisable_by_key(history, 2);
        let needs_whole = !name.contains("pipelined") && !name.contains("a key over");
        assert_eq!(by_key, needs_whole, "{name}");
    }
}

/// What is wrong with one key is wrong with all, and counts, functions of several steps and
/// expiries are looked at.
#[test]
fn histories_that_are_wrong_in_one_key_are_found() {
    let wrong: [(&str, &[Operation<Acts>]); 8] = [
        ("a stale read", &[op([Set(A, 1)], 0, 1), op([Read(A, None), Read(B, None)], 2, 3)]),
        ("a value from nowhere", &[op([Read(A, Some(7))], 0, 1)]),
        (
            "a change within one transaction",
            &[op([Set(A, 1)], 0, 9), op([Read(A, None), Read(A, Some(1))], 0, 9)],
        ),
        (
            "a key over before its time",
            &[op([Set(A, 1)], 0, 1), expiry(A, 1, 5), op([Read(A, None)], 2, 4)],
        ),
        (
            "a key that is over and comes back",
            &[
                op([Set(A, 1)], 0, 1),
                expiry(A, 1, 2),
                op([Read(A, None)], 3, 4),
                op([Read(A, Some(1))], 5, 6),
            ],
        ),
        (
            "a later value that goes with an earlier one's time",
            &[
                op([Set(A, 1)], 0, 1),
                expiry(A, 1, 2),
                op([Set(A, 2)], 3, 4),
                op([Read(A, None)], 5, 6),
            ],
        ),
        (
            "a count of none while a key moves to another name",
            &[
                op([Set(A, 1)], 0, 1),
                op([Delete(A, true), Set(B, 1)], 2, 9),
                op([Count(BOTH, 0)], 3, 4),
            ],
        ),
        (
            "a deletion of what a transaction had deleted",
            &[
                op([Set(A, 1)], 0, 1),
                op([Delete(A, true), Set(B, 2)], 2, 3),
                op([Delete(A, true)], 4, 5),
            ],
        ),
    ];
    for (name, history) in wrong {
        assert!(!is_serialisable(history, 2), "{name} was not found");
    }
}

#[test]
fn right_histories_of_several_keys_pass() {
    let right: [&[Operation<Acts>]; 6] = [
        &[],
        &[
            op([Set(A, 1)], 0, 9),
            op([Set(B, 2)], 0, 9),
            op([Read(A, None), Read(B, Some(2))], 1, 2),
            op([Read(A, Some(1)), Read(B, Some(2))], 3, 4),
        ],
        &[
            op([Set(A, 1)], 0, 1),
            expiry(A, 1, 5),
            op([Read(A, None)], 2, 6),
            op([Count(BOTH, 0)], 7, 8),
        ],
        // It need not go.
        &[op([Set(A, 1)], 0, 1), expiry(A, 1, 5), op([Read(A, Some(1))], 7, 8)],
        // An expiry that has passed already.
        &[op([Set(A, 1)], 2, 5), expiry(A, 1, 0), op([Read(A, None), Read(B, None)], 6, 7)],
        &[
            op([Set(A, 1), Set(B, 2)], 0, 5),
            op([Read(A, Some(1)), Delete(A, true), Set(A, 3)], 0, 5),
            behind(1, [Clear]),
            op([Count(BOTH, 0), Read(A, None)], 6, 9),
        ],
    ];
    for history in right {
        assert!(is_serialisable(history, 2), "{history:?}");
    }
}

const CLIENTS: u64 = 6;
/// Pipelines that a client sends in a story.
const ROUNDS: u64 = 6;
/// Most operations of a pipeline.
const PIPELINE: usize = 3;
/// `all` reads keys in order.
const LIBRARY: &str = "#!js name=whole\n\
    export const all = (db, keys) => keys.map((key) => db.text(key) ?? null);\n\
    all.flags = ['no-writes'];\n";

/// An operation that was answered, with the Unix ms at which what it sets is over.
struct Done {
    parts: Vec<(usize, Act)>,
    called: u64,
    returned: u64,
    over_ms: Option<u64>,
}

/// One client's operations. Pipelines have one to [`PIPELINE`] of them.
fn client(client: &mut Client, place: &Scene, seed: u64) -> Vec<Done> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut done = Vec::new();
    let mut value = seed * 10_000;
    for _ in 0..ROUNDS {
        let many = 1 + random.below(PIPELINE);
        let asked: Vec<Asked> = (0..many)
            .map(|_| {
                value += 10;
                place.any(&mut random, value)
            })
            .collect();
        let called = place.now();
        client.send(asked.iter().flat_map(|asked| asked.wire.clone()).collect::<Vec<u8>>());
        for Asked { queued, mut parts, over_ms, stride, .. } in asked {
            (0..queued).for_each(|_| assert!(client.reply().error().is_none()));
            let reply = client.reply();
            let returned = place.now();
            // Over several partitions as well: none is TRYAGAIN.
            assert!(reply.error().is_none(), "{parts:?}: {reply:?}");
            match reply.elements() {
                Some(replies) => {
                    assert_eq!(replies.len(), (parts.len() - 1) * stride + 1, "{parts:?}");
                    let replies = replies.iter().step_by(stride);
                    parts.iter_mut().zip(replies).for_each(|((_, act), reply)| told(act, reply));
                }
                None => parts.iter_mut().for_each(|(_, act)| told(act, &reply)),
            }
            done.push(Done { parts, called, returned, over_ms });
        }
    }
    done
}

/// The history of one partition.
fn of_partition(clients: &[Vec<Done>], partition: usize, place: &Scene) -> Vec<Operation<Acts>> {
    let mut history = Vec::new();
    for done in clients {
        let mut behind = None;
        for Done { parts, called, returned, over_ms } in done {
            let own = parts.iter().filter(|part| part.0 == partition);
            let did: Acts = own.map(|&(_, act)| act).collect();
            if did.is_empty() {
                continue;
            }
            let set = match did[..] {
                [Set(key, value)] => Some((key, value)),
                _ => None,
            };
            let (called, returned) = (*called, *returned);
            history.push(Operation { did, called, returned, behind });
            behind = Some(history.len() - 1);
            if let (Some((key, value)), Some(over_ms)) = (set, over_ms) {
                // It is over behind that millisecond: the clock that judges it counts whole ones.
                let due = ((over_ms + 1) * 1_000_000).saturating_sub(place.began_unix_ns);
                history.push(expiry(key, value, due));
            }
        }
    }
    history
}

/// Names of keys of each partition: with the name of a key of it as their tag.
fn names<const PARTITIONS: usize>(server: &TestServer) -> Vec<Vec<String>> {
    let mut client = server.connect();
    let tags = client.one_of_each::<PARTITIONS>();
    client.says("FLUSHALL", "+OK\r\n");
    tags.iter().map(|tag| (0..KEYS).map(|key| format!("{{{tag}}}{key}")).collect()).collect()
}

/// Stories until it is time; the number of histories and of operations.
fn stories<const PARTITIONS: usize>(seconds: f64) -> (u64, usize) {
    let settings = [("shards", "2"), ("partitions", &PARTITIONS.to_string())];
    let server = TestServer::with(&settings);
    let names = names::<PARTITIONS>(&server);
    let mut owner = server.connect();
    let loaded = owner.ask(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
    assert!(loaded.error().is_none(), "{loaded:?}");
    let mut connections: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (mut histories, mut operations) = (0, 0);
    for story in 1.. {
        // In this order: a pause between the two lets a key be over a little early, where the other
        // order once took a key that was over in time for one that was over too early.
        let began = Instant::now();
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let place = Scene {
            names: names.clone(),
            began,
            began_unix_ns: u64::try_from(unix.as_nanos()).expect("until 2554"),
        };
        let done: Vec<Vec<Done>> = std::thread::scope(|scope| {
            let place = &place;
            let clients: Vec<_> = connections
                .iter_mut()
                .zip(story * CLIENTS..)
                .map(|(connection, seed)| scope.spawn(move || client(connection, place, seed)))
                .collect();
            clients.into_iter().map(|client| client.join().expect("a client's story")).collect()
        });
        for partition in 0..PARTITIONS {
            let history = of_partition(&done, partition, &place);
            let right = is_serialisable(&history, KEYS);
            assert!(right, "story {story}, partition {partition}: {history:#?}");
            operations += history.len();
            histories += 1;
        }
        owner.says("FLUSHALL", "+OK\r\n");
        if Instant::now() >= end {
            break;
        }
    }
    (histories, operations)
}

fn seconds() -> f64 {
    let asked = std::env::var("NIGH_HISTORY_SECONDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(2.0)
}

/// Clients at both shards read and write the same few keys, several at once; what all of them saw
/// fits into one order.
#[test]
fn whole_operations_of_all_clients_fit_into_one_order() {
    let (histories, operations) = stories::<1>(seconds());
    eprintln!("1 partition: {histories} histories of {operations} operations, all serialisable");
}

/// The same in each of two partitions: operations on both have one moment in each.
#[test]
fn whole_operations_fit_into_one_order_in_each_partition() {
    let (histories, operations) = stories::<2>(seconds());
    eprintln!("2 partitions: {histories} histories of {operations} operations, all serialisable");
}
