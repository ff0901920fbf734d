//! The builtins that the prelude replaces: each stops when its call's time is up, and each does
//! what the standard says. The vectors were made by a stock engine (see `vectors/make.mjs`).

use crate::common::{Bench, patient};
use nigh_js::FunctionLimits;

const SUPPORT: &str = include_str!("../vectors/support.js");
const VECTORS: &str = include_str!("../vectors/builtins.txt");

/// Steps that take seconds or for ever in V8: how to prepare `x` (not timed), and the step.
const ENDLESS: &[(&str, &str)] = &[
    // Arrays: a huge length without elements.
    ("({length: 2 ** 53 - 1})", "Array.prototype.includes.call(x, 1)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.indexOf.call(x, 1)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.lastIndexOf.call(x, 1)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.forEach.call(x, isNaN)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.filter.call(x, isNaN)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.some.call(x, isNaN)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.every.call(x, isNaN)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.find.call(x, Number.isNaN)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.findLastIndex.call(x, Number.isNaN)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.reduce.call(x, Math.max)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.reduceRight.call(x, Math.max, 0)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.flat.call(x)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.flatMap.call(x, isNaN)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.reverse.call(x)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.shift.call(x)"),
    ("({length: 2 ** 53 - 2})", "Array.prototype.unshift.call(x, 1)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.splice.call(x, 0, 1)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.copyWithin.call(x, 0, 1)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.fill.call(x, 0)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.sort.call(x)"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.join.call(x, '')"),
    ("new Array(2 ** 32 - 1)", "x.map(isNaN)"),
    ("new Array(2 ** 32 - 1)", "x.slice(5)"),
    ("new Array(2 ** 32 - 1)", "x.indexOf(1)"),
    ("new Array(2 ** 32 - 1)", "x.fill(0)"),
    ("new Array(2 ** 28)", "x.toLocaleString()"),
    ("Array.from({length: 3e6}, (_, i) => i * 7919 % 10007)", "for (;;) x.sort(Math.max)"),
    ("Array.from({length: 3e6}, (_, i) => i * 7919 % 10007)", "for (;;) x.join()"),
    ("({length: 2 ** 32 - 2})", "Array.from(x)"),
    ("({length: 2 ** 53 - 1})", "Array.from(Array.prototype.keys.call(x))"),
    ("({length: 2 ** 53 - 1})", "new Set(Array.prototype.values.call(x))"),
    ("({length: 2 ** 53 - 1})", "Promise.all(Array.prototype.values.call(x))"),
    ("new Array(2 ** 31)", "Promise.allSettled(x)"),
    ("({raw: {length: 2 ** 53 - 1}})", "String.raw(x)"),
    ("new Array(2 ** 32 - 1)", "JSON.stringify({a: 1}, x)"),
    ("({length: 100000, get 99999() { for (;;); }})", "Math.max.apply(null, x)"),
    // Text: pathological or long.
    ("pathological(2 ** 24, 2 ** 13)", "x.text.indexOf(x.word)"),
    ("pathological(2 ** 24, 2 ** 13)", "x.text.includes(x.word)"),
    ("pathological(2 ** 24, 2 ** 13)", "x.text.lastIndexOf(x.word)"),
    ("pathological(2 ** 24, 2 ** 13)", "x.text.split(x.word)"),
    ("pathological(2 ** 24, 2 ** 13)", "x.text.replace(x.word, '')"),
    ("pathological(2 ** 24, 2 ** 13)", "x.text.replaceAll(x.word, '')"),
    ("flat('a', 2 ** 25)", "for (;;) x.split('')"),
    ("flat('a', 2 ** 25)", "for (;;) x.replaceAll('a', 'bb')"),
    ("flat('a', 2 ** 25)", "for (;;) x.match(/a/g)"),
    ("flat('a', 2 ** 25)", "for (;;) x.replace(/a/g, isNaN)"),
    ("flat('a', 2 ** 25)", "for (;;) x.split(/a/)"),
    ("flat('A\\u030a\\u0316', 2 ** 22)", "for (;;) x.normalize('NFC')"),
    ("flat('\\u0101', 2 ** 24)", "for (;;) x.toUpperCase()"),
    ("flat('\\u0101\\u03a3 ', 2 ** 22)", "for (;;) x.toLowerCase()"),
    ("flat('\\u0101', 2 ** 24)", "for (;;) encodeURIComponent(x)"),
    ("flat('%41', 2 ** 23)", "for (;;) decodeURIComponent(x)"),
    ("flat('[', 2 ** 22)", "for (;;) JSON.parse(x + ']'.repeat(2 ** 22))"),
    ("flat('[{},1,\"a\"],', 2 ** 20)", "for (;;) JSON.parse('[' + x + '1]')"),
    ("`\"${flat('\\\\n', 2 ** 23)}\"`", "for (;;) JSON.parse(x)"),
    // Typed arrays.
    ("new Uint8Array(2 ** 25).map((_, i) => i * 7)", "for (;;) x.sort()"),
    ("new Float64Array(2 ** 22).map((_, i) => i * 7919 % 10007)", "for (;;) x.sort()"),
    (
        "new Float64Array(2 ** 22).map((_, i) => i * 7919 % 10007)",
        "x.sort(Math.max); for (;;) x.sort(Math.max)",
    ),
    ("new Uint8Array(2 ** 25)", "for (;;) x.join()"),
    ("new Uint8Array(2 ** 25)", "for (;;) x.toLocaleString()"),
    (
        "new Uint8Array(2 ** 27)",
        "x.reduce(Math.max); x.reduceRight(Math.max); for (;;) x.reduce(Math.max)",
    ),
    ("new Uint8Array(2 ** 27)", "x.set({length: 2 ** 27})"),
    ("({length: 2 ** 27})", "Uint8Array.from(x)"),
    ("new Float64Array(2 ** 24)", "for (let i = 0;; i++) x.fill(i)"),
    ("new Float64Array(2 ** 24)", "for (;;) x.indexOf(1)"),
    ("new Float64Array(2 ** 24)", "for (;;) x.includes(1)"),
    ("new Float64Array(2 ** 24)", "for (;;) x.lastIndexOf(1)"),
    ("new Float64Array(2 ** 24)", "for (;;) x.reverse()"),
    ("new Float64Array(2 ** 24)", "for (;;) x.copyWithin(1, 0)"),
    ("new Float64Array(2 ** 23)", "for (;;) x.slice()"),
    ("[new Uint8Array(2 ** 24), new Float64Array(2 ** 24)]", "for (;;) x[0].set(x[1])"),
    ("new Float64Array(2 ** 24)", "for (;;) x.every(Number.isFinite)"),
    ("new ArrayBuffer(2 ** 26)", "for (;;) x.slice()"),
    // Lists made of others.
    ("({length: 2 ** 32 - 2, [Symbol.isConcatSpreadable]: true})", "[].concat(x)"),
    (
        "Object.assign(new Uint8Array(2 ** 27), {[Symbol.isConcatSpreadable]: true})",
        "for (;;) [].concat(x)",
    ),
    ("Array.from({length: 2e5}, (_, i) => ['k' + i, i])", "for (;;) Object.fromEntries(x)"),
    ("flat('\\u0101', 2 ** 24)", "for (;;) AggregateError(x)"),
    ("flat('ab', 2 ** 23)", "for (;;) Array.prototype.map.call(x, isNaN)"),
    // Syntax, in a loop that has run before but isn't optimized: it looks for a stop each 2,112
    // bytes.
    (
        "(() => {
           const spread = (o, count) => { let n; for (let i = 0; i < count; i++) n = {...o}; return n; };
           spread([], 300);
           return () => spread(new Uint8Array(2 ** 15), 1e9);
         })()",
        "x()",
    ),
    // Regular expressions, called by their symbols.
    ("flat('a', 2 ** 24)", "for (;;) /a/g[Symbol.replace](x, 'bb')"),
    ("flat('a', 2 ** 24)", "for (;;) /a/g[Symbol.split](x)"),
    ("flat('a', 2 ** 24)", "for (;;) /a/g[Symbol.match](x)"),
];

