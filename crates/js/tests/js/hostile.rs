//! Functions that mean harm: results, errors and exports that run code when they are looked at.

use crate::common::{Bench, call, patient};
use nigh_js::FunctionLimits;

/// Stopped calls of these tests take this long, ms; they have far more time than they need
/// otherwise.
const CALL_MS: u64 = 200;

fn bench(body: &str) -> Bench {
    let mut bench = Bench::with(FunctionLimits { call_ms: CALL_MS, grace_ms: 20_000, ..patient() });
    bench.add("t", body);
    bench
}

/// Each call of `functions` ends in an error, and the runtime goes on.
fn all_fail(bench: &mut Bench, functions: &[&str]) {
    for function in functions {
        let reply = bench.call(function, &[]);
        assert!(reply.starts_with('-') && reply.ends_with("\r\n"), "{function}: {reply}");
        assert_eq!(reply.matches("\r\n").count(), 1, "{function}: {reply}");
        assert_eq!(bench.call("fine", &[]), ":1\r\n", "after {function}");
    }
}

#[test]
fn results_that_run_code_cannot_break_a_reply() {
    // Getters, proxies and iterables in a result run inside the call: with its limits, in one
    // reply.
    let mut bench = bench(
        "export const fine = () => 1;
         export const thrower = () => ({ a: 1, get b() { throw new Error('a\\r\\nb'); } });
         export const spinner = () => ({ a: 1, get b() { for (;;); } });
         export const grower = () => { const a = [1]; Object.defineProperty(a, 0, { get() { a.push(1); return 1; } }); return a; };
         export const mapGrower = () => { const m = new Map(); m.set('k', { get x() { m.set(Math.random(), 1); return 1; } }); m.set('l', 1); return m; };
         export const keyless = () => new Proxy({}, { ownKeys: () => { throw new Error('no'); } });
         export const lying = () => new Proxy([], { get: (t, k) => k === 'length' ? 2 ** 31 - 2 : 'x'.repeat(1000) });
         export const negative = () => new Proxy([], { get: (t, k) => k === 'length' ? -1 : 0 });
         export const fraction = () => new Proxy([], { get: (t, k) => k === 'length' ? 'three' : 0 });
         export const cycle = () => { const a = []; a.push(a); return a; };
         export const mapCycle = () => { const m = new Map(); m.set(m, m); return m; };
         export const wide = () => { let x = ['0123456789']; for (let i = 0; i < 30; i++) x = [x, x]; return x; };
         export const sparse = () => new Array(2 ** 32 - 1);
         export const symbol = () => [1, Symbol('x')];
         export const fn = () => ({ f() {} });
         export const text = () => Object.setPrototypeOf(Object('a'), Date.prototype);",
    );
    all_fail(
        &mut bench,
        &[
            "thrower",
            "spinner",
            "mapGrower",
            "keyless",
            "lying",
            "cycle",
            "mapCycle",
            "wide",
            "sparse",
            "symbol",
            "fn",
            "text",
            "negative",
            "fraction",
        ],
    );
    // An array is as long as it was at first.
    assert_eq!(bench.call("grower", &[]), "*1\r\n:1\r\n");
}

#[test]
fn a_result_with_millions_of_indices_does_not_hang() {
    // The keys of a String object are its indices.
    let mut bench = bench(
        "export const fine = () => 1;
         export const indices = () => Object.setPrototypeOf(Object('a'.repeat(2 ** 24)), null);",
    );
    all_fail(&mut bench, &["indices"]);
}

#[test]
fn a_stored_text_is_parsed_interruptibly() {
    // JSON of nothing but brackets is slow in V8, and not to be stopped.
    let mut bench = bench(
        "export const fine = () => 1;
         export const parse = (db) => { for (;;) db.json('deep'); };",
    );
    let deep = "[".repeat(4 << 20) + &"]".repeat(4 << 20);
    bench.put("deep", deep);
    let reply = bench.call("parse", &[]);
    assert!(reply.contains("function-time-limit-ms"), "{reply}");
}

