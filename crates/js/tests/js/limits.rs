//! The limits of a call: time, heap, buffers, stack. A stopped call leaves nothing behind.

use crate::common::{Bench, call, patient};
use nigh_js::{Call, FunctionLimits, RunTurn};
use std::time::{Duration, Instant};

fn quick() -> Bench {
    Bench::with(FunctionLimits { call_ms: 300, heap_bytes: 64 << 20, ..patient() })
}

const TIMEOUT: &str =
    "ran longer than 300 ms and was stopped; nothing was written (setting: function-time-limit-ms)";

#[test]
fn a_call_that_runs_too_long_is_stopped() {
    // Loops, recursion, promises, regular expressions, big numbers; the runtime goes on.
    let mut bench = quick();
    bench.add(
        "t",
        "export const loop = () => { for (;;); };\n\
         export const caught = () => { for (;;) { try { for (;;); } catch {} finally { for (;;); } } };\n\
         export const flood = () => { const f = () => { Promise.resolve().then(f); }; f(); };\n\
         export const wait = async () => { for (;;) await null; };\n\
         export const regexp = () => /(a*)*b/.test('a'.repeat(40));\n\
         export const big = () => { let n = 3n; for (;;) n *= n; };\n\
         export const getter = () => ({ get a() { for (;;); } });\n\
         export const thrown = () => { throw { get message() { for (;;); } }; };\n\
         export const reading = (db) => { for (;;) db.get('k'); };\n\
         export const ok = () => 1;",
    );
    for name in ["loop", "caught", "flood", "wait", "regexp", "big", "getter", "thrown", "reading"]
    {
        assert_eq!(bench.call(name, &[]), format!("-ERR function '{name}' {TIMEOUT}\r\n"));
        assert_eq!(bench.call("ok", &[]), ":1\r\n");
    }
    assert_eq!(bench.runtime.stats().timeouts, 9);
}

#[test]
fn a_stopped_call_in_a_batch_costs_itself_alone() {
    // Calls before it keep their results and writes, those after it run.
    let mut bench = quick();
    bench.add(
        "t",
        "export const put = (db, [k]) => { db.set(k, 1); return k; };\n\
         export const stuck = (db) => { db.set('stuck', 1); db.set('a', 2); for (;;); };",
    );
    let put = |args| Call { function: b"put", args, ..Call::default() };
    let replies =
        bench.run(&[put(&[b"a"]), call("stuck"), put(&[b"b"]), call("stuck"), put(&[b"c"])]);
    let stopped = format!("-ERR function 'stuck' {TIMEOUT}\r\n");
    assert_eq!(replies, ["$1\r\na\r\n", &stopped, "$1\r\nb\r\n", &stopped, "$1\r\nc\r\n"]);
    let text = |key| bench.world.arenas[0].text(key);
    assert_eq!([text("a"), text("b"), text("c")].map(Option::unwrap), ["1", "1", "1"]);
    assert_eq!(text("stuck"), None);
}

#[test]
fn nothing_of_a_stopped_call_runs_later() {
    // Its promises and its half-changed module variables are gone with its context.
    let mut bench = quick();
    bench.add(
        "t",
        "let n = 0;\n\
         export const stuck = () => { n = 7; Promise.resolve().then(() => { n = 9; }); for (;;); };\n\
         export const get = () => n;",
    );
    assert!(bench.call("stuck", &[]).contains(TIMEOUT));
    assert_eq!(bench.call("get", &[]), ":0\r\n");
}

