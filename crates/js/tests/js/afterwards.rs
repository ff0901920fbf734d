//! No code of a call outlives it: the microtasks that it leaves run in it, or never.

use crate::common::{Bench, call, patient};
use nigh_js::{Call, FunctionLimits, Overlay, Runtime};

/// Each function leaves a microtask, each in another way. `stray` has the function's name if the
/// microtask runs in another call; `ran` if it runs at all.
const LIBRARY: &str = r"
let current = 'load', strays = [], ran = [], release;
const stray = (name) => { (current === name ? ran : strays).push(name); };
const leave = (name) => { Promise.resolve().then(() => stray(name)); };
const settled = Promise.resolve(1);
settled.constructor = { [Symbol.species]: function (executor) { executor(() => {}, () => {}); } };

export const message = () => { current = 'message'; throw { get message() { leave('message'); return 'm'; } }; };
export const stack = () => {
  current = 'stack';
  throw Object.defineProperty(new Error('m'), 'stack', { get() { leave('stack'); return 's'; } });
};
export const throwing = () => {
  current = 'throwing';
  throw { get message() { leave('throwing'); throw new Error('again'); } };
};
export const trapped = () => {
  current = 'trapped';
  throw new Proxy({}, { get() { leave('trapped'); return 'm'; } });
};
export const prepare = () => {
  current = 'prepare';
  Error.prepareStackTrace = () => { leave('prepare'); return 's'; };
  throw new Error('m');
};
export const unprepare = () => { Error.prepareStackTrace = undefined; current = ''; return 1; };
export const rejected = async () => {
  current = 'rejected';
  throw { get message() { leave('rejected'); return 'm'; } };
};
export const result = () => { current = 'result'; return { get a() { leave('result'); return 1; } }; };
export const nested = () => {
  current = 'nested';
  return [Promise.resolve({ get a() { leave('nested'); return 1; } })];
};
export const traps = () => {
  current = 'traps';
  return new Proxy({ a: 1 }, { ownKeys(t) { leave('traps'); return Reflect.ownKeys(t); } });
};
export const unfit = () => { current = 'unfit'; return [{ get a() { leave('unfit'); return Symbol(); } }]; };
export const logged = () => { current = 'logged'; console.log({ toJSON() { leave('logged'); } }); return 1; };
export const forgotten = () => { current = 'forgotten'; (async () => { await null; stray('forgotten'); })(); return 1; };
export const thenable = () => { current = 'thenable'; Promise.resolve({ then() { stray('thenable'); } }); return 1; };
export const yields = () => {
  current = 'yields';
  (async function* () { await null; stray('yields'); yield 1; })().next();
  return 1;
};
// No promise is made here.
export const species = () => { current = 'species'; settled.then(() => stray('species')); return 1; };
export const thrownSpecies = () => { current = 'thrownSpecies'; settled.then(() => stray('thrownSpecies')); throw 1; };
export const messageSpecies = () => {
  current = 'messageSpecies';
  throw { get message() { settled.then(() => stray('messageSpecies')); return 'm'; } };
};
// It resolves a promise that another call has made.
export const hold = () => { current = 'hold'; new Promise((f) => { release = f; }).then(() => stray('released')); return 1; };
export const released = () => { current = 'released'; release(); return 1; };

export const next = async () => { current = 'next'; await null; await null; return strays.join(); };
export const done = () => [...new Set(ran)].sort().join();
";

const LEAVING: &[&str] = &[
    "message",
    "stack",
    "throwing",
    "trapped",
    "prepare",
    "unprepare",
    "rejected",
    "result",
    "nested",
    "traps",
    "unfit",
    "logged",
    "forgotten",
    "thenable",
    "yields",
    "species",
    "thrownSpecies",
    "messageSpecies",
    "hold",
    "released",
];

fn bench() -> Bench {
    // Stopped calls take this long; the others have far more time than they need.
    let mut bench = Bench::with(FunctionLimits { call_ms: 200, grace_ms: 20_000, ..patient() });
    bench.add("t", LIBRARY);
    bench
}

/// The names of those that leave something, with the letters of what they are.
fn all_ran() -> String {
    let mut names: Vec<&str> = LEAVING.to_vec();
    names.retain(|name| !matches!(*name, "unprepare" | "hold"));
    names.sort_unstable();
    names.join(",")
}

