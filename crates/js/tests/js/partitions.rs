//! Tenants of several partitions: where a call may write, and at which moments it reads.

use crate::common::{Arena, Bench, NOW_MS, SEED, call, partition, patient};
use nigh_js::{Call, FunctionLimits, Mapping, Overlay, UNSTABLE};

/// A runtime with a library over hand-made arenas.
fn several(partitions: usize, foreign: &[usize], body: &str) -> Bench {
    several_with(patient(), partitions, foreign, body)
}

fn several_with(limits: FunctionLimits, partitions: usize, foreign: &[usize], body: &str) -> Bench {
    let mut bench = Bench::with(limits);
    bench.world.arenas = (0..partitions).map(|_| Arena::new()).collect();
    let mapping = |(at, arena): (usize, &Arena)| {
        if foreign.contains(&at) { arena.mapping().foreign() } else { arena.mapping() }
    };
    let mappings: Vec<Mapping> = bench.world.arenas.iter().enumerate().map(mapping).collect();
    bench.tenant = bench.runtime.open_tenant(mappings);
    bench.add("t", body);
    bench
}

/// The `n`th key that begins with `prefix` and lies in partition `at`.
fn key_in(at: usize, partitions: usize, prefix: &str, n: usize) -> String {
    let mut keys = (0..).map(|i| format!("{prefix}{i}"));
    keys.by_ref().filter(|key| partition(SEED, key.as_bytes(), partitions) == at).nth(n).unwrap()
}

const ALL: &str = "export const set = (db, [k]) => { db.set(k, 'new'); };\n\
    export const remove = (db, [k]) => db.delete(k);\n\
    export const incr = (db, [k]) => db.incr(k);\n\
    export const expire = (db, [k]) => db.expire(k, 1000);\n\
    export const two = (db, [a, b]) => { db.set(a, 'new'); db.set(b, 'new'); };\n\
    export const anywhere = (db, [a, b, c]) => { db.set(a, 'new'); db.delete(b); db.expire(c, 1000);\n\
      return [db.text(a), db.exists(b), db.ttl(c), db.text(c), db.incr(a + 'n')]; };\n\
    anywhere.flags = ['allow-cross-slot-keys'];\n\
    export const read = (db, keys) => keys.map((k) => db.text(k));";

fn at<'a>(partition: u32, function: &'a str, args: &'a [&'a [u8]]) -> Call<'a> {
    Call { function: function.as_bytes(), args, partition, ..Call::default() }
}

#[test]
fn a_call_writes_to_its_partition_alone() {
    // Each way to write, to the call's own partition and to another one; also where the key is
    // missing. The error names method, key and flag, and what the call wrote before it is not
    // committed.
    let mut bench = several(3, &[], ALL);
    let (own, other) = (key_in(1, 3, "own", 0), key_in(2, 3, "other", 0));
    for (function, method) in
        [("set", "set"), ("remove", "delete"), ("incr", "incr"), ("expire", "expire")]
    {
        let reply = bench.run(&[at(1, function, &[own.as_bytes()])]).remove(0);
        assert!(!reply.starts_with('-') || reply.contains("not an integer"), "{reply}");
        let reply = bench.run(&[at(1, function, &[other.as_bytes()])]).remove(0);
        let text = format!("-CROSSSLOT db.{method}: the key '{other}' is in another partition. ");
        assert!(reply.starts_with(&text), "{reply}");
        assert!(reply.contains("{tag}") && reply.contains("allow-cross-slot-keys"), "{reply}");
    }
    let before = bench.world.commits;
    let reply = bench.run(&[at(1, "two", &[own.as_bytes(), other.as_bytes()])]).remove(0);
    assert!(reply.starts_with("-CROSSSLOT db.set: "), "{reply}");
    assert_eq!(bench.world.commits, before);
    assert_eq!(bench.world.text(&other), None);
    // A common tag brings them together; a number has a partition too.
    let tag = key_in(1, 3, "tag", 0);
    let (a, b) = (format!("a{{{tag}}}"), format!("{{{tag}}}b"));
    assert_eq!(bench.run(&[at(1, "two", &[a.as_bytes(), b.as_bytes()])]), ["$-1\r\n"]);
    assert_eq!(bench.world.text(&b).as_deref(), Some("new"));
    bench.add("numbers", "export const number = (db, [n]) => { db.set(Number(n), 1); };");
    let (here, there) = (key_in(1, 3, "", 5), key_in(0, 3, "", 5));
    assert_eq!(bench.run(&[at(1, "number", &[here.as_bytes()])]), ["$-1\r\n"]);
    let reply = bench.run(&[at(1, "number", &[there.as_bytes()])]).remove(0);
    assert!(reply.starts_with(&format!("-CROSSSLOT db.set: the key '{there}'")), "{reply}");
}

