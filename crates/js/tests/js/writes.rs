//! The write set: a call sees its own writes, and they are committed whole or not at all.

use crate::common::{Bench, NOW_MS, call, patient};
use nigh_js::{Call, FunctionLimits, Overlay};

#[test]
fn a_call_sees_its_own_writes_and_commits_them_once() {
    // Text, number, BigInt, bytes, another Record; overwritten and deleted keys; one commit.
    let mut bench = Bench::of(
        "export function f(db) {\n\
           db.set('a', 'one'); db.set(7, 42); db.set('big', 10n); db.set(new Uint8Array([255]), new Uint8Array([1, 2]));\n\
           db.set('copy', db.get('old')); db.set('a', 'two'); db.delete('gone'); db.set('tmp', 1); db.delete('tmp');\n\
           return [db.text('a'), db.text('7'), db.get(7).byteLength, db.get('copy').u8(0), db.exists('gone'), db.get('tmp') === undefined,\n\
                   db.get(new Uint8Array([255])).u8(1), db.text('old'), db.delete('nothing')];\n\
         }",
    );
    bench.put("old", "value");
    bench.put("gone", "x");
    assert_eq!(
        bench.call3("f", &[]),
        "*9\r\n$3\r\ntwo\r\n$2\r\n42\r\n:2\r\n:118\r\n#f\r\n#t\r\n:2\r\n$5\r\nvalue\r\n#f\r\n"
    );
    assert_eq!(bench.world.commits, 1);
    let arena = &bench.world.arenas[0];
    assert_eq!(arena.text("a").as_deref(), Some("two"));
    assert_eq!(arena.text("7").as_deref(), Some("42"));
    assert_eq!(arena.text("big").as_deref(), Some("10"));
    assert_eq!(arena.text("copy").as_deref(), Some("value"));
    assert_eq!(arena.get(b"\xff"), Some((vec![1, 2], 0)));
    assert_eq!(arena.get(b"gone"), None);
    assert_eq!(arena.get(b"tmp"), None);
}

#[test]
fn a_record_of_an_own_write_keeps_its_bytes() {
    // Overwriting a key does not change a Record that was read before.
    let mut bench = Bench::of(
        "export function f(db) {\n\
           db.set('k', new Float64Array([1.5, 2.5])); const r = db.get('k'); db.set('k', 'other');\n\
           return [r.f64(1), r.byteLength, db.text('k')];\n\
         }",
    );
    assert_eq!(bench.call3("f", &[]), "*3\r\n,2.5\r\n:16\r\n$5\r\nother\r\n");
}

#[test]
fn the_next_call_of_a_batch_sees_the_commit() {
    // Commit happens before the next call starts.
    let mut bench = Bench::of(
        "export const inc = (db) => db.incr('n');\nexport const get = (db) => db.text('n');",
    );
    let calls = ["inc", "inc", "get", "inc", "get"].map(call);
    assert_eq!(bench.run(&calls), [":1\r\n", ":2\r\n", "$1\r\n2\r\n", ":3\r\n", "$1\r\n3\r\n"]);
}

#[test]
fn a_call_that_throws_half_way_writes_nothing() {
    // Its neighbours in the batch keep theirs.
    let mut bench = Bench::of(
        "export const good = (db, [k]) => { db.set(k, 1); };\n\
         export const bad = (db) => { db.set('bad', 1); db.set('good', 2); throw new Error('no'); };\n\
         export const unsendable = (db) => { db.set('bad', 1); return () => 1; };",
    );
    let one = Call { function: b"good", args: &[b"good"], ..Call::default() };
    let two = Call { function: b"good", args: &[b"late"], ..Call::default() };
    let replies = bench.run(&[one, call("bad"), call("unsendable"), two]);
    assert!(replies[1].starts_with("-ERR no (function bad, line 3, column"), "{}", replies[1]);
    assert!(replies[2].starts_with("-ERR a function's result"), "{}", replies[2]);
    assert_eq!(bench.world.commits, 2);
    assert_eq!(bench.world.arenas[0].text("bad"), None);
    assert_eq!(bench.world.arenas[0].text("good").as_deref(), Some("1"));
    assert_eq!(bench.world.arenas[0].text("late").as_deref(), Some("1"));
}