/// Steps that must end with an error of their own, not take long or end the process.
const REFUSED: &[(&str, &str, &str)] = &[
    ("'a'.repeat(2 ** 28)", "Object.keys(x)", "RangeError"),
    ("'a'.repeat(2 ** 28)", "Object.assign({}, x)", "RangeError"),
    ("Object('a'.repeat(2 ** 28))", "Object.keys(x)", "RangeError"),
    ("new Uint8Array(2 ** 25)", "Object.entries(x)", "RangeError"),
    ("new Uint8Array(2 ** 25)", "JSON.stringify(x)", "RangeError"),
    ("({length: 2 ** 53 - 1})", "Math.max.apply(null, x)", "RangeError"),
    ("({length: 2 ** 53 - 1})", "Reflect.apply(Math.max, null, x)", "RangeError"),
    ("({length: 2 ** 53 - 1})", "Reflect.construct(Array, x)", "RangeError"),
    ("({length: 2 ** 53 - 1})", "(5).toLocaleString(x)", "RangeError"),
    ("({length: 2 ** 53 - 1})", "'a'.localeCompare('b', x)", "RangeError"),
    ("flat('a', 2 ** 22)", "x.localeCompare(x + 'b')", "RangeError"),
    ("'A' + flat('\\u0316\\u030a', 2 ** 18)", "x.normalize('NFC')", "RangeError"),
    ("new Array(2 ** 32 - 1)", "x.join()", "RangeError"),
    ("({length: 2 ** 53 - 1})", "Array.prototype.push.call(x, 1)", "TypeError"),
    // Keys of all that has many.
    ("new Array(1e6).fill(1)", "Object.entries(x)", "RangeError"),
    ("new Array(1e6).fill(1)", "Reflect.ownKeys(x)", "RangeError"),
    ("new Array(1e6).fill(1)", "Object.assign({}, x)", "RangeError"),
    ("new Uint8Array(2 ** 25)", "Object.keys(new Proxy(new Proxy(x, {}), {}))", "RangeError"),
    ("new Uint8Array(2 ** 25)", "Object.defineProperties({}, x)", "RangeError"),
    ("new Uint8Array(2 ** 25)", "Object.create({}, x)", "RangeError"),
    ("new Uint8Array(2 ** 25)", "JSON.stringify({data: [x]})", "RangeError"),
    // V8 ends the process where so many elements become a table.
    ("new Array(23e6).fill(1)", "Object.defineProperty(x, 0, {get() {}})", "RangeError"),
    (
        "new Array(23e6).fill(1)",
        "Object.defineProperty(x, 'length', {value: 2 ** 32 - 1})",
        "RangeError",
    ),
    ("new Array(23e6).fill(1)", "Reflect.defineProperty(x, {toString: () => 7}, {})", "RangeError"),
    ("new Array(23e6).fill(1)", "Object.defineProperties(x, {7: {}})", "RangeError"),
    ("new Array(23e6).fill(1)", "x.__defineGetter__(0, isNaN)", "RangeError"),
    ("new Array(23e6).fill(1)", "x.__defineSetter__(0, isNaN)", "RangeError"),
    ("new Array(23e6).fill(1)", "Object.freeze(new Proxy(x, {}))", "RangeError"),
    ("new Array(23e6).fill(1)", "Object.defineProperty(new Proxy(x, {}), 0, {})", "RangeError"),
    // Long patterns on long texts, long texts as patterns, numbers and locales.
    ("word(2 ** 24, 2 ** 14)", "x.word.test(x.text)", "RangeError"),
    ("word(2 ** 24, 2 ** 14)", "x.text.search(x.word)", "RangeError"),
    ("word(2 ** 24, 2 ** 14)", "x.text.matchAll(x.word).next()", "RangeError"),
    ("flat('a', 2 ** 24)", "'a'.match(x)", "RangeError"),
    ("flat('a', 2 ** 24)", "'a'.matchAll(x)", "RangeError"),
    ("flat('a', 2 ** 24)", "'a'.search(x)", "RangeError"),
    ("flat('a', 2 ** 24)", "/a/.compile(x)", "RangeError"),
    ("flat('1', 2 ** 24)", "parseInt(x)", "RangeError"),
    ("flat('1', 2 ** 24)", "Number.parseFloat(x)", "RangeError"),
    ("flat('(', 2 ** 24)", "Date.parse(x)", "RangeError"),
    ("flat('a', 2 ** 24)", "'a'.localeCompare('b', x)", "RangeError"),
    ("flat('a', 2 ** 24)", "(5).toLocaleString(x)", "RangeError"),
    ("flat('\"', 2 ** 24)", "''.anchor(x)", "RangeError"),
];