#[test]
fn a_late_termination_never_hits_another_call() {
    // Calls that end around their limit: each is answered or stopped, and what follows is never
    // touched.
    let mut bench = Bench::with(FunctionLimits { call_ms: 50, ..patient() });
    bench.add(
        "t",
        "export const spin = (db, [n]) => { let x = 0; for (let i = 0; i < Number(n); i++) x += Math.sqrt(i); db.set('n', n); return n; };\n\
         export const ok = () => 1;",
    );
    let steps: Vec<String> = (0..150).map(|n| (n * 1_000_000).to_string()).collect();
    let (mut ended, mut stopped) = (0, 0);
    for step in &steps {
        let args: [&[u8]; 1] = [step.as_bytes()];
        let spin = Call { function: b"spin", args: &args, ..Call::default() };
        // On a busy machine a start may take longer than a call may: the next one waits then. And
        // a machine that stands still for so long stops any call. Three calls of which just one
        // was stopped by itself don't take twice the limit.
        let is_disturbed = |replies: &[String], time: Duration| {
            let is_late = time >= Duration::from_millis(100);
            let is_stopped = |reply: &String| reply.contains("ran longer than");
            replies.iter().any(|it| it.contains("does not start"))
                || is_late && replies[1..].iter().any(is_stopped)
        };
        let replies = (0..100).find_map(|_| {
            let begin = Instant::now();
            let replies = bench.run(&[spin, call("ok"), call("ok")]);
            let is_disturbed = is_disturbed(&replies, begin.elapsed());
            if is_disturbed {
                std::thread::sleep(Duration::from_millis(100));
            }
            (!is_disturbed).then_some(replies)
        });
        let replies = replies.expect("it runs undisturbed at last");
        assert_eq!(replies[1..], [":1\r\n", ":1\r\n"]);
        if replies[0].starts_with('$') {
            ended += 1;
            assert_eq!(bench.world.arenas[0].text("n").as_ref(), Some(step));
        } else {
            stopped += 1;
            assert!(replies[0].contains("ran longer than 50 ms"), "{}", replies[0]);
            assert_ne!(bench.world.arenas[0].text("n").as_ref(), Some(step));
        }
    }
    assert!(ended > 0 && stopped > 0, "{ended} ended, {stopped} stopped");
}

#[test]
fn a_heap_bomb_costs_its_call_alone() {
    // Many ways to fill the heap; each is stopped with an error, and the next call works.
    let mut bench =
        Bench::with(FunctionLimits { call_ms: 20_000, heap_bytes: 48 << 20, ..patient() });
    bench.add(
        "t",
        "export const arrays = () => { const a = []; for (;;) a.push(new Array(100).fill(1.5)); };\n\
         export const objects = () => { let o = null; for (;;) o = { o, a: 1, b: 2 }; };\n\
         export const strings = () => { const a = []; for (let i = 0; ; i++) a.push(('x' + i).repeat(1000) + i); };\n\
         export const map = () => { const m = new Map(); for (let i = 0; ; i++) m.set(i, { i }); };\n\
         export const closures = () => { const a = []; for (;;) { const b = new Array(50); a.push(() => b); } };\n\
         export const split = () => { const a = []; for (;;) a.push('ab'.repeat(100000).split('')); };\n\
         export const kept = () => { globalThis.all ??= []; for (;;) globalThis.all.push({}); };\n\
         export const bigints = () => { const a = []; for (let n = 1n; ; n++) a.push(n << 4000n); };\n\
         export const json = () => { const a = []; for (;;) a.push(JSON.parse('[' + '{},'.repeat(10000) + '1]')); };\n\
         export const ok = () => 1;",
    );
    for name in
        ["arrays", "objects", "strings", "map", "closures", "split", "kept", "bigints", "json"]
    {
        let reply = bench.call(name, &[]);
        let text = format!(
            "-ERR function '{name}' used more than {} bytes of heap and was stopped; nothing was written (setting: function-heap-limit-bytes)\r\n",
            48 << 20
        );
        assert_eq!(reply, text);
        assert_eq!(bench.call("ok", &[]), ":1\r\n");
    }
    assert_eq!(bench.runtime.stats().heap_limit_hits, 9);
}

#[test]
fn buffers_have_their_own_limit() {
    // It is a catchable RangeError; freed buffers count no more.
    let limits = FunctionLimits { array_buffer_bytes: 10 << 20, call_ms: 5000, ..patient() };
    let mut bench = Bench::with(limits);
    bench.add(
        "t",
        "export const big = () => new Uint8Array(11 << 20).length;\n\
         export const many = () => { const a = []; for (;;) a.push(new Uint8Array(1 << 20)); };\n\
         export const fine = () => new Uint8Array(9 << 20).length;",
    );
    for name in ["big", "many"] {
        assert!(bench.call(name, &[]).contains("Array buffer allocation failed"));
    }
    for _ in 0..5 {
        assert_eq!(bench.call("fine", &[]), format!(":{}\r\n", 9 << 20));
    }
}