#[test]
fn a_refused_commit_is_the_reply() {
    // The function had a fine result, but nothing was written, so its reply is the host's error.
    let mut bench = Bench::of(
        "export const w = (db) => { db.set('k', 1); return 'done'; };\nexport const r = (db) => db.text('k');",
    );
    bench.world.refuse = Some("OOM command not allowed when used memory > 'maxmemory'.".into());
    let replies = bench.run(&[call("r"), call("w"), call("r")]);
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    assert_eq!(replies, ["$-1\r\n", oom, "$-1\r\n"]);
}

#[test]
fn a_function_without_writes_cannot_write() {
    // The flag is named; FCALL_RO refuses functions that lack it.
    let mut bench = Bench::of(
        "export function ro(db, [m]) { return m ? db[m]('k', 1) : db.text('k'); }\nro.flags = ['no-writes'];\n\
         export const rw = () => 1;",
    );
    for method in ["set", "delete", "incr", "expire"] {
        let reply = bench.call("ro", &[method]);
        let text = format!("-ERR db.{method}: a function with the flag no-writes cannot write");
        assert!(reply.starts_with(&text), "{reply}");
    }
    let read_only = |function| Call { function, read_only: true, ..Call::default() };
    assert_eq!(bench.run(&[read_only(b"ro")]), ["$-1\r\n"]);
    assert_eq!(
        bench.run(&[read_only(b"rw")]),
        ["-ERR Can not execute a script with write flag using *_ro command.\r\n"]
    );
    assert_eq!(bench.world.commits, 0);
}

#[test]
fn expiry_is_seen_and_set() {
    // ttl, expire and incr follow Redis: set clears an expiry, incr keeps it, a past one deletes.
    let mut bench = Bench::of(
        "export const f = (db) => [db.ttl('none'), db.ttl('plain'), db.ttl('dies'), db.text('dead'), db.exists('dead'), db.ttl('dead')];\n\
         export const g = (db) => { db.expire('plain', 5000); db.incr('dies'); db.set('reset', 2);\n\
           return [db.ttl('plain'), db.ttl('dies'), db.ttl('reset'), db.expire('none', 1), db.text('plain'), db.expire('gone', 0), db.exists('gone'),\n\
             db.expire('half', 0.5), db.exists('half')]; };",
    );
    bench.put("plain", "1");
    bench.put("gone", "1");
    bench.put("half", "1"); // its fraction is cut off first
    bench.world.arenas[0].put(b"dies", b"1", NOW_MS + 1234);
    bench.world.arenas[0].put(b"edge", b"1", NOW_MS);
    bench.world.arenas[0].put(b"dead", b"1", NOW_MS - 1);
    bench.world.arenas[0].put(b"reset", b"1", NOW_MS + 1234);
    assert_eq!(bench.call3("f", &[]), "*6\r\n_\r\n,inf\r\n:1234\r\n_\r\n#f\r\n_\r\n");
    assert_eq!(
        bench.call3("g", &[]),
        "*9\r\n:5000\r\n:1234\r\n,inf\r\n#f\r\n$1\r\n1\r\n#t\r\n#f\r\n#t\r\n#f\r\n"
    );
    let arena = &bench.world.arenas[0];
    assert_eq!(arena.get(b"plain"), Some((b"1".to_vec(), NOW_MS + 5000)));
    assert_eq!(arena.get(b"dies"), Some((b"2".to_vec(), NOW_MS + 1234)));
    assert_eq!(arena.get(b"reset"), Some((b"2".to_vec(), 0)));
    assert_eq!(arena.get(b"gone"), None);
}

#[test]
fn incr_counts_integers_only() {
    // As INCRBY does, up to what a JavaScript number holds exactly.
    let mut bench = Bench::of(
        "export const f = (db, [k, by]) => db.incr(k, by === undefined ? 1 : Number(by));",
    );
    bench.put("text", "abc");
    bench.put("space", " 1");
    bench.put("max", "9007199254740991");
    assert_eq!(bench.call("f", &["n", "5"]), ":5\r\n");
    assert_eq!(bench.call("f", &["n", "-7"]), ":-2\r\n");
    for key in ["text", "space"] {
        assert!(
            bench.call("f", &[key]).starts_with("-ERR value is not an integer or out of range")
        );
    }
    assert!(bench.call("f", &["max"]).starts_with("-ERR increment or decrement would overflow"));
    assert!(bench.call("f", &["n", "1.5"]).contains("by is a safe integer"));
}

