//! Every type of result in both protocols, and results that cannot be.

use crate::common::{Bench, patient};
use nigh_js::{Call, FunctionLimits};

/// Expression, RESP2, RESP3.
const RESULTS: &[(&str, &str, &str)] = &[
    ("undefined", "$-1\r\n", "_\r\n"),
    ("null", "$-1\r\n", "_\r\n"),
    ("true", ":1\r\n", "#t\r\n"),
    ("false", ":0\r\n", "#f\r\n"),
    ("0", ":0\r\n", ":0\r\n"),
    ("-0", ":0\r\n", ":0\r\n"),
    ("7", ":7\r\n", ":7\r\n"),
    ("-7", ":-7\r\n", ":-7\r\n"),
    ("2147483647", ":2147483647\r\n", ":2147483647\r\n"),
    ("-2147483648", ":-2147483648\r\n", ":-2147483648\r\n"),
    ("9007199254740991", ":9007199254740991\r\n", ":9007199254740991\r\n"),
    ("1.5", "$3\r\n1.5\r\n", ",1.5\r\n"),
    ("1e300", "$6\r\n1e+300\r\n", ",1e+300\r\n"),
    ("Infinity", "$3\r\ninf\r\n", ",inf\r\n"),
    ("-Infinity", "$4\r\n-inf\r\n", ",-inf\r\n"),
    ("NaN", "$3\r\nnan\r\n", ",nan\r\n"),
    ("12345678901234567890n", "$20\r\n12345678901234567890\r\n", "(12345678901234567890\r\n"),
    ("''", "$0\r\n\r\n", "$0\r\n\r\n"),
    ("'abc'", "$3\r\nabc\r\n", "$3\r\nabc\r\n"),
    ("'h\\u00e9'", "$3\r\nhé\r\n", "$3\r\nhé\r\n"),
    ("'\\u20ac\\u{1f600}'", "$7\r\n€😀\r\n", "$7\r\n€😀\r\n"),
    ("'123456789\\u00e9'", "$11\r\n123456789é\r\n", "$11\r\n123456789é\r\n"),
    ("'\\ud800'", "$3\r\n\u{fffd}\r\n", "$3\r\n\u{fffd}\r\n"),
    ("new Uint8Array([65, 66])", "$2\r\nAB\r\n", "$2\r\nAB\r\n"),
    ("new Uint8Array([65, 66, 67]).subarray(1)", "$2\r\nBC\r\n", "$2\r\nBC\r\n"),
    ("new Uint16Array([0x4241])", "$2\r\nAB\r\n", "$2\r\nAB\r\n"),
    ("new DataView(new ArrayBuffer(0))", "$0\r\n\r\n", "$0\r\n\r\n"),
    ("new Uint8Array([65]).buffer", "$1\r\nA\r\n", "$1\r\nA\r\n"),
    ("[]", "*0\r\n", "*0\r\n"),
    (
        "[1, 'a', [null]]",
        "*3\r\n:1\r\n$1\r\na\r\n*1\r\n$-1\r\n",
        "*3\r\n:1\r\n$1\r\na\r\n*1\r\n_\r\n",
    ),
    ("[ , 1]", "*2\r\n$-1\r\n:1\r\n", "*2\r\n_\r\n:1\r\n"),
    (
        "({a: 1, b: true})",
        "*4\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n:1\r\n",
        "%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n#t\r\n",
    ),
    ("({})", "*0\r\n", "%0\r\n"),
    ("Object.create(null)", "*0\r\n", "%0\r\n"),
    ("({a: 1, toJSON() { return 2; }, b: 3}).a", ":1\r\n", ":1\r\n"),
    (
        "new Map([[1, 'x'], ['y', [2]]])",
        "*4\r\n:1\r\n$1\r\nx\r\n$1\r\ny\r\n*1\r\n:2\r\n",
        "%2\r\n:1\r\n$1\r\nx\r\n$1\r\ny\r\n*1\r\n:2\r\n",
    ),
    ("new Set([1, 2])", "*2\r\n:1\r\n:2\r\n", "~2\r\n:1\r\n:2\r\n"),
    ("db.get('k')", "$5\r\nvalue\r\n", "$5\r\nvalue\r\n"),
    ("Promise.resolve(3)", ":3\r\n", ":3\r\n"),
    ("[Promise.resolve(3)]", "*1\r\n:3\r\n", "*1\r\n:3\r\n"),
];