const HELPERS: &str = "
    const flat = (unit, count) => { const s = unit.repeat(count); s.charCodeAt(7); return s; };
    const pathological = (length, word) => {
      const half = 'a'.repeat(word / 2);
      return { text: flat('a', length), word: flat(half + 'b' + half, 1) };
    };
    const word = (length, word) => (
      { text: flat('a', length), word: new RegExp('abcdefgh' + 'a'.repeat(word), 'g') });
    let x;
";

fn library(cases: impl Iterator<Item = (&'static str, &'static str)>) -> String {
    let rows: String = cases
        .map(|(prepare, action)| format!("[() => {prepare}, () => {{ {action} }}],\n"))
        .collect();
    format!(
        "{HELPERS} const cases = [{rows}];
         export function prepare(db, [n]) {{ x = undefined; x = cases[n][0](); return 1; }}
         export function act(db, [n]) {{ cases[n][1](); return 'came to an end'; }}
         export function error(db, [n]) {{ try {{ cases[n][1](); }} catch (e) {{ return e.name; }} }}"
    )
}

fn limits(call_ms: u64) -> FunctionLimits {
    FunctionLimits { call_ms, grace_ms: 20_000, ..patient() }
}

#[test]
fn what_v8_cannot_interrupt_is_stopped_in_time() {
    // A call that would take for ever gets the error of the time limit, and the next call runs. A
    // builtin that is not interruptible does not come back within the grace period, which aborts
    // this test.
    let mut bench = Bench::with(limits(60_000));
    bench.add("t", &library(ENDLESS.iter().copied()));
    for (n, (prepare, action)) in ENDLESS.iter().enumerate() {
        let n = n.to_string();
        bench.runtime.set_limits(limits(60_000));
        assert_eq!(bench.call("prepare", &[&n]), ":1\r\n", "{prepare}");
        bench.runtime.set_limits(limits(20));
        let reply = bench.call("act", &[&n]);
        // On a quick machine the pieces of a text may fill the heap first.
        let limits = ["function-time-limit-ms", "function-heap-limit-bytes"];
        let is_stopped = limits.iter().any(|limit| reply.contains(limit));
        assert!(is_stopped, "{prepare}: {action}: {reply}");
    }
}