#[test]
fn a_write_set_has_limits() {
    // Bytes and keys; the error names limit and setting, and nothing is written.
    let limits = FunctionLimits { write_set_bytes: 1000, write_set_keys: 3, ..patient() };
    let mut bench = Bench::with(limits);
    bench.add(
        "t",
        "export const keys = (db, [n]) => { for (let i = 0; i < Number(n); i++) db.set(i, i); };\n\
         export const bytes = (db, [n]) => db.set('k', 'x'.repeat(Number(n)));\n\
         export const many = (db) => { for (let i = 0; i < 100; i++) db.set('k', 'x'.repeat(100)); };",
    );
    assert_eq!(bench.call("keys", &["3"]), "$-1\r\n");
    assert!(
        bench
            .call("keys", &["4"])
            .contains("more than 3 keys (setting: function-write-set-limit-keys)")
    );
    assert_eq!(bench.call("bytes", &["900"]), "$-1\r\n");
    for reply in [bench.call("bytes", &["1001"]), bench.call("many", &[])] {
        assert!(
            reply.contains("more than 1000 bytes (setting: function-write-set-limit-bytes)"),
            "{reply}"
        );
    }
    assert_eq!(bench.world.commits, 2);
}

#[test]
fn a_write_that_failed_leaves_its_room_to_others() {
    // The value fits, but no key behind it. Once, each later call in that context had no room for
    // any write.
    let mut bench = Bench::with(FunctionLimits { write_set_bytes: 1000, ..patient() });
    bench.add(
        "t",
        "export const put = (db, [k, n]) => db.set(k, 'x'.repeat(n));\n\
         export const again = (db) => { try { db.set('k', 'x'.repeat(1000)); } catch {} db.set('k', 'x'.repeat(900)); };",
    );
    let reply = bench.call("put", &["k", "1000"]);
    assert!(reply.contains("more than 1000 bytes (setting: function-write-set-limit-bytes)"));
    assert_eq!(bench.call("put", &["k", "900"]), "$-1\r\n");
    assert_eq!(bench.call("again", &[]), "$-1\r\n");
    assert_eq!(bench.world.commits, 2);
}

#[test]
fn no_value_begins_behind_the_end_of_a_write_set() {
    // The padding of the first value lies beyond a limit that is no multiple of 8. Once, there was
    // room for 4 GiB then, of which 600 MiB were memory of the write set.
    let mut bench = Bench::with(FunctionLimits { write_set_bytes: 1001, ..patient() });
    bench.add(
        "t",
        "const values = { text: (n) => '\\u00e9'.repeat(n), bytes: (n) => new Uint8Array(n) };\n\
         export const put = (db, [kind, n]) => { db.set('a', 'x'.repeat(994)); db.set('a', values[kind](Number(n))); };",
    );
    for (kind, bytes) in [("text", "2097152"), ("bytes", "2097152"), ("text", "1")] {
        let reply = bench.call("put", &[kind, bytes]);
        assert!(reply.contains("more than 1001 bytes (setting: "), "{kind} {bytes}: {reply}");
    }
    assert_eq!(bench.world.commits, 0);
}

#[test]
fn a_call_in_a_transaction_sees_what_is_staged() {
    // The overlay comes before the arena; a cleared keyspace hides it.
    let mut bench = Bench::of(
        "export const f = (db) => [db.text('a'), db.text('b'), db.text('c'), db.text('d')];",
    );
    bench.put("a", "old");
    bench.put("b", "old");
    bench.put("c", "old");
    let staged = bench.world.arenas[0].append(b"a", b"new", 0);
    let entries = [(Box::from(*b"a"), Some(staged)), (Box::from(*b"b"), None)];
    let call = |cleared| Call {
        function: b"f",
        overlay: Overlay { cleared, entries: &entries, ..Overlay::default() },
        ..Call::default()
    };
    let replies = bench.run(&[call(false), call(true), crate::common::call("f")]);
    assert_eq!(replies[0], "*4\r\n$3\r\nnew\r\n$-1\r\n$3\r\nold\r\n$-1\r\n");
    assert_eq!(replies[1], "*4\r\n$3\r\nnew\r\n$-1\r\n$-1\r\n$-1\r\n");
    assert_eq!(replies[2], "*4\r\n$3\r\nold\r\n$3\r\nold\r\n$3\r\nold\r\n$-1\r\n");
}

