//! The prelude against user code that tries to get at it: polluted prototypes, globals, forgery.

use crate::common::{Bench, call, patient};
use nigh_js::{Call, FunctionLimits, RunTurn};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn the_globals_are_an_allow_list() {
    // No eval, no code from strings, no shared memory, no waiting, no WebAssembly, no clocks but
    // Date.
    let mut bench = Bench::of(
        "export const globals = () => Object.getOwnPropertyNames(globalThis).filter((n) => !/^[A-Z].*(Array|Error)$/.test(n)).sort();\n\
         const t = (f) => { try { return String(f()); } catch (e) { return e.constructor.name; } };\n\
         export const code = () => [() => (0, globalThis.eval)('1'), () => Function('return 1')(), () => new Function('1'),\n\
            () => (async () => {}).constructor('1'), () => (function* () {}).constructor('1'), () => [].map.constructor('return 1')(),\n\
            () => Reflect.construct(Function, ['1'])].map(t);\n\
         export const imported = () => import('fs');",
    );
    let reply = bench.call("globals", &[]);
    let names: Vec<&str> =
        reply.split("\r\n").filter(|line| line.starts_with(char::is_alphabetic)).collect();
    let allowed = "Array ArrayBuffer BigInt Boolean DataView Date Error Function Infinity JSON Map Math NaN Number Object Promise \
        Proxy Reflect RegExp Set String Symbol WeakMap WeakSet console decodeURI decodeURIComponent encodeURI \
        encodeURIComponent globalThis isFinite isNaN parseFloat parseInt undefined";
    assert_eq!(names, allowed.split_whitespace().collect::<Vec<_>>());
    let reply = bench.call("code", &[]);
    let errors =
        reply.split("\r\n").filter(|line| *line == "EvalError" || *line == "TypeError").count();
    assert_eq!(errors, 7, "{reply}");
    assert!(bench.call("imported", &[]).starts_with("-ERR "));
}

#[test]
fn pollution_of_prototypes_does_not_reach_the_prelude() {
    // All methods of all classes replaced: reads, writes, replies and errors stay right, and none
    // of the prelude's memory is seen by the replacements.
    let body = "\
        const own = Reflect.ownKeys, define = Object.defineProperty, typed = ArrayBuffer.isView, byte = Uint8Array;\n\
        const push = (list, v) => { list[list.length] = v; };\n\
        const leaks = [];\n\
        function evil() { push(leaks, this); for (let i = 0; i < arguments.length; i++) push(leaks, arguments[i]); return 7; }\n\
        const classes = [Array, Map, Set, String, Number, Promise, RegExp, Uint8Array, Int32Array, Object.getPrototypeOf(Uint8Array), ArrayBuffer, DataView, Function, BigInt, Error, Symbol, Boolean, Date];\n\
        export function pollute() {\n\
          for (let c = 0; c < classes.length; c++) {\n\
            for (let p = 0; p < 2; p++) {\n\
              const where = p ? classes[c].prototype : classes[c];\n\
              const names = own(where);\n\
              for (let n = 0; n < names.length; n++) {\n\
                if (names[n] === 'prototype' || names[n] === 'constructor' || names[n] === 'length') continue;\n\
                try { define(where, names[n], { value: evil, writable: true, configurable: true }); } catch (e) {}\n\
              }\n\
            }\n\
          }\n\
          const spaces = [Math, JSON, Reflect, Object, globalThis.console];\n\
          for (let s = 0; s < spaces.length; s++) { const names = own(spaces[s]); for (let n = 0; n < names.length; n++) { if (names[n] !== 'prototype') try { spaces[s][names[n]] = evil; } catch (e) {} } }\n\
          const accessor = { __proto__: null, configurable: true, get() { push(leaks, this); return 7; }, set(v) { push(leaks, this); push(leaks, v); } };\n\
          define(Object.prototype, 'value', accessor); define(Object.prototype, 'get', accessor); define(Object.prototype, 'then', accessor);\n\
          define(Object.prototype, 'enumerable', accessor); define(Object.prototype, 'u8', accessor); define(Object.prototype, 'i32', accessor);\n\
          return 'done';\n\
        }\n\
        export function work(db, args, keys) {\n\
          db.set('w', 'written'); db.set('n', 5); db.incr('n'); db.delete('gone'); db.expire('w', 1000);\n\
          const r = db.get('k');\n\
          return [r.byteLength, r.u8(0), r.text(), db.text('w'), db.text('n'), db.exists('gone'), db.ttl('w'), args[0], keys[0], { a: 1 }, db.get('longer than eight').u32(0), db.scan('k').keys[0]];\n\
        }\n\
        export function fail() { throw new Error('NOPE here'); }\n\
        export function leaked() {\n\
          let bad = 0;\n\
          for (let i = 0; i < leaks.length; i++) { const v = leaks[i]; if (typed(v) || (typeof v === 'object' && v !== null && v.buffer !== undefined)) bad++; }\n\
          return bad;\n\
        }";
    let mut bench = Bench::of(body);
    bench.put("k", "value");
    bench.put("gone", "x");
    bench.put("longer than eight", [1, 0, 0, 0]);
    let work = Call {
        function: b"work",
        args: &[b"arg"],
        keys: &[b"key"],
        resp3: true,
        ..Call::default()
    };
    let before = bench.run(&[work]).remove(0);
    assert!(before.starts_with("*12\r\n:5\r\n:118\r\n"), "{before}");
    bench.put("gone", "x");
    assert_eq!(bench.call("pollute", &[]), "$4\r\ndone\r\n");
    assert_eq!(bench.run(&[work]).remove(0), before);
    let reply = bench.call("fail", &[]);
    assert!(reply.starts_with("-NOPE here (function fail"), "{reply}");
    assert_eq!(bench.call("leaked", &[]), ":0\r\n");
    assert_eq!(bench.world.arenas[0].text("n").as_deref(), Some("6"));
}