#[test]
fn what_has_no_interruptible_form_is_refused() {
    // Better an error that says so than an engine that aborts or hangs.
    let mut bench = Bench::with(limits(10_000));
    bench.add("t", &library(REFUSED.iter().map(|&(prepare, action, _)| (prepare, action))));
    for (n, (prepare, action, error)) in REFUSED.iter().enumerate() {
        let n = n.to_string();
        assert_eq!(bench.call("prepare", &[&n]), ":1\r\n", "{prepare}");
        let reply = bench.call("error", &[&n]);
        assert!(reply.contains(error), "{prepare}: {action}: {reply}");
    }
}

#[test]
fn replaced_builtins_answer_as_a_stock_engine() {
    // Hundreds of random calls: the same results, the same errors, the same steps on proxies.
    let vectors: Vec<(&str, &str)> =
        VECTORS.lines().map(|line| line.split_once('\t').unwrap()).collect();
    assert!(vectors.len() > 700);
    let rows: String =
        vectors.iter().map(|(body, _)| format!("(log) => {{ {body} }},\n")).collect();
    let mut bench = Bench::with(limits(60_000));
    bench.add(
        "t",
        &format!(
            "{SUPPORT} const cases = [{rows}];\nexport const run = (db, [n]) => show(cases[n]);"
        ),
    );
    for (n, (body, expected)) in vectors.iter().enumerate() {
        let reply = bench.call("run", &[&n.to_string()]);
        assert_eq!(reply, format!("${}\r\n{expected}\r\n", expected.len()), "{body}");
    }
}

