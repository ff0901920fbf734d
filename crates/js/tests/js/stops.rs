//! Other threads end calls. A stopped call leaves no state to later ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Bench, call, patient};
use nigh_js::{Call, FunctionLimits, Handle, Overlay, Reason};

fn bench() -> Bench {
    Bench::with(FunctionLimits { call_ms: 60_000, ..patient() })
}

/// Ends the next call that runs, from another thread; the name of its function.
fn end_next(handle: Handle, reason: Reason) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        loop {
            // Not before it runs: a shutdown lasts, so that nothing would ever run then.
            if handle.get().is_some()
                && let Some(running) = handle.terminate(reason)
            {
                return running.function;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    })
}

#[test]
fn function_kill_ends_the_call_that_runs() {
    // A loop without end, long before its time limit; it wrote nothing, and the next call is fine.
    let mut bench = bench();
    bench.add(
        "t",
        "export const stuck = (db) => { db.set('k', 1); for (;;); };\n\
         export const ok = () => 1;",
    );
    let handle = bench.runtime.running();
    assert_eq!(handle.terminate(Reason::Kill), None);
    let killer = end_next(handle.clone(), Reason::Kill);
    let replies = bench.run(&[call("stuck"), call("ok")]);
    let killed = "-ERR Script killed by user with FUNCTION KILL.\r\n";
    assert_eq!(killer.join().unwrap(), "stuck");
    assert_eq!(replies, [killed, ":1\r\n"]);
    assert_eq!(bench.world.arenas[0].text("k"), None);
    assert_eq!(bench.runtime.stats().kills, 1);
    assert_eq!(bench.call("ok", &[]), ":1\r\n");
}