#[test]
fn the_flag_allows_writes_to_all_partitions() {
    // The host gets them in the order in which they were made; a call reads its own, wherever they
    // go.
    let mut bench = several(3, &[], ALL);
    let keys = [0, 1, 2].map(|p| key_in(p, 3, "k", 0));
    for key in &keys {
        bench.put(key, "old");
    }
    let args: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    // A call without the flag before and after it is held to its own partition.
    let calls = [at(0, "two", &args[..2]), at(0, "anywhere", &args), at(0, "two", &args[..2])];
    let replies = bench.run(&calls);
    assert!(replies[0].starts_with("-CROSSSLOT") && replies[2].starts_with("-CROSSSLOT"));
    assert_eq!(replies[1], "*5\r\n$3\r\nnew\r\n:0\r\n:1000\r\n$3\r\nold\r\n:1\r\n");
    assert_eq!(
        bench.world.written,
        [keys.clone().to_vec(), vec![format!("{}n", keys[0])]].concat()
    );
    assert_eq!(bench.world.text(&keys[0]).as_deref(), Some("new"));
    assert_eq!(bench.world.text(&keys[1]), None);
    assert_eq!(bench.world.get(keys[2].as_bytes()), Some((b"old".to_vec(), NOW_MS + 1000)));
}

#[test]
fn with_one_partition_there_is_nothing_to_cross() {
    // The flag is accepted and shown, and changes nothing; tags mean nothing.
    let mut bench = several(1, &[], ALL);
    let library =
        bench.add("more", "export const f = () => 1; f.flags = ['allow-cross-slot-keys'];");
    assert_eq!(library.functions[0].flags().collect::<Vec<_>>(), ["allow-cross-slot-keys"]);
    assert_eq!(bench.run(&[at(0, "two", &[b"a{x}", b"b{y}"])]), ["$-1\r\n"]);
    let reply = bench.run(&[at(0, "anywhere", &[b"a", b"b{y}", b"b{z}"])]).remove(0);
    assert!(reply.starts_with("*5\r\n$3\r\nnew\r\n"), "{reply}");
}

#[test]
fn records_of_several_arenas_are_kept_in_one_call() {
    // Cursors, long values in runs, and a growing index: each in its own arena, at once.
    let mut bench = several(
        2,
        &[],
        "export function sum(db, keys) {\n\
           const records = keys.map((k) => db.get(k));\n\
           if (records.some((r) => r.f32(0) !== r.f32(1) || r.f64(0) !== r.f64(1))) throw new Error('floats');\n\
           return records.map((r) => [r.u8(1), r.u16(0), r.u32(0), r.i32(0), r.text().length, r.bytes()[1]].join());\n\
         }\n\
         export const pad = (db) => { let n = 0; for (let i = 0; i < 3000; i++) n += db.exists('pad' + i) + db.exists(i); return n; };",
    );
    let value = |n: u8, len: usize| vec![n; len];
    let keys: Vec<String> = (0..4).map(|n| key_in(n % 2, 2, "a key that is long ", n)).collect();
    bench.put(&keys[0], value(1, 16));
    bench.put(&keys[1], value(2, 16));
    bench.put(&keys[2], value(3, 200_000));
    bench.put(&keys[3], value(4, 200_000));
    for i in 0..3000 {
        bench.put(&format!("pad{i}"), "x");
        bench.put(&i.to_string(), "x");
    }
    bench.world.arenas[1].grow();
    let args: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let expect = |n: u8| {
        let word = u32::from_le_bytes([n; 4]);
        let length = if n < 3 { 16 } else { 200_000 };
        format!("{n},{},{word},{word},{length},{n}", word & 0xffff)
    };
    let expected: Vec<String> = (1..=4).map(expect).collect();
    for _ in 0..3 {
        let reply = bench.run(&[at(0, "sum", &args)]).remove(0);
        let found: Vec<&str> = reply.split("\r\n").filter(|line| line.contains(',')).collect();
        assert_eq!(found, expected);
        assert_eq!(bench.run(&[call("pad")]), [":6000\r\n"]);
        bench.world.arenas[1].move_some(1000);
    }
}

