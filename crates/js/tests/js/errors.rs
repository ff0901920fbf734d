//! Every error: of loading, of calling, of misuse; and what ends up in the log.

use crate::common::{Bench, call};
use nigh_js::{Level, LoadError};

fn refusal(bench: &mut Bench, source: &str) -> String {
    bench.runtime.load(bench.tenant, source.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_broken_module_is_refused_with_its_place() {
    // Library, line and column are named; nothing is installed.
    let mut bench = Bench::new();
    let cases = [
        (
            "#!js name=m\nexport function f( {",
            "ERR Error compiling library 'm': SyntaxError: ",
            "(line 2, column",
        ),
        (
            "#!js name=m\nimport x from 'fs';\nexport const f = () => 1;",
            "it imports 'fs'",
            "(line 2, column",
        ),
        (
            "#!js name=m\nexport const f = () => 1;\nthrow new Error('top');",
            "Error: top",
            "(line 3, column 7)",
        ),
        (
            "#!js name=m\nexport const f = () => 1;\nnull.x;",
            "TypeError: Cannot read properties of null",
            "(line 3, column",
        ),
        (
            "#!js name=m\nexport const f = () => 1;\nawait new Promise(() => {});",
            "waits for a promise",
            "",
        ),
        (
            "#!js name=m\nexport const f = () => 1; f.flags = ['fast'];",
            "flags of function 'f': unknown flag 'fast'",
            "",
        ),
        (
            "#!js name=m\nexport const f = () => 1; f.flags = 'no-writes';",
            "an array of strings is wanted",
            "",
        ),
        ("#!js name=m\nexport const x = 1;", "ERR No functions registered", ""),
        ("#!js name=m\nexport const f = eval('1');", "eval is not defined", ""),
        ("#!js name=m\nimport('fs'); export const f = () => import('fs');", "", ""),
        ("export const f = () => 1;", "ERR Missing library metadata", ""),
    ];
    for (source, text, place) in cases {
        if text.is_empty() {
            continue;
        }
        let error = refusal(&mut bench, source);
        assert!(error.contains(text) && error.contains(place), "{source}: {error}");
        assert!(!error.contains('\n') && !error.contains('\r'), "{error}");
    }
    assert_eq!(bench.call("f", &[]), "-ERR Function not found\r\n");
}

#[test]
fn bad_bytes_and_long_sources_are_refused() {
    // Before V8 sees them.
    let mut bench = Bench::new();
    let source = b"#!js name=m\nexport const f = '\xff';";
    let error = bench.runtime.load(bench.tenant, source).unwrap_err();
    assert_eq!(error.to_string(), "ERR library 'm': the source is not UTF-8 at byte 30");
    let long = format!("#!js name=m\nexport const f = () => 1;{}", " ".repeat(4 << 20));
    let error = refusal(&mut bench, &long);
    assert!(error.contains("(setting: function-source-limit-bytes)"), "{error}");
}

#[test]
fn a_name_belongs_to_one_library() {
    // Replacing the same library is fine; its old functions are gone.
    let mut bench = Bench::of("export const f = () => 1; export const g = () => 1;");
    assert_eq!(
        bench.try_add("other", "export const f = () => 2;"),
        Err(LoadError::FunctionExists { function: "f".into() })
    );
    assert_eq!(bench.call("f", &[]), ":1\r\n");
    bench.add("t", "export const f = () => 3;");
    assert_eq!(bench.call("f", &[]), ":3\r\n");
    assert_eq!(bench.call("g", &[]), "-ERR Function not found\r\n");
    bench.add("other", "export const g = () => 4;");
    assert_eq!(bench.call("g", &[]), ":4\r\n");
    assert!(bench.runtime.remove(bench.tenant, "t"));
    assert!(!bench.runtime.remove(bench.tenant, "t"));
    assert_eq!(bench.call("f", &[]), "-ERR Function not found\r\n");
    assert_eq!(bench.call("g", &[]), ":4\r\n");
    bench.runtime.remove_all(bench.tenant);
    assert_eq!(bench.call("g", &[]), "-ERR Function not found\r\n");
}

#[test]
fn a_library_tells_what_it_has() {
    // Names, flags and descriptions, as FUNCTION LIST wants them.
    let mut bench = Bench::new();
    let library = bench.add(
        "m",
        "/** Reads. */\nexport function read(db) {}\nread.flags = ['durable', 'no-writes', 'allow-cross-slot-keys'];\n\
         export const limit = 3;\nexport async function later() {}\nfunction inner() {}\nexport { inner as outer };",
    );
    let names: Vec<&str> = library.functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["later", "outer", "read"]);
    let read = &library.functions[2];
    assert_eq!(read.flags().collect::<Vec<_>>(), ["no-writes", "allow-cross-slot-keys", "durable"]);
    assert_eq!(read.description.as_deref(), Some("Reads."));
}

#[test]
fn a_thrown_error_is_one_line_with_its_place() {
    // Message, code, function, line and column in the reply; the stack in the log.
    let mut bench = Bench::of(
        "export function plain() { throw new Error('went\\r\\nwrong'); }\n\
         export function coded() { throw new Error('NOTFOUND no such user'); }\n\
         function walk(x) { return x.y.z; }\nexport function nested() { return walk({}); }\n\
         export const text = () => { throw 'just text'; };\n\
         export const nothing = () => { throw undefined; };\n\
         export const object = () => { throw { a: 1 }; };\n\
         export const trap = () => { throw { get message() { throw 1; } }; };\n\
         export const deep = () => { const f = () => f() + 1; return f(); };\n\
         export const long = () => { throw new Error('x'.repeat(1e6)); };\n\
         export const lib = (db) => { const key = {}; return db.get(key); };",
    );
    assert_eq!(
        bench.call("plain", &[]),
        "-ERR went  wrong (function plain, line 2, column 33)\r\n"
    );
    assert!(bench.call("coded", &[]).starts_with("-NOTFOUND no such user (function coded, line 3"));
    assert!(bench.call("nested", &[]).ends_with("(function walk, line 4, column 31)\r\n"));
    assert_eq!(bench.call("text", &[]), "-ERR just text (function text)\r\n");
    assert_eq!(bench.call("nothing", &[]), "-ERR undefined (function nothing)\r\n");
    assert!(bench.call("object", &[]).starts_with("-ERR the function threw an object"));
    assert!(bench.call("trap", &[]).contains("cannot be described"));
    assert!(bench.call("deep", &[]).starts_with("-ERR Maximum call stack size exceeded"));
    assert!(bench.call("long", &[]).len() < 4200);
    let reply = bench.call("lib", &[]);
    assert!(
        reply.starts_with(
            "-ERR a key is a string, a safe integer or bytes, not an object (function lib, line 12"
        ),
        "{reply}"
    );
    let (level, library, function, text) = &bench.world.log[2];
    assert_eq!((*level, library.as_str(), function.as_str()), (Level::Warn, "t", "nested"));
    assert!(text.contains("at walk (t:4:31)") && text.contains("at nested (t:5:"), "{text}");
}

#[test]
fn a_message_never_stands_in_for_the_place() {
    // A stack begins with the error's message. A long one left no room for the frames, so the
    // reply had no place. One with the stack of another error, as wrapping makes it, had that
    // one's place.
    let mut bench = Bench::of(
        "export const long = (db, [n]) => { throw new Error('LONG ' + 'x'.repeat(n)); };\n\
         const parse = () => JSON.parse('{');\n\
         export function wrap() {\n\
           try { parse(); } catch (e) {\n\
             throw new Error('WRAPPED ' + e.stack);\n\
           }\n\
         }\n\
         export const invented = () => {\n\
           throw { message: 'a', stack: 'b\\n    at other (t:99:1)' };\n\
         };\n\
         export const changed = () => { const e = new Error('old'); e.message = 'at'; throw e; };",
    );
    for length in ["10", "2030", "4100", "100000"] {
        let reply = bench.call("long", &[length]);
        assert!(reply.starts_with("-LONG xxx"), "{reply}");
        assert!(reply.ends_with("x (function long, line 2, column 42)\r\n"), "{length}: {reply}");
        assert!(reply.len() < 4200, "{}", reply.len());
        let text = bench.world.log.pop().expect("the stack is logged").3;
        assert!(text.starts_with("Error: LONG xxx"), "{text}");
        assert!(text.ends_with("\n    at long (t:2:42)"), "{text}");
        bench.now_ms += 1_000; // stacks are logged once a second
    }
    let reply = bench.call("wrap", &[]);
    assert!(reply.starts_with("-WRAPPED SyntaxError: "), "{reply}");
    assert!(reply.ends_with(" (function wrap, line 6, column 7)\r\n"), "{reply}");
    // A library's own stack is believed: it tells about itself only.
    assert_eq!(bench.call("invented", &[]), "-ERR a (function other, line 99, column 1)\r\n");
    assert_eq!(bench.call("changed", &[]), "-ERR at (function changed, line 12, column 42)\r\n");
    let error = refusal(
        &mut bench,
        "#!js name=m\nexport const f = () => 1;\n\
         try { null.x; } catch (e) {\n  throw new Error('WRAPPED ' + e.stack); }",
    );
    assert!(error.ends_with(" (line 4, column 9)"), "{error}");
}

#[test]
fn an_expiry_that_never_ends_is_refused_as_such() {
    // `db.ttl` answers Infinity, which a function may pass on. It was told that ms is a number.
    let mut bench = Bench::of(
        "export const copy = (db, [from, to]) => { db.set(to, 1); db.expire(to, db.ttl(from)); };\n\
         export const far = (db, [k]) => db.expire(k, 9.1e15);",
    );
    bench.put("a", "1");
    for (function, place) in [("copy", "line 2, column 61"), ("far", "line 3, column 36")] {
        assert_eq!(
            bench.call(function, &["a", "b"]),
            format!(
                "-ERR db.expire(key, ms): ms is a finite number, of at most 9e15 (db.set clears an \
                 expiry) (function {function}, {place})\r\n"
            )
        );
    }
    assert_eq!(bench.world.commits, 0);
}

#[test]
fn misuse_of_keys_and_records_throws() {
    // Wrong types and indexes outside of a value are errors, never other memory.
    let mut bench = Bench::of(
        "const t = (f) => { try { f(); return 'no'; } catch (e) { return e.constructor.name; } };\n\
         export const keys = (db) => [{}, null, undefined, true, 1.5, NaN, 2 ** 53, Symbol(), []].map((k) => t(() => db.get(k)));\n\
         export const long = (db) => [t(() => db.get('x'.repeat(65536))), t(() => db.get('x'.repeat(65535)))];\n\
         export function index(db) {\n\
           const r = db.get('v'); const bad = [-1, 16, 1.5, '0', NaN, undefined, 2 ** 32, {}];\n\
           return bad.map((i) => t(() => r.u8(i))).concat([r.u16, r.u32, r.i32, r.f32, r.f64].map((f, n) => t(() => f.call(r, [8, 4, 4, 4, 2][n]))));\n\
         }\n\
         export const detached = (db) => { const { get } = db; return [t(() => get('v')), t(() => db.get('v').u8.call({}, 0))]; };\n\
         export const values = (db) => [undefined, null, {}, [], () => 1, Symbol(), true].map((v) => t(() => db.set('k', v)));",
    );
    bench.put("v", [1u8; 16]);
    let all = |name: &str, reply: String| {
        let names = reply.split("\r\n").filter(|line| line.ends_with("Error") || *line == "no");
        names.map(|n| if n == name { '.' } else { 'X' }).collect::<String>()
    };
    assert_eq!(all("TypeError", bench.call("keys", &[])), ".........");
    let reply = bench.call("long", &[]);
    assert!(reply.contains("RangeError") && reply.contains("no"), "{reply}");
    assert_eq!(all("RangeError", bench.call("index", &[])), "...X.X.X.....");
    assert_eq!(all("TypeError", bench.call("detached", &[])), "..");
    assert_eq!(all("TypeError", bench.call("values", &[])), ".......");
    assert_eq!(bench.world.commits, 0);
}

#[test]
fn what_is_kept_after_its_call_throws() {
    // db and Records of an ended call, in module variables, promises and the next call.
    let mut bench = Bench::of(
        "let keptDb, keptRecord;\n\
         export const keep = (db) => { keptDb = db; keptRecord = db.get('v'); return keptRecord.u8(0); };\n\
         export const useDb = (db, [m]) => keptDb[m]('v', 1);\n\
         export const useRecord = (db, [m]) => m === 'byteLength' ? keptRecord.byteLength : keptRecord[m](0);\n\
         export const send = () => keptRecord;\n\
         export const write = (db) => db.set('x', keptRecord);",
    );
    bench.put("v", [7u8; 16]);
    assert_eq!(bench.call("keep", &[]), ":7\r\n");
    for method in
        ["get", "text", "json", "set", "delete", "exists", "incr", "expire", "ttl", "scan", "now"]
    {
        let reply = bench.call("useDb", &[method]);
        assert!(
            reply.starts_with("-ERR this db belongs to a call that has ended"),
            "{method}: {reply}"
        );
    }
    for method in ["byteLength", "u8", "u16", "u32", "i32", "f32", "f64", "text", "json", "bytes"] {
        let reply = bench.call("useRecord", &[method]);
        assert!(
            reply.starts_with("-ERR this record belongs to a call that has ended"),
            "{method}: {reply}"
        );
    }
    assert!(bench.call("send", &[]).starts_with("-ERR this record belongs"));
    assert!(bench.call("write", &[]).starts_with("-ERR this record belongs"));
}

#[test]
fn console_goes_to_the_log() {
    // With level, library and function; bounded in lines and length.
    let mut bench = Bench::of(
        "console.log('loaded');\n\
         export function f() { console.log('a', 1, { b: 2 }, [3]); console.warn('w'); console.error(new Error('e').message); console.debug(Symbol('s')); console.info(null); }\n\
         export function flood() { for (let i = 0; i < 1000; i++) console.log('x'.repeat(1e5)); }",
    );
    bench.call("f", &[]);
    let line = |level, text: &str| (level, "t".to_owned(), "f".to_owned(), text.to_owned());
    assert_eq!(
        bench.world.log,
        [
            line(Level::Info, "a 1 {\"b\":2} [3]"),
            line(Level::Warn, "w"),
            line(Level::Error, "e"),
            line(Level::Debug, "Symbol(s)"),
            line(Level::Info, "null"),
        ]
    );
    bench.world.log.clear();
    bench.now_ms += 1_000;
    bench.call("flood", &[]);
    assert_eq!(bench.world.log.len(), 100);
    assert!(bench.world.log.iter().all(|(.., text)| text.len() <= 8192));
    // Further calls of this second log nothing; afterwards one line says how much that was.
    bench.call("f", &[]);
    bench.call("flood", &[]);
    assert_eq!(bench.world.log.len(), 100);
    bench.world.log.clear();
    bench.now_ms += 1_000;
    bench.call("f", &[]);
    assert_eq!(bench.world.log.len(), 6);
    let dropped = "105 more lines of the console were dropped";
    assert_eq!(bench.world.log[0], (Level::Warn, "t".into(), String::new(), dropped.into()));
}

#[test]
fn stacks_are_logged_once_a_second() {
    // Throwing is normal control flow: it must not fill the log. The number of the others is told.
    let mut bench = Bench::of(
        "export function sold() { throw new Error('SOLDOUT none left'); }\n\
         export function misuse(db) { db.get({}); }",
    );
    for _ in 0..50 {
        assert!(bench.call("sold", &[]).starts_with("-SOLDOUT none left"));
    }
    assert_eq!(bench.world.log.len(), 1);
    assert!(bench.world.log[0].3.contains("at sold (t:2:"), "{:?}", bench.world.log);
    bench.now_ms += 1_000;
    bench.world.log.clear();
    bench.call("misuse", &[]);
    let texts: Vec<&str> = bench.world.log.iter().map(|line| line.3.as_str()).collect();
    assert_eq!(texts[0], "49 more errors were thrown, whose stacks are not logged");
    assert_eq!(bench.world.log[0].2, "sold");
    assert!(texts[1].contains("at misuse (t:3:") && !texts[1].contains("prelude"), "{texts:?}");
    assert_eq!(texts.len(), 2);
}

#[test]
fn places_in_a_load_error_are_the_librarys() {
    // The prelude's lines are in no file that the author has.
    let mut bench = Bench::new();
    let flag = "#!js name=m\nexport const f = () => 1; f.flags = ['no-write'];";
    assert_eq!(
        refusal(&mut bench, flag),
        "ERR Error compiling library 'm': TypeError: flags of function 'f': unknown flag 'no-write' \
         (known: no-writes, allow-cross-slot-keys, durable)"
    );
    let inside = "#!js name=m\nexport const f = () => 1;\n[2, 1].sort(3);";
    let error = refusal(&mut bench, inside);
    assert!(error.contains("(line 3, column 8)"), "{error}");
    // Reading the stack runs a getter of the library: within the time limit.
    let endless = "#!js name=m\nconst e = new Error('x');\n\
                   Object.defineProperty(e, 'stack', { get() { for (;;); } });\nthrow e;";
    let error = refusal(&mut bench, endless);
    assert!(error.contains("function-load-limit-ms"), "{error}");
    bench.add("t", "export const f = () => 1;");
    assert_eq!(bench.call("f", &[]), ":1\r\n");
}

#[test]
fn async_functions_are_awaited_within_their_call() {
    // Microtasks run to their end; what is still pending then is an error; rejections are thrown.
    let mut bench = Bench::of(
        "export async function good(db) { await null; db.set('k', 1); await 0; return db.text('k'); }\n\
         export async function bad() { await null; throw new Error('GONE late'); }\n\
         export const never = () => new Promise(() => {});\n\
         export const side = (db) => { Promise.resolve().then(() => db.set('side', 1)); return 'now'; };\n\
         let leaked = 0;\n\
         export const leak = (db) => { Promise.resolve().then(() => { leaked++; }); throw new Error('x'); };\n\
         export const count = () => leaked;\n\
         let p; export const keep = () => { p = Promise.resolve(5); }; export const old = () => p;",
    );
    assert_eq!(bench.call("good", &[]), "$1\r\n1\r\n");
    assert_eq!(bench.world.arenas[0].text("k").as_deref(), Some("1"));
    assert!(bench.call("bad", &[]).starts_with("-GONE late (function bad, line 3, column"));
    assert!(bench.call("never", &[]).contains("a promise that is still pending"));
    assert_eq!(bench.call("side", &[]), "$3\r\nnow\r\n");
    assert_eq!(bench.world.arenas[0].text("side").as_deref(), Some("1"));
    bench.call("leak", &[]);
    assert_eq!(bench.call("count", &[]), ":1\r\n");
    let replies = bench.run(&[call("keep"), call("old")]);
    assert_eq!(replies[1], ":5\r\n");
}
