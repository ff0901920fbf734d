//! When libraries start: at once when they are installed, and in each later context right before
//! the first call that needs them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::common::{Bench, call, patient};
use nigh_js::{Call, FunctionLimits, RunTurn, Starts};

/// Names of the libraries that were started.
#[derive(Clone, Default)]
struct Started(Rc<RefCell<Vec<String>>>);

impl Starts for Started {
    fn begins(&mut self, library: &str, _: &[u8]) {
        self.0.borrow_mut().push(library.to_owned());
    }
    fn ended(&mut self, _: &str) {}
}

impl Started {
    fn of(bench: &mut Bench) -> Started {
        let started = Started::default();
        bench.runtime.tell_starts(Box::new(started.clone()));
        started
    }

    /// Those since it was asked last.
    fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

const SPIN: &str = "export const spin = () => { for (;;); };\n\
    export const spoil = () => { globalThis.spoilt = true; return 's'; };";

#[test]
fn a_context_starts_only_the_library_that_a_call_needs() {
    // A stopped call costs the context. Once, all libraries started in the next context before any
    // call ran, so a slow one held up the clients of all others.
    let mut bench = Bench::with(FunctionLimits { call_ms: 300, ..patient() });
    bench.add("a", "let n = 0; export const fa = () => ++n;");
    bench.add("b", "let n = 0; export const fb = () => --n;");
    bench.add("t", SPIN);
    let started = Started::of(&mut bench);
    assert_eq!(bench.run(&[call("fa"), call("fb")]), [":1\r\n", ":-1\r\n"]);
    assert_eq!(started.take(), [""; 0]); // they did when they were installed
    assert!(bench.call("spin", &[]).contains("function-time-limit-ms"));
    assert_eq!(bench.call("fa", &[]), ":1\r\n");
    assert_eq!(bench.call("fa", &[]), ":2\r\n");
    assert_eq!(started.take(), ["a"]);
    // In one batch too, also behind a stop; each library once.
    let replies =
        bench.run(&[call("fa"), call("fb"), call("fa"), call("spin"), call("fb"), call("fb")]);
    assert_eq!(replies[..3], [":3\r\n", ":-1\r\n", ":4\r\n"]);
    assert!(replies[3].contains("function-time-limit-ms"), "{replies:?}");
    assert_eq!(replies[4..], [":-1\r\n", ":-2\r\n"]);
    assert_eq!(started.take(), ["b", "t", "b"]);
    // One that takes another's place starts when it is installed, and of one that was removed
    // nothing is left.
    bench.add("b", "export const fb = () => 'new';");
    assert_eq!(started.take(), ["b", "b"]); // a scratch context checks it first
    assert!(bench.runtime.remove(bench.tenant, "a"));
    assert_eq!(
        bench.run(&[call("fb"), call("fa")]),
        ["$3\r\nnew\r\n", "-ERR Function not found\r\n"]
    );
    assert_eq!(started.take(), [""; 0]);
}

#[test]
fn a_library_that_does_not_start_tells_its_own_callers_why() {
    // The library starts alone, but not beside another one that changes the globals. Only its own
    // calls say so, and not each of them tries a start that had to be stopped.
    let mut bench = Bench::with(FunctionLimits { call_ms: 300, load_ms: 300, ..patient() });
    bench.add("a", "globalThis.spoilt = true; export const fa = () => 'a';");
    bench.add("b", "if (globalThis.spoilt) throw new Error('spoilt'); export const fb = () => 1;");
    let thrown = "-ERR library 'b' does not start: Error: spoilt (line 2, column 30)\r\n";
    assert_eq!(bench.run(&[call("fb"), call("fa"), call("fb")]), [thrown, "$1\r\na\r\n", thrown]);
    bench.add("c", "if (globalThis.spoilt) for (;;); export const fc = () => 1;");
    let slow = "-ERR library 'c' does not start: compiling it and running its top level took longer than 300 ms \
                (setting: function-load-limit-ms)\r\n";
    assert_eq!(bench.run(&[call("fc"), call("fa"), call("fc")]), [slow, "$1\r\na\r\n", slow]);
    assert_eq!(bench.call("fc", &[]), slow);
    assert_eq!(bench.runtime.stats().timeouts, 1);
}

#[test]
fn a_library_that_exports_others_than_when_it_was_loaded_does_not_start() {
    // Calls know functions by number. Once, the number of `put` led to `peek` here, and that of
    // another library's `fb` to `put`.
    let mut bench = Bench::new();
    let body = "export const peek = globalThis.old?.peek; export const put = () => 'put';\n\
        globalThis.old = { peek: () => 'peek' };";
    bench.add("a", body);
    bench.add("b", "export const fb = () => 'b';");
    assert_eq!(bench.run(&[call("put"), call("fb")]), ["$3\r\nput\r\n", "$1\r\nb\r\n"]);
    bench.add("a", body); // in the same context, which has `old` now
    let replies = bench.run(&[call("put"), call("fb"), call("peek")]);
    let refused = "-ERR library 'a' does not start: it exports other functions";
    assert!(replies[0].starts_with(refused), "{replies:?}");
    assert_eq!(replies[1..], ["$1\r\nb\r\n", "-ERR Function not found\r\n"]);
    // The same with flags, which calls trust.
    let body = "export const f = () => 1; f.flags = globalThis.seen ? [] : ['no-writes'];\n\
        globalThis.seen = true;";
    bench.add("c", body);
    assert_eq!(bench.call("f", &[]), ":1\r\n");
    bench.add("c", body);
    assert!(bench.call("f", &[]).contains("other flags"));
}

#[test]
fn each_start_draws_random_numbers_of_its_own() {
    // Functions make ids from such a constant. Once, it was the same in all runtimes, and that of
    // the first call of the batch that started the library.
    let body = "const x = Math.random(); export const f = () => String(x);\n\
        export const g = () => String(Math.random());";
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut bench = Bench::with(FunctionLimits { call_ms: 300, ..patient() });
        bench.add("t", body);
        bench.add("u", SPIN);
        seen.push(bench.call("f", &[]));
        // The next batch starts the library again.
        assert!(bench.call("spin", &[]).contains("function-time-limit-ms"));
        seen.extend(bench.run(&[call("g"), call("f")]));
    }
    assert_eq!(seen[1], seen[4], "all batches of a bench have one seed");
    seen.remove(4);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn a_start_that_has_to_be_stopped_costs_its_own_call_alone() {
    // It comes in the middle of a batch: calls before and behind it have their arguments and
    // results.
    let mut bench = Bench::with(FunctionLimits { call_ms: 300, load_ms: 500, ..patient() });
    bench.add("t", SPIN);
    bench.add("u", "if (globalThis.spoilt) for (;;); export const fu = () => 1;");
    bench.add("v", "export const echo = (db, [a], [k]) => [k, a];");
    let keys: &[&[u8]] = &[b"key"];
    let args: &[&[u8]] = &[b"arg"];
    let echo = Call { function: b"echo", keys, args, ..Call::default() };
    let replies = bench.run(&[echo, call("spin"), call("spoil"), call("fu"), echo, call("fu")]);
    let echoed = "*2\r\n$3\r\nkey\r\n$3\r\narg\r\n";
    assert_eq!([&*replies[0], &*replies[2], &*replies[4]], [echoed, "$1\r\ns\r\n", echoed]);
    assert!(replies[3].contains("library 'u' does not start"), "{replies:?}");
    assert!(replies[5].contains("library 'u' does not start"), "{replies:?}");
}

#[test]
fn a_slow_library_holds_up_others_during_a_small_part_of_the_time() {
    // Its start takes longer than a call may, and stopped calls make contexts vanish. Without a
    // rest between its starts, each call of it would hold up the shard. It comes back by itself.
    assert!((0..5).any(|_| rests_between_its_starts()), "the machine always stood still");
}

/// False if the machine stood still in a call that takes no time.
fn rests_between_its_starts() -> bool {
    let mut bench = Bench::with(FunctionLimits { call_ms: 50, ..patient() });
    bench.add(
        "slow",
        "let n = 0; for (let i = 0; i < 1e8; i++) n += i % 7; export const fs = () => 's';",
    );
    bench.add("t", SPIN);
    let started = Started::of(&mut bench);
    assert_eq!(bench.call("fs", &[]), "$1\r\ns\r\n");
    assert!(bench.call("spin", &[]).contains("function-time-limit-ms"));
    let mut refused = 0;
    loop {
        let reply = bench.call("fs", &[]);
        if reply == "$1\r\ns\r\n" {
            break;
        }
        if reply.contains("ran longer than") {
            return false;
        }
        let begin = "-ERR library 'slow' does not start: its last start took ";
        assert!(reply.starts_with(begin), "{reply}");
        assert!(reply.contains(" more than the 50 ms of a call, "), "{reply}");
        refused += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(refused > 0, "it didn't rest");
    assert_eq!(started.take(), ["t", "slow"][1..], "only when its rest was over");
    true
}

#[test]
fn a_start_that_has_to_be_stopped_ends_its_batch() {
    // It took the time of many turns: what is behind it is the next one's, so that others are
    // served first.
    let mut bench = Bench::with(FunctionLimits { call_ms: 300, load_ms: 500, ..patient() });
    bench.add("t", SPIN);
    bench.add("u", "if (globalThis.spoilt) for (;;); export const fu = () => 1;");
    assert!(bench.call("spin", &[]).contains("function-time-limit-ms"));
    assert_eq!(bench.call("spoil", &[]), "$1\r\ns\r\n");
    let turn = RunTurn {
        now_ms: crate::common::NOW_MS,
        random_seed: 1,
        reply_bytes: usize::MAX,
        time: Duration::from_millis(10),
        still: 0,
    };
    let (calls, mut replies) = ([call("fu"), call("spoil"), call("spoil")], Vec::new());
    let ran = bench.runtime.run(bench.tenant, &calls, turn, &mut bench.world, &mut |_, reply| {
        replies.push(String::from_utf8_lossy(reply).into_owned());
    });
    assert_eq!(ran, 1, "{replies:?}");
    assert!(replies[0].contains("library 'u' does not start"), "{replies:?}");
}