#[test]
fn an_overlay_belongs_to_the_partition_of_its_call() {
    // A call sees the overlay of a transaction in partition 1 first. It reads other keys in their
    // own arenas.
    let mut bench = several(2, &[], ALL);
    let (staged, gone, other) =
        (key_in(1, 2, "staged", 0), key_in(1, 2, "gone", 0), key_in(0, 2, "other", 0));
    for key in [&staged, &gone, &other] {
        bench.put(key, "old");
    }
    let reference = bench.world.arenas[1].append(staged.as_bytes(), b"new", NOW_MS + 5);
    let key = |key: &str| Box::from(key.as_bytes());
    let entries = [(key(&staged), Some(reference)), (key(&gone), None)];
    let overlay = Overlay { entries: &entries, ..Overlay::default() };
    let args: [&[u8]; 3] = [staged.as_bytes(), gone.as_bytes(), other.as_bytes()];
    let read = Call { overlay, ..at(1, "read", &args) };
    assert_eq!(bench.run(&[read]), ["*3\r\n$3\r\nnew\r\n$-1\r\n$3\r\nold\r\n"]);
    let expire = Call { overlay, ..at(1, "expire", &args[..1]) };
    assert_eq!(bench.run(&[expire]), [":1\r\n"]);
    assert_eq!(bench.world.written, [staged.as_str()]);
    // A staged reference is one of the call's partition, whatever its key is.
    let reference = bench.world.arenas[1].append(other.as_bytes(), b"away", 0);
    let entries = [(key(&other), Some(reference))];
    let overlay = Overlay { entries: &entries, ..Overlay::default() };
    bench.add(
        "more",
        "export const keep = (db, [k]) => [db.text(k), db.ttl(k), db.expire(k, 7), db.text(k), db.ttl(k)];\n\
         keep.flags = ['allow-cross-slot-keys'];",
    );
    let keep = Call { overlay, resp3: true, ..at(1, "keep", &args[2..]) };
    let reply = "*5\r\n$4\r\naway\r\n,inf\r\n#t\r\n$4\r\naway\r\n:7\r\n";
    assert_eq!(bench.run(&[keep]), [reply]);
}

#[test]
fn a_commit_under_way_in_a_foreign_arena_is_not_seen() {
    // Partition 1 is in the middle of a commit all the time. A call that reads it, alone or with
    // others, sees the versions before the commit, also of a key that the commit has published
    // already. Calls that write see them too.
    let mut bench = several(3, &[0, 1], ALL);
    let keys = [0, 1, 2].map(|p| key_in(p, 3, "k", 0));
    for key in &keys {
        bench.put(key, "old");
    }
    let all: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let read = |p: usize| at(0, "read", &all[p..=p]);
    let old = "*1\r\n$3\r\nold\r\n";
    let olds = "*3\r\n$3\r\nold\r\n$3\r\nold\r\n$3\r\nold\r\n";
    bench.world.arenas[1].begin_commit();
    bench.world.arenas[1].put(keys[1].as_bytes(), b"new", 0);
    let calls = [read(0), read(1), read(2), at(0, "read", &all), at(2, "set", &all[2..])];
    assert_eq!(bench.run(&calls), [old, old, old, olds, "$-1\r\n"]);
    bench.world.arenas[1].end_commit();
    let new = "*1\r\n$3\r\nnew\r\n";
    assert_eq!(bench.run(&[read(0), read(1), read(2)]), [old, new, new]);
}

