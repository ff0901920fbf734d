//! The garbage of calls comes back while calls go on.

use crate::common::{Bench, patient};
use nigh_js::FunctionLimits;

#[test]
fn contexts_of_stopped_calls_are_given_back_while_calls_go_on() {
    // Each stop costs the context. A shard that is never idle has a moment for V8 at each tick
    // only.
    const STOPS: usize = 400;
    let mut bench = Bench::with(FunctionLimits { call_ms: 1, grace_ms: 20_000, ..patient() });
    bench.add("t", "export const spin = () => { for (;;); }; export const fine = () => 1;");
    let mut most = 0;
    for _ in 0..STOPS {
        assert!(bench.call("spin", &[]).contains("function-time-limit-ms"));
        bench.runtime.catch_up();
        most = most.max(bench.runtime.stats().dropped_contexts);
    }
    assert!(most < STOPS / 2, "{most} contexts of {STOPS} waited to be given back");
}

#[test]
fn contexts_of_stopped_calls_are_given_back_when_nobody_calls_any_more() {
    // Once, a server kept 280 MiB after an attack, while it was left alone: V8 by itself collects
    // only when code allocates.
    const STOPS: usize = 40;
    let mut bench = Bench::with(FunctionLimits { call_ms: 1, grace_ms: 20_000, ..patient() });
    bench.add("t", "export const spin = () => { for (;;); };");
    for _ in 0..STOPS {
        assert!(bench.call("spin", &[]).contains("function-time-limit-ms"));
    }
    let dropped = bench.runtime.stats().dropped_contexts;
    assert!(dropped > 0, "nothing was left to collect");
    // 30 s at most.
    for _ in 0..6000 {
        bench.runtime.catch_up();
        if bench.runtime.stats().dropped_contexts == 0 {
            return;
        }
        // Threads of V8 mark meanwhile.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{} contexts stay", bench.runtime.stats().dropped_contexts);
}

#[test]
fn bytes_are_refused_only_if_what_is_in_use_leaves_no_room() {
    // 3 MiB in each call, of 8 that there are. From the third call on only garbage is in the way.
    let limits = FunctionLimits { array_buffer_bytes: 8 << 20, call_ms: 10_000, ..patient() };
    let mut bench = Bench::with(limits);
    bench.add(
        "t",
        "let kept;
         export const once = (db) => db.get('large').bytes()[7];
         export const often = (db) => { let sum = 0; for (let i = 0; i < 20; i++) sum += db.get('large').bytes()[i]; return sum; };
         export const whole = (db) => db.get('large').bytes();
         export const keep = (db) => { kept = db.get('large').bytes(); return 1; };
         export const both = (db) => [kept.length, db.get('large').bytes().length, db.get('large').bytes().length];
         export const free = () => { kept = undefined; return 1; };",
    );
    bench.put("large", vec![7; 3 << 20]);
    for round in 0..20 {
        assert_eq!(bench.call("once", &[]), ":7\r\n", "round {round}");
    }
    assert_eq!(bench.call("often", &[]), ":140\r\n");
    let whole = format!("${}\r\n{}\r\n", 3 << 20, "\u{7}".repeat(3 << 20));
    for round in 0..5 {
        assert!(bench.call("whole", &[]) == whole, "round {round}");
    }
    // Buffers in use count: with 6 MiB of 8 kept, there is no room for 3 more.
    assert_eq!(bench.call("keep", &[]), ":1\r\n");
    let two = "export const two = (db) => { const a = db.get('large').bytes(), b = db.get('large').bytes(); return a.length + b.length; };";
    bench.add("u", two);
    let refused = bench.call("two", &[]);
    assert!(refused.contains("Array buffer allocation failed"), "{refused}");
    assert_eq!(bench.call("free", &[]), ":1\r\n");
    assert_eq!(bench.call("two", &[]), format!(":{}\r\n", 6 << 20));
}