#[test]
fn a_kill_never_hits_another_call() {
    // Short calls under a shower of kills: no function dies more often than a kill named it.
    let mut bench = bench();
    bench.add(
        "t",
        "const spin = (n) => { let x = 0; for (let i = 0; i < n; i++) x += Math.sqrt(i); return x > 0; };\n\
         export const a = () => spin(30000) ? 1 : 0;\n\
         export const b = () => spin(3000) ? 2 : 0;",
    );
    let handle = bench.runtime.running();
    let done = AtomicBool::new(false);
    let (mut named, mut died, mut ended) = ([0, 0], [0, 0], [0, 0]);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut named = [0, 0];
            while !done.load(Ordering::Relaxed) {
                if let Some(running) = handle.terminate(Reason::Kill) {
                    named[usize::from(running.function == "b")] += 1;
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
            named
        });
        // On a busy machine no kill may come for a while.
        for round in 0..5_000 {
            if round >= 150 && died[0] > 0 && ended[0] > 0 {
                break;
            }
            let replies = bench.run(&[call("a"), call("b"), call("a"), call("b")]);
            for (index, reply) in replies.iter().enumerate() {
                if *reply == [":1\r\n", ":2\r\n"][index % 2] {
                    ended[index % 2] += 1;
                } else {
                    assert_eq!(reply, "-ERR Script killed by user with FUNCTION KILL.\r\n");
                    died[index % 2] += 1;
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        named = killer.join().unwrap();
    });
    assert!(died[0] > 0 && ended[0] > 0, "{died:?} died, {ended:?} ended");
    assert!(died[0] <= named[0] && died[1] <= named[1], "{died:?} died, {named:?} were named");
}

#[test]
fn a_shutdown_ends_the_running_call_and_starts_no_other() {
    // SIGTERM while a batch runs: the loop ends at once, and what waits behind it is told why.
    let mut bench = bench();
    bench.add("t", "export const stuck = () => { for (;;); };\nexport const ok = () => 1;");
    let stopper = end_next(bench.runtime.running(), Reason::Shutdown);
    let replies = bench.run(&[call("stuck"), call("ok"), call("stuck")]);
    assert_eq!(stopper.join().unwrap(), "stuck");
    let closing = |what: &str| format!("-ERR the server is shutting down: function {what}\r\n");
    assert_eq!(
        replies,
        [
            closing("'stuck' was stopped; nothing was written"),
            closing("'ok' was not started"),
            closing("'stuck' was not started")
        ]
    );
    assert_eq!(bench.call("ok", &[]), closing("'ok' was not started"));
}

/// The replies of each function of `CANARY` when it is called first.
const CANARY_REPLY: &str =
    "*7\r\n$5\r\nvalue\r\n$1\r\n7\r\n:1\r\n$-1\r\n*1\r\n$1\r\nk\r\n:0\r\n:2\r\n";

/// Looks at the keyspace in each way, and writes.
const CANARY: &str = "export const canary = (db) => {\n\
       const all = [db.text('k'), db.text(7), db.exists(7), db.get('gone'), db.scan('k').keys,\n\
                    db.ttl('k') === undefined, db.incr('n', 2)];\n\
       db.delete('n'); return all; };";

/// On a slow machine a new context takes longer to start than a call may run, and so may what the
/// canary does first in it: a later call has it behind it.
fn is_put_off(reply: &str) -> bool {
    reply.contains("does not start: its last start took")
        || reply.starts_with("-ERR function 'canary' ran longer")
}

#[test]
fn nothing_of_a_call_that_was_stopped_is_there_for_the_next() {
    // A call leaves words, a write set, an overlay, promises, a full heap behind when it is
    // stopped: the next one, in the same batch and in a batch of its own, sees the keyspace as it
    // is. After a stop in a transaction that had cleared everything, the next call once saw an
    // empty keyspace.
    let limits = FunctionLimits {
        call_ms: 20,
        heap_bytes: 64 << 20,
        array_buffer_bytes: 64 << 20,
        ..patient()
    };
    let mut bench = Bench::with(limits);
    bench.add("canary", CANARY);
    bench.add(
        "t",
        "export const spin = () => { for (;;); };\n\
         export const wrote = (db) => { db.set('k', 'lost'); db.delete(7); db.set('gone', 1); for (;;); };\n\
         export const read = (db) => { db.get('k'); db.get(7); db.exists(4103); for (;;); };\n\
         export const scanned = (db) => { for (;;) db.scan('k'); };\n\
         export const promised = () => { const f = () => Promise.resolve().then(f); f(); for (;;); };\n\
         export const encoded = () => ({ a: 'x'.repeat(5000), get b() { for (;;); } });\n\
         export const thrown = () => { throw { get message() { for (;;); } }; };\n\
         export const heap = () => { const a = []; for (;;) a.push(new Array(1000).fill({})); };\n\
         export const polluted = (db) => { Map.prototype.get = () => 1; Array.prototype.push = () => 1; for (;;); };",
    );
    for (key, value) in [("k", "value"), ("7", "7"), ("4103", "other")] {
        bench.put(key, value);
    }
    let mine = bench.world.arenas[0].append(b"k", b"staged", 0);
    let entries = [(Box::from(b"k".as_slice()), Some(mine)), (Box::from(b"7".as_slice()), None)];
    let overlays = [
        Overlay::default(),
        Overlay { entries: &entries, ..Overlay::default() },
        Overlay { cleared: true, ..Overlay::default() },
        Overlay { cleared: true, entries: &entries, ..Overlay::default() },
    ];
    let stuck =
        ["spin", "wrote", "read", "scanned", "promised", "encoded", "thrown", "heap", "polluted"];
    assert_eq!(bench.call("canary", &[]), CANARY_REPLY);
    for name in stuck {
        for (number, overlay) in overlays.into_iter().enumerate() {
            let replies = bench.run(&[Call { overlay, ..call(name) }, call("canary")]);
            assert!(replies[0].starts_with("-ERR"), "{name} {number}: {}", replies[0]);
            let in_batch = &replies[1];
            let is_right = in_batch == CANARY_REPLY || is_put_off(in_batch);
            assert!(is_right, "after {name} {number}, in its batch: {in_batch}");
            let replies = bench.run(&[Call { overlay, ..call(name) }]);
            assert!(replies[0].starts_with("-ERR"), "{name} {number}: {}", replies[0]);
            // 20 s at most.
            let reply = (0..400).find_map(|_| {
                let reply = bench.call("canary", &[]);
                if is_put_off(&reply) {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                (!is_put_off(&reply)).then_some(reply)
            });
            assert_eq!(reply.as_deref(), Some(CANARY_REPLY), "after {name} {number}");
        }
    }
}