#[test]
fn what_cant_be_told_of_a_moment_is_asked_of_the_owner() {
    // A commit under way has removed a key, and put another that wasn't there: a version of before
    // is nowhere, and no attempt finds another moment. So the reply says that the owner is to run
    // it; also if the function caught the error that ended its attempt.
    let body = "export const read = (db, [k]) => db.text(k);\n\
        export const caught = (db, [k]) => { try { return db.text(k); } catch { return 'nothing'; } };";
    let mut bench = several(1, &[0], body);
    bench.put("gone", "old");
    bench.put("stays", "old");
    bench.world.arenas[0].begin_commit();
    bench.world.arenas[0].delete(b"gone");
    let call = |function: &'static str, key| Call {
        function: function.as_bytes(),
        args: key,
        ..Call::default()
    };
    let unstable = String::from_utf8_lossy(UNSTABLE).into_owned();
    for function in ["read", "caught"] {
        // The calls behind it wait until it has run, since it may write.
        let replies = bench.run(&[call(function, &[b"gone"]), call("read", &[b"stays"])]);
        assert_eq!(replies, [unstable.as_str()], "{function}");
        assert_eq!(bench.runtime.untold(), 1);
    }
    assert_eq!(bench.run(&[call("read", &[b"stays"])]), ["$3\r\nold\r\n"]);
    assert_eq!(bench.runtime.untold(), 0);
    bench.world.arenas[0].end_commit();
    assert_eq!(bench.run(&[call("read", &[b"gone"])]), ["$-1\r\n"]);
}

#[test]
fn a_key_is_over_for_others_when_its_owner_has_found_it_to_be() {
    // The owner's clock stands at 1,000,000 ms, the batch's is later. A key whose time is over by
    // both is gone. If it is over by the batch's clock alone, the owner has to say.
    let mut bench = several(1, &[0], "export const read = (db, [k]) => db.text(k);");
    let now_ms = bench.now_ms;
    bench.world.arenas[0].put(b"over", b"1", now_ms - 10_000);
    bench.world.arenas[0].put(b"unsure", b"2", now_ms - 10);
    bench.world.arenas[0].put(b"stays", b"3", now_ms + 10_000);
    bench.world.arenas[0].set_clock(now_ms - 5_000);
    let unstable = String::from_utf8_lossy(UNSTABLE).into_owned();
    let call = |key| Call { function: b"read", args: key, ..Call::default() };
    let calls = [call(&[b"over"]), call(&[b"stays"]), call(&[b"unsure"])];
    assert_eq!(bench.run(&calls), ["$-1\r\n", "$1\r\n3\r\n", &unstable]);
    assert_eq!(bench.runtime.untold(), 1);
    // The owner has stored its time: the key isn't over yet.
    bench.still = 1;
    assert_eq!(bench.run(&calls), ["$-1\r\n", "$1\r\n3\r\n", "$1\r\n2\r\n"]);
    bench.world.arenas[0].set_clock(now_ms);
    assert_eq!(bench.run(&calls), ["$-1\r\n", "$1\r\n3\r\n", "$-1\r\n"]);
}

#[test]
fn the_partitions_that_cant_be_told_are_named() {
    // Of 40 partitions, other threads write 3 and 35, and are in a commit: the reply names these
    // two.
    let body = "export const read = (db, keys) => keys.map((key) => { try { return db.text(key); } catch { return null; } });";
    let mut bench = several(40, &[3, 5, 35], body);
    let keys = [3, 5, 35].map(|p| key_in(p, 40, "k", 0));
    for (key, partition) in keys.iter().zip([3, 5, 35]) {
        bench.put(key, "old");
        bench.world.arenas[partition].begin_commit();
        if partition != 5 {
            bench.world.arenas[partition].delete(key.as_bytes());
        }
    }
    let args: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    assert_eq!(bench.run(&[at(0, "read", &args)]), [String::from_utf8_lossy(UNSTABLE)]);
    assert_eq!(bench.runtime.untold(), 1 << 3 | 1 << 35);
}

#[test]
fn partitions_with_different_seeds_are_refused() {
    // Different seeds would be a mistake of the server that loses keys: the call gets an error
    // reply.
    let mut bench = several(2, &[], ALL);
    bench.world.arenas[1].set_seed(7);
    bench.runtime.remove_all(bench.tenant); // the context that is there has read the seed
    bench.add("t", ALL);
    let reply = bench.call("read", &["a"]);
    assert!(reply.contains("the partitions have different seeds of the hash"), "{reply}");
}