#[test]
fn db_and_records_cannot_be_changed_or_forged() {
    // Frozen classes, no way to a constructor, no private field from outside.
    let mut bench = Bench::of(
        "const t = (f) => { try { return String(f()); } catch (e) { return e.constructor.name; } };\n\
         export const f = (db) => { const r = db.get('k'); return [\n\
           () => { Object.getPrototypeOf(db).get = 1; }, () => { Object.getPrototypeOf(r).u8 = 1; },\n\
           () => db.constructor === Object, () => r.constructor === Object,\n\
           () => new db.get('k'), () => Object.create(Object.getPrototypeOf(r)).u8(0),\n\
           () => Object.getPrototypeOf(db).get.call({}, 'k'), () => new Proxy(r, {}).u8(0), () => { class X extends r.u8 {} }].map(t); };",
    );
    bench.put("k", "v");
    assert_eq!(
        bench
            .call("f", &[])
            .split("\r\n")
            .filter(|l| l.starts_with(char::is_alphabetic))
            .collect::<Vec<_>>(),
        [
            "TypeError",
            "TypeError",
            "true",
            "true",
            "TypeError",
            "TypeError",
            "TypeError",
            "TypeError",
            "TypeError"
        ]
    );
}

#[test]
fn a_call_has_one_clock_and_its_own_randomness() {
    // Date.now() stands still and equals db.now(); Math.random depends on the batch's seed and the
    // call.
    let mut bench = Bench::of(
        "export const clock = (db) => { const a = Date.now(); for (let i = 0; i < 1e6; i++); return [a === Date.now(), a, db.now(), new Date().getTime()]; };\n\
         export const random = () => [Math.random(), Math.random()];\n\
         export const spread = () => { let low = 0, min = 1, max = 0; for (let i = 0; i < 10000; i++) { const r = Math.random(); if (r < 0.5) low++; if (r < min) min = r; if (r > max) max = r; } return low > 4500 && low < 5500 && min >= 0 && max < 1; };",
    );
    let now = crate::common::NOW_MS;
    assert_eq!(bench.call("clock", &[]), format!("*4\r\n:1\r\n:{now}\r\n:{now}\r\n:{now}\r\n"));
    let first = bench.run(&[call("random"), call("random")]);
    assert_ne!(first[0], first[1]);
    assert_eq!(bench.run(&[call("random"), call("random")]), first);
    assert_eq!(bench.call3("spread", &[]), "#t\r\n");
}