#[test]
fn errors_that_run_code_cannot_break_a_reply() {
    // Whatever a function throws, the reply is one line. The call's limits hold while the prelude
    // looks at the thrown value.
    let mut bench = bench(
        "export const fine = () => 1;
         export const getter = () => { throw { get message() { throw new Error('x'); } }; };
         export const spinning = () => { throw { get message() { for (;;); } }; };
         export const stack = () => { const e = new Error('m'); Object.defineProperty(e, 'stack', { get() { for (;;); } }); throw e; };
         export const prepare = () => { Error.prepareStackTrace = () => { throw 1; }; null.x; };
         export const frames = () => { Error.prepareStackTrace = (e, f) => f.map((s) => s.getFunction()); throw new Error('f'); };
         export const proxy = () => { throw new Proxy(new Error('p'), { get() { throw new Error('q'); } }); };
         export const symbol = () => { throw Symbol('s\\r\\n'); };
         export const nothing = () => { throw undefined; };
         export const long = () => { throw new Error('x'.repeat(2 ** 27)); };
         export const forged = () => { throw new Error('OK\\r\\n+FORGED\\r\\n'); };
         export const deep = () => { const f = () => f(); f(); };
         export const bigint = () => { throw 10n ** 100000n; };
         export const rejected = async () => { throw { get message() { throw 1; } }; };
         export const thenable = async () => ({ get then() { throw new Error('then'); } });
         export const forever = () => new Promise(() => {});
         export const flood = () => { const f = () => Promise.resolve().then(f); return f(); };
         export const generator = function* () { yield 1; };
         export const klass = class { };",
    );
    all_fail(
        &mut bench,
        &[
            "getter",
            "spinning",
            "stack",
            "frames",
            "proxy",
            "symbol",
            "nothing",
            "long",
            "forged",
            "deep",
            "bigint",
            "rejected",
            "thenable",
            "forever",
            "flood",
            "generator",
            "klass",
            "prepare",
        ],
    );
}

#[test]
fn what_is_kept_does_not_reach_into_another_call() {
    // A generator, a microtask, a getter and a reviver that hold the db of a call that has ended.
    let mut bench = bench(
        "let kept, steps;
         export const fine = () => 1;
         export const keep = (db) => { kept = db; steps = (function* () { for (;;) yield db.get('k'); })(); steps.next(); return 1; };
         export const next = () => steps.next();
         export const write = () => kept.set('k', 'evil');
         export const inResult = () => ({ get x() { return kept.incr('n'); } });
         export const inError = () => { throw { get message() { kept.set('k', 'evil'); return 'm'; } }; };
         export const later = (db) => { Promise.resolve().then(() => Promise.resolve()).then(() => { db.set('late', '1'); }); return 1; };
         export const never = (db) => { Promise.resolve().then(() => { db.set('k', 'evil'); }); for (;;); };",
    );
    assert_eq!(bench.call("keep", &[]), ":1\r\n");
    all_fail(&mut bench, &["next", "write", "inResult", "inError", "never"]);
    assert_eq!(bench.world.arenas[0].text("k"), None);
    assert_eq!(bench.world.arenas[0].text("n"), None);
    // Microtasks of a call belong to it, also when it did not wait for them.
    assert_eq!(bench.call("later", &[]), ":1\r\n");
    assert_eq!(bench.world.arenas[0].text("late").as_deref(), Some("1"));
    let replies = bench.run(&[call("never"), call("fine"), call("keep"), call("fine")]);
    assert!(replies[0].starts_with('-'), "{replies:?}");
    assert_eq!(replies[1..], [":1\r\n", ":1\r\n", ":1\r\n"]);
    assert_eq!(bench.world.arenas[0].text("k"), None);
}

#[test]
fn no_code_comes_from_strings_or_other_modules() {
    // The constructors of functions are reachable through any function; they refuse.
    let mut bench = bench(
        "export const fine = () => 1;
         export const a = () => Function('return 1')();
         export const b = () => (() => 1).constructor('return 1')();
         export const c = () => (function* () {}).constructor('yield 1')().next().value;
         export const d = () => (async () => {}).constructor('return 1')();
         export const e = () => import('fs');
         export const f = () => import('data:text/javascript,export default 1');
         export const g = () => globalThis.eval('1');
         export const h = () => new WebAssembly.Memory({ initial: 1 });
         export const i = () => new SharedArrayBuffer(8);
         export const j = () => Atomics.wait(new Int32Array(4), 0, 0);
         export const k = () => new WeakRef({});
         export const l = () => new FinalizationRegistry(() => {});",
    );
    all_fail(&mut bench, &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]);
}