#[test]
fn replaced_builtins_look_like_native_ones() {
    // Name, length, attributes, no constructors; and nothing of the prelude is left to be seen.
    let mut bench = Bench::of(
        "export function look() {
           const wrong = [];
           const check = (owner, name, length) => {
             const d = Object.getOwnPropertyDescriptor(owner, name);
             const f = d.value;
             let made = true;
             try { Reflect.construct(Object, [], f); } catch { made = false; }
             if (d.enumerable || !d.writable || !d.configurable || f.name !== name ||
                 f.length !== length || 'prototype' in f || made) wrong.push(name);
           };
           check(Array.prototype, 'indexOf', 1);
           check(Array.prototype, 'splice', 2);
           check(Array.prototype, 'reduce', 1);
           check(Array.prototype, 'unshift', 1);
           check(Array, 'from', 1);
           check(String.prototype, 'replaceAll', 2);
           check(String.prototype, 'normalize', 0);
           check(String, 'raw', 1);
           check(JSON, 'parse', 2);
           check(Object, 'assign', 2);
           check(Reflect, 'construct', 2);
           check(Promise, 'all', 1);
           check(Function.prototype, 'apply', 2);
           check(Object, 'defineProperty', 3);
           check(Object, 'freeze', 1);
           check(Object, 'fromEntries', 1);
           check(Array.prototype, 'concat', 1);
           check(RegExp.prototype, 'test', 1);
           check(globalThis, 'parseInt', 2);
           check(Symbol, 'for', 1);
           check(Symbol, 'keyFor', 1);
           check(Object.getPrototypeOf(Int8Array).prototype, 'fill', 1);
           check(Object.getPrototypeOf(Int8Array).prototype, 'every', 1);
           check(ArrayBuffer.prototype, 'slice', 2);
           if (parseInt !== Number.parseInt || parseFloat !== Number.parseFloat) wrong.push('parse');
           class Sub extends AggregateError {}
           const several = new AggregateError([1, 2], 'text', {cause: 3});
           if (!(new Sub('ab') instanceof Sub) || several.errors.length !== 2 || several.cause !== 3 ||
               several.constructor !== AggregateError || AggregateError.length !== 2 ||
               Object.getPrototypeOf(AggregateError) !== Error || `${several}` !== 'AggregateError: text' ||
               !(AggregateError([]) instanceof Error)) wrong.push('AggregateError');
           // V8 is fast only as long as these two are its own.
           if (/a/.constructor !== RegExp || /a/[Symbol.match].name !== '[Symbol.match]') wrong.push('RegExp');
           check(Object.getPrototypeOf(Int8Array).prototype, 'sort', 1);
           if (Proxy.name !== 'Proxy' || Proxy.length !== 2 || 'prototype' in Proxy) wrong.push('Proxy');
           if ('nighBuiltins' in globalThis) wrong.push('nighBuiltins');
           return wrong;
         }",
    );
    assert_eq!(bench.call("look", &[]), "*0\r\n");
}

#[test]
fn a_long_json_string_whose_last_escape_has_no_end_is_refused() {
    // The closing quote is one of the escape's characters. Once, the string was cut there: texts
    // and names of members, of functions and of records.
    let mut bench = Bench::with(limits(60_000));
    bench.add(
        "t",
        r#"const long = 'a'.repeat(140000);
           export const text = (db, [digits]) => JSON.parse(`"${long}\\u${digits}"`).length;
           export const name = (db, [digits]) => Object.keys(JSON.parse(`{"${long}\\u${digits}": 1}`))[0].length;
           export const record = (db) => db.json('k').length;"#,
    );
    for digits in ["", "0", "00", "004", "0041"] {
        bench.put("k", format!("\"{}\\u{digits}\"", "a".repeat(140_000)));
        let replies = [
            bench.call("text", &[digits]),
            bench.call("name", &[digits]),
            bench.call("record", &[]),
        ];
        for reply in replies {
            let is_right = match digits {
                "0041" => reply == ":140001\r\n",
                _ => reply.starts_with("-ERR ") && reply.contains("JSON"),
            };
            assert!(is_right, "{digits}: {reply}");
        }
    }
}