#[test]
fn calls_of_many_batches_draw_different_numbers() {
    // A state of 31 bits gave two of a hundred thousand calls the same numbers: ids of which one
    // overwrote the other.
    let mut bench = Bench::of("export const id = () => String(Math.random());");
    let calls = vec![call("id"); 100];
    let mut ids = BTreeSet::new();
    for seed in 0..2000 {
        let turn = RunTurn {
            now_ms: crate::common::NOW_MS,
            random_seed: seed << 20,
            reply_bytes: 1 << 20,
            time: Duration::MAX,
            still: 0,
        };
        bench.runtime.run(bench.tenant, &calls, turn, &mut bench.world, &mut |_, reply| {
            assert!(ids.insert(reply.to_vec()), "{} again", String::from_utf8_lossy(reply));
        });
    }
    assert_eq!(ids.len(), 200_000);
}

#[test]
fn functions_read_while_the_index_grows() {
    // Old table, both tables, new table: every key is found and no other, between any two steps.
    let mut bench = Bench::with(FunctionLimits { call_ms: 5000, ..patient() });
    bench.add(
        "t",
        "export function all(db, [n]) { let found = 0; for (let i = 0; i < Number(n); i++) { if (db.text(i) === 'v' + i) found++; if (db.text('key-number-' + i) === 'w' + i) found++; if (db.exists('no' + i)) throw new Error(i); } return found; }",
    );
    let put = |bench: &mut Bench, n: usize| {
        bench.put(&n.to_string(), format!("v{n}"));
        bench.put(&format!("key-number-{n}"), format!("w{n}"));
    };
    let mut count = 0;
    for _ in 0..4 {
        for _ in 0..20 {
            put(&mut bench, count);
            count += 1;
        }
        let number = count.to_string();
        let expected = format!(":{}\r\n", count * 2);
        assert_eq!(bench.call("all", &[&number]), expected);
        bench.world.arenas[0].grow();
        assert_eq!(bench.call("all", &[&number]), expected);
        while !bench.world.arenas[0].move_some(3) {
            assert_eq!(bench.call("all", &[&number]), expected);
        }
        bench.world.arenas[0].finish_growth();
        assert_eq!(bench.call("all", &[&number]), expected);
    }
}

#[test]
fn every_kind_of_value_is_read_in_place() {
    // All cursor methods over small values, values in a run, and an empty one; copies are copies.
    let mut bench = Bench::of(
        "export function f(db, [k]) { const r = db.get(k); const n = r.byteLength; const c = r.bytes(); c[0] = 99;\n\
           return [n, r.u8(n - 1), r.u16(1), r.u32(1), r.i32(1), r.f32(1), r.f64(1), c.length, r.u8(0), r.text().length]; }\n\
         export const empty = (db) => [db.get('empty').byteLength, db.text('empty'), db.get('empty').bytes().length];\n\
         export const json = (db) => db.json('json').a[1];\n\
         export const nokey = (db) => db.text('');",
    );
    let mut value = vec![1u8; 4];
    value.extend((-5i32).to_le_bytes());
    value.extend(2.5f64.to_le_bytes());
    let expected = |n: usize| {
        let f32_at_1 = f32::from_le_bytes((-5i32).to_le_bytes());
        assert!(f32_at_1.is_nan());
        format!(
            "*10\r\n:{n}\r\n:{}\r\n:257\r\n:4294967291\r\n:-5\r\n,nan\r\n,2.5\r\n:{n}\r\n:1\r\n",
            if n == 16 { 64 } else { 0 }
        )
    };
    bench.put("small", &value);
    value.resize(200_000, 0);
    bench.put("run", &value);
    bench.put("empty", "");
    bench.put("", "empty key");
    bench.put("json", "{\"a\": [1, \"two\"]}");
    assert!(
        bench.call3("f", &["small"]).starts_with(&expected(16)),
        "{}",
        bench.call3("f", &["small"])
    );
    assert!(bench.call3("f", &["run"]).starts_with(&expected(200_000)));
    assert_eq!(bench.call("empty", &[]), "*3\r\n:0\r\n$0\r\n\r\n:0\r\n");
    assert_eq!(bench.call("json", &[]), "$3\r\ntwo\r\n");
    assert_eq!(bench.call("nokey", &[]), "$9\r\nempty key\r\n");
}