#[test]
fn a_short_view_gets_its_buffer_when_buffers_are_used_up() {
    // V8 keeps short views in its heap, and makes the ArrayBuffer when code asks for it. If it
    // gets no memory for that it ends the process: any function could, once it had used up the
    // limit.
    let limits = FunctionLimits { array_buffer_bytes: 1 << 20, call_ms: 30_000, ..patient() };
    let mut bench = Bench::with(limits);
    bench.add(
        "t",
        "export const used_up = () => {
           const short = new Uint8Array(64).fill(7), kept = [];
           for (let bytes = 1 << 19; bytes > 64; bytes >>= 1) {
             try { for (;;) kept.push(new ArrayBuffer(bytes)); } catch {}
           }
           return [short.buffer.byteLength, new Uint8Array(short.buffer)[63], kept.length > 1];
         };
         export const long = () => new Uint8Array(65).length;",
    );
    assert_eq!(bench.call3("used_up", &[]), "*3\r\n:64\r\n:7\r\n#t\r\n");
    assert_eq!(bench.call("long", &[]), ":65\r\n");
}

#[test]
fn a_modules_top_level_is_bounded_too() {
    // A library that never ends, or fills the heap, is refused; others go on.
    let mut bench = Bench::with(FunctionLimits { load_ms: 500, ..patient() });
    bench.add("fine", "export const ok = () => 1;");
    let error = bench.try_add("t", "export const f = () => 1; for (;;);").unwrap_err().to_string();
    assert!(error.contains("took longer than 500 ms (setting: function-load-limit-ms)"), "{error}");
    let error = bench
        .try_add("t", "export const f = () => 1; Promise.resolve().then(() => { for (;;); });")
        .unwrap_err()
        .to_string();
    assert!(error.contains("took longer than 500 ms (setting: function-load-limit-ms)"), "{error}");
    assert_eq!(bench.call("ok", &[]), ":1\r\n");
    assert_eq!(bench.call("f", &[]), "-ERR Function not found\r\n");
}

#[test]
fn limits_change_while_it_runs() {
    // CONFIG SET on a running server: shorter and longer times, a larger heap.
    let mut bench = quick();
    bench.add(
        "t",
        "export const spin = () => { const end = 3e7; let x = 0; for (let i = 0; i < end; i++) x += i % 7; return 1; };\n\
         export const stuck = () => { for (;;); };\n\
         export const fill = () => { const a = []; for (let i = 0; i < 2e6; i++) a.push({ i }); return a.length; };",
    );
    assert!(bench.call("stuck", &[]).contains("longer than 300 ms"));
    let limits = FunctionLimits { call_ms: 30_000, heap_bytes: 64 << 20, ..patient() };
    bench.runtime.set_limits(limits.clone());
    assert_eq!(bench.call("spin", &[]), ":1\r\n");
    assert!(bench.call("fill", &[]).contains("bytes of heap"));
    bench.runtime.set_limits(FunctionLimits { heap_bytes: 512 << 20, ..limits });
    assert_eq!(bench.call("fill", &[]), ":2000000\r\n");
    bench.runtime.set_limits(FunctionLimits { call_ms: 10, ..patient() });
    assert!(bench.call("stuck", &[]).contains("longer than 10 ms"));
}

#[test]
fn contexts_are_kept_for_the_tenants_used_last() {
    // More tenants than contexts: all are served, and module variables may vanish.
    let mut bench = Bench::with(FunctionLimits { contexts: 3, ..patient() });
    let source = b"#!js name=t\nlet n = 0; export const f = (db) => [++n, db.text('who')];";
    let tenants: Vec<_> = (0..8)
        .map(|number| {
            let mut arena = crate::common::Arena::new();
            arena.put(b"who", format!("{number}").as_bytes(), 0);
            let tenant = bench.runtime.open_tenant(arena.mapping());
            let library = bench.runtime.load(tenant, source).unwrap();
            bench.runtime.install(tenant, &library, source).unwrap();
            tenant
        })
        .collect();
    for _ in 0..2 {
        for (number, &tenant) in tenants.iter().enumerate() {
            bench.tenant = tenant;
            assert_eq!(bench.call("f", &[]), format!("*2\r\n:1\r\n$1\r\n{number}\r\n"));
            assert_eq!(bench.call("f", &[]), format!("*2\r\n:2\r\n$1\r\n{number}\r\n"));
        }
    }
    assert_eq!(bench.runtime.stats().contexts, 3);
}