#[test]
fn a_microtask_runs_in_the_call_that_left_it() {
    // In one batch, each before a call that runs microtasks: it finds none but its own.
    let mut bench = bench();
    let calls: Vec<Call<'_>> = LEAVING.iter().flat_map(|name| [call(name), call("next")]).collect();
    let replies = bench.run(&calls);
    for (name, pair) in LEAVING.iter().zip(replies.chunks(2)) {
        assert_eq!(pair[1], "$0\r\n\r\n", "after {name}, which replied {}", pair[0]);
    }
    assert_eq!(bench.call("done", &[]), format!("${}\r\n{}\r\n", all_ran().len(), all_ran()));
}

#[test]
fn a_call_behind_many_writes_of_a_transaction_has_its_own_time() {
    // What MULTI had staged was taken over in the call's time: a function that does nothing ran
    // longer than its limit, in each try anew.
    let runtime = Runtime::new(FunctionLimits { call_ms: 10, ..patient() }).unwrap();
    let mut bench = Bench::over(runtime);
    bench.add("t", "export const f = (db) => db.exists('k7') ? 1 : 0;");
    let entries: Vec<(Box<[u8]>, Option<u32>)> =
        (0..100_000).map(|n| (format!("k{n}").into_bytes().into(), None)).collect();
    let overlay = Overlay { entries: &entries, ..Overlay::default() };
    assert_eq!(bench.run(&[Call { overlay, ..call("f") }]), [":0\r\n"]);
}

#[test]
fn a_microtask_runs_in_the_call_that_left_it_in_a_transaction_too() {
    // The same with what MULTI has staged, which stays from one call to the next.
    let mut bench = bench();
    let entries: Vec<(Box<[u8]>, Option<u32>)> = vec![(b"k".to_vec().into(), None)];
    for (first, name) in LEAVING.iter().enumerate() {
        let overlay = Overlay { continues: first > 0, cleared: true, entries: &entries };
        let (left, next) = (call(name), call("next"));
        bench.run(&[Call { overlay, ..left }]);
        let overlay = Overlay { continues: true, ..overlay };
        let replies = bench.run(&[Call { overlay, ..next }]);
        assert_eq!(replies, ["$0\r\n\r\n"], "after {name}");
    }
    assert_eq!(bench.call("done", &[]), format!("${}\r\n{}\r\n", all_ran().len(), all_ran()));
}

#[test]
fn a_microtask_that_never_ends_costs_the_call_that_left_it() {
    // It was left while an error was described; the next call was stopped for it.
    let mut bench = Bench::with(FunctionLimits { call_ms: 200, grace_ms: 20_000, ..patient() });
    bench.add(
        "t",
        "const spin = () => { Promise.resolve().then(() => { for (;;); }); };
         export const message = () => { throw { get message() { spin(); return 'm'; } }; };
         export const stack = () => { throw Object.defineProperty(new Error('m'), 'stack', { get() { spin(); return 's'; } }); };
         export const result = () => ({ get a() { spin(); return 1; } });
         export const fine = async () => { await null; return 1; };",
    );
    for name in ["message", "stack", "result"] {
        let replies = bench.run(&[call(name), call("fine"), call("fine")]);
        assert!(replies[0].contains("function-time-limit-ms"), "{name}: {}", replies[0]);
        assert_eq!(replies[1..], [":1\r\n", ":1\r\n"], "after {name}");
    }
}

#[test]
fn what_loading_leaves_does_not_run_in_a_call() {
    // The flags of an export are looked at when all else has run; and a library that fails is
    // looked at too.
    let mut bench = Bench::with(FunctionLimits { call_ms: 200, ..patient() });
    let body = "let current = 'load'; const strays = [];
         const leave = () => { Promise.resolve().then(() => { if (current !== 'load') strays.push(1); }); };
         export const next = async () => { current = 'next'; await null; return strays.length; };
         export const flagged = () => 1;
         Object.defineProperty(flagged, 'flags', { get() { leave(); return []; } });";
    bench.add("t", body);
    assert_eq!(bench.call("next", &[]), ":0\r\n");
    let spins = "export const f = () => 1;
         Object.defineProperty(f, 'flags', { get() { Promise.resolve().then(() => { for (;;); }); return []; } });";
    let refused = bench.try_add("u", spins).map(|library| library.name);
    assert!(refused.is_err_and(|error| error.to_string().contains("function-load-limit-ms")));
    assert_eq!(bench.call("next", &[]), ":0\r\n");
}