#[test]
fn registered_symbols_are_those_of_their_context() {
    // They do as the standard says, also when user code has replaced what maps do.
    let mut bench = Bench::of(
        "export function look() {
           const wrong = [];
           const is = (what, got, wanted) => { if (got !== wanted) wrong.push(what); };
           const caught = (f) => { try { f(); } catch (error) { return error.constructor; } };
           Map.prototype.get = Map.prototype.set = () => { throw new Error('polluted'); };
           is('same', Symbol.for('a'), Symbol.for('a'));
           is('other', Symbol.for('a') === Symbol.for('b'), false);
           is('own', Symbol.for('a') === Symbol('a'), false);
           is('text', Symbol.for({ toString: () => 'a' }), Symbol.for('a'));
           is('nothing', Symbol.for().toString(), 'Symbol(undefined)');
           is('key', Symbol.keyFor(Symbol.for('a')), 'a');
           is('empty', Symbol.keyFor(Symbol.for('')), '');
           is('none', Symbol.keyFor(Symbol('a')), undefined);
           is('known', Symbol.keyFor(Symbol.iterator), undefined);
           is('bare', Symbol.keyFor(Symbol()), undefined);
           is('symbol', caught(() => Symbol.for(Symbol('a'))), TypeError);
           is('no symbol', caught(() => Symbol.keyFor('a')), TypeError);
           return wrong;
         }",
    );
    assert_eq!(bench.call("look", &[]), "*0\r\n");
}

#[test]
fn long_typed_arrays_answer_as_a_loop_over_their_elements() {
    // Long ones are worked off in pieces. Places around the cuts, overlaps, negative indices: each
    // against what a plain loop makes of it.
    let mut bench = Bench::with(limits(60_000));
    bench.add(
        "t",
        "const N = 2 ** 21 + 4321;
         const make = (Kind = Uint32Array) => {
           const a = new Kind(N);
           for (let i = 0; i < N; i++) a[i] = (i * 7919) & 0xffff;
           return a;
         };
         const wrong = [];
         const same = (a, of, name) => {
           for (let i = 0; i < a.length; i++) if (a[i] !== of(i)) return wrong.push(`${name} at ${i}`);
         };
         const at = (i) => (i * 7919) & 0xffff;
         export function look() {
           same(make().fill(7, -N + 5, -3), (i) => i >= 5 && i < N - 3 ? 7 : at(i), 'fill');
           same(make().fill({valueOf: () => 2 ** 32 + 1}), () => 1, 'fill converts');
           same(new BigInt64Array(N).fill(5n), () => 5n, 'fill of BigInts');
           same(make().reverse(), (i) => at(N - 1 - i), 'reverse');
           same(make().slice(3, -7), (i) => at(i + 3), 'slice');
           if (make().slice(3, -7).length !== N - 10) wrong.push('slice length');
           same(make().copyWithin(5, 0), (i) => i < 5 ? at(i) : at(i - 5), 'copyWithin up');
           same(make().copyWithin(0, 5), (i) => i < N - 5 ? at(i + 5) : at(i), 'copyWithin down');
           const set = new Float64Array(N + 9);
           set.set(make(), 9);
           same(set, (i) => i < 9 ? 0 : at(i - 9), 'set');
           const own = make();
           own.set(own.subarray(0, N - 3), 3);
           same(own, (i) => i < 3 ? at(i) : at(i - 3), 'set in itself');
           const bytes = new Uint8Array(make().buffer.slice(4, -4));
           same(new Uint32Array(bytes.buffer), (i) => at(i + 1), 'buffer');
           const marked = new Float64Array(N);
           for (const i of [0, 2 ** 20 - 1, 2 ** 20, 2 ** 21, N - 1]) {
             marked.fill(0);
             marked[i] = NaN;
             if (!marked.includes(NaN) || marked.indexOf(NaN) !== -1) wrong.push(`NaN at ${i}`);
             if (marked.includes(NaN, i + 1)) wrong.push(`NaN after ${i}`);
             if (marked.includes(4)) wrong.push(`4 beside ${i}`);
             marked[i] = 3;
             if (marked.indexOf(3) !== i || marked.lastIndexOf(3) !== i) wrong.push(`search ${i}`);
             if (marked.indexOf(3, i - N) !== i) wrong.push(`search from ${i}`);
             if (i < N - 1 && marked.indexOf(3, i + 1) !== -1) wrong.push(`search after ${i}`);
             if (i > 0 && marked.lastIndexOf(3, i - 1) !== -1) wrong.push(`search before ${i}`);
             if (marked.findIndex((v) => v === 3) !== i) wrong.push(`find ${i}`);
             if (marked.some(function (v) { return v === 3 && this.y; }, {y: 1}) !== true) wrong.push('some');
           }
           return wrong;
         }",
    );
    assert_eq!(bench.call("look", &[]), "*0\r\n");
}

