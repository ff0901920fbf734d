//! Loading a library: the time it may take.

use std::fmt::Write;
use std::time::Duration;

use crate::common::{Bench, patient};
use nigh_js::FunctionLimits;

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
    // Compiling shared the limit of calls: 3.9 MB of plain source were refused as running longer
    // than 50 ms.
    let mut bench = Bench::new();
    let library = bench.add("t", &plain(3_900_000));
    assert_eq!(library.functions.len(), 999);
    assert!(library.functions.iter().all(|f| f.description.as_deref() == Some("Adds.")));
    assert_eq!(bench.call("f7", &["nothing"]), "$-1\r\n");
}

#[test]
fn a_library_that_takes_too_long_is_told_the_limit_of_loading() {
    // The limit of calls says nothing about loading, nor the other way round.
    let mut bench = Bench::with(FunctionLimits { call_ms: 60_000, load_ms: 20, ..patient() });
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
    // It started well once, and never ends when its context is made anew. Each call after a second
    // would try it again, for the whole limit: with one of 2 s, the shard did nothing else.
    let mut bench = Bench::with(FunctionLimits { call_ms: 300, load_ms: 500, ..patient() });
    bench.add("a", "globalThis.spoilt = true; export const fa = () => 'a';");
    bench.add("b", "if (globalThis.spoilt) for (;;); export const fb = () => 1;");
    assert!(bench.call("fb", &[]).contains("function-load-limit-ms"));
    let tries = bench.runtime.stats().timeouts;
    std::thread::sleep(Duration::from_millis(1100));
    assert!(bench.call("fb", &[]).contains("function-load-limit-ms"));
    assert_eq!(bench.call("fa", &[]), "$1\r\na\r\n");
    assert_eq!(bench.runtime.stats().timeouts, tries);
}

#[test]
fn a_library_is_not_refused_for_what_dropped_contexts_hold() {
    // One array takes most of the heap. The context that had it before is dropped, but V8 stopped
    // the next start for want of heap before it had collected that one: each other load was
    // refused, and calls behind a stopped one. A call may take longer than a start here: none has
    // to rest.
    let limits =
        FunctionLimits { heap_bytes: 64 << 20, call_ms: 5_000, load_ms: 60_000, ..patient() };
    let mut bench = Bench::with(limits);
    let body = "const all = new Array(5e6).fill(1); export const f = () => all.length;\n\
                export const spin = () => { for (;;); };";
    for round in 0..2 {
        bench.runtime.remove_all(bench.tenant);
        let loaded = bench.try_add("t", body);
        assert!(loaded.is_ok(), "round {round}: {}", loaded.unwrap_err());
        assert_eq!(bench.call("f", &[]), ":5000000\r\n", "round {round}");
    }
    for round in 0..2 {
        bench.add("t", body);
        let stopped = bench.call("spin", &[]);
        assert!(stopped.contains("function-time-limit-ms"), "round {round}: {stopped}");
        assert_eq!(bench.call("f", &[]), ":5000000\r\n", "round {round}");
    }
}

/// So many names in 800 scopes: V8 looks for each of them in each scope, and for a stop nowhere.
fn names_in_scopes(names: usize) -> String {
    let (open, close) = ("{ let v; ".repeat(800), "}".repeat(800));
    format!("{open}{}{close}", "u;".repeat(names))
}

/// Set in a process that is to end: the test that it runs.
const STUCK: &str = "NIGH_TEST_STUCK";

/// The stderr of this test program when it runs `test`, in which something gets stuck.
fn said(test: &str, stuck: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    let output = command.args(["--exact", "--nocapture", test]).env(STUCK, stuck).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_ends_the_process_since_it_cannot_be_stopped_is_named() {
    // No fiber waits for the call, so the watchdog ends the process after the grace period. Once,
    // its line had no name for a library that started.
    let limits = FunctionLimits { call_ms: 10, load_ms: 60_000, grace_ms: 50, ..patient() };
    let slow = names_in_scopes(200_000);
    match std::env::var(STUCK).as_deref() {
        Ok("function") => {
            let mut bench = Bench::with(limits);
            bench.add("slow", &format!("export function late() {{ {slow} }}"));
            bench.call("late", &[]);
        }
        Ok(_) => {
            let mut bench = Bench::with(FunctionLimits { load_ms: 10, ..limits });
            let _ = bench.try_add("slow", &format!("export function late() {{ {slow} }}"));
        }
        Err(_) => {
            let test = "loading::what_ends_the_process_since_it_cannot_be_stopped_is_named";
            let function = said(test, "function");
            let line = "nigh: function 'late' of library 'slow' did not stop within 50 ms";
            assert!(function.contains(line), "{function}");
            let library = said(test, "library");
            let line = "nigh: library 'slow', which was being started, did not stop within 50 ms";
            assert!(library.contains(line), "{library}");
        }
    }
}