#[test]
fn hostile_exports_and_logs_are_contained() {
    // Flags that lie, exports that are no functions, and objects that fight being logged.
    let mut bench = bench(
        "export const fine = () => 1;
         export let nothing;
         export const number = 1, object = { get flags() { throw 1; } };
         export const log = () => {
           console.log({ toJSON() { throw new Error('x'); } }, { get stack() { throw 1; } }, Symbol('s'), 1n,
             new Proxy({}, { get() { throw 1; } }), 'a\\r\\nb', undefined, null, () => 1);
           return 1;
         };
         export const flood = () => { for (let i = 0; i < 1e5; i++) console.log('x'.repeat(1000)); return 1; };
         export const spin = () => { console.log({ toJSON() { for (;;); } }); };",
    );
    assert_eq!(bench.call("log", &[]), ":1\r\n");
    assert_eq!(bench.world.log.len(), 1);
    let _ = bench.call("flood", &[]);
    assert!(bench.world.log.len() <= 101, "{}", bench.world.log.len());
    all_fail(&mut bench, &["spin", "nothing", "number", "object"]);
    let lying = bench.try_add(
        "u",
        "export const u = () => 1; u.flags = new Proxy([], { get() { for (;;); } });",
    );
    assert!(lying.unwrap_err().to_string().contains("function-load-limit-ms"));
    assert_eq!(bench.call("fine", &[]), ":1\r\n");
}

#[test]
fn a_library_that_replaces_parts_of_promise_cannot_end_the_process() {
    // Where V8 begins a module with a top-level await, it looks up the constructor and the species
    // of a promise of its own. An assertion ended the process if another library had put a getter
    // there that throws, or that has to be stopped.
    const AWAITS: &str = "const one = await 1; export const fb = () => one;";
    let made =
        |what: &str| format!("Object.defineProperty(Promise.prototype, 'constructor', {what});");
    let species = |what: &str| format!("Object.defineProperty(Promise, Symbol.species, {what});");
    for change in [
        made("{ get() { throw new Error('e'); } }"),
        made("{ get() { for (;;); } }"),
        made("{ value: class { constructor() { throw new Error('e'); } } }"),
        "Promise.prototype.constructor = 5;".to_owned(),
        "delete Promise.prototype.constructor;
         Object.defineProperty(Object.prototype, 'constructor', { get() { throw new Error('e'); } });"
            .to_owned(),
        species("{ get() { throw new Error('e'); } }"),
        species("{ value: 5 }"),
        // A descriptor's own fields count, not those of all objects.
        format!(
            "{} const P = Promise; Object.prototype.value = P;",
            made("{ __proto__: null, get() { throw new Error('e'); } }")
        ),
    ] {
        let mut bench = Bench::with(FunctionLimits { load_ms: 300, ..patient() });
        bench.add("a", &format!("export const fa = () => {{ {change} return 1; }};"));
        bench.add("b", AWAITS);
        assert_eq!(bench.call("fb", &[]), ":1\r\n");
        assert_eq!(bench.call("fa", &[]), ":1\r\n", "{change}");
        bench.add("b", AWAITS);
        let reply = bench.call("fb", &[]);
        assert!(reply.starts_with("-ERR library 'b' does not start: "), "{change}: {reply}");
        assert!(reply.contains("top-level await needs V8's own Promise"), "{change}: {reply}");
        assert_eq!(bench.call("fa", &[]), ":1\r\n", "{change}");
    }
    // Other methods may be replaced.
    let mut bench = Bench::with(patient());
    bench.add(
        "a",
        "Promise.prototype.then = Promise.all = () => { throw 1; }; export const fa = () => 1;",
    );
    bench.add("b", AWAITS);
    assert_eq!(bench.call("fb", &[]), ":1\r\n");
}