#[test]
fn all_attempts_of_a_call_have_one_time_limit() {
    // Each attempt is torn, and takes a part of the limit. If each had a limit of its own, a call
    // would take eight times as long, and end without an error of the limit.
    let body = "export const pair = (db, [a, b]) => { let n = 0; for (let i = 0; i < 1e8; i++) n ^= i;\n\
        const x = db.text(a); db.scan('none'); return [n, x, db.text(b)]; };\n\
        pair.flags = ['no-writes'];";
    let limits = FunctionLimits { call_ms: 150, ..patient() };
    let mut bench = several_with(limits, 1, &[0], body);
    let keys = ["a", "b"];
    keys.iter().for_each(|key| bench.put(key, "old"));
    bench.world.meanwhile = Some(Box::new(move |arenas: &mut [Arena]| {
        arenas[0].begin_commit();
        for key in keys {
            arenas[0].delete(key.as_bytes());
            arenas[0].put(key.as_bytes(), b"new", 0);
        }
        arenas[0].end_commit();
    }));
    let [reply] = &bench.run(&[at(0, "pair", &[b"a", b"b"])])[..] else { panic!("one reply") };
    assert!(reply.contains("ran longer than 150 ms"), "{reply}");
}

/// Each way in which a call can end after it saw two keys of one commit differ. The commit comes
/// between, in `scan`.
const TORN: &str = "const pair = (db, [a, b]) => { const x = db.text(a); db.scan('none'); return [x, db.text(b)]; };\n\
    export const give = pair;\n\
    export const fail = (db, args) => { const [x, y] = pair(db, args); if (x !== y) throw new Error('differ'); return [x, y]; };\n\
    export const reject = async (db, args) => fail(db, args);\n\
    export const late = (db, args) => { const [x, y] = pair(db, args);\n\
      return { get seen() { if (x !== y) throw new Error('differ'); return [x, y]; } }; };\n\
    export const odd = (db, args) => { const [x, y] = pair(db, args); return x === y ? [x, y] : Symbol('differ'); };\n\
    export const write = (db, args) => { const [x, y] = pair(db, args);\n\
      if (x !== y) db.set(args[2], 'differ'); else db.incr(args[3]); return [x, y]; };\n\
    export const leave = (db, args) => { const all = pair(db, args); Promise.resolve().then(() => { throw new Error('left'); }); return all; };";

#[test]
fn what_a_call_did_with_a_torn_read_never_happened() {
    // A commit removes two keys and puts them again between a call's reads of them. So the versions
    // before it are nowhere, and the attempt is over. Whatever it returned, threw, rejected,
    // encoded or wrote is dropped: the call runs again, and only that run is answered and
    // committed.
    for partitions in [1, 2] {
        let mut bench = several(partitions, &[0], TORN);
        let [a, b] = [0, 1].map(|n| key_in(0, partitions, "pair", n));
        let [bad, counter] =
            ["bad", "counter"].map(|name| key_in(partitions - 1, partitions, name, 0));
        let args: Vec<&[u8]> = [&a, &b, &bad, &counter].map(|key| key.as_bytes()).to_vec();
        let home = u32::try_from(partitions - 1).unwrap();
        for (round, function) in
            ["give", "fail", "reject", "late", "odd", "write", "leave"].into_iter().enumerate()
        {
            let old = format!("old{round}");
            bench.put(&a, &old);
            bench.put(&b, &old);
            let (keys, new) = ([a.clone(), b.clone()], format!("new{round}"));
            let mut left = 3;
            bench.world.meanwhile = Some(Box::new(move |arenas: &mut [Arena]| {
                if left > 0 {
                    left -= 1;
                    arenas[0].begin_commit();
                    let value = format!("{new}.{left}");
                    for key in &keys {
                        arenas[0].delete(key.as_bytes());
                        arenas[0].put(key.as_bytes(), value.as_bytes(), 0);
                    }
                    arenas[0].end_commit();
                }
            }));
            let (commits, value) = (bench.world.commits, format!("new{round}.0"));
            let pair = format!("*2\r\n$6\r\n{value}\r\n$6\r\n{value}\r\n");
            let expected =
                if function == "late" { format!("*2\r\n$4\r\nseen\r\n{pair}") } else { pair };
            assert_eq!(bench.run(&[at(home, function, &args)]), [expected], "{function}");
            let wrote = usize::from(function == "write");
            assert_eq!(bench.world.commits, commits + wrote, "{function}");
        }
        assert_eq!(bench.world.text(&bad), None);
        assert_eq!(bench.world.text(&counter).as_deref(), Some("1"));
    }
}
