//! The server tries a new source in a process of its own. If the source ends V8 there, or takes too
//! long, the client gets an error reply.

use crate::support::{MAXMEMORY, Server, folder};
use nigh_client::Frame;
use std::time::{Duration, Instant};

const FINE: &str = "#!js name=fine\nexport const fine = () => 1;";

fn server(folder: &tempfile::TempDir, flags: &[&str]) -> Server {
    Server::start_with(folder.path(), &[&["--maxmemory", MAXMEMORY], flags].concat())
}

fn load(server: &Server, source: &str) -> Frame {
    server.call(&["FUNCTION", "LOAD", "REPLACE", source])
}

fn error(frame: &Frame) -> String {
    String::from_utf8_lossy(frame.error().unwrap_or_default()).into_owned()
}

/// Classes within methods, nested this deep. V8's parser checks its stack for most constructs that
/// nest, but not for these.
fn nested_classes(depth: usize) -> String {
    let (open, close) = ("class A { f() { ".repeat(depth), "} }".repeat(depth));
    format!("#!js name=deep\n{open}{close}\nexport const deep = () => 1;")
}

/// This many names in 800 scopes. V8 looks for each name in each scope, and never for a stop.
fn names_in_scopes(names: usize) -> String {
    let mut source = "#!js name=wide\nexport function wide() {".to_owned();
    source += &"{ let v; ".repeat(800);
    (0..names).for_each(|name| source += &format!("u{name};"));
    source + &"}".repeat(801)
}

/// Each of these sources once ended the server. Now other clients are served, and the next library
/// loads.
#[test]
fn what_ends_v8_is_an_error_reply() {
    let folder = folder();
    let server = server(&folder, &["--shards", "2"]);
    server.call(&["SET", "key", "value"]);
    for depth in [8_000, 100_000] {
        let refused = error(&load(&server, &nested_classes(depth)));
        assert!(
            refused.starts_with("ERR Error compiling library 'deep': it ended the process"),
            "{refused}"
        );
        assert!(refused.contains("nested too deeply"), "{refused}");
    }
    assert_eq!(server.call(&["GET", "key"]).bytes(), Some(&b"value"[..]));
    assert_eq!(load(&server, FINE).bytes(), Some(&b"fine"[..]));
    assert_eq!(server.call(&["FCALL", "fine", "0"]).integer(), Some(1));
    let said = server.said();
    assert!(
        said.contains("a source that was to be loaded ended the process that tried it"),
        "{said}"
    );
    assert!(said.contains("library=\"deep\""), "{said}");
}

/// V8 can't be stopped while it parses. The shard once served no client for seconds.
#[test]
fn what_compiles_too_long_is_told_the_limit() {
    let folder = folder();
    let server = server(&folder, &["--function-load-limit-ms", "100", "--shards", "1"]);
    let refused = error(&load(&server, &names_in_scopes(500_000)));
    assert_eq!(
        refused,
        "ERR Error compiling library 'wide': compiling it and running its top level took longer than 100 ms \
         (setting: function-load-limit-ms)"
    );
    assert_eq!(load(&server, FINE).bytes(), Some(&b"fine"[..]));
}

/// The shard serves other clients while a source is tried. Here its top level takes a minute.
#[test]
fn others_are_served_while_a_source_is_tried() {
    let folder = folder();
    let server = server(&folder, &["--function-load-limit-ms", "60000", "--shards", "1"]);
    let mut loading = server.connect();
    let endless = "#!js name=endless\nfor (;;);\nexport const f = () => 1;";
    loading.send([&b"FUNCTION"[..], b"LOAD", endless.as_bytes()]).expect("the server is up");
    loading.flush().expect("the server is up");
    for _ in 0..3 {
        assert_eq!(server.call(&["SET", "key", "value"]).bytes(), Some(&b"OK"[..]));
        assert_eq!(server.call(&["GET", "key"]).bytes(), Some(&b"value"[..]));
    }
    // The server ends although a check is under way.
    server.call(&["CONFIG", "SET", "function-load-limit-ms", "60000"]);
    let _ = server.connect().call(["SHUTDOWN"]);
    server.ended();
}