#[test]
fn named_properties_of_long_arrays_can_be_defined() {
    // Only what moves the elements is refused.
    let mut bench = Bench::of(
        "export function look() {
           const long = new Array(200000).fill(1);
           Object.defineProperty(long, 'total', { get() { return 5; } });
           Object.defineProperty(long, Symbol.iterator, { value: function* () { yield 1; } });
           Object.freeze(long);
           const bytes = new Uint8Array(2 ** 20);
           Object.defineProperty(bytes, 7, { value: 9, writable: true, enumerable: true, configurable: true });
           Object.preventExtensions(bytes);
           return [long.total, [...long].length, Object.isFrozen(long), bytes[7]];
         }",
    );
    assert_eq!(bench.call("look", &[]), "*4\r\n:5\r\n:1\r\n:1\r\n:9\r\n");
}

#[test]
fn replaced_builtins_survive_pollution() {
    // User code overwrites methods, and the prelude's builtins use none of these.
    let mut bench = Bench::with(limits(10_000));
    bench.add(
        "t",
        "const sortView = Object.getPrototypeOf(Int8Array).prototype.sort;
         const evil = () => { throw new Error('polluted'); };
         export function pollute() {
           Object.defineProperty(Array.prototype, 0, { set: evil, get: () => 'polluted', configurable: true });
           for (const owner of [Array.prototype, String.prototype, Object, Reflect, Math, JSON,
                                Object.getPrototypeOf(Int8Array).prototype, RegExp.prototype]) {
             for (const key of ['push', 'slice', 'join', 'indexOf', 'lastIndexOf', 'sort', 'charCodeAt',
                                'defineProperty', 'min', 'max', 'apply', 'construct', 'keys', 'set']) {
               if (typeof owner[key] === 'function') owner[key] = evil;
             }
           }
           Array.prototype[Symbol.iterator] = evil;
           Object.prototype.get = evil;
           return 1;
         }
         export function use() {
           const like = { length: 3, 0: 'b', 1: 'a', 2: 'c' };
           const long = 'ab '.repeat(50000);
           const out = { __proto__: null };
           out.map = Object.entries(Array.prototype.map.call(like, (v) => v + v)).length;
           out.includes = Array.prototype.includes.call(like, 'c');
           out.split = long.split('b').length;
           out.replace = long.replaceAll('ab', '$&$&').length;
           out.parse = JSON.parse('[' + '1,'.repeat(99999) + '1]').length;
           out.upper = long.toUpperCase().length;
           out.view = sortView.call(new Float64Array(200000).fill(1)).length;
           out.from = Array.from({ length: 4 }).length;
           return Object.values(out).map ? [out.map, out.includes, out.split, out.replace, out.parse,
             out.upper, out.view, out.from].length : 0;
         }",
    );
    assert_eq!(bench.call("pollute", &[]), ":1\r\n");
    let reply = bench.call("use", &[]);
    assert!(!reply.contains("polluted"), "{reply}");
    assert_eq!(reply, ":8\r\n");
}
