//! Loading a library: the time it may take.

mod common;

use std::fmt::Write;
use std::time::Duration;

use common::Bench;
use nigh_js::Limits;

/// A library of many plain functions, of about so many bytes.
fn plain(bytes: usize) -> String {
    let mut body = String::with_capacity(bytes + 256);
    let mut number = 0;
    while body.len() < bytes {
        let exported = if number < 999 { "export " } else { "" };
        writeln!(
            body,
            "/** Adds. */\n{exported}function f{number}(db, [a, b]) {{ const x = db.get(a); \
             if (x === undefined) return null; let y = 0; \
             for (let i = 0; i < 10; i++) y += x.u8(i) * {number}; return y + b; }}"
        )
        .unwrap();
        number += 1;
    }
    body
}

#[test]
fn a_large_plain_library_loads() {
    // Compiling shared the limit of calls: 3.9 MB of plain source were refused as running longer than 50 ms.
    let mut bench = Bench::new();
    let library = bench.add("t", &plain(3_900_000));
    assert_eq!(library.functions.len(), 999);
    assert!(library.functions.iter().all(|f| f.description.as_deref() == Some("Adds.")));
    assert_eq!(bench.call("f7", &["nothing"]), "$-1\r\n");
}

#[test]
fn a_library_that_takes_too_long_is_told_the_limit_of_loading() {
    // The limit of calls says nothing about loading, nor the other way round.
    let mut bench = Bench::with(Limits { call_ms: 60_000, load_ms: 20, ..Limits::default() });
    let error = bench.try_add("t", "for (;;); export const f = () => 1;").unwrap_err().to_string();
    assert_eq!(
        error,
        "ERR Error compiling library 't': compiling it and running its top level took longer than 20 ms \
         (setting: function-load-limit-ms)"
    );
    bench.add("t", "export const f = () => { let n = 0; while (n < 1e8) n++; return n; };");
    assert_eq!(bench.call("f", &[]), ":100000000\r\n");
}

#[test]
fn a_library_that_had_to_be_stopped_is_not_tried_each_second() {
    // It started well once, and never ends when its context is made anew. Each call after a second would try it
    // again, for the whole limit: with one of 2 s, the shard did nothing else.
    let mut bench = Bench::with(Limits { call_ms: 20, load_ms: 100, ..Limits::default() });
    bench.add("a", "globalThis.spoilt = true; export const fa = () => 'a';");
    bench.add("b", "if (globalThis.spoilt) for (;;); export const fb = () => 1;");
    assert!(bench.call("fb", &[]).contains("function-load-limit-ms"));
    let tries = bench.runtime.stats().timeouts;
    std::thread::sleep(Duration::from_millis(1100));
    assert!(bench.call("fb", &[]).contains("function-load-limit-ms"));
    assert_eq!(bench.call("fa", &[]), "$1\r\na\r\n");
    assert_eq!(bench.runtime.stats().timeouts, tries);
}