/// Clients send sources that take long, and go. What they have sent has a bound: one more is
/// refused at once. It waited for all of them, however many there were.
#[test]
fn sources_beyond_those_that_wait_are_refused() {
    const MOST: usize = 16; // as `WAITING_MAX` of the server
    let folder = folder();
    // The process that tries sources lives for as long, and ten seconds, behind its server's end.
    let server = server(&folder, &["--function-load-limit-ms", "30000", "--shards", "2"]);
    for number in 0..MOST {
        let endless = format!("#!js name=endless{number}\nfor (;;);\nexport const f = () => 1;");
        let mut gone = server.connect();
        gone.send([&b"FUNCTION"[..], b"LOAD", endless.as_bytes()]).expect("the server is up");
        gone.flush().expect("the server is up");
    }
    let asking = || {
        let list = server.call(&["CLIENT", "LIST"]);
        let list = String::from_utf8_lossy(list.bytes().unwrap_or_default()).into_owned();
        list.matches("cmd=function|load").count()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while asking() < MOST && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    for _ in 0..3 {
        let refused = error(&load(&server, FINE));
        assert_eq!(refused, "ERR too many sources wait to be tried: try again");
    }
    assert_eq!(server.call(&["SET", "key", "value"]).bytes(), Some(&b"OK"[..]));
}

/// A refusal in the other process reads as one in the shard, with its line. The pipeline's next
/// commands are answered after it.
#[test]
fn refusals_and_order_are_as_without_it() {
    let folder = folder();
    let server = server(&folder, &["--shards", "2"]);
    let wrong = "#!js name=wrong\nexport const f = () => {";
    let expected = "ERR Error compiling library 'wrong': SyntaxError: Unexpected end of input (line 2, column 25)";
    assert_eq!(error(&load(&server, wrong)), expected);
    assert_eq!(error(&load(&server, "export")), "ERR Missing library metadata");
    let commands: [&[&str]; 4] =
        [&["PING"], &["FUNCTION", "LOAD", FINE], &["FCALL", "fine", "0"], &["ECHO", "last"]];
    for _ in 0..8 {
        let replies = server.connect().pipeline(commands).expect("the server is up");
        assert_eq!(replies[1].bytes(), Some(&b"fine"[..]), "{replies:?}");
        assert_eq!(replies[2].integer(), Some(1), "{replies:?}");
        assert_eq!(replies[3].bytes(), Some(&b"last"[..]), "{replies:?}");
        server.call(&["FUNCTION", "DELETE", "fine"]);
    }
}

/// In a transaction and in FUNCTION RESTORE the shard waits for the check. The bounds are the same.
#[test]
fn transactions_and_restored_libraries_are_tried_too() {
    let folder = folder();
    let server = server(&folder, &["--shards", "1"]);
    let deep = nested_classes(8_000);
    let commands: [&[&str]; 4] =
        [&["MULTI"], &["FUNCTION", "LOAD", FINE], &["FUNCTION", "LOAD", &deep], &["EXEC"]];
    let replies = server.connect().pipeline(commands).expect("the server is up");
    let done = replies[3].elements().expect("it was executed");
    assert_eq!(done[0].bytes(), Some(&b"fine"[..]));
    assert!(error(&done[1]).contains("nested too deeply"), "{done:?}");
    let dump = server.call(&["FUNCTION", "DUMP"]);
    server.call(&["FUNCTION", "FLUSH"]);
    let dump = dump.bytes().expect("a payload").to_vec();
    let restored = server.connect().call([&b"FUNCTION"[..], b"RESTORE", &dump]);
    assert_eq!(restored.expect("the server is up").bytes(), Some(&b"OK"[..]));
    assert_eq!(server.call(&["FCALL", "fine", "0"]).integer(), Some(1));
}

/// V8 drops the code of a function that wasn't called for some collections, and compiles it again
/// at the next call. That call may come near the end of a function's stack. So a shard has more
/// stack than the process that tried the source: with as much, it overflowed here.
#[test]
fn what_passes_is_compiled_at_the_end_of_a_functions_stack_too() {
    let folder = folder();
    let flags = ["--function-stack-bytes", "6mb", "--shards", "1"];
    let server = server(&folder, &[&flags[..], &["--function-time-limit-ms", "60000"]].concat());
    let depth = 4_500;
    let (open, close) = ("class A { f() { ".repeat(depth), "} }".repeat(depth));
    let source = format!(
        "#!js name=deep\nfunction last() {{ {open}{close} return 1; }}\n\
         const go = () => {{ try {{ return go(); }} catch {{ return last(); }} }};\n\
         export const soon = () => last();\n\
         export const deep = () => go();\n\
         export const collect = () => {{\n\
           let all = []; for (let i = 0; i < 2e6; i++) all.push({{ i }}); return all.length; }};"
    );
    assert_eq!(load(&server, &source).bytes(), Some(&b"deep"[..]));
    assert_eq!(server.call(&["FCALL", "soon", "0"]).integer(), Some(1));
    for _ in 0..8 {
        assert_eq!(server.call(&["FCALL", "collect", "0"]).integer(), Some(2_000_000));
    }
    assert_eq!(server.call(&["FCALL", "deep", "0"]).integer(), Some(1));
}

/// V8 prints what nobody catches, such as what a job of a promise throws whose capability throws as
/// well; and what it thinks of asm.js. A function wrote to the server's stdout without a bound, and
/// where nobody read that, its shard stood for ever.
#[test]
fn functions_print_nothing_by_themselves() {
    const PRINTS: &str = r#"#!js name=prints
        export const job = () => {
            const p = Promise.resolve();
            p.constructor = { [Symbol.species]: function (executor) {
                const bad = () => { throw 'printed'.repeat(1e4); };
                executor(bad, bad);
            } };
            p.then(() => 1);
            return 1;
        };
        function module(stdlib) { "use asm"; return 1; }
        export const asm = () => module({});"#;
    let folder = folder();
    let server = server(&folder, &[]);
    assert_eq!(load(&server, PRINTS).bytes(), Some(&b"prints"[..]));
    for function in ["job", "asm"] {
        assert_eq!(server.call(&["FCALL", function, "0"]).integer(), Some(1));
    }
    let said = server.said();
    assert!(!said.contains("printed") && !said.contains("asm"), "{said}");
}