#[test]
fn every_type_of_result_has_its_reply_in_both_protocols() {
    // One function per row of the table, called in RESP2 and RESP3.
    let functions: Vec<String> = RESULTS
        .iter()
        .enumerate()
        .map(|(n, (expression, ..))| format!("export function f{n}(db) {{ return {expression}; }}"))
        .collect();
    let mut bench = Bench::of(&functions.join("\n"));
    bench.put("k", "value");
    for (n, (expression, resp2, resp3)) in RESULTS.iter().enumerate() {
        let name = format!("f{n}");
        assert_eq!(bench.call(&name, &[]), *resp2, "RESP2 of {expression}");
        assert_eq!(bench.call3(&name, &[]), *resp3, "RESP3 of {expression}");
    }
}

#[test]
fn what_has_no_reply_is_an_error_that_says_so() {
    // Functions, symbols, instances of classes, cycles: named, and nothing of the reply is sent.
    let mut bench = Bench::of(
        "class C {}\n\
         export const fn = () => [1, () => 1];\n\
         export const sym = () => Symbol('x');\n\
         export const date = () => new Date(0);\n\
         export const inst = () => new C();\n\
         export const cycle = () => { const a = []; a.push(a); return a; };\n\
         export const shrink = () => { const m = new Map(); m.set(1, { get a() { m.delete(2); return 1; } }); m.set(2, 2); return m; };\n\
         export const grow = () => { const s = new Set(); s.add({ get a() { s.add(3); return 1; } }); return s; };\n\
         export const ok = () => 1;",
    );
    let mut expect = |name: &str, text: &str| {
        let reply = bench.call(name, &[]);
        assert!(reply.starts_with("-ERR ") && reply.contains(text), "{name}: {reply}");
        assert_eq!(bench.call("ok", &[]), ":1\r\n");
    };
    expect("fn", "cannot hold a function");
    expect("sym", "cannot hold a symbol");
    expect("date", "no instance of another class");
    expect("inst", "no instance of another class");
    expect("cycle", "nested deeper than 32 (setting: function-result-depth)");
    expect("shrink", "changed while it was being encoded");
    expect("grow", "changed while it was being encoded");
}

#[test]
fn a_result_has_a_longest_length() {
    // The limit holds for strings, bytes and many small elements alike.
    let limits = FunctionLimits { result_bytes: 1000, ..patient() };
    let mut bench = Bench::with(limits);
    bench.add(
        "t",
        "export const text = (db, [n]) => 'x'.repeat(Number(n));\n\
         export const wide = () => '\\u20ac'.repeat(400);\n\
         export const bytes = () => new Uint8Array(1001);\n\
         export const many = () => new Array(1e9);\n\
         export const deep = () => { let a = []; for (let i = 0; i < 10; i++) a = [a, a]; return a; };",
    );
    assert!(bench.call("text", &["900"]).starts_with("$900\r\nxxx"));
    for (name, args) in [
        ("text", &["1001"] as &[&str]),
        ("wide", &[]),
        ("bytes", &[]),
        ("many", &[]),
        ("deep", &[]),
    ] {
        let reply = bench.call(name, args);
        let text = "longer than 1000 bytes (setting: function-result-limit-bytes)";
        assert!(reply.starts_with("-ERR") && reply.contains(text), "{name}: {reply}");
    }
}

#[test]
fn large_results_come_whole_and_in_order() {
    // More than the response gathers before it is flushed: several entries, no reply lost.
    let mut bench = Bench::of("export const big = (db, [c, n]) => c.repeat(Number(n));");
    let letters = [b"a", b"b", b"c", b"d", b"e", b"f"];
    let size = 5 << 20;
    let number = size.to_string();
    let args: Vec<[&[u8]; 2]> =
        letters.iter().map(|letter| [letter.as_slice(), number.as_bytes()]).collect();
    let calls: Vec<Call<'_>> =
        args.iter().map(|args| Call { function: b"big", args, ..Call::default() }).collect();
    for (reply, letter) in bench.run(&calls).iter().zip(letters) {
        let head = format!("${size}\r\n");
        assert!(reply.starts_with(&head) && reply.len() == head.len() + size + 2);
        assert_eq!(reply.as_bytes()[head.len() + size - 1], letter[0]);
    }
}

#[test]
fn arguments_are_text_or_bytes() {
    // Valid UTF-8 becomes a string, anything else a Uint8Array, in keys and arguments.
    let mut bench = Bench::of(
        "export const kinds = (db, args, keys) => [...args, ...keys].map((a) =>\n\
           typeof a === 'string' ? `text ${a.length}` : `${a.constructor.name} ${a.length}`);",
    );
    let call = Call {
        function: b"kinds",
        args: &[b"", "h\u{e9}".as_bytes(), b"\xff\xfe", b"12345678", b"\xc3"],
        keys: &[b"k", b"\x80"],
        ..Call::default()
    };
    let expected =
        ["text 0", "text 2", "Uint8Array 2", "text 8", "Uint8Array 1", "text 1", "Uint8Array 1"];
    let expected: String = expected.iter().map(|e| format!("${}\r\n{e}\r\n", e.len())).collect();
    assert_eq!(bench.run(&[call]), [format!("*7\r\n{expected}")]);
}