#[test]
fn the_next_call_of_a_transaction_is_told_what_is_new() {
    // On top of that it sees what the calls before were told, as long as the runtime says that it
    // has it: a call that was refused, one that was stopped and one outside of the transaction end
    // that.
    let mut bench = Bench::with(FunctionLimits { call_ms: 300, ..patient() });
    bench.add(
        "f",
        "export const f = (db) => [db.text('a'), db.text('b'), db.text('c')];\n\
         export const bad = () => { throw new Error('no'); };\n\
         export const spin = () => { for (;;); };",
    );
    ["a", "b", "c"].into_iter().for_each(|key| bench.put(key, "old"));
    let stage = |bench: &mut Bench, key: &str, value: &str| {
        let reference = bench.world.arenas[0].append(key.as_bytes(), value.as_bytes(), 0);
        (Box::<[u8]>::from(key.as_bytes()), Some(reference))
    };
    let all = [stage(&mut bench, "a", "new"), (Box::from(*b"b"), None)];
    let more = [stage(&mut bench, "b", "back"), (Box::from(*b"a"), None)];
    let run = |bench: &mut Bench, name: &str, continues, entries: &[(Box<[u8]>, Option<u32>)]| {
        let overlay = Overlay { continues, entries, ..Overlay::default() };
        let reply = bench.run(&[Call { overlay, ..crate::common::call(name) }]).remove(0);
        (reply, bench.runtime.holds_overlay(bench.tenant))
    };
    let first = "*3\r\n$3\r\nnew\r\n$-1\r\n$3\r\nold\r\n".to_owned();
    let then = "*3\r\n$-1\r\n$4\r\nback\r\n$3\r\nold\r\n".to_owned();
    let outside = "*3\r\n$3\r\nold\r\n$3\r\nold\r\n$3\r\nold\r\n".to_owned();
    assert!(!bench.runtime.holds_overlay(bench.tenant));
    assert_eq!(run(&mut bench, "f", false, &all), (first.clone(), true));
    assert_eq!(run(&mut bench, "f", true, &more), (then.clone(), true));
    assert_eq!(run(&mut bench, "f", true, &[]), (then, true));
    assert_eq!(run(&mut bench, "f", false, &all), (first.clone(), true), "another transaction");
    assert!(run(&mut bench, "bad", true, &[]).1, "what a function throws changes nothing");
    assert_eq!(run(&mut bench, "f", true, &[]), (first.clone(), true));

    assert!(!bench.runtime.admits(bench.tenant, &crate::common::call("nothing")));
    assert!(!run(&mut bench, "nothing", true, &more).1, "it was told nothing");
    assert_eq!(run(&mut bench, "f", false, &all), (first.clone(), true));
    assert!(!run(&mut bench, "spin", true, &[]).1, "its context is gone");
    assert_eq!(run(&mut bench, "f", false, &all), (first, true));
    assert_eq!(run(&mut bench, "f", false, &[]), (outside.clone(), false));
    assert_eq!(run(&mut bench, "f", false, &[]), (outside, false));
}

#[test]
fn scan_pages_through_a_prefix_and_own_writes() {
    // Every key with the prefix comes: without the keys that the call deleted, with those that it
    // wrote.
    let mut bench = Bench::of(
        "export function f(db) {\n\
           db.delete('user:7'); db.set('user:new', 1); db.set('other', 1);\n\
           const all = []; let cursor = 0, pages = 0;\n\
           do { const page = db.scan('user:', cursor); all.push(...page.keys); cursor = page.cursor; pages++; } while (cursor !== 0);\n\
           return [pages > 1, all.length, new Set(all).size, all.includes('user:7'), all.includes('user:new')];\n\
         }\n\
         export const bytes = (db) => db.scan('\\u00ff').keys.length + db.scan(new Uint8Array([255])).keys[0].length;",
    );
    for n in 0..250 {
        bench.put(&format!("user:{n}"), "x");
        bench.put(&format!("thing:{n}"), "x");
    }
    bench.world.arenas[0].put(b"\xff\xfe", b"x", 0);
    assert_eq!(bench.call3("f", &[]), "*5\r\n#t\r\n:250\r\n:250\r\n#f\r\n#t\r\n");
    assert_eq!(bench.call("bytes", &[]), ":2\r\n");
}