#[test]
fn another_thread_sees_what_runs() {
    // FUNCTION STATS from outside while a function is running.
    let mut bench = Bench::with(FunctionLimits { call_ms: 200, ..patient() });
    bench.add("t", "export const stuck = () => { for (;;); };");
    let handle = bench.runtime.running();
    assert_eq!(handle.get(), None);
    let other = handle.clone();
    let watcher = std::thread::spawn(move || {
        (0..10_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            other.get().filter(|running| !running.since.is_zero())
        })
    });
    bench.call("stuck", &[]);
    let running = watcher.join().unwrap().expect("the watcher saw the call");
    assert_eq!((running.library.as_str(), running.function.as_str()), ("t", "stuck"));
    assert_eq!(handle.get(), None);
}

#[test]
fn calls_beyond_what_replies_may_take_dont_run() {
    // Once, a thousand results of 20 MB were built before the runtime looked at their sum. Now the
    // batch ends when the replies are long enough. The caller asks again for the other calls, and
    // refusals keep their places.
    let mut bench = Bench::of(
        "let ran = 0;\n\
         export const long = (db, [n]) => { ran++; return 'x'.repeat(Number(n)); };\n\
         export const count = () => ran;",
    );
    let length: &[&[u8]] = &[b"5000000"];
    let long = Call { function: b"long", args: length, ..Call::default() };
    let mut calls = vec![long; 6];
    calls.push(call("missing"));
    let turn = RunTurn {
        now_ms: crate::common::NOW_MS,
        random_seed: 1,
        reply_bytes: 6_000_000,
        time: Duration::MAX,
        still: 0,
    };
    let (mut lengths, mut from) = (Vec::new(), 0);
    let mut batches = Vec::new();
    while from < calls.len() {
        let ran = bench.runtime.run(
            bench.tenant,
            &calls[from..],
            turn,
            &mut bench.world,
            &mut |_, reply| {
                lengths.push(reply.len());
            },
        );
        batches.push(ran);
        from += ran;
    }
    assert_eq!(batches, [2, 2, 2, 1]);
    let one = "$5000000\r\n".len() + 5_000_000 + 2;
    let refusal = "-ERR Function not found\r\n".len();
    assert_eq!(lengths, [one, one, one, one, one, one, refusal]);
    assert_eq!(bench.call("count", &[]), ":6\r\n");
}

#[test]
fn calls_beyond_a_batchs_time_dont_run() {
    // Once, hundreds of calls that suddenly were slow ran in one batch, and all clients of the
    // shard waited for the last one. Now the batch ends when its time is over, and the caller asks
    // again for the other calls.
    let mut bench = Bench::with(patient());
    bench.add(
        "t",
        "let ran = 0;\n\
         export const slow = () => { for (let i = 0; i < 5e7; i++); return ++ran; };\n\
         export const stuck = () => { for (;;); };\n\
         export const quick = () => 7;",
    );
    let time = Duration::from_millis(1);
    let turn = RunTurn {
        now_ms: crate::common::NOW_MS,
        random_seed: 1,
        reply_bytes: usize::MAX,
        time,
        still: 0,
    };
    let run = |bench: &mut Bench, calls: &[Call<'_>]| {
        let (mut replies, mut batches) = (Vec::new(), Vec::new());
        while replies.len() < calls.len() {
            let rest = &calls[replies.len()..];
            batches.push(bench.runtime.run(
                bench.tenant,
                rest,
                turn,
                &mut bench.world,
                &mut |_, reply| replies.push(String::from_utf8_lossy(reply).into_owned()),
            ));
        }
        (batches, replies)
    };
    let (batches, replies) = run(&mut bench, &[call("slow"); 12]);
    assert!(batches.len() > 1 && !batches.contains(&0), "{batches:?}");
    let in_order: Vec<String> = (1..=12).map(|n| format!(":{n}\r\n")).collect();
    assert_eq!(replies, in_order);
    // A call that is stopped has taken its batch's time too, however quick those behind it are.
    bench.runtime.set_limits(FunctionLimits { call_ms: 300, ..patient() });
    let (batches, replies) = run(&mut bench, &[call("stuck"), call("stuck"), call("quick")]);
    assert_eq!(batches, [1, 1, 1]);
    assert!(replies[0].contains(TIMEOUT) && replies[1].contains(TIMEOUT), "{replies:?}");
    assert_eq!(replies[2], ":7\r\n");
}