#[test]
fn every_container_counts_as_deep() {
    // One table for all kinds: a result as deep as the limit allows has its reply, one level more
    // is refused. Keys of a Map weren't counted once, so a Map as its own key overflowed the stack.
    let limits = FunctionLimits { result_depth: 5, ..patient() };
    let mut bench = Bench::with(limits);
    let kinds = [
        ("array", "[1, x]", "[x, 1]"),
        ("object", "({a: 1, b: x})", "({a: x})"),
        (
            "bare",
            "(() => { const o = Object.create(null); o.a = x; return o; })()",
            "({__proto__: null, a: x})",
        ),
        ("member", "new Map([[1, x]])", "new Map([['a', 1], ['b', x]])"),
        ("key", "new Map([[x, 1]])", "new Map([['a', 1], [x, 2]])"),
        ("set", "new Set([x])", "new Set([1, x])"),
        ("proxy", "new Proxy([x], {})", "new Proxy([1, x], {})"),
        ("promise", "[Promise.resolve(x)]", "[Promise.resolve(Promise.resolve(x))]"),
        ("mixed", "[new Map([[new Set([({a: x})]), 1]])].slice(0, 1)", "[x]"),
    ];
    let mut source = String::new();
    for (name, first, second) in kinds {
        source += &format!(
            "export const {name} = (db, [n]) => {{ let x = 0;\n\
               for (let i = 0; i < n; i++) x = i % 2 ? {first} : {second}; return x; }};\n"
        );
    }
    bench.add("t", &source);
    let refused = "-ERR the result is nested deeper than 5 (setting: function-result-depth)";
    for (name, ..) in kinds {
        // Of the mixed kind each second level is four.
        let most = if name == "mixed" { 2 } else { 5 };
        for resp3 in [false, true] {
            let call = |bench: &mut Bench, depth: usize| {
                let args = [depth.to_string()];
                let args = [args[0].as_str()];
                if resp3 { bench.call3(name, &args) } else { bench.call(name, &args) }
            };
            let reply = call(&mut bench, most);
            assert!(!reply.starts_with('-'), "{name}: {reply}");
            let reply = call(&mut bench, most + 1);
            assert!(reply.starts_with(refused), "{name}: {reply}");
        }
    }
}

#[test]
fn every_kind_of_result_is_as_long_as_the_limit_says_and_no_longer() {
    // The limit counts the bytes of a whole reply, whatever its values are. With exactly enough
    // room the reply comes; with one byte less it is refused, and the next call is fine.
    let kinds = [
        "'x'.repeat(300)",
        "'\\u20ac'.repeat(100)",
        "'1234567\\u20ac'",
        "new Uint8Array(300)",
        "new Uint8Array(300).buffer",
        "db.get('k')",
        "[1, -2, 3.5, null, undefined, true]",
        "[10n ** 30n, NaN, 2 ** 40]",
        "({abc: 1, d: 'e'})",
        "new Map([[1, 'a'], ['b', 2]])",
        "new Set([1, 2, 'c'])",
        "0",
        "-1",
        "null",
        "false",
        "''",
        "[]",
    ];
    let functions: Vec<String> = kinds
        .iter()
        .enumerate()
        .map(|(n, kind)| format!("export const f{n} = (db) => {kind};"))
        .collect();
    let source = format!("{}\nexport const ok = () => 1;", functions.join("\n"));
    let mut bench = Bench::of(&source);
    bench.put("k", vec![b'v'; 300]);
    for (n, kind) in kinds.iter().enumerate() {
        let name = format!("f{n}");
        for resp3 in [false, true] {
            let run = |bench: &mut Bench, result_bytes: usize| {
                let limits = patient();
                bench.runtime.set_limits(FunctionLimits { result_bytes, ..limits.clone() });
                let call = Call { function: name.as_bytes(), resp3, ..Call::default() };
                let reply = bench.run(&[call]).remove(0);
                bench.runtime.set_limits(limits);
                assert_eq!(bench.call("ok", &[]), ":1\r\n", "{kind}");
                reply
            };
            let whole = run(&mut bench, 4096);
            assert!(!whole.starts_with('-'), "{kind}: {whole}");
            // Short ones are refused a little early: a head has room for any number.
            let length = whole.len();
            assert_eq!(run(&mut bench, length + 16), whole, "{kind}");
            for less in 1..=length {
                let reply = run(&mut bench, length - less);
                let text = format!("longer than {} bytes", length - less);
                assert!(reply.starts_with('-') && reply.contains(&text), "{kind}: {reply}");
            }
        }
    }
}
